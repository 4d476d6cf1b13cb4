# SPDX-License-Identifier: Apache-2.0
"""What operations mean: which message a receive may get, and what memory and words of others may show.

Moments are numbers of one counter. An operation is posted between `begin` and `posted`; `ended` is when its end was seen. Two
threads may post at once: then neither is before the other, and either order is allowed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

NEVER = 1 << 60
FULL = (1 << 64) - 1


@dataclasses.dataclass(eq=False)
class Message:
    """What was sent. sure: it must arrive, unless something is lost later."""

    number: int
    link: Any
    sender: int
    receiver: int
    tag: int
    data: bytes
    begin: int
    posted: int = NEVER
    sure: bool = True
    withdrawn: bool = False  # cancelled: it may not arrive
    by: Receive | None = None
    taken: int = NEVER  # when the end of its receive was seen
    seen: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # by probes


@dataclasses.dataclass(eq=False)
class Receive:
    """What was posted to get a message. over: from when on it got none for sure, if it has none."""

    number: int
    worker: int
    tag: int
    mask: int
    link: Any  # None: from anyone
    capacity: int
    begin: int
    posted: int = NEVER
    over: int = NEVER
    message: Message | None = None

    def fits(self, message: Message) -> bool:
        """May it get the message?"""
        return (
            message.receiver == self.worker
            and ((message.tag ^ self.tag) & self.mask) == 0
            and (self.link is None or self.link is message.link)
        )


def wrong_matches(messages: Iterable[Message], receives: Iterable[Receive]) -> str | None:
    """What is wrong with the matching, or None. Messages of one sender are matched in the order of posting, by the earliest
    receive that fits."""
    receives = list(receives)
    for later in messages:
        receive = later.by
        if receive is None:
            continue
        for other in receives:  # posted before, and without a message when this one was matched
            if other is receive or not other.fits(later) or other.posted >= receive.begin:
                continue
            free = other.over if other.message is None else other.message.begin
            if later.taken < free:
                return f"message {later.number} went to receive {receive.number}, past {other.number}, which was posted before"
    lanes: dict[tuple[Any, int, int], list[Message]] = {}
    for message in messages:
        lanes.setdefault((message.link, message.sender, message.receiver), []).append(message)
    for lane in lanes.values():
        for first, second in itertools.combinations(lane, 2):
            if second.posted < first.begin:
                first, second = second, first
            if first.posted >= second.begin or first.withdrawn:
                continue
            if problem := _overtaken(first, second):
                return problem
    return None


def _overtaken(first: Message, second: Message) -> str | None:
    receive = second.by
    if receive is not None and receive.fits(first):
        if first.by is None and first.sure:
            return f"message {second.number} overtook {first.number}, which fits receive {receive.number} and never came"
        if first.by is not None and receive.posted < first.by.begin:
            return f"message {second.number} overtook {first.number}: receive {receive.number} was before {first.by.number}"
    return None


@dataclasses.dataclass(eq=False)
class Write:
    """Bytes that were put to a region."""

    number: int
    end: Any  # of which connection: (link, worker)
    offset: int
    data: np.ndarray
    covers: np.ndarray  # positions from offset, one for each byte of data
    begin: int
    posted: int = NEVER
    sure: int = NEVER  # from when on it is visible for sure
    possible: bool = True  # false: it was refused before anything moved


class Region:
    """The bytes of a memory that peers put to, as they may be seen."""

    def __init__(self, content: bytes) -> None:
        data = np.frombuffer(content, np.uint8).copy()
        self.writes = [Write(0, None, 0, data, np.arange(data.size), 0, 0, 0)]
        self.released = NEVER  # when the release began

    def allowed(self, offset: int, seen: bytes, fences: Fences, begin: int, end: int, get: Any = None) -> str | None:
        """May a look between two moments show this? get: the operation that looks; its fences count."""
        data = np.frombuffer(seen, np.uint8)
        fine = np.zeros(data.size, bool)
        near = []
        for write in self.writes:
            places = write.offset + write.covers - offset
            inside = (places >= 0) & (places < data.size)
            if write.possible and write.begin < end and inside.any():
                if get is not None and write.end == get.end and fences.between(get.end, get.posted, write.begin):
                    continue  # behind a fence that is behind the get
                near.append((write, places[inside], write.data[inside]))
        for write, places, values in near:
            hidden = np.zeros(data.size, bool)
            for other, its_places, _ in near:
                shown = other.sure < begin or (
                    get is not None and other.end == get.end and fences.between(get.end, other.posted, get.begin)
                )
                if other is not write and shown and self._before(write, other, fences):
                    hidden[its_places] = True
            fine[places[(data[places] == values) & ~hidden[places]]] = True
        if fine.all():
            return None
        place = int(np.argmin(fine))
        return f"byte {offset + place} is {data[place]:#x}, which nothing that may be seen has written"

    def _before(self, first: Write, second: Write, fences: Fences) -> bool:
        if first.sure < second.begin:
            return True
        return first.end == second.end and fences.between(first.end, first.posted, second.begin)


class Fences:
    """The fences of all ends of connections."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, int, int]] = []

    def add(self, end: Any, begin: int, posted: int) -> None:
        """A fence was posted."""
        self.all.append((end, begin, posted))

    def between(self, end: Any, before: int, after: int) -> bool:
        """Does a fence of that end stand between what was posted before, and what begins after?"""
        return any(fence[0] == end and before < fence[1] and fence[2] < after for fence in self.all)


@dataclasses.dataclass(eq=False)
class Bit:
    """One operation on a word: each adds a bit of its own, so that a value says which ones are in it."""

    number: int
    value: int
    begin: int
    sure: int = NEVER
    possible: bool = True


class Word:
    """A 64-bit word of atomics, or of a signal that is added to."""

    BITS = 63

    def __init__(self) -> None:
        self.bits: list[Bit] = []
        self.fetched: list[tuple[Bit, int]] = []

    def full(self) -> bool:
        """Is no bit left?"""
        return len(self.bits) >= self.BITS

    def add(self, number: int, begin: int) -> Bit:
        """A bit for an operation."""
        bit = Bit(number, 1 << len(self.bits), begin)
        self.bits.append(bit)
        return bit

    def allowed(self, value: int, begin: int, end: int, own: Bit | None = None) -> str | None:
        """May a look between two moments, or the fetch of the operation that has a bit of its own, show this value?"""
        for bit in self.bits:
            there = (value & bit.value) != 0
            if there and (bit is own or bit.begin > end or not bit.possible):
                return f"the word has operation {bit.number}, which it cannot have yet: {value:#x}"
            if not there and bit is not own and bit.sure < begin:
                return f"the word lacks operation {bit.number}, which is sure: {value:#x}"
        if value >> len(self.bits) != 0:
            return f"the word has bits of nobody: {value:#x}"
        return None

    def fetch(self, own: Bit, value: int, begin: int, end: int) -> str | None:
        """An operation brought the old value: all of them are one after the other."""
        for other, its in self.fetched:
            first, small, large = (own, value, its) if (its & own.value) != 0 else (other, its, value)
            if (small & ~large) != 0 or (large & first.value) == 0:
                return f"operations {own.number} and {other.number} were not one after the other: {value:#x}, {its:#x}"
        self.fetched.append((own, value))
        return self.allowed(value, begin, end, own)
