# SPDX-License-Identifier: Apache-2.0
"""Memory of devices: allocated, described, copied, given to and taken from other packages. On emulated devices."""

import re

import numpy as np
import pytest
import thalweg as tw

PLACES = ["host", "pinned", "emulated:0", "emulated:1", "emulated-vmm:1", "emulated-pool:0", "emulated-managed:1"]
EXTENSION = 12  # DLDeviceType of emulated devices


class CudaArray:
    """What CuPy and Numba show of an array, over memory of an emulated device."""

    def __init__(self, memory, shape, typestr="|u1", strides=None, read_only=False, **more):
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (memory.address if memory is not None else 0, read_only),
            "strides": strides,
            "version": 3,
            **more,
        }


class OnlyDLPack:
    """A tensor on a device of a library without __cuda_array_interface__."""

    def __init__(self, memory, device=EXTENSION):
        self.memory = memory
        self.device = device

    def __dlpack__(self, **options):
        return self.memory.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


def random_bytes(length):
    return np.random.default_rng().integers(0, 256, length, np.uint8)


def bytes_of(context, buffer, length):
    """What lies in a buffer, wherever it is."""
    seen = np.empty(length, np.uint8)
    tw.copy(context, seen, buffer)
    return seen


@pytest.mark.parametrize("place", PLACES)
def test_memory_at_every_place(context, place):
    payload = random_bytes(70_001)
    with tw.Memory.allocate(context, payload.size, place=place) as memory:
        assert memory.place == place and len(memory) == payload.size
        tw.copy(context, memory, payload)
        assert (bytes_of(context, memory, payload.size) == payload).all()


def test_what_a_buffer_is_made_of(context):
    with tw.Memory.allocate(context, 5000, place="emulated-vmm:1") as memory:
        found = tw.memory_query(memory)
        assert found == tw.memory_query(memory.address)
        assert (found["kind"], found["place"], found["device"], found["exportable"]) == ("vmm", memory.place, 1, "descriptor")
        assert not found["host_access"] and found["buffer_id"] != 0 and len(found["uuid"]) == 16
    found = tw.memory_query(bytearray(10))
    assert (found["kind"], found["place"], found["device"], found["base"]) == ("host", "host", None, 0)
    assert found["host_access"]


def test_places_that_are_not_there(context):
    for place, error in (("nowhere", tw.InvalidError), ("emulated:9", tw.InvalidError)):
        with pytest.raises(error, match=re.escape(place)):
            tw.Memory.allocate(context, 1, place=place)


def test_the_host_does_not_touch_a_device(context):
    with tw.Memory.allocate(context, 100, place="emulated") as memory:
        with pytest.raises(BufferError, match=r"emulated:0.*thalweg\.copy"):
            memoryview(memory)
        with pytest.raises(AttributeError, match="not on a CUDA device"):
            _ = memory.__cuda_array_interface__
    with tw.Memory.allocate(context, 100, place="emulated-managed") as memory:
        assert memoryview(memory).nbytes == 100


def test_an_array_of_a_framework_is_a_buffer(context):
    payload = random_bytes(6 * 7 * 4)
    with tw.Memory.allocate(context, payload.size, place="emulated:1") as memory:
        array = CudaArray(memory, (6, 7), "<f4")
        tw.copy(context, array, payload)
        assert (bytes_of(context, array, payload.size) == payload).all()
        assert tw.memory_query(array)["place"] == "emulated:1"
        assert tw.describe(array) == (6 * 7 * 4, [])
        assert tw.describe(CudaArray(memory, (6, 3), "<f4", (28, 8))) == (4, [(3, 8), (6, 28)])
        assert tw.describe(CudaArray(memory, (6, 7), "<f4", (28, 4))) == (6 * 7 * 4, [])


def test_arrays_that_make_no_sense_are_refused(context):
    with tw.Memory.allocate(context, 100, place="emulated") as memory:
        with pytest.raises(tw.InvalidError, match="read-only"):
            tw.copy(context, CudaArray(memory, (100,), read_only=True), bytearray(100))
        with pytest.raises(tw.InvalidError, match="mask"):
            tw.describe(CudaArray(memory, (100,), mask=memory))
        with pytest.raises(tw.InvalidError, match="not data"):
            tw.describe(CudaArray(memory, (100,), "|O8"))
        with pytest.raises(tw.InvalidError, match="strides"):
            tw.describe(CudaArray(memory, (10, 10), strides=(10,)))
        with pytest.raises(tw.OutOfBounds):
            tw.copy(context, CudaArray(memory, (101,)), bytearray(101))
        with pytest.raises(tw.InvalidError, match="one length"):
            tw.copy(context, memory, bytearray(99))
        with pytest.raises(tw.Unsupported, match="contiguous"):
            tw.copy(context, bytearray(50), CudaArray(memory, (50,), strides=(2,)))
        assert tw.describe(CudaArray(None, (0, 3)))[0] in (0, 1)  # nothing to look at


def test_a_device_array_where_no_device_is_known(context):
    host = np.zeros(100, np.uint8)
    fake = CudaArray(None, (100,))
    fake.__cuda_array_interface__["data"] = (host.ctypes.data, False)
    with pytest.raises(tw.Unsupported, match="thalweg info"):
        tw.copy(context, fake, bytearray(100))


def test_dlpack_there_and_back(context):
    payload = random_bytes(777)
    memory = tw.Memory.allocate(context, payload.size, place="emulated-pool:1")
    assert memory.__dlpack_device__() == (EXTENSION, 1)
    tensor = OnlyDLPack(memory)
    tw.copy(context, tensor, payload)
    assert (bytes_of(context, memory, payload.size) == payload).all()
    capsule = memory.__dlpack__()
    with pytest.raises(tw.BusyError):
        memory.release()
    del capsule
    memory.release()
    with pytest.raises(tw.Unsupported, match="type 8"):
        tw.describe(OnlyDLPack(memory, device=8))


def test_host_memory_is_dlpack_too(context):
    with tw.Memory.allocate(context, 100) as memory:
        view = np.from_dlpack(memory)
        view[:] = 7
        assert bytes(memory) == b"\7" * 100
        del view
    with tw.Memory.register(context, b"read only", access="r") as memory:
        assert bytes(np.from_dlpack(memory)) == b"read only"


def test_registering_memory_of_a_device(context):
    owner = tw.Memory.allocate(context, 1000, place="emulated")
    with tw.Memory.register(context, CudaArray(owner, (900,))) as part:
        assert part.place == "emulated:0" and part.address == owner.address
    with tw.Memory.register(context, owner), pytest.raises(tw.BusyError):
        owner.release()
    with pytest.raises(tw.OutOfBounds, match="emulated:0"):
        tw.Memory.register(context, CudaArray(owner, (1001,)))
    with pytest.raises(tw.InvalidError, match="contiguous"):
        tw.Memory.register(context, CudaArray(owner, (100,), strides=(2,)))
    owner.release()
