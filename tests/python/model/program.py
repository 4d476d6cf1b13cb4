# SPDX-License-Identifier: Apache-2.0
"""Programs: how hypothesis makes them, and how they are printed as a test that can be pasted."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

MODES = ("plain", "threads", "loop", "processes")
WAYS = ("self", "shm", "tcp")
BETWEEN = ("shm", "shm", "tcp", "shm", "tcp", "tls", "self")  # of mode "processes"; by self: in one process
HOMES = ((0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 1), (0, 1, 0), (0, 0, 1))  # in which process a worker is
TAGS = 3
REGIONS = 2  # of each worker that peers put to: the library's memory, and a registered buffer
KINDS = ("bytearray", "memoryview", "numpy", "strided", "columns", "library")
# Around the limits of the transports: nothing, one frame, eager (64 KiB shm, 256 KiB tcp). The larger ones are rare: cost.
SIZES = (8, 0, 1, 100, 4096, 5000, 8, 1, 64, 70_000, 8, 140_000, 100, 270_000)
FLAGS: dict[str, tuple[str, ...]] = {
    "send": ("sync", "sync", "no_wait"),
    "receive": ("masked", "anyone", "anyone", "short", "all"),
    "send_now": ("sync",),  # blocking, with a short limit of time
    "receive_now": ("masked", "anyone", "short"),
    "probe": ("masked", "anyone", "all"),
    "take": ("masked", "anyone", "all"),
    "take_receive": ("short",),
    "active": ("raises", "raises_late", "keep", "drop", "reply", "coroutine", "eager", "rendezvous"),
    "put": ("signal", "signal", "after_all", "visible", "layout", "no_wait"),
    "get": ("layout",),
    "atomic": ("fetch", "fetch", "visible"),
    "signal": ("after_all", "visible"),
    "flush": ("worker",),
    "close": ("force", "force"),
    "wait": ("shared", "shared", "long"),
    "plan": ("both", "update", "own", "lost", "update", "queue", "device", "queue", "stopped"),
    "on_queue": ("put", "device", "both"),
    "kill": ("midway", "busy", "midway", "busy", "midway"),
}
MESSAGES = ("send",) * 7 + ("receive",) * 7 + ("active",) * 3 + (
    "probe", "take", "take", "take_receive", "take_receive", "cancel", "cancel", "cancel", "wait", "wait", "wait", "drop",
    "send_now", "receive_now", "turns", "turns", "settle", "release_buffer", "wait_any",
)  # fmt: skip
ONE_SIDED = ("put",) * 7 + ("get",) * 4 + ("atomic",) * 3 + ("fence",) * 3 + (
    "flush", "flush", "signal", "look", "look", "look_signal", "look_signal", "wait_signal", "release_region", "wait", "wait",
    "cancel", "drop", "turns", "turns", "settle", "send", "receive", "release_buffer", "active",
)  # fmt: skip
THEMES = (MESSAGES, MESSAGES + ONE_SIDED, ONE_SIDED)
ENDS = ("nothing", "close", "connect", "close_worker", "close", "close_worker", "connect")
PLANNED = ("plan",) * 8 + ("on_queue",) * 3 + (
    "send", "receive", "put", "turns", "settle", "restart", "restart", "stop",
)  # fmt: skip
DEATHS = ("nothing", "kill", "kill", "restart", "restart", "stop", "close", "connect", "close_worker")  # mode "processes"
SIZED = ("send", "receive", "send_now", "receive_now", "take_receive", "active", "put", "get", "kill", "plan", "on_queue")
COUNTED = (
    "kill", "plan", "on_queue", "stop",
    "restart", "close_worker", "cancel", "wait", "wait_any", "drop", "take_receive", "release_buffer",
    "turns", "release_region",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Step:
    """One step. `of` names an earlier operation that fits, counted back from the last; `thread` runs it in mode "threads"."""

    what: str
    worker: int = 0
    peer: int = 0
    tag: int = 0
    size: int = 0
    flags: tuple[str, ...] = ()
    kind: str = "bytearray"
    of: int = 0
    thread: int = 0

    def __repr__(self) -> str:
        given = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)[1:]
            if getattr(self, field.name) != field.default
        ]
        return f"Step({', '.join([repr(self.what), *given])})"


@dataclasses.dataclass(frozen=True)
class Program:
    """What runs: `ways` has the transport between each pair of workers 0-1, 0-2, 1-2; polling: in mode "loop" the
    workers poll, in the others the library's threads progress; homes: in mode "processes", which process a worker is in."""

    seed: int
    mode: str
    workers: int
    ways: tuple[str, ...]
    steps: tuple[Step, ...]
    polling: bool = False
    homes: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    def text(self) -> str:
        """As a test to be pasted."""
        lines = [f"        {step!r}," for step in self.steps if step.what != "nothing"]
        head = f"seed={self.seed}, mode={self.mode!r}, workers={self.workers}, ways={self.ways!r}, polling={self.polling}"
        if self.homes:
            head += f", homes={self.homes!r}"
        return "\n".join([f"Program({head}, steps=(", *lines, "    ))"])


def _chosen_flags(what: str, number: int) -> tuple[str, ...]:
    """At most two flags of a kind of step."""
    known = FLAGS.get(what, ())
    picked = {known[index - 1] for index in (number % 10, number // 10 % 10) if 0 < index <= len(known)}
    return tuple(sorted(picked))


def steps(kinds: tuple[str, ...], workers: int) -> st.SearchStrategy[Step]:
    """One step of one of the kinds. Few draws: they cost more than what they choose."""

    def make(drawn: tuple[str, int, int]) -> Step:
        what, where, rest = drawn
        if what == "nothing":
            return Step(what)
        thread, where = where % 3, where // 3
        worker, peer = where % workers, where // workers
        tag, size, kind, of, flags = rest % 3, rest // 3 % 14, rest // 42 % 6, rest // 252 % 8, rest // 2016
        sized = what in SIZED
        return Step(
            what,
            worker,
            peer,
            tag,
            SIZES[size] if sized else 0,
            _chosen_flags(what, flags),
            KINDS[kind] if sized else KINDS[0],
            of if what in COUNTED else 0,
            thread,
        )

    draws = st.tuples(
        st.sampled_from(kinds), st.integers(0, 3 * workers * workers - 1), st.integers(0, 3 * 14 * 6 * 8 * 100 - 1)
    )
    return draws.map(make)


@st.composite
def programs(draw: st.DrawFn, mode: str, least: int = 20, most: int = 100) -> Program:
    """A program of 20 to 100 steps: it shrinks by turning steps into nothing."""
    workers = draw(st.sampled_from((2, 2, 3)))
    apart = mode == "processes"
    ways = draw(st.tuples(*[st.sampled_from(BETWEEN if apart else WAYS)] * 3))
    kinds = ("nothing", *draw(st.sampled_from((*THEMES, PLANNED) if apart else THEMES)))
    body = draw(st.lists(steps(kinds, workers), min_size=least, max_size=most))
    odd = steps(DEATHS if apart else ENDS, workers)
    ends = draw(st.lists(st.tuples(st.integers(0, most), odd), max_size=5 if apart else 3))
    for at, step in ends:
        body.insert(min(at, len(body)), step)
    return Program(
        draw(st.integers(0, 1 << 32)),
        mode,
        workers,
        ways,
        tuple(body),
        draw(st.booleans() if mode == "loop" else st.sampled_from((False, False, True))),
        draw(st.sampled_from(HOMES)) if apart else (),
    )
