# SPDX-License-Identifier: Apache-2.0
"""Messages from Python: two processes on cores 0 and 1 play ping-pong. Prints test,size,value,unit: one way, medians.

usage: latency.py blocking | asyncio | asyncio-sleep
blocking is timed as mpi4py's Send and Recv are; asyncio awaits every send and receive, polling between them; asyncio-sleep lets
the event loop sleep in the kernel. BENCH_SCALE=0.1: a tenth of the iterations.
"""

import asyncio
import os
import socket
import statistics
import struct
import sys
import time

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
SIZES = ((8, 5000), (64, 5000), (1024, 5000), (8192, 2000), (65536, 1000), (1 << 20, 300), (16 << 20, 20))
SIZES_ASYNCIO = ((8, 3000), (65536, 500), (1 << 20, 200), (16 << 20, 20))
TAG = 1


def start():
    """Forks before anything of the library exists. (rank, socket to the other, its pid)."""
    here, there = socket.socketpair()
    child = os.fork()
    rank = 0 if child else 1
    (there if rank == 0 else here).close()
    os.sched_setaffinity(0, {rank})
    return rank, here if rank == 0 else there, child


def exchange(pipe, mine):
    """Bytes for bytes."""
    pipe.sendall(struct.pack("q", len(mine)) + mine)
    (length,) = struct.unpack("q", pipe.recv(8, socket.MSG_WAITALL))
    return pipe.recv(length, socket.MSG_WAITALL)


def buffers(size, rank):
    """Written first: an untouched buffer is the kernel's zero page and reads too fast."""
    import numpy

    return numpy.full(size, 7 + rank, numpy.uint8), numpy.full(size, 1, numpy.uint8)


def tell(rank, size, times, received):
    """Checks what came last and prints the row."""
    assert (received == 7 + (1 - rank)).all(), "wrong data"
    if rank == 0:
        print(f"lat,{size},{statistics.median(times) / 2e3:.6g},us", flush=True)


def blocking(rank, pipe):
    """Endpoint.send and Endpoint.recv."""
    import thalweg

    worker = thalweg.Worker(thalweg.Context())
    endpoint = worker.connect(exchange(pipe, worker.address))
    endpoint.wait(10)
    now, send, recv = time.perf_counter_ns, endpoint.send, endpoint.recv
    for size, rounds in SIZES:
        rounds = max(10, int(rounds * SCALE))
        out, into = buffers(size, rank)
        times = []
        for i in range(-rounds // 10, rounds):
            t = now()
            if rank == 0:
                send(out, TAG)
                recv(into, TAG)
            else:
                recv(into, TAG)
                send(out, TAG)
            if i >= 0:
                times.append(now() - t)
        tell(rank, size, times, into)
    exchange(pipe, b"end")
    worker.close()


async def coroutines(rank, pipe, sleep):
    """aio.Endpoint.send and aio.Endpoint.recv."""
    import thalweg
    from thalweg import aio

    worker = aio.Worker(thalweg.Context(), polling=not sleep)
    endpoint = await worker.connect(exchange(pipe, worker.address))
    now, send, recv = time.perf_counter_ns, endpoint.send, endpoint.recv
    for size, rounds in SIZES_ASYNCIO:
        rounds = max(10, int(rounds * SCALE))
        out, into = buffers(size, rank)
        times = []
        for i in range(-rounds // 10, rounds):
            t = now()
            if rank == 0:
                await send(out, TAG)
                await recv(into, TAG)
            else:
                await recv(into, TAG)
                await send(out, TAG)
            if i >= 0:
                times.append(now() - t)
        tell(rank, size, times, into)
    exchange(pipe, b"end")
    worker.close()


def main():
    """Both ranks; rank 0 gives the exit code."""
    mode = sys.argv[1]
    rank, pipe, child = start()
    if mode == "blocking":
        blocking(rank, pipe)
    else:
        asyncio.run(coroutines(rank, pipe, mode == "asyncio-sleep"))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if rank == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
