# SPDX-License-Identifier: Apache-2.0
"""thalweg.Pipe beside multiprocessing.Pipe: the same loop over either, two processes on cores 0 and 1.

usage: pipes.py thalweg|multiprocessing. Prints test,size,value,unit: pipe_lat (an int there and back, one way), pipe_bw (a
NumPy array one way, answered by an int). BENCH_SCALE=0.1: a tenth of the iterations.
"""

import multiprocessing
import os
import statistics
import sys
import time

import numpy

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
ARRAYS = ((1 << 20, 200), (64 << 20, 12))
LATENCY_ROUNDS = max(20, int(20000 * SCALE))


def echo(pipe, core):
    """The other process: sends back what is small, checks and acknowledges what is large, until None."""
    os.sched_setaffinity(0, {core})
    while (item := pipe.recv()) is not None:
        if isinstance(item, numpy.ndarray):
            assert item[0] == 7 and item[-1] == 9 and item[len(item) // 2] == 8, "wrong data"
            item = len(item)
        pipe.send(item)


def timed(pipe, item, expected, rounds):
    """Seconds of each round trip, after a tenth of warm-up."""
    times = []
    for i in range(-max(1, rounds // 10), rounds):
        start = time.perf_counter()
        pipe.send(item)
        got = pipe.recv()
        if i >= 0:
            times.append(time.perf_counter() - start)
        assert got == expected, "wrong answer"
    return statistics.median(times)


def main():
    """Starts the other process and measures."""
    if sys.argv[1] == "thalweg":
        import thalweg

        here, there = thalweg.Pipe()
    else:
        here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=echo, args=(there, 1))
    other.start()
    there.close()
    os.sched_setaffinity(0, {0})
    print(f"pipe_lat,8,{timed(here, 123456789, 123456789, LATENCY_ROUNDS) * 1e6 / 2:.6g},us", flush=True)
    for size, rounds in ARRAYS:
        array = numpy.full(size, 1, numpy.uint8)
        array[0], array[size // 2], array[-1] = 7, 8, 9
        print(f"pipe_bw,{size},{size / timed(here, array, size, max(3, int(rounds * SCALE))) / 1e9:.6g},GB/s", flush=True)
    here.send(None)
    other.join(10)
    return other.exitcode


if __name__ == "__main__":
    sys.exit(main())
