# SPDX-License-Identifier: Apache-2.0
"""How operations end, and what the reference says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import Base
from .reference import NEVER, Message, Receive
from .state import LOST, Operation


class Ends(Base):
    """Judges each end, once."""

    def end(self, operation: Operation, outcome: tuple[str, Any]) -> None:
        """It has ended: reported once, or to several threads in the same way."""
        with self.lock:
            if operation.outcome is not None:
                told = outcome[0] in (*LOST, "ok", "Truncated", "Canceled", "Stale")
                if operation.outcome != outcome and (self.open(operation.worker) or not told):
                    self.wrong(f"{self.text(operation)} was told as {operation.outcome}, then as {outcome}")
                return
            if operation.detached and operation.ended != NEVER:
                return
            operation.detached = False  # another thread got it while this one lost interest
            operation.outcome, operation.ended = outcome, self.now()
            getattr(self, "_ended_" + outcome[0], self._ended_badly)(operation, outcome[1])
            if operation.buffer is not None:
                operation.buffer.poison(self.random.randrange(256))

    def text(self, operation: Operation) -> str:
        """For people."""
        at = f" over {operation.link.way}" if operation.link is not None else ""
        return f"operation {operation.number} ({operation.what} at {operation.worker}{at} {' '.join(operation.flags)})"

    def may_be_lost(self, operation: Operation) -> bool:
        """May its connection have ended?"""
        if not self.open(operation.worker):
            return True
        if operation.link is not None:
            return operation.link.ending != NEVER
        return any(link.ending != NEVER for link in self.links.values() if operation.worker in link.workers)

    def is_told_wrongly(self, operation: Operation, name: str) -> bool:
        """A killed process has not closed in good order."""
        link, worker = operation.link, operation.worker
        return name == "ClosedError" and link is not None and link.lost and worker not in link.closed and self.open(worker)

    def may_be_stale(self, operation: Operation) -> bool:
        """May it have met a memory that was released?"""
        if operation.region is not None:
            where, which = operation.region
            if self.places[where].known[which].released != NEVER:
                return True
        if operation.link is not None and "after_all" in operation.flags:  # an earlier put may have
            known = self.places[operation.link.other(operation.worker)].known
            return any(region.released != NEVER for region in known)
        return operation.what == "flush" and any(region.released != NEVER for place in self.places for region in place.known)

    def _ended_badly(self, operation: Operation, detail: Any) -> None:
        name = operation.outcome[0] if operation.outcome is not None else ""
        self.unsure(operation)
        allowed = (
            (name in LOST and self.may_be_lost(operation) and not self.is_told_wrongly(operation, name))
            or (name == "Stale" and self.may_be_stale(operation))
            or (name == "Canceled" and operation.asked)
            or (name == "Again" and "no_wait" in operation.flags)
        )
        if not allowed:
            self.wrong(f"{self.text(operation)} ended with {name} {detail}")
        if name in ("Canceled", "Again"):
            if operation.message is not None:
                operation.message.withdrawn = True
                if operation.message.by is not None:
                    self.wrong(f"{self.text(operation)} was cancelled, and its message received")
            if operation.active is not None:
                operation.active.withdrawn = True
                if operation.active.handled != NEVER:
                    self.wrong(f"{self.text(operation)} was cancelled, and its message handled")
            if operation.write is not None and name == "Again":
                operation.write.possible = False
            for bit in (operation.bit, operation.signal):
                if bit is not None and name == "Again":
                    bit.possible = False
        self.check_source(operation)
        if operation.receive is not None:
            if name != "Canceled":  # it may have got one that was not reported
                operation.receive.over = operation.receive.begin
            buffer = operation.buffer
            if name == "Canceled" and buffer is not None and not buffer.untouched():
                self.wrong(f"{self.text(operation)} was cancelled, and its buffer written to")
            if buffer is not None and not buffer.guarded():
                self.wrong(f"{self.text(operation)} wrote outside its buffer")

    def unsure(self, operation: Operation) -> None:
        """It failed, or its outcome is unknown: what it sent may arrive or not."""
        if operation.message is not None:
            operation.message.sure = False
        if operation.active is not None:
            operation.active.sure = False

    def check_source(self, operation: Operation) -> None:
        """A send's buffer is not written to."""
        buffer = operation.buffer
        if operation.what in ("send", "send_now", "active", "put") and buffer is not None and not buffer.untouched():
            self.wrong(f"{self.text(operation)}: its source was written to")

    def _ended_Truncated(self, operation: Operation, length: int) -> None:
        receive = operation.receive
        if receive is None:
            return self._ended_badly(operation, length)
        message = self.lengths.get((receive.worker, length))
        if message is None or length <= receive.capacity:
            self.wrong(f"{self.text(operation)} was truncated at {receive.capacity} by {length} bytes, which nobody sent")
            return
        if receive.message is not message:
            self.match(operation, receive, message)
        if operation.buffer is not None and not operation.buffer.guarded():
            self.wrong(f"{self.text(operation)} was truncated, and wrote outside its buffer")

    def match(self, operation: Operation, receive: Receive, message: Message) -> None:
        """A receive has got a message."""
        if message.by is not None:
            self.wrong(f"{self.text(operation)}: message {message.number} came twice")
        if message.withdrawn:
            self.wrong(f"{self.text(operation)}: message {message.number} was cancelled, and came")
        if not receive.fits(message):
            self.wrong(f"{self.text(operation)}: message {message.number} does not fit")
        receive.message, message.by, message.taken = message, receive, self.now()

    def _ended_ok(self, operation: Operation, value: Any) -> None:
        if operation.canceled:
            self.wrong(f"{self.text(operation)} was cancelled, and is told as complete")
        self.check_source(operation)
        ended = operation.ended
        if operation.receive is not None:
            self._ended_receive(operation, operation.receive, value)
        elif operation.what == "active_receive" and operation.buffer is not None:
            if value[2] != len(operation.data) or not operation.buffer.has(operation.data):
                self.wrong(f"{self.text(operation)}: {value} instead of the payload")
        elif operation.what == "put" and operation.write is not None and "visible" in operation.flags:
            operation.write.sure = ended
            if operation.signal is not None:
                operation.signal.sure = ended
        elif operation.what == "get" and operation.region is not None and operation.buffer is not None:
            region = self.places[operation.region[0]].known[operation.region[1]]
            if operation.buffer.size > 0 and region.released == NEVER:
                seen = operation.buffer.read()
                problem = region.allowed(operation.offset, seen, self.fences, operation.begin, ended, operation)
                if problem is not None:
                    self.wrong(f"{self.text(operation)}: {problem}")
                if not operation.buffer.guarded():
                    self.wrong(f"{self.text(operation)} wrote outside its buffer")
        elif operation.what == "atomic" and operation.word is not None and operation.bit is not None:
            if "fetch" in operation.flags or "visible" in operation.flags:
                operation.bit.sure = ended
            if "fetch" in operation.flags:
                problem = operation.word.fetch(operation.bit, value, operation.begin, ended)
                if problem is not None:
                    self.wrong(f"{self.text(operation)}: {problem}")
        elif operation.what == "signal" and operation.bit is not None and "visible" in operation.flags:
            operation.bit.sure = ended
            if "after_all" in operation.flags:
                self.puts_are_sure(operation.end, operation.begin, ended)
        elif operation.what == "flush":
            for other in self.operations:
                if other.worker != operation.worker or other.posted > operation.begin:
                    continue
                if operation.link is None or other.link is operation.link:
                    self.is_sure(other, ended)
        elif operation.what in ("send", "send_now") and "sync" in operation.flags and operation.message is not None:
            self.synchronous_is_matched(operation, operation.message)

    def synchronous_is_matched(self, operation: Operation, message: Message) -> None:
        """Some receive must have it, or may have: one whose end was not checked yet, or will not be reported."""
        if message.by is not None or any(receive.fits(message) for receive in self.open_receives()):
            return
        if any(receive.fits(message) and receive.message is None for receive in self.receives if receive.over != NEVER):
            return  # lost or detached behind the match
        self.wrong(f"{self.text(operation)} was never matched, and is complete")

    def open_receives(self) -> Iterator[Receive]:
        """Receives whose end was not seen."""
        return (receive for receive in self.receives if receive.message is None and receive.over == NEVER)

    def is_sure(self, operation: Operation, moment: int) -> None:
        """A put, atomic or signal is visible."""
        lost = operation.link is not None and operation.link.ending != NEVER
        if lost or not self.goes_on(operation) or self.may_be_stale(operation):
            return
        for thing in (operation.write, operation.bit, operation.signal):
            if thing is not None and thing.possible:
                thing.sure = min(thing.sure, moment)

    def goes_on(self, operation: Operation) -> bool:
        """Has it ended well, or will it?"""
        return not operation.asked if operation.outcome is None else operation.outcome[0] == "ok"

    def puts_are_sure(self, end: Any, before: int, moment: int) -> None:
        """All puts of one end that were posted before."""
        for other in self.operations:
            if other.write is not None and other.end == end and other.posted < before and self.goes_on(other):
                other.write.sure = min(other.write.sure, moment)

    def _ended_receive(self, operation: Operation, receive: Receive, value: Any) -> None:
        tag, number, length = value
        message = self.messages.get(number)
        if message is None or message.tag != tag or len(message.data) != length:
            self.wrong(f"{self.text(operation)} got a message that nobody sent: {value}")
            return
        if receive.message is not message:  # else a probe has matched it already
            self.match(operation, receive, message)
        if length > receive.capacity:
            self.wrong(f"{self.text(operation)}: {length} bytes in a buffer of {receive.capacity}")
        if operation.buffer is not None and not operation.buffer.has(message.data):
            self.wrong(f"{self.text(operation)}: the bytes of message {number} are not there, or more was written")
