# SPDX-License-Identifier: Apache-2.0
"""gradient: training that is spread over however many processes there are (``thalweg run -n 4 gradient.py``). Each rank has
data of its own for the line y = 3 x - 1; an allreduce averages the gradients, so that all ranks keep the same weights."""

import numpy as np
import thalweg

SAMPLES, STEPS = 64, 400


def main() -> None:
    """One rank."""
    world = thalweg.init()
    x = (np.arange(SAMPLES) * world.size + world.rank) / (SAMPLES * world.size) * 2 - 1
    inputs, wanted = np.stack([x, np.ones(SAMPLES)]), 3 * x - 1
    weights = np.zeros(2)
    for _ in range(STEPS):
        gradient = 2 * inputs @ (weights @ inputs - wanted) / SAMPLES
        world.allreduce(gradient, op="average")
        weights -= 0.3 * gradient
    assert np.allclose(weights, [3, -1], atol=1e-6), weights
    if world.rank == 0:
        print(f"gradient: {world.size} ranks found y = {weights[0]:.3f} x {weights[1]:+.3f}")
    world.barrier()


if __name__ == "__main__":
    main()
