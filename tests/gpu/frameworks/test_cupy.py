# SPDX-License-Identifier: Apache-2.0
"""CuPy and Numba: arrays as buffers, streams, pools, DLPack, and kernels that include the device headers."""

import pytest

cupy = pytest.importorskip("cupy")
try:
    GPUS = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    pytest.skip("no GPU", allow_module_level=True)

import numpy as np
import thalweg as tw
from peers import connected

HERE, THERE = 0, GPUS - 1


def random_array(shape, device=HERE):
    """Fresh random bytes on a GPU."""
    with cupy.cuda.Device(device):
        return cupy.asarray(np.random.default_rng().integers(0, 256, shape, np.uint8))


def echo(endpoint, pipe, sizes, pool):
    """Sends back, inverted by a kernel in a stream of its own, what it receives."""
    with cupy.cuda.Device(THERE):
        if pool == "stream-ordered":
            cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            warm = ~cupy.zeros(sizes[-1], cupy.uint8)  # loads the kernel: a first launch may wait for the whole device
            stream.synchronize()
            del warm
            for size in sizes:
                array = cupy.empty(size, cupy.uint8)
                received = endpoint.irecv(array, 1)
                received.before(stream)
                sent = endpoint.isend(~array, 2)
                received.wait(20)
                sent.wait(20)


@pytest.mark.parametrize("pool", ["cupy", "stream-ordered"])
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_messages_keep_the_order_of_streams(transport, pool):
    sizes = [1, 5003, 2_000_003]
    with connected(echo, sizes, pool, transport=transport) as (endpoint, _):
        for size in sizes:
            payload = random_array(size)
            cupy.cuda.Device(HERE).synchronize()
            with cupy.cuda.Stream(non_blocking=True) as stream:
                array, back = payload ^ 0x3C, cupy.full(size + 2, 0x77, cupy.uint8)
                seen = cupy.empty_like(back)
                sent = endpoint.isend(array, 1)  # behind the kernel that makes it
                received = endpoint.irecv(back[1:-1], 2)
                received.before(stream)
                seen.data.copy_from_device_async(back.data, size + 2, stream)  # no wait of the host before this
                received.wait(20)
                sent.wait(20)
                seen = seen.get()
            assert (seen[1:-1] == ~(payload.get() ^ 0x3C)).all() and seen[0] == seen[-1] == 0x77


def test_dlpack_and_the_array_interface_both_ways(context, worker, me):
    memory = tw.Memory.allocate(context, 8 * 1001, place=f"cuda:{HERE}")
    view, other = cupy.from_dlpack(memory), cupy.asarray(memory)
    assert view.data.ptr == other.data.ptr == memory.address and view.nbytes == 8 * 1001
    payload = random_array(8 * 1001)
    view[:] = payload
    into = random_array((8 * 1001, 3), THERE)
    before = into.get()
    request = me.isend(memory, 1, after=cupy.cuda.get_current_stream())
    worker.recv(into[:, 1], 1, timeout=20)
    request.wait(20)
    after = into.get()
    assert (after[:, 1] == payload.get()).all() and (after[:, ::2] == before[:, ::2]).all()
    del view, other


def test_numba(context, worker, me):
    cuda = pytest.importorskip("numba.cuda")
    payload = np.random.default_rng().random(12_345)
    array, into = cuda.to_device(payload), cuda.device_array(12_345)
    request = me.isend(array, 1)
    worker.recv(into, 1, timeout=20)
    request.wait(20)
    assert (into.copy_to_host() == payload).all()


SOURCE = r"""
#include <thalweg/device/window.hpp>
using namespace thalweg::device;
constexpr u64 kFlag = 0, kHalo = 128;
// Sends `mine` to the other, turn after turn; adds up what differs from what the other must have sent.
extern "C" __global__ void turns(Window window, float* mine, u64 count, u64 last, u64* wrong) {
  const u32 other = 1 - window.rank;
  for (u64 turn = 1; turn <= last; ++turn) {
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) mine[i] = float(turn * 1000 + window.rank * 100 + i % 97);
    __syncthreads();
    const u64 at = kHalo + turn % 2 * count * sizeof(float);
    if (!put_signal(Block(), window, other, at, mine, count, kFlag, turn)) return;
    if (!wait(Block(), window, kFlag, Compare::greater_equal, turn)) return;
    const float* got = pointer<float>(window, window.rank, at, count);
    u64 bad = 0;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) bad += got[i] != float(turn * 1000 + other * 100 + i % 97);
    atomicAdd(reinterpret_cast<unsigned long long*>(wrong), bad);
    __syncthreads();
    if (threadIdx.x == 0 && turn == last) wrong[1] = turn;
  }
}
"""
COUNT, TURNS = 3001, 500


def run_kernel(endpoint, pipe, rank):
    """One rank of the kernel; (wrong numbers, last turn)."""

    def exchange(mine):
        pipe.send(mine)
        theirs = pipe.recv()
        return [mine, theirs] if rank == 0 else [theirs, mine]

    context, device = endpoint.worker.context, (HERE, THERE)[rank]
    with cupy.cuda.Device(device):
        module = cupy.RawModule(code=SOURCE, options=("--std=c++17", f"-I{tw.get_include()}"))
        kernel, memory = module.get_function("turns"), tw.Memory.allocate(context, 128 + 8 * COUNT, place=f"cuda:{device}")
        cupy.asarray(memory)[:] = 0
        mine, wrong = cupy.zeros(COUNT, cupy.float32), cupy.zeros(2, cupy.uint64)
        cupy.cuda.Device(device).synchronize()
        peers = [endpoint, None] if rank == 1 else [None, endpoint]
        with tw.Window(endpoint.worker, peers, memory, exchange) as window:
            bound = window.bind(f"cuda:{device}")
            exchange(b"bound")
            argument = np.frombuffer(bytes(bound), np.dtype((np.void, len(bytes(bound)))))[0]
            kernel((1,), (256,), (argument, mine, np.uint64(COUNT), np.uint64(TURNS), wrong))
            result = tuple(int(number) for number in wrong.get())
            window.check()
            exchange(b"over")
        return result


def other_rank(endpoint, pipe):
    """Rank 1."""
    pipe.send(run_kernel(endpoint, pipe, 1))


def test_a_raw_kernel_puts_into_the_other_process():
    with connected(other_rank, transport="shm") as (endpoint, pipe):
        assert run_kernel(endpoint, pipe, 0) == (0, TURNS)
        assert pipe.recv() == (0, TURNS)
