# SPDX-License-Identifier: Apache-2.0
"""What every part of a run uses: workers, moments, turns, connections."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import thalweg as tw

from .buffers import Buffer, payload
from .program import Program, Step
from .reference import NEVER, Fences, Message, Receive, Region, Word
from .state import LIMIT, LOST_WITH_WORKER, REGION, WORDS, Active, HandlerRaised, Link, Operation, Place, Wrong, context


class Base:
    """The state of one run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.random = random.Random(program.seed)
        self.lock = threading.RLock()
        self.clock = itertools.count(1)
        self.numbers = itertools.count(1)
        self.fences = Fences()
        self.operations: list[Operation] = []
        self.messages: dict[int, Message] = {}
        self.lengths: dict[tuple[int, int], Message] = {}  # receiver, length: all of one receiver differ
        self.receives: list[Receive] = []
        self.actives: dict[int, Active] = {}
        self.taken: list[tuple[Any, Receive]] = []
        self.links: dict[tuple[int, int], Link] = {}
        self.buffers: list[Buffer] = []
        self.told: dict[int, int] = {}  # raised in a handler: how often it was raised to a caller
        self.raised: dict[int, int] = {}
        self.parted: list[tuple[bytearray, bytes]] = []  # memory that was released
        self.connecting: set[tuple[int, int]] = set()
        self.problem: BaseException | None = None
        self.places: list[Place] = []
        for number in range(program.workers):
            self.places.append(self._place(number))

    def _place(self, number: int) -> Place:
        alone = number == 0 or self.program.ways[number - 1] != "self"
        its = context(number if alone else 0)
        core = self.make_worker(its)
        regions = [tw.Memory.allocate(its, REGION)]
        registered = bytearray(REGION)
        known = []
        for which in range(2):
            content = payload(self.program.seed, -1 - 2 * number - which, REGION)
            if which == 0:
                memoryview(regions[0])[:] = content
            else:
                registered[:] = content
            known.append(Region(content))
        regions.append(tw.Memory.register(its, registered))
        words = tw.Memory.allocate(its, 8 * WORDS)
        memoryview(words)[:] = bytes(8 * WORDS)
        return Place(core, regions, registered, words, tw.Signal(core, "add"), known, [Word() for _ in range(WORDS)], Word())

    # ------------------------------------------------------------------------------------------- what runners choose

    def make_worker(self, its: tw.Context) -> Any:
        """A worker of the package's core."""
        raise NotImplementedError

    def start(self, operation: Operation, target: Any, verb: str, *arguments: Any, **options: Any) -> None:
        """Posts it."""
        raise NotImplementedError

    def look(self, operation: Operation) -> None:
        """Has it ended?"""
        raise NotImplementedError

    def ask_cancel(self, operation: Operation) -> None:
        """Cancels it."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- small things

    def now(self) -> int:
        """The next moment."""
        return next(self.clock)

    def wrong(self, text: str) -> None:
        """Tells what must not happen."""
        raise Wrong(text)

    def until(self, condition: Callable[[], bool], what: Callable[[], str]) -> Iterator[None]:
        """Gives turns until it holds."""
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                self.wrong(what())
            yield

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """A call that progresses: what handlers raise comes out of it, and it is made again."""
        while True:
            try:
                return function(*arguments, **options)
            except HandlerRaised as error:
                self.tell(error)

    def tell(self, error: BaseException) -> None:
        """A handler's exception came out."""
        with self.lock:
            number = error.args[0]
            self.told[number] = self.told.get(number, 0) + 1

    def open(self, worker: int) -> bool:
        """Is the worker not closed?"""
        return self.places[worker].closing == NEVER

    def link(self, worker: int, peer: int) -> Link | None:
        """The connection of two, if it is open as far as this side did not close it."""
        link = self.links.get((min(worker, peer), max(worker, peer)))
        return link if link is not None and worker not in link.closed and self.open(worker) else None

    def buffer(self, operation: Operation, kind: str, size: int) -> Buffer:
        """Memory for it."""
        made = Buffer(kind, size, self.random.randrange(256), self.places[operation.worker].core.context)
        operation.buffer = made
        self.buffers.append(made)
        return made

    def operation(self, what: str, step: Step, link: Link | None) -> Operation:
        """A new one, not posted yet."""
        return Operation(next(self.numbers), what, step.worker, link, self.now(), step.flags)

    # ------------------------------------------------------------------------------------------- connections

    def connect(self, worker: int, peer: int) -> Iterator[None]:
        """Connects two workers, when they are not; what was left of an earlier connection ends first."""
        pair = (min(worker, peer), max(worker, peer))
        if not (self.open(worker) and self.open(peer)):
            return
        before = self.links.get(pair)
        if before is not None:
            if before.ending == NEVER:
                return
            for end in set(pair):
                yield from self.close_end(before, end, True)
            if worker == peer and not any(
                one.link is before and one.what == "close" and one.outcome for one in self.operations
            ):
                return  # its graceful close waits for unreceived messages
            closes = [one for one in self.operations if one.what == "close" and one.link is before]
            yield from self.until(
                lambda: all(one.outcome is not None for one in closes), lambda: f"{pair}: a connection's close does not end"
            )
        with self.lock:
            if pair in self.connecting:
                return
            self.connecting.add(pair)
        way = "self" if worker == peer else self.program.ways[pair[0] + pair[1] - 1]
        try:
            ends = {end: self.places[end].core.connect(self.address(pair, end), **self.how(way)) for end in set(pair)}
            link = Link(pair, way, ends)
            yield from self.until(
                lambda: all(self.state(end, ends[end]) != "in_progress" for end in ends),
                lambda: f"{pair} do not connect by {way}",
            )
            states = {self.state(end, ends[end]) for end in ends}
            with self.lock:
                if not all(map(self.open, pair)):
                    link.ending = self.now()
                elif states != {"ok"}:
                    self.wrong(f"{pair} cannot connect by {way}: {states}")
                self.links[pair] = link
        except (tw.ClosedError, tw.PeerLost):
            if all(map(self.open, pair)):
                raise
        finally:
            self.connecting.discard(pair)

    def address(self, pair: tuple[int, int], end: int) -> bytes:
        """Of the other one of two workers."""
        return self.places[pair[0] + pair[1] - end].core.address

    def how(self, way: str) -> dict[str, Any]:
        """Arguments of connect."""
        return {"wait": False, "timeout": LIMIT, "transport": None if way == "self" else way}

    def state(self, worker: int, endpoint: Any) -> str:
        """Of an endpoint; a closed worker's, too."""
        try:
            return endpoint.state if self.open(worker) else "closed"
        except tw.ClosedError:
            if self.open(worker):
                raise
            return "closed"

    def may_end(self, link: Link, worker: int, graceful: bool) -> None:
        """From now on operations of this connection may be lost; but a graceful close delivers what was sent."""
        with self.lock:
            link.ending = min(link.ending, self.now())
            for message in self.messages.values():
                if message.link is not link or message.by is not None:
                    continue
                sent = next(one for one in self.operations if one.message is message and one.what.startswith("send"))
                done = sent.outcome is not None and sent.outcome[0] == "ok"
                if not (graceful and done and message.sender == worker and link.other(worker) not in link.closed):
                    message.sure = False
            for active in self.actives.values():
                if active.link is link and active.handled == NEVER:
                    active.sure = False

    def close_end(self, link: Link, worker: int, force: bool) -> Iterator[None]:
        """Closes one end, and waits for that."""
        with self.lock:
            if worker in link.closed or not self.open(worker):
                return
            link.closed[worker] = force
        self.may_end(link, worker, not force)
        operation = Operation(next(self.numbers), "close", worker, link, self.now())
        self.operations.append(operation)
        self.start(operation, link.ends[worker], "close", force=force)
        if force:
            yield from self.until(lambda: operation.outcome is not None, lambda: f"{link.workers}: its close does not end")

    def close_worker(self, worker: int) -> None:
        """Ends a worker in the middle of everything."""
        with self.lock:
            if not self.open(worker) or sum(self.open(one) for one in range(len(self.places))) < 2:
                return
            self.places[worker].closing = self.now()
            for link in self.links.values():
                if worker in link.workers:
                    self.may_end(link, worker, False)
        self.end_worker(worker)
        with self.lock:
            for operation in self.operations:
                if operation.worker == worker and operation.outcome is None and not operation.detached:
                    self.after_worker(operation)

    def end_worker(self, worker: int) -> None:
        """Calls close."""
        self.places[worker].core.close()

    def after_worker(self, operation: Operation) -> None:
        """Its worker is closed: a test returns that, and the buffer is the user's."""
        self.end(operation, LOST_WITH_WORKER)
