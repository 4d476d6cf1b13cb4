# SPDX-License-Identifier: Apache-2.0
"""UCXX's asyncio between two processes on processors 0 and 1: medians of round trips, as lines "round_trip,bytes,microseconds".

usage: ucxx_pingpong.py BYTES ...
Every message is new data and compared, outside of the measured time. UCXX's progress is its default.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time

import numpy
import ucxx

SERVER = "--server"


def rounds(size: int) -> int:
    return 1000 if size <= 65536 else 200


async def serve(sizes: list[int]) -> None:
    """Sends back what comes, with each byte inverted."""
    done = asyncio.Event()

    async def answer(endpoint: ucxx.core.Endpoint) -> None:
        for size in sizes:
            buffer = numpy.empty(size, "u1")
            for _ in range(rounds(size) + rounds(size) // 5):
                await endpoint.recv(buffer)
                numpy.invert(buffer, buffer)
                await endpoint.send(buffer)
        await endpoint.recv(numpy.empty(1, "u1"))  # until the other has compared all
        await endpoint.close()
        done.set()

    listener = ucxx.create_listener(answer)
    print(listener.port, flush=True)
    await done.wait()
    listener.close()


async def measure(port: int, sizes: list[int]) -> None:
    endpoint = await ucxx.create_endpoint("127.0.0.1", port)
    for size in sizes:
        out, back, times = numpy.random.randint(0, 256, size).astype("u1"), numpy.empty(size, "u1"), []
        for number in range(-(rounds(size) // 5), rounds(size)):
            out += 1
            start = time.perf_counter()
            await endpoint.send(out)
            await endpoint.recv(back)
            if number >= 0:
                times.append((time.perf_counter() - start) * 1e6)
            assert (back == ~out).all(), f"wrong payload of {size} bytes"
        print(f"round_trip,{size},{statistics.median(times):.4f}", flush=True)
    await endpoint.send(out[:1])
    await endpoint.close()


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:] if word != SERVER]
    if SERVER in sys.argv:
        os.sched_setaffinity(0, {0})
        asyncio.run(serve(sizes))
        return
    server = subprocess.Popen([sys.executable, __file__, SERVER, *map(str, sizes)], stdout=subprocess.PIPE, text=True)
    os.sched_setaffinity(0, {1})
    asyncio.run(measure(int(server.stdout.readline()), sizes))
    server.wait(timeout=20)


if __name__ == "__main__":
    main()
