# SPDX-License-Identifier: Apache-2.0
"""Arrays on devices within objects: beside the pickle, and allocated where the receiver wants them."""

import pickle
import sys
import types

import numpy as np
import pytest
import thalweg as tw
from thalweg import objects


def random_bytes(length):
    return np.random.default_rng().integers(0, 256, length, np.uint8)


def filled(context, length, place):
    """A Memory of random bytes, and those."""
    memory = tw.Memory.allocate(context, length, place=place)
    payload = random_bytes(length)
    tw.copy(context, memory, payload)
    return memory, payload


def holds(context, buffer, payload):
    """Does a buffer, wherever it is, hold the payload?"""
    seen = np.zeros_like(payload)
    tw.copy(context, seen, buffer)
    return (seen == payload).all()


def carried(context, value, device=None):
    """What a receiver makes of value; every part is moved by a copy."""
    header, rest = objects.encode(value)
    incoming = objects.Incoming(bytearray(header), len(header), context, device)
    for (to, _), part in zip(incoming.parts(), rest, strict=True):
        tw.copy(context, to, part)
    return incoming.load()


class FakeArray:
    """An array of one dimension as CuPy has it, on an emulated device."""

    def __init__(self, memory, dtype):
        self.memory = memory
        self.dtype = np.dtype(dtype)
        self.nbytes = len(memory)
        self.shape = (self.nbytes // self.dtype.itemsize,)
        self.device = FakeDevice(int(memory.place.partition(":")[2]))
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (memory.address, False),
            "stream": None,
            "version": 3,
        }

    def view(self, dtype):
        return FakeArray(self.memory, dtype)

    def reshape(self, shape):
        assert shape in (-1, self.shape)
        return self


class FakeDevice:
    """cupy.cuda.Device, and which one is current."""

    current = 0

    def __init__(self, number):
        self.id = number

    def __enter__(self):
        self.before, FakeDevice.current = FakeDevice.current, self.id

    def __exit__(self, *_):
        FakeDevice.current = self.before


@pytest.fixture
def cupy(context, monkeypatch):
    """The little of CuPy that objects need."""
    module = types.ModuleType("cupy")
    module.uint8 = np.uint8
    module.ndarray = FakeArray
    module.cuda = types.SimpleNamespace(Device=FakeDevice)
    module.ascontiguousarray = lambda array: array
    module.empty = lambda length, dtype: FakeArray(
        tw.Memory.allocate(context, length, place=f"emulated:{FakeDevice.current}"), dtype
    )
    monkeypatch.setattr(FakeArray, "__module__", "cupy")
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.parametrize("place", ["emulated:1", "emulated-vmm:0", "emulated-pool:1", "emulated-managed:1"])
def test_a_memory_arrives_on_the_same_device(context, place):
    memory, payload = filled(context, 5001, place)
    value = carried(context, {"cache": memory, "more": [1, "two"]})
    assert value["more"] == [1, "two"]
    assert value["cache"].place == place and value["cache"].address != memory.address
    assert holds(context, value["cache"], payload)


@pytest.mark.parametrize(
    ("device", "place"),
    [(0, "emulated-vmm:0"), ("emulated:0", "emulated:0"), ("cpu", "host"), (lambda number: 1 - number, "emulated-vmm:0")],
)
def test_the_receiver_chooses_the_device(context, device, place):
    memory, payload = filled(context, 70_001, "emulated-vmm:1")
    host = random_bytes(20_000)
    got, same, small = carried(context, [memory, host, b"small"], device)
    assert got.place == place and holds(context, got, payload)
    assert (same == host).all() and small == b"small"


def test_a_refused_device_takes_what_was_sent_and_raises(context):
    memory, _ = filled(context, 100, "emulated:1")
    with pytest.raises(tw.InvalidError, match="emulated:7"):
        carried(context, [memory, random_bytes(20_000)], 7)


def test_arrays_of_a_framework_stay_arrays(context, cupy):
    memory, payload = filled(context, 8 * 1001, "emulated:1")
    got = carried(context, ("x", FakeArray(memory, "<f8")))[1]
    assert type(got) is FakeArray and got.dtype == np.float64 and got.shape == (1001,)
    assert got.device.id == 1 and got.memory.address != memory.address and holds(context, got, payload)
    assert carried(context, FakeArray(memory, "<f8"), 0).device.id == 0
    on_host = carried(context, FakeArray(memory, "<f8"), "cpu")
    assert on_host.dtype == np.float64 and (on_host.view(np.uint8) == payload).all()


def test_a_memory_is_pickled_by_nothing_else(context):
    memory, _ = filled(context, 100, "emulated")
    with pytest.raises(TypeError, match="send_object"):
        pickle.dumps(memory)
    with tw.Memory.allocate(context, 100) as host, pytest.raises(TypeError, match="on the host"):
        objects.encode(host)


def test_words_that_no_sender_makes(context):
    header, _ = objects.encode(filled(context, 100, "emulated")[0])
    broken = bytearray(header)
    broken[16 + 7] = 0xFF  # the family of arrays
    incoming = objects.Incoming(broken, len(broken), context)
    assert [length for _, length in incoming.parts()] == [100]
    with pytest.raises(tw.ProtocolError):
        incoming.load()
