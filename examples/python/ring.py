# SPDX-License-Identifier: Apache-2.0
"""ring: however many processes there are, whatever started them (``thalweg run -n 4 ring.py``, mpirun, torchrun): one line
makes them a group. A number goes around, and every rank adds its own."""

import numpy as np
import thalweg

TAG = 1


def main() -> None:
    """One rank."""
    world = thalweg.init()
    total = np.zeros(1, np.uint64)
    if world.rank != 0:
        world.worker.recv(total, TAG)
    total += world.rank + 1
    if world.size > 1:
        world.endpoint((world.rank + 1) % world.size).send(total, TAG)
    if world.rank == 0:
        if world.size > 1:
            world.worker.recv(total, TAG)
        assert total[0] == world.size * (world.size + 1) // 2
        print(f"ring: {world.size} ranks, each added its number: {total[0]}")
    world.barrier()


if __name__ == "__main__":
    main()
