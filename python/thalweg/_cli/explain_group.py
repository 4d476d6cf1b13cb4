# SPDX-License-Identifier: Apache-2.0
"""The part of ``thalweg explain`` that is about collectives: a group of processes of this machine, which rank 0 asks."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import typer

from . import native
from .explain import deaf

ELEMENT = 4  # bytes: float32
_BY_RANK = {"reduce_scatter", "allgather", "gather", "scatter", "alltoall"}  # the longer buffer has a block for each rank
QUEUED = {"queue", "graph"}


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Who they are, and what starts their collective where: "call", "host", "queue", "graph" or "plan"."""

    count: int
    transport: str | None
    trigger: str
    place: str

    def place_of(self, rank: int) -> str:
        """A device without a number is the rank's own."""
        return self.place if self.place == "host" or ":" in self.place else f"{self.place}:{rank}"


def explain_group(collective: str, size: int, ranks: Ranks, options: dict[str, Any]) -> str:
    """Group.explain among the ranks, for float32 in a buffer of `size` bytes: a rank's longer one."""
    count = max(1, size // ELEMENT // (ranks.count if collective in _BY_RANK else 1))
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="thalweg-explain-") as folder:
        store = f"file:{pathlib.Path(folder) / 'store'}"
        others = [spawn.Process(target=other, args=(store, rank, ranks), daemon=True) for rank in range(1, ranks.count)]
        with deaf():
            for process in others:
                process.start()
        try:
            with world_of(store, 0, ranks) as world:
                text = explain_in(world, ranks, collective, count, options)
                world.barrier()
            if isinstance(text, native.NativeError):
                raise text
            return text
        except BaseException:  # also Ctrl-C, which they do not hear
            for process in others:
                process.kill()
            raise
        finally:
            for process in others:
                process.join(5)
                if process.is_alive():
                    process.kill()


def world_of(store: str, rank: int, ranks: Ranks) -> Any:
    """The group; NativeError with the library's words."""
    import thalweg
    from thalweg import errors

    transports = ranks.transport and f"self,{ranks.transport}"
    try:
        return thalweg.init(store=store, rank=rank, count=ranks.count, transports=transports, timeout=30)
    except errors.ThalwegError as error:
        raise native.NativeError(str(error)) from None


@contextlib.contextmanager
def ready(world: Any, ranks: Ranks) -> Iterator[Any]:
    """Gives `on` of Group.explain once the ranks know what their collectives may take. NativeError: one has no such place."""
    import thalweg
    from thalweg import errors

    with contextlib.ExitStack() as stack:
        on: thalweg.Queue | thalweg.Plan | None = None
        why = ""
        try:
            if ranks.trigger in QUEUED:
                on = stack.enter_context(thalweg.Queue(world.context, ranks.place_of(world.rank)))
            elif ranks.trigger != "call":
                on = stack.enter_context(thalweg.Plan(world.context, place=ranks.place_of(world.rank)))
        except errors.ThalwegError as error:
            why = f"rank {world.rank}: {error}"
        failed = bytearray([bool(why)])
        world.allreduce(failed, op="max", dtype="uint8")  # after which the ranks know whether all map each other's memory
        if failed[0]:
            raise native.NativeError(why or f"{ranks.place} is not there for all {ranks.count} ranks")
        if isinstance(on, thalweg.Queue):
            thalweg.barrier_on(on, world)
            on.synchronize()
        yield on


def explain_in(world: Any, ranks: Ranks, collective: str, count: int, options: dict[str, Any]) -> str | native.NativeError:
    """The text, or what is wrong with the options: the other ranks wait for the barrier either way."""
    from thalweg import errors

    try:
        with ready(world, ranks) as on:
            return world.explain(collective, count, dtype="float32", on=on, **options)
    except (errors.ThalwegError, native.NativeError) as error:
        return native.NativeError(str(error))


def other(store: str, rank: int, ranks: Ranks) -> None:
    """One of the other processes. Rank 0 says what ends it later, in its own words."""
    from thalweg import errors

    try:
        with world_of(store, rank, ranks) as world, contextlib.suppress(errors.ThalwegError):
            with contextlib.suppress(native.NativeError), ready(world, ranks):
                pass
            world.barrier()
    except native.NativeError as error:
        typer.secho(f"thalweg explain: rank {rank}: {error}", err=True, fg="red")
