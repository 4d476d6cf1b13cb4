# SPDX-License-Identifier: Apache-2.0
"""Blocks by index through NIXL (UCX backend, host memory): two processes on cores 0 and 1, prepared descriptor lists.

usage: nixl_blocks.py SIZE...    Prints test,size,value,unit: medians of whole transfers, every byte verified.
blocks_bw is what `thalweg perf blocks_bw` measures: 256 MiB (at most 65,536 blocks) in random order, until it is done;
blocks_made includes making the transfer from its indices, as every new choice of blocks needs it.
"""

import os
import random
import socket
import statistics
import struct
import sys
import time

os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
BYTES, MOST, SECONDS = 256 << 20, 65536, 2


def exchange(pipe, mine):
    """Bytes for bytes."""
    pipe.sendall(struct.pack("q", len(mine)) + mine)
    (length,) = struct.unpack("q", pipe.recv(8, socket.MSG_WAITALL))
    return pipe.recv(length, socket.MSG_WAITALL)


def finish(agent, handle, state):
    """Polls, as its users do."""
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    assert state == "DONE", state


def serve(agent, pipe):
    """Keeps the target's agent going until the other side is done."""
    pipe.setblocking(False)
    while True:
        agent.get_new_notifs()
        try:
            if pipe.recv(1):
                break
        except BlockingIOError:
            pass
    pipe.setblocking(True)


def measure(agent, pipe, rank, size):
    """One block size, both sides."""
    import numpy

    count = min(MOST, BYTES // size)
    data = numpy.random.default_rng(size).integers(0, 256, count * size, numpy.uint8)
    pool = data.copy() if rank == 0 else numpy.full(count * size, 0xA5, numpy.uint8)
    registered = agent.register_memory([(pool.ctypes.data, pool.nbytes, 0, "")], "DRAM")
    peer_name = agent.add_remote_agent(exchange(pipe, agent.get_agent_metadata()))
    (address,) = struct.unpack("q", exchange(pipe, struct.pack("q", pool.ctypes.data)))
    if rank == 1:
        serve(agent, pipe)
        assert (pool == data).all(), "wrong data"
        exchange(pipe, b"")
        agent.deregister_memory(registered)
        return
    rows = [(at * size, size, 0) for at in range(count)]
    lists = [
        agent.prep_xfer_dlist(name, [(base + at, n, device) for at, n, device in rows], "DRAM")
        for name, base in (("NIXL_INIT_AGENT", pool.ctypes.data), (peer_name, address))
    ]
    order = list(range(count))
    random.shuffle(order)
    index = numpy.array(order, numpy.int32)
    made, moved = [], []
    end = time.monotonic() + SECONDS
    while len(moved) < 4 or time.monotonic() < end:
        start = time.perf_counter()
        handle = agent.make_prepped_xfer("WRITE", lists[0], index, lists[1], index, b"")
        ready = time.perf_counter()
        finish(agent, handle, agent.transfer(handle))
        now = time.perf_counter()
        made.append(now - start)
        moved.append(now - ready)
        agent.release_xfer_handle(handle)
    for name, times in (("blocks_bw", moved[1:]), ("blocks_made", made[1:])):
        seconds = statistics.median(times)
        print(f"{name},{size},{count * size / seconds / 1e9:.4g},GB/s", flush=True)
        print(f"{name},{size},{count / seconds / 1e6:.4g},Mblocks/s", flush=True)
    pipe.sendall(b"q")
    exchange(pipe, b"")
    agent.deregister_memory(registered)


def main():
    here, there = socket.socketpair()
    child = os.fork()
    rank = 0 if child else 1
    pipe = here if rank == 0 else there
    os.sched_setaffinity(0, {rank})
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(f"rank{rank}", nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    for size in map(int, sys.argv[1:]):
        measure(agent, pipe, rank, size)
    if rank == 0:
        os.waitpid(child, 0)
    sys.stdout.flush()
    os._exit(0)  # the wheel ends itself badly (1.5.1)


main()
