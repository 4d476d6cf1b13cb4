# SPDX-License-Identifier: Apache-2.0
"""What the parent of mode "processes" has of the objects of its children: names, and what it was shown."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import thalweg as tw

from .buffers import Buffer, payload
from .child import Census, Ref
from .pool import Process
from .state import REGION, Place


@dataclasses.dataclass
class Leftovers:
    """What the plans of a program may leave in a process: proxies, their connections to those of other processes, and what a
    context's first queue makes at each place."""

    proxies: int = 0
    devices: int = 0
    queued: bool = False  # emulated devices make threads for a context when they first need them
    peers: list[Process] = dataclasses.field(default_factory=list)

    def beside(self, before: Census) -> Census:
        """What there may be now. A channel's words stay, many in a segment."""
        links = sum(peer.alive for peer in self.peers)
        return Census(
            before.descriptors + 3 + 12 * self.proxies + 8 * links + 4 * self.devices,
            before.threads + self.proxies + 2 * self.queued + 16 * self.devices,
            before.segments + 3 + 10 * self.proxies + 6 * links + 4 * self.devices,
            before.links + links,
        )


class Bound(NamedTuple):
    """A method of an object of a child."""

    target: Any
    verb: str

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Calls it there."""
        return self.target.world.ask(
            self.target.process, "call", self.target.ref, self.verb, *self.target.world.named(arguments, options)
        )


class Far:
    """An object of a child."""

    def __init__(self, world: Any, process: Process, name: Any) -> None:
        self.world, self.process, self.name = world, process, name

    @property
    def ref(self) -> Ref:
        """What the child knows it by."""
        return Ref(self.name)

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("__"):
            raise AttributeError(verb)
        return Bound(self, verb)


class FarEnd(Far):
    """An endpoint."""

    state = "in_progress"  # as turns tell, until it is another one


class FarMessage(Far):
    """What a probe found."""

    def __init__(self, world: Any, process: Process, name: Any, found: tuple[int, int, int]) -> None:
        super().__init__(world, process, name)
        self.immediate, self.tag, self.length = found


class FarSignal(Far):
    """The signal of a worker, by whose number it is named."""

    @property
    def value(self) -> Any:
        """Now."""
        return self.world.ask(self.process, "signal", self.name)

    def wait(self, value: int, compare: str, timeout: float) -> Any:
        """Waits there."""
        return self.world.ask(self.process, "wait_signal", self.name, value, compare, timeout)


class FarWorker(Far):
    """A worker."""

    address = b""

    def am_register(self, number: int, handler: Any) -> None:
        """The child has its own handler."""

    def connect(self, address: bytes, **options: Any) -> FarEnd:
        """One end of a connection."""
        made = FarEnd(self.world, self.process, next(self.world.names))
        self.world.ends[self.process.number, made.name] = made
        self.world.ask(self.process, "connect", made.name, self.name, address, options)
        return made

    def probe(self, tag: int, mask: int, take: bool, source: Any = None) -> FarMessage | None:
        """Looks for a message."""
        name = next(self.world.names)
        end = None if source is None else source.name
        found = self.world.ask(self.process, "probe", self.name, name, tag, mask, take, end)
        return None if found is None else FarMessage(self.world, self.process, name, found)


class FarMemory(NamedTuple):
    """The library's memory of a buffer."""

    world: Any
    process: Process
    number: int

    def release(self) -> None:
        """Ends it there."""
        self.world.ask(self.process, "release_buffer", self.number)


class FarBuffer(Buffer):
    """What a child's buffer holds as far as it was shown."""

    def __init__(self, world: Any, process: Process, number: int, kind: str, size: int, filler: int, context: int) -> None:
        self.process, self.number, self.watched = process, number, False
        super().__init__("library" if kind.startswith("emulated") else kind, size, filler, None)
        if self.kind == "library":
            self.memory = FarMemory(world, process, number)
        process.tell("buffer", number, kind, size, filler, context)

    def library(self, size: int, context: Any) -> Any:
        return bytearray(max(size, 1))

    def write(self, data: bytes) -> None:
        super().write(data)
        self.process.tell("write", self.number, data)

    def poison(self, filler: int) -> None:
        super().poison(filler)
        self.process.tell("poison", self.number, filler)

    def show(self, content: bytes | None) -> None:
        """What is in it now; None: what was put there by its user."""
        if content is not None:
            self.base[:] = content

    def held(self) -> bool:
        return self.watched and self.process.alive


@dataclasses.dataclass(eq=False)
class FarPlace(Place):
    """A worker in a child."""

    keys: dict[Any, bytes] = dataclasses.field(default_factory=dict)


class Asking(NamedTuple):
    """A request of a child."""

    world: Any
    process: Process
    number: int

    def cancel(self) -> bool:
        """Asks for its end."""
        return bool(self.world.ask(self.process, "cancel", self.number))


class Mirror(FarBuffer):
    """Of a buffer that a child has made itself."""

    def __init__(self, world: Any, process: Process, number: int, kind: str, size: int, filler: int, context: int) -> None:
        self.process, self.number, self.watched = process, number, False
        Buffer.__init__(self, kind, size, filler, None)


def contents(seed: int, worker: int) -> list[bytes]:
    """What a worker's regions hold at first."""
    return [payload(seed, -1 - 2 * worker - which, REGION) for which in range(2)]


def error_of(name: str, text: str, length: int | None) -> tw.ThalwegError:
    """A command that a child got."""
    error = getattr(tw, name)(text)
    if length is not None:
        error.length = length
    return error
