# SPDX-License-Identifier: Apache-2.0
"""A rank that torchrun has started (test_torchrun.py): torch's own collectives and Thalweg's, on the same tensors.

usage: torch_world.py [--fail-once]     --fail-once: rank 1 exits in the first attempt, and torchrun starts all of them again
"""

import os
import sys

import thalweg as tw
import torch
import torch.distributed as dist

ELEMENTS = 100_003
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-2}


def check_allreduce(world, mine, dtype):
    """Beside gloo, which adds float32."""
    expected = mine.clone()
    dist.all_reduce(expected)
    found = torch.empty(ELEMENTS, dtype=dtype)
    world.allreduce(mine.to(dtype), found)
    assert torch.allclose(found.float(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]), dtype


def check_alltoall(world, generator):
    mine = torch.randint(0, 1 << 30, (world.size, 1_001), generator=generator)
    found = torch.empty_like(mine)
    world.alltoall(mine, found)
    others = [torch.empty_like(mine) for _ in range(world.size)]
    dist.all_gather(others, mine)
    assert torch.equal(found, torch.stack([other[world.rank] for other in others]))


def check_broadcast(world, generator):
    columns = torch.rand((501, 7), generator=generator)[:, 3]  # strided
    root = world.size - 1
    expected = columns.clone()
    dist.broadcast(expected, root)
    whole = columns.clone()
    world.broadcast(whole, root)
    assert torch.equal(whole, expected)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    world = tw.init(timeout=60)
    assert (world.rank, world.size) == (rank, size)
    world.barrier()
    if "--fail-once" in sys.argv and attempt == 0:
        if rank == 1:
            os._exit(3)
        world.barrier()  # ends, as rank 1 is lost: torchrun kills this process, or the error does
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
    mine = torch.rand(ELEMENTS, generator=generator)
    for dtype in TOLERANCE:
        check_allreduce(world, mine, dtype)
    check_alltoall(world, generator)
    check_broadcast(world, generator)
    world.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} of {size}: right in attempt {attempt}", flush=True)


main()
