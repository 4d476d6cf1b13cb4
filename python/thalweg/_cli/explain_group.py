# SPDX-License-Identifier: Apache-2.0
"""The part of ``thalweg explain`` that is about collectives: a group of processes of this machine, which rank 0 asks."""

from __future__ import annotations

import multiprocessing
import pathlib
import tempfile
from typing import Any

from . import native

ELEMENT = 4  # bytes: float32
_BY_RANK = {"reduce_scatter", "allgather", "gather", "scatter", "alltoall"}  # the longer buffer has a block for each rank


def explain_group(collective: str, size: int, ranks: int, transport: str | None, options: dict[str, Any]) -> str:
    """Group.explain among so many ranks, for float32 in a buffer of `size` bytes: a rank's longer one."""
    count = max(1, size // ELEMENT // (ranks if collective in _BY_RANK else 1))
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="thalweg-explain-") as folder:
        store = f"file:{pathlib.Path(folder) / 'store'}"
        others = [spawn.Process(target=other, args=(store, rank, ranks, transport), daemon=True) for rank in range(1, ranks)]
        for process in others:
            process.start()
        try:
            with world_of(store, 0, ranks, transport) as world:
                world.barrier()  # after which the ranks know whether all map each other's memory
                text = explain_in(world, collective, count, options)
                world.barrier()
            if isinstance(text, native.NativeError):
                raise text
            return text
        finally:
            for process in others:
                process.join(5)
                if process.is_alive():
                    process.kill()


def world_of(store: str, rank: int, ranks: int, transport: str | None) -> Any:
    """The group; NativeError with the library's words."""
    import thalweg
    from thalweg import errors

    try:
        return thalweg.init(store=store, rank=rank, count=ranks, transports=transport and f"self,{transport}", timeout=30)
    except errors.ThalwegError as error:
        raise native.NativeError(str(error)) from None


def explain_in(world: Any, collective: str, count: int, options: dict[str, Any]) -> str | native.NativeError:
    """The text, or what is wrong with the options: the other ranks wait for the barrier either way."""
    from thalweg import errors

    try:
        return world.explain(collective, count, dtype="float32", **options)
    except errors.ThalwegError as error:
        return native.NativeError(str(error))


def other(store: str, rank: int, ranks: int, transport: str | None) -> None:
    """One of the other processes."""
    with world_of(store, rank, ranks, transport) as world:
        world.barrier()
        world.barrier()
