# SPDX-License-Identifier: Apache-2.0
"""Two processes share a 2-D field, split by columns, and exchange halo columns: non-contiguous views, no packing.

The result of some steps of a five-point average is compared with the same steps on the whole field in one process.
"""

import multiprocessing
import os

import numpy as np
import thalweg as tw

ROWS, COLUMNS, STEPS = 120, 200, 25
LEFTWARD, RIGHTWARD = 1, 2


def step(field):
    """One average over the four neighbours; the border stays."""
    inner = field[1:-1, 1:-1]
    inner[...] = (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]) / 4


def start_field():
    return np.random.default_rng(7).random((ROWS, COLUMNS))


def half(pipe, key, rank):
    """Computes columns [0, C/2) or [C/2, C), with one halo column of the other side."""
    worker = tw.Worker(tw.Context(job_key=key))
    pipe.send(worker.address)
    peer = worker.connect(pipe.recv())
    middle = COLUMNS // 2
    mine = (start_field()[:, : middle + 1] if rank == 0 else start_field()[:, middle - 1 :]).copy()
    edge, halo = (mine[:, -2], mine[:, -1]) if rank == 0 else (mine[:, 1], mine[:, 0])
    out, back = (RIGHTWARD, LEFTWARD) if rank == 0 else (LEFTWARD, RIGHTWARD)
    for _ in range(STEPS):
        tw.wait_all([peer.irecv(halo, back), peer.isend(edge, out)])
        step(mine)
    result = mine[:, :-1] if rank == 0 else mine[:, 1:]
    if rank == 1:
        peer.send_object(result, 3)
        peer.close()
        return None
    return np.hstack([result, peer.recv_object(3)])


if __name__ == "__main__":
    key = os.urandom(32)
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=half, args=(there, key, 1), daemon=True)
    other.start()
    there.close()  # the other process's: its end is then heard
    together = half(here, key, 0)
    other.join()
    alone = start_field()
    for _ in range(STEPS):
        step(alone)
    assert other.exitcode == 0 and np.array_equal(together, alone)
    print(f"halo: {STEPS} steps of a {ROWS} x {COLUMNS} field on two processes equal those on one")
