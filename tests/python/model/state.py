# SPDX-License-Identifier: Apache-2.0
"""The state of one run: connections, workers with what peers may reach, and what was posted."""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
from typing import Any

import thalweg as tw

from .buffers import Buffer
from .reference import NEVER, Bit, Message, Receive, Region, Word, Write

LIMIT = float(os.environ.get("THALWEG_PYTHON_MODEL_LIMIT", 20))  # seconds that anything may take that must end
LOST = ("PeerLost", "ClosedError")
SLOTS = ((0, 64), (1000, 5000), (8192, 72_000))  # offset, bytes: where a tag's puts and gets go
REGION = 81_000  # bytes
WORDS = 3  # of atomics, at each worker
HANDLER = 7
LOST_WITH_WORKER = ("ClosedError", "")
BUFFER = object()  # an argument: the operation's buffer


class Wrong(AssertionError):
    """Something that must not happen."""


class HandlerRaised(Exception):
    """What handlers of active messages raise."""


@dataclasses.dataclass(eq=False)
class Link:
    """A connection. ending: since when it may be lost; closed: who has closed it, and how; lost: a process was killed
    before anybody had."""

    workers: tuple[int, int]
    way: str
    ends: dict[int, Any]
    ending: int = NEVER
    closed: dict[int, bool] = dataclasses.field(default_factory=dict)
    imports: dict[Any, Any] = dataclasses.field(default_factory=dict)
    lost: bool = False

    def other(self, worker: int) -> int:
        """The peer at the other end."""
        return self.workers[1] if worker == self.workers[0] else self.workers[0]


@dataclasses.dataclass(eq=False)
class Active:
    """An active message."""

    number: int
    link: Link
    sender: int
    receiver: int
    data: bytes
    flags: tuple[str, ...]
    begin: int
    posted: int = NEVER
    sure: bool = True
    withdrawn: bool = False
    handled: int = NEVER
    header: bytes = b""
    kept: int = 0  # numbers of what its handler posts, in mode "processes"
    reply: int = 0


@dataclasses.dataclass(eq=False)
class Operation:
    """What was posted."""

    number: int
    what: str
    worker: int
    link: Link | None
    begin: int
    flags: tuple[str, ...] = ()
    posted: int = NEVER
    ended: int = NEVER
    outcome: tuple[str, Any] | None = None
    buffer: Buffer | None = None
    request: Any = None
    asked: bool = False  # to end by a cancel
    canceled: bool = False  # the library has promised that it does
    detached: bool = False  # its outcome is not reported: only its buffer shows it
    message: Message | None = None
    receive: Receive | None = None
    active: Active | None = None
    write: Write | None = None
    bit: Bit | None = None
    word: Word | None = None
    signal: Bit | None = None
    region: tuple[int, int] | None = None  # whose, which
    offset: int = 0
    data: bytes = b""
    core: bool = False  # a request of the package's core, also in asyncio

    @property
    def end(self) -> Any:
        """Which end of which connection it was posted at."""
        return (self.link, self.worker)


@dataclasses.dataclass(eq=False)
class Place:
    """A worker, and what its peers may reach."""

    core: Any
    regions: list[Any]
    registered: bytearray
    words: Any
    signal: Any
    known: list[Region]
    atomics: list[Word]
    signalled: Word
    closing: int = NEVER
    process: Any = None  # in mode "processes"


@functools.cache
def context(number: int) -> tw.Context:
    """One of the contexts that all programs share: making one costs more than a program."""
    return tw.Context(job_key=_key(), silent_timeout=60)


@functools.cache
def _key() -> bytes:
    return secrets.token_bytes(32)


def outcome_of(error: BaseException) -> tuple[str, Any]:
    """How an operation ended, to be compared."""
    return (type(error).__name__, error.length if isinstance(error, tw.Truncated) else "")
