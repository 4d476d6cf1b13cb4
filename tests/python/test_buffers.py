# SPDX-License-Identifier: Apache-2.0
"""Buffers of any shape arrive as the same array; what cannot travel is refused before anything moves."""

import array
import ctypes

import numpy as np
import pytest
import thalweg as tw
from hypothesis import given
from hypothesis import strategies as st
from thalweg import _core


def gathered(data):
    """The bytes that describe() names, in its order, read from the array's memory."""
    block, dimensions = tw.describe(data)
    offsets = np.zeros(1, dtype=np.int64)
    for count, stride in dimensions:
        offsets = (np.arange(count, dtype=np.int64)[:, None] * stride + offsets[None, :]).reshape(-1)
    address = data.__array_interface__["data"][0]
    return b"".join(ctypes.string_at(address + int(offset), block) for offset in offsets)


@st.composite
def arrays(draw):
    """A slice of a random array: any order of axes, steps of either sign, at most 5 axes."""
    dimensions = draw(st.integers(1, 5))
    shape = [draw(st.integers(1, 7 if dimensions < 4 else 4)) for _ in range(dimensions)]
    dtype = draw(st.sampled_from(["u1", "<i2", "<f4", "<f8", "<c16"]))
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    whole = np.frombuffer(np.random.default_rng(draw(st.integers(0, 2**32))).bytes(size), dtype)
    whole = whole.reshape(shape, order=draw(st.sampled_from("CF"))).transpose(draw(st.permutations(range(dimensions))))
    index = []
    for extent in whole.shape:
        start, stop = sorted((draw(st.integers(0, extent - 1)), draw(st.integers(1, extent))))
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        index.append(slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start > 0 else None, step))
    return whole[tuple(index)]


@given(arrays())
def test_a_described_array_has_its_own_bytes(data):
    if data.size:
        assert gathered(data) == data.tobytes()


@given(arrays(), arrays())
def test_any_array_arrives_in_any_array(context, source, target):
    worker = tw.Worker(context)
    me = worker.connect(worker.address)
    if source.nbytes == 0 or source.dtype != target.dtype or source.shape != target.shape:
        target = np.zeros((*source.shape, 2), source.dtype)[..., 0]
    else:
        target = target.copy(order="K")[...]
    request = me.isend(source, 1)
    worker.recv(target, 1)
    request.wait()
    assert source.tobytes() == target.tobytes()
    worker.close()


def test_what_lies_between_stays(worker, me):
    whole = np.full((9, 11), 0xEE, np.uint8)
    part = whole[1:8:2, 2:9]
    sent = np.random.default_rng().integers(0, 256, part.shape, np.uint8)
    request = me.isend(sent, 1)
    worker.recv(part, 1)
    request.wait()
    assert (part == sent).all()
    part[...] = 0xEE
    assert (whole == 0xEE).all()


def test_dimensions_are_merged():
    data = np.zeros((4, 5, 6), np.float32)
    assert tw.describe(data) == (4 * 5 * 6 * 4, [])
    assert tw.describe(data[:, 1]) == (24, [(4, 120)])
    assert tw.describe(data[:, :, 0]) == (4, [(20, 24)])
    assert tw.describe(data[::2, ::2, ::2]) == (4, [(3, 8), (3, 48), (2, 240)])
    assert tw.describe(data[2:3, ::-1, :]) == (24, [(5, -24)])


@pytest.mark.parametrize("dimensions", [4, 6, 8])
def test_views_of_up_to_eight_separate_dimensions_travel(context, worker, me, dimensions):
    steps = (slice(None, None, 2), slice(None, None, -2), slice(1, 4, 2))
    whole = np.random.default_rng().integers(0, 256, (4,) * dimensions, np.uint8)
    view = whole[tuple(steps[d % 3] for d in range(dimensions))]
    assert len(tw.describe(view)[1]) == dimensions and gathered(view) == view.tobytes()
    target = np.zeros((5,) * dimensions, np.uint8)[tuple(slice(d % 2, d % 2 + 4, 2) for d in range(dimensions))]
    request = me.isend(view, 1)
    worker.recv(target, 1)
    request.wait()
    assert (target == view).all()

    memory = tw.Memory.allocate(context, view.nbytes)
    remote = tw.RemoteMemory(me, memory.export())
    me.put(view, remote, visible=True)
    target[...] = 0
    me.get(target, remote)
    assert (target == view).all() and bytes(memory) == view.tobytes()
    remote.release()
    memory.release()

    target[...] = 0
    with tw.Plan(context) as plan:
        plan.copy(target, view)
        plan.prepare(20)
        plan.trigger()
        plan.finish(20)
    assert (target == view).all()


def test_more_than_eight_separate_dimensions_are_refused_with_a_remedy(me):
    with pytest.raises(tw.Unsupported, match="more than 8 separate dimensions: copy it"):
        me.isend(np.zeros((4,) * 9, np.uint8)[(slice(None, None, 2),) * 9], 1)


def test_read_only_destinations_are_refused(worker):
    frozen = np.zeros(8, np.uint8)
    frozen.flags.writeable = False
    for target in (b"12345678", frozen, frozen[::2], memoryview(b"1234")):
        with pytest.raises(tw.InvalidError, match="read-only"):
            worker.irecv(target)


def test_overlapping_destinations_are_refused(worker):
    with pytest.raises(tw.ThalwegError):
        worker.irecv(np.broadcast_to(np.zeros(4, np.uint8), (3, 4)))


def test_objects_and_strangers_are_refused(me):
    with pytest.raises(tw.InvalidError, match="send_object"):
        me.send(np.array([object(), None]))
    with pytest.raises(tw.InvalidError, match="DLPack"):
        me.send("text")
    names = np.zeros(2, dtype=[("Object", "<i4")])
    me.isend(names, 5)


class OnlyDLPack:
    """A tensor of a library that has no buffer protocol."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


def test_dlpack(worker, me):
    sent = np.random.default_rng().random((6, 7))
    received = np.zeros((7, 6))
    request = me.isend(OnlyDLPack(sent[:, ::2]), 1)
    worker.recv(OnlyDLPack(received.T[:, :4]), 1)
    request.wait()
    assert (received.T[:, :4] == sent[:, ::2]).all()


@pytest.mark.parametrize(
    "make", [bytearray, memoryview, lambda b: array.array("B", b), lambda b: (ctypes.c_char * len(b)).from_buffer_copy(b)]
)
def test_every_kind_of_buffer(worker, me, make):
    payload = np.random.default_rng().bytes(1001)
    into = bytearray(1001)
    request = me.isend(make(payload), 9)
    assert worker.recv(into, 9).length == 1001
    request.wait()
    assert into == payload


def test_a_layout_of_pieces(worker, me):
    buffer = bytearray(range(64))
    layout = tw.Layout.pieces([(40, 3), (0, 2), (10, 5)])
    assert layout.bytes == 10 and layout.extent == (0, 43)
    got = bytearray(10)
    request = me.isend(buffer, 1, layout=layout)
    worker.recv(got, 1)
    request.wait()
    assert got == bytes([40, 41, 42, 0, 1, 10, 11, 12, 13, 14])
    with pytest.raises(tw.OutOfBounds):
        me.isend(bytearray(42), 1, layout=layout)


def test_subarray_matches_numpy(worker, me):
    data = np.random.default_rng().random((5, 6, 7))
    layout = tw.Layout.subarray(data.shape, (3, 2, 4), (1, 3, 2), 8)
    into = np.zeros((3, 2, 4))
    request = me.isend(data, 1, layout=layout)
    worker.recv(into, 1)
    request.wait()
    assert (into == data[1:4, 3:5, 2:6]).all()


def test_a_block_longer_than_any_buffer_is_refused():
    for length in (2**64 - 1, 2**64 - 4096, 2**63, 2**63 - 1):
        with pytest.raises(MemoryError):
            _core.Block(length)


@pytest.mark.parametrize("bit", ["conj", "neg"])
def test_a_tensor_whose_memory_has_other_values_is_refused(me, bit):
    class Tensor:
        """As PyTorch's: DLPack tells nothing of these bits."""

        def __init__(self, array, **bits):
            self.array, self.bits = array, bits

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def is_conj(self):
            return self.bits.get("conj", False)

        def is_neg(self):
            return self.bits.get("neg", False)

    array = np.arange(4, dtype=np.complex64)
    with pytest.raises(tw.InvalidError, match=f"resolve_{bit}"):
        me.send(Tensor(array, **{bit: True}), 1)
    me.isend(Tensor(array), 1)
    into = np.zeros_like(array)
    me.recv(into, 1)
    np.testing.assert_array_equal(into, array)
