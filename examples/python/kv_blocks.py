# SPDX-License-Identifier: Apache-2.0
"""A key-value cache's blocks go from one process into the other's memory by put; a signal tells when they are all there."""

import multiprocessing
import os
import time
import zlib

import numpy as np
import thalweg as tw

BLOCK, COUNT = 16384, 64
WANTED = [5, 60, 7, 31, 8, 2, 44, 19]  # blocks of the source, put side by side at the target


def source(pipe, key):
    """Has the cache; puts the wanted blocks, the last one with the signal that covers them all."""
    worker = tw.Worker(tw.Context(job_key=key))
    cache = np.random.default_rng().integers(0, 256, (COUNT, BLOCK), np.uint8)
    pipe.send(worker.address)
    address, memory_key, signal_key = pipe.recv()
    peer = worker.connect(address)
    remote, arrived = tw.RemoteMemory(peer, memory_key), tw.RemoteSignal(peer, signal_key)
    for place, block in enumerate(WANTED[:-1]):
        peer.put(cache[block], remote, place * BLOCK)
    peer.put(cache[WANTED[-1]], remote, (len(WANTED) - 1) * BLOCK, signal=arrived, value=len(WANTED), after_all=True)
    peer.flush()
    pipe.send([zlib.crc32(cache[block]) for block in WANTED])
    assert pipe.poll(60), "the target does not say that it has looked"
    pipe.recv()
    peer.close()


if __name__ == "__main__":
    key = os.urandom(32)
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=source, args=(there, key), daemon=True)
    other.start()
    there.close()  # the source's: its end is then heard
    context = tw.Context(job_key=key)
    worker = tw.Worker(context)
    memory = tw.Memory.allocate(context, len(WANTED) * BLOCK)
    arrived = tw.Signal(worker)
    assert here.poll(60), "the source does not say that it is there"
    here.recv()
    here.send((worker.address, memory.export(), arrived.export()))
    arrived.wait(len(WANTED), timeout=30)
    blocks = np.frombuffer(memory, np.uint8).reshape(len(WANTED), BLOCK)
    sums = [zlib.crc32(block) for block in blocks]
    deadline = time.monotonic() + 30
    while not here.poll():  # the source's flush may need this side's progress
        assert time.monotonic() < deadline, "the source does not say what it has sent"
        worker.wait(0.01)
    assert sums == here.recv()
    here.send("seen")
    while other.is_alive():  # its close may need this side's progress
        assert time.monotonic() < deadline, "the source has not ended"
        worker.wait(0.01)
    other.join()
    assert other.exitcode == 0
    print(f"kv_blocks: {len(WANTED)} blocks of {BLOCK} bytes arrived and have the source's check sums")
