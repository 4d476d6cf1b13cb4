# SPDX-License-Identifier: Apache-2.0
"""One run of a program: what is done with operations under way, and the end, where all that must end has ended.

What has to wait is a generator: whoever runs it gives a turn of progress for each yield (a thread, or the event loop).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import thalweg as tw

from .buffers import Buffer
from .one_sided import OneSided
from .program import Step
from .reference import NEVER, Message, Receive, wrong_matches
from .state import SLOTS, Link, Operation


class World(OneSided):
    """The whole of it; runners add how operations are posted and waited for."""

    def pending(self) -> list[Operation]:
        """What has not ended, and will be reported."""
        with self.lock:
            return [one for one in self.operations if one.outcome is None and not one.detached and one.request is not None]

    def chosen(self, step: Step, *kinds: str) -> Operation | None:
        """An operation that has not ended: `of` counts back from the last."""
        fits = [one for one in self.pending() if not kinds or one.what in kinds]
        return fits[-1 - step.of % len(fits)] if fits else None

    def do_cancel(self, step: Step) -> Iterator[None]:
        operation = self.chosen(step)
        if operation is not None and operation.what != "close":
            self.ask_cancel(operation)
        yield from ()

    def do_drop(self, step: Step) -> Iterator[None]:
        """The program loses interest: the operation goes on, and its buffer is kept until it ends."""
        operation = self.chosen(step, "send", "receive", "active", "put", "get")
        if operation is None or operation.asked or operation.buffer is None or operation.buffer.kind == "library":
            return
        self.detach(operation)
        yield from ()

    def detach(self, operation: Operation, unsure: bool = False) -> None:
        """From now on only its buffer shows its outcome; unsure: it may or may not continue."""
        with self.lock:
            if operation.outcome is not None or operation.detached:
                return
            operation.detached = True
            operation.request = None
            if unsure:
                self.unsure(operation)
            self.resolve()

    def resolve(self) -> None:
        """Detached operations whose buffer is not held any more have ended."""
        for operation in self.operations:
            if not operation.detached or operation.ended != NEVER or operation.buffer is None:
                continue
            if operation.buffer.held():
                continue
            operation.ended = self.now()
            self.check_source(operation)
            receive = operation.receive
            if receive is not None:
                if not operation.buffer.guarded():
                    self.wrong(f"{self.text(operation)} wrote outside its buffer")
                if receive.message is None:
                    self.eaten(operation, receive, operation.buffer)
            operation.buffer.poison(self.random.randrange(256))

    def eaten(self, operation: Operation, receive: Receive, buffer: Buffer) -> None:
        """Which message went to an unreported receive? Its bytes tell."""
        open_ones = [one for one in self.messages.values() if one.by is None and not one.withdrawn and receive.fits(one)]
        for message in open_ones:
            if 4 <= len(message.data) <= receive.capacity and buffer.has(message.data):
                return self.match(operation, receive, message)
        if not operation.asked:
            receive.over = receive.begin
        for message in open_ones:
            if len(message.data) > receive.capacity or len(message.data) < 4:  # truncated, or too few bytes to know it by
                message.sure, receive.over = False, receive.begin

    def do_release_buffer(self, step: Step) -> Iterator[None]:
        """The library's memory is busy while an operation has it."""
        with self.lock:
            fits = [one for one in self.pending() if one.buffer is not None and one.buffer.memory is not None]
            if not fits:
                return
            operation = fits[step.of % len(fits)]
            try:
                if operation.buffer is not None and operation.buffer.memory is not None and operation.request is not None:
                    operation.buffer.memory.release()
                    self.wrong(f"{self.text(operation)}: its memory was released under it")
            except tw.BusyError:
                pass
        yield from ()

    def do_close(self, step: Step) -> Iterator[None]:
        link = self.link(step.worker, step.peer)
        if link is not None:
            yield from self.close_end(link, step.worker, "force" in step.flags)

    def do_connect(self, step: Step) -> Iterator[None]:
        yield from self.connect(step.worker, step.peer)

    def do_close_worker(self, step: Step) -> Iterator[None]:
        self.close_worker(step.worker)
        yield from ()

    def do_nothing(self, step: Step) -> Iterator[None]:
        yield from ()

    def do_turns(self, step: Step) -> Iterator[None]:
        for _ in range(1 + step.of):
            yield

    def do_settle(self, step: Step) -> Iterator[None]:
        yield from self.settle()

    def run(self, step: Step) -> Iterator[None]:
        """One step."""
        return getattr(self, "do_" + step.what)(step)

    # ------------------------------------------------------------------------------------------- the end

    def settle(self) -> Iterator[None]:
        """Everything that must end, ends."""
        yield from self.until(lambda: not self.due(), lambda: "it never ends: " + "; ".join(self.due()))

    def due(self) -> list[str]:
        """What has to happen yet, whoever waits."""
        with self.lock:
            self.resolve()
            missing = [self.text(one) for one in self.operations if one.outcome is None and self.must_end(one)]
            for active in self.actives.values():
                if active.sure and active.handled == NEVER:
                    missing.append(f"active message {active.number} is not handled")
            for number, place in enumerate(self.places):
                if place.closing != NEVER:
                    continue
                value = self.signal_seen(number)
                for bit in place.signalled.bits:
                    if bit.sure != NEVER and (value & bit.value) == 0:
                        missing.append(f"the signal of operation {bit.number} is not there")
            return missing

    def must_end(self, operation: Operation) -> bool:
        if operation.detached:
            if operation.ended != NEVER:
                return False
            if operation.receive is None:
                return self.cannot_wait(operation)
            if operation.asked:  # cancelled, or on its way already
                return True
        if not self.open(operation.worker):
            return operation.detached
        if operation.what in ("receive", "receive_now"):
            if operation.link is not None and self.is_over(operation.link):
                return True
            return any(
                one.sure and not one.withdrawn and one.by is None and operation.receive.fits(one)
                for one in self.messages.values()
                if operation.receive is not None
            )
        return self.cannot_wait(operation)

    def cannot_wait(self, operation: Operation) -> bool:
        """Does nothing that a program has to do first keep it from its end?"""
        if operation.link is not None and self.is_over(operation.link) and operation.what != "close":
            return True
        if operation.message is not None and operation.receive is None:
            return operation.message.taken != NEVER and not self.is_taken(operation.message)
        return operation.what != "close"

    def is_over(self, link: Link) -> bool:
        """Is its end reported to both ends? A graceful close waits for what was sent before."""
        if any(link.closed.values()) or not all(map(self.open, link.workers)):
            return True
        return any(one.what == "close" and one.link is link and one.outcome is not None for one in self.operations)

    def is_taken(self, message: Message) -> bool:
        """Taken by a probe, and not received yet?"""
        return any(receive.message is message for _, receive in self.taken)

    def finish(self) -> Iterator[None]:
        """Brings everything to its end, and looks at all of it."""
        yield from self.settle()
        for operation in self.pending():
            if operation.what == "receive":
                self.ask_cancel(operation)
        yield from self.settle()
        while self.taken:
            yield from self.do_take_receive(Step("take_receive", self.taken[0][1].worker))
            if self.taken and not self.open(self.taken[0][1].worker):
                self.taken.pop(0)
        yield from self.drain()
        for link in list(self.links.values()):
            for worker in set(link.workers):
                if link.ending == NEVER:
                    yield from self.do_flush(Step("flush", worker, link.other(worker)))
        yield from self.until(
            lambda: not self.due() and not self.unended(), lambda: "at the end: " + "; ".join(self.due() + self.unended())
        )
        problem = wrong_matches(self.messages.values(), self.receives)
        if problem is not None:
            self.wrong(problem)
        for number in range(len(self.places)):
            self.look_signal(number)
            self.look_words(number)
            for which, slot in itertools.product(range(2), range(len(SLOTS))):
                self.look_region(number, which, slot)
        if self.told != self.raised and all(map(self.open, range(len(self.places)))):
            self.wrong(f"handlers raised {sorted(self.raised)}, told was {sorted(self.told.items())}")

    def unended(self) -> list[str]:
        """What has not ended though everything was received."""
        with self.lock:
            return [
                self.text(one)
                for one in self.operations
                if self.open(one.worker)
                and (one.ended == NEVER)
                and not (one.detached and one.receive is not None)
                and not (one.receive is not None and one.outcome is None and not one.canceled)
            ]

    def drain(self) -> Iterator[None]:
        """Receives whatever was sent."""
        for worker in range(len(self.places)):
            while self.open(worker) and (size := self.left(worker)) >= 0:
                known = len(self.operations)
                yield from self.do_receive(Step("receive", worker, flags=("anyone", "all"), size=size, kind="memoryview"))
                operation = self.operations[known]

                def ended(operation: Operation = operation, worker: int = worker) -> bool:
                    return operation.outcome is not None or self.left(worker) < 0

                yield from self.until(ended, lambda worker=worker: f"messages to {worker} do not come")
                if operation.outcome is None:
                    self.ask_cancel(operation)
                    yield from self.until(
                        lambda operation=operation: operation.outcome is not None or operation.detached, lambda: "a cancel"
                    )
        everything = Step("take", flags=("anyone", "all"))
        for _ in range(3):
            for worker in range(len(self.places)):
                while self.probe(dataclasses.replace(everything, worker=worker), True):
                    yield from self.do_take_receive(Step("take_receive", worker))
            yield

    def left(self, worker: int) -> int:
        """The length of the longest message to a worker that must come yet; -1: none."""
        with self.lock:
            sure = [
                len(one.data)
                for one in self.messages.values()
                if one.receiver == worker and one.by is None and one.sure and not one.withdrawn
            ]
            return max(sure, default=-1)

    def end_all(self) -> None:
        """Closes everything; nothing is held or was touched."""
        for number, place in enumerate(self.places):
            if self.open(number):
                place.closing = self.now()
                self.end_worker(number)
        for operation in self.operations:
            operation.request = None
        self.taken.clear()
        for link in self.links.values():
            link.imports.clear()
            link.ends.clear()
        with self.lock:
            self.resolve()
            for operation in self.operations:
                if operation.buffer is None:
                    continue
                if operation.buffer.held():
                    self.wrong(f"{self.text(operation)}: its buffer is held behind the end of everything")
                if operation.ended != NEVER and not operation.buffer.untouched():
                    self.wrong(f"{self.text(operation)}: its buffer was written to behind its end")
            for memory, poison in self.parted:
                if bytes(memory) != poison:
                    self.wrong("memory was written to behind its release")
        for place in self.places:
            for region, known in zip(place.regions, place.known, strict=True):
                if known.released == NEVER:
                    region.release()

    def begin(self) -> Iterator[None]:
        """Connects everybody with everybody."""
        for worker in range(len(self.places)):
            for peer in range(worker, len(self.places)):
                yield from self.connect(worker, peer)
