# SPDX-License-Identifier: Apache-2.0
"""Two processes play ping-pong with a NumPy array and check every round."""

import multiprocessing
import os

import numpy as np
import thalweg as tw

ROUNDS, KEY = 1000, os.urandom(32)


def play(pipe, key, first):
    worker = tw.Worker(tw.Context(job_key=key))
    pipe.send(worker.address)
    peer = worker.connect(pipe.recv())
    ball = np.zeros(1000, np.int64)
    for i in range(ROUNDS):
        if first:
            ball[:] = i
            peer.send(ball, tag=1)
            peer.recv(ball, tag=2)
            assert (ball == i + 1).all()
        else:
            peer.recv(ball, tag=1)
            ball += 1
            peer.send(ball, tag=2)
    if first:
        print(f"ping: {ROUNDS} rounds over {peer.transport}, all as expected")
    peer.close()


if __name__ == "__main__":
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=play, args=(there, KEY, False), daemon=True)
    other.start()
    there.close()  # the other process's: its end is then heard
    play(here, KEY, True)
    other.join()
    assert other.exitcode == 0
