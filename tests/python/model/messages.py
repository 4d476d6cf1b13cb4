# SPDX-License-Identifier: Apache-2.0
"""Posting of messages: sends, receives, probes, active messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import thalweg as tw

from .buffers import payload
from .ends import Ends
from .program import Step
from .reference import FULL, NEVER, Message, Receive
from .state import BUFFER, HANDLER, Active, HandlerRaised, Link, Operation, Wrong


class Messages(Ends):
    """Steps about messages."""

    def unique(self, receiver: int, size: int) -> int:
        """A length that no other message to that worker has, so that a truncated one is known by it."""
        for distance in itertools.count():
            for length in (size + distance, size - distance):
                if length >= 0 and (receiver, length) not in self.lengths:
                    return length
        raise AssertionError

    def new_message(self, operation: Operation, link: Link, tag: int, size: int, kind: str) -> Message:
        receiver = link.other(operation.worker)
        length = self.unique(receiver, size)
        data = payload(self.program.seed, operation.number, length)
        message = Message(operation.number, link, operation.worker, receiver, tag, data, operation.begin)
        self.messages[message.number] = self.lengths[receiver, length] = message
        message.sure = link.ending == NEVER and self.open(receiver)
        operation.message = message
        self.buffer(operation, kind, length).write(data)
        return message

    def do_send(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            if link is None:
                return
            operation = self.operation("send", step, link)
            message = self.new_message(operation, link, step.tag, step.size, step.kind)
            self.operations.append(operation)
        options = {flag: True for flag in ("sync", "no_wait") if flag in step.flags}
        self.start(operation, link.ends[step.worker], "send", BUFFER, step.tag, immediate=message.number, **options)
        yield from ()

    def new_receive(self, operation: Operation, step: Step, link: Link | None, capacity: int) -> Receive:
        mask = 0 if "all" in step.flags else FULL - 1 if "masked" in step.flags else FULL
        receive = Receive(operation.number, operation.worker, step.tag, mask, link, capacity, operation.begin)
        self.receives.append(receive)
        operation.receive = receive
        self.buffer(operation, step.kind, capacity)
        return receive

    def do_receive(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = None if "anyone" in step.flags else self.link(step.worker, step.peer)
            if not self.open(step.worker) or (link is None and "anyone" not in step.flags):
                return
            operation = self.operation("receive", step, link)
            capacity = step.size if "short" in step.flags else max(step.size, 6000) if step.size < 5000 else 280_000
            receive = self.new_receive(operation, step, link, capacity)
            self.operations.append(operation)
        place = self.places[step.worker].core
        if link is None:
            self.start(operation, place, "recv", BUFFER, receive.tag, receive.mask)
        elif step.size % 2 == 0:
            self.start(operation, place, "recv", BUFFER, receive.tag, receive.mask, source=link.ends[step.worker])
        else:
            self.start(operation, link.ends[step.worker], "recv", BUFFER, receive.tag, receive.mask)
        yield from ()

    def do_probe(self, step: Step) -> Iterator[None]:
        self.probe(step, False)
        yield from ()

    def do_take(self, step: Step) -> Iterator[None]:
        self.probe(step, True)
        yield from ()

    def probe(self, step: Step, take: bool) -> bool:
        """Looks for a message, or takes it out of matching."""
        with self.lock:
            link = None if "anyone" in step.flags else self.link(step.worker, step.peer)
            if not self.open(step.worker) or (link is None and "anyone" not in step.flags):
                return False
            mask = 0 if "all" in step.flags else FULL - 1 if "masked" in step.flags else FULL
            receive = Receive(next(self.numbers), step.worker, step.tag, mask, link, 0, self.now())
            if take:
                self.receives.append(receive)
        options = {} if link is None else {"source": link.ends[step.worker]}
        found = self.guarded(
            step.worker, link, lambda: self.places[step.worker].core.probe(step.tag, mask, take=take, **options)
        )
        with self.lock:
            receive.posted = receive.over = self.now()
            if found is None:
                if take:
                    self.receives.remove(receive)
                return False
            message = self.messages.get(found.immediate)
            if message is None or message.tag != found.tag or len(message.data) != found.length or not receive.fits(message):
                self.wrong(f"a probe at {step.worker} for {step.tag} in {mask:#x} found {found.immediate}")
                return False
            if message.taken < receive.begin:
                self.wrong(f"a probe at {step.worker} found message {message.number}, which was received before")
            if not take:
                message.seen.append((receive.begin, receive.posted))
                return True
            operation = Operation(receive.number, "take", step.worker, link, receive.begin, step.flags, receive.posted)
            self.match(operation, receive, message)
            receive.capacity = 1 << 60
            self.taken.append((found, receive))
            return True

    def guarded(self, worker: int, link: Link | None, function: Callable[[], Any]) -> Any:
        """The value of a call that says that worker or connection have ended only when they may have; else None."""
        try:
            return self.call(function)
        except (tw.PeerLost, tw.ClosedError) as error:
            if self.open(worker) and (link is None or link.ending == NEVER):
                self.wrong(f"a call at {worker}: {error!r}")
            return None

    def do_take_receive(self, step: Step) -> Iterator[None]:
        with self.lock:
            mine = [one for one in self.taken if one[1].worker == step.worker]
            if not mine or not self.open(step.worker):
                return
            handle, receive = mine[step.of % len(mine)]
            self.taken.remove((handle, receive))
            message = receive.message
            assert message is not None
            operation = self.operation("take_receive", step, message.link)
            operation.core = True
            size = len(message.data)
            receive.capacity = min(step.size, size) if "short" in step.flags else size
            operation.receive = receive
            self.buffer(operation, step.kind, receive.capacity)
            self.operations.append(operation)
        self.start(operation, handle, "recv", BUFFER)
        yield from ()

    # ------------------------------------------------------------------------------------------- active messages

    def do_active(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            if link is None:
                return
            self.new_active(step, link)
        yield from ()

    def new_active(self, step: Step, link: Link) -> None:
        """Sends an active message: its header has its number."""
        with self.lock:
            operation = self.operation("active", step, link)
            data = payload(self.program.seed, operation.number, step.size)
            receiver = link.other(step.worker)
            active = Active(operation.number, link, step.worker, receiver, data, step.flags, operation.begin)
            active.sure = link.ending == NEVER and self.open(receiver)
            self.actives[active.number] = operation.active = active
            self.buffer(operation, step.kind, step.size).write(data)
            self.operations.append(operation)
        options: dict[str, Any] = {}
        if "eager" in step.flags and step.size <= 5000:
            options["protocol"] = "eager"
        if "rendezvous" in step.flags and step.size > 0:
            options["protocol"] = "rendezvous"
        self.start(operation, link.ends[step.worker], "am_send", HANDLER, self.header_of(active), BUFFER, **options)

    def header_of(self, active: Active) -> bytes:
        """What its handler knows it by."""
        return active.number.to_bytes(8, "little") * 2

    def handler_starts(self, worker: int, header: bytes, length: int, end: Any) -> Active:
        """What every handler checks first."""
        with self.lock:
            active = self.actives.get(int.from_bytes(header[:8], "little"))
            if active is None or header != self.header_of(active) or active.receiver != worker:
                raise Wrong(f"a handler at {worker} got a message that nobody sent: {header!r}")
            if active.handled != NEVER or active.withdrawn or len(active.data) != length:
                raise Wrong(f"active message {active.number} came twice, was cancelled, or has {length} bytes")
            active.handled = self.now()
            if end is not active.link.ends[worker] and active.link.ending == NEVER:
                raise Wrong(f"active message {active.number} names another endpoint than that it came by")
            if self.program.mode != "threads":
                for other in self.actives.values():
                    before = other.link is active.link and other.sender == active.sender and other.posted < active.begin
                    if before and other.handled == NEVER and other.sure and not other.withdrawn:
                        raise Wrong(f"active message {active.number} started before {other.number}")
            return active

    def handler_raises(self, active: Active) -> None:
        """Counts what must come out."""
        with self.lock:
            self.raised[active.number] = 1
        raise HandlerRaised(active.number)

    def handler_data(self, active: Active, data: bytes) -> None:
        """The payload of an active message came."""
        if bytes(data) != active.data:
            raise Wrong(f"active message {active.number} has other bytes than were sent")

    def reply(self, active: Active) -> None:
        """A handler may post."""
        link = self.link(active.receiver, active.link.other(active.receiver))
        if link is active.link:
            self.new_active(Step("active", active.receiver, active.sender, size=8), link)
