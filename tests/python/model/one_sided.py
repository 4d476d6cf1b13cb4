# SPDX-License-Identifier: Apache-2.0
"""Posting of one-sided operations, and looks of the owners of memory, words and signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import thalweg as tw

from .buffers import payload
from .messages import Messages
from .program import Step
from .reference import NEVER, Write
from .state import BUFFER, REGION, SLOTS, WORDS, Link, Operation


class OneSided(Messages):
    """Steps about memory of others."""

    def remote(self, link: Link, worker: int, what: Any) -> Any:
        """An import at one end; None: its connection or memory is gone."""
        with self.lock:
            known = link.imports.get((worker, what))
            if known is not None:
                return known
            place = self.places[link.other(worker)]
            if not self.open(link.other(worker)):
                return None
            if isinstance(what, int) and place.known[what].released != NEVER:
                return None
            try:
                made = self.make_import(link, worker, what)
            except (tw.PeerLost, tw.ClosedError, tw.Stale):
                if link.ending == NEVER:
                    raise
                return None
            link.imports[worker, what] = made
            return made

    def make_import(self, link: Link, worker: int, what: Any) -> Any:
        """A new import at one end."""
        place = self.places[link.other(worker)]
        if what == "signal":
            return tw.RemoteSignal(link.ends[worker], place.signal.export(), "add")
        memory = place.words if what == "words" else place.regions[what]
        return tw.RemoteMemory(link.ends[worker], memory.export())

    def signal_bit(self, operation: Operation, link: Link) -> Any:
        """A bit of the peer's signal for it, and the import."""
        word = self.places[link.other(operation.worker)].signalled
        signal = None if word.full() else self.remote(link, operation.worker, "signal")
        if signal is not None:
            operation.signal = word.add(operation.number, operation.begin)
        return signal

    def do_put(self, step: Step) -> Iterator[None]:
        self.transfer(step, "put")
        yield from ()

    def do_get(self, step: Step) -> Iterator[None]:
        self.transfer(step, "get")
        yield from ()

    def transfer(self, step: Step, what: str) -> None:
        """Posts a put or a get."""
        with self.lock:
            link = self.link(step.worker, step.peer)
            which = step.thread % 2
            remote = None if link is None else self.remote(link, step.worker, which)
            if link is None or remote is None:
                return
            operation = self.operation(what, step, link)
            offset, room = SLOTS[step.tag]
            size = min(step.size, room)
            layout = "layout" in step.flags and 0 < 2 * size <= min(room, 8000) and size % 8 == 0
            operation.region, operation.offset = (link.other(step.worker), which), offset
            buffer = self.buffer(operation, step.kind, size)
            options: dict[str, Any] = {flag: True for flag in ("after_all", "visible", "no_wait") if flag in step.flags}
            if what == "put":
                data = payload(self.program.seed, operation.number, size)
                buffer.write(data)
                covers = np.arange(size)
                if layout:
                    covers = covers // 8 * 16 + covers % 8
                    options["remote_layout"] = self.layout(size)
                operation.write = Write(
                    operation.number, operation.end, offset, np.frombuffer(data, np.uint8), covers, operation.begin
                )
                self.places[operation.region[0]].known[which].writes.append(operation.write)
                signal = self.signal_bit(operation, link) if "signal" in step.flags else None
                if signal is not None and operation.signal is not None:
                    options["signal"], options["value"] = signal, operation.signal.value
                if signal is None:
                    options.pop("after_all", None)
            else:
                options = {}
            self.operations.append(operation)
        self.start(operation, link.ends[step.worker], what, BUFFER, remote, offset, **options)

    def layout(self, size: int) -> Any:
        """Of pieces of 8 bytes, every other one."""
        return tw.Layout.strided(8, [size // 8], [16])

    def do_atomic(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            remote = None if link is None else self.remote(link, step.worker, "words")
            if link is None or remote is None:
                return
            word = self.places[link.other(step.worker)].atomics[step.tag % WORDS]
            if word.full():
                return
            operation = self.operation("atomic", step, link)
            operation.word, operation.bit = word, word.add(operation.number, operation.begin)
            self.operations.append(operation)
        options = {"fetch": "fetch" in step.flags, "visible": "visible" in step.flags}
        place = 8 * (step.tag % WORDS)
        self.start(operation, link.ends[step.worker], "atomic", "add", remote, place, operation.bit.value, **options)
        yield from ()

    def do_signal(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            if link is None:
                return
            operation = self.operation("signal", step, link)
            operation.core = True
            signal = self.signal_bit(operation, link)
            if signal is None or operation.signal is None:
                return
            operation.bit, operation.signal = operation.signal, None
            self.operations.append(operation)
        options = {flag: True for flag in ("after_all", "visible") if flag in step.flags}
        self.start(operation, signal, "post", operation.bit.value, **options)
        yield from ()

    def do_fence(self, step: Step) -> Iterator[None]:
        link = self.link(step.worker, step.peer)
        if link is not None:
            begin = self.now()
            self.guarded(step.worker, link, link.ends[step.worker].fence)
            self.fences.add((link, step.worker), begin, self.now())
        yield from ()

    def do_flush(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            if link is None:
                return
            whole = "worker" in step.flags
            operation = self.operation("flush", step, None if whole else link)
            self.operations.append(operation)
        self.start(operation, self.places[step.worker].core if whole else link.ends[step.worker], "flush")
        yield from ()

    def look_region(self, worker: int, which: int, slot: int) -> None:
        """The owner looks at its memory."""
        place = self.places[worker]
        with self.lock:
            region = place.known[which]
            if region.released != NEVER or not self.readable(worker):
                return
            offset, room = SLOTS[slot]
            begin = self.now()
            seen = self.region_bytes(worker, which, offset, room)
            problem = region.allowed(offset, seen, self.fences, begin, self.now())
            if problem is not None:
                self.wrong(f"region {which} of worker {worker}: {problem}")

    def look_words(self, worker: int) -> None:
        """The owner looks at its words."""
        place = self.places[worker]
        with self.lock:
            if not self.readable(worker):
                return
            begin = self.now()
            values = self.word_values(worker)
            end = self.now()
            for number, word in enumerate(place.atomics):
                problem = word.allowed(values[number], begin, end)
                if problem is not None:
                    self.wrong(f"word {number} of worker {worker}: {problem}")

    def readable(self, worker: int) -> bool:
        """Can its memory still be read?"""
        return True

    def region_bytes(self, worker: int, which: int, offset: int, room: int) -> bytes:
        """What its owner sees."""
        place = self.places[worker]
        return bytes(memoryview(place.registered if which == 1 else place.regions[0])[offset : offset + room])

    def word_values(self, worker: int) -> list[int]:
        """What their owner sees."""
        return [int(value) for value in np.frombuffer(self.places[worker].words, np.uint64)]

    def signal_seen(self, worker: int) -> int:
        """What its owner sees, or has seen a moment ago."""
        return self.places[worker].signal.value

    def look_signal(self, worker: int, value: int | None = None) -> None:
        """The owner looks at its signal: what it covers is visible then."""
        place = self.places[worker]
        with self.lock:
            if not self.open(worker):
                return
            begin = self.now()
            value = place.signal.value if value is None else value
            end = self.now()
            problem = place.signalled.allowed(value, begin, end)
            if problem is not None:
                self.wrong(f"the signal of worker {worker}: {problem}")
            for operation in self.operations:
                bit = operation.signal or operation.bit
                if bit not in place.signalled.bits or (value & bit.value) == 0:
                    continue
                bit.sure = min(bit.sure, end)
                if operation.write is not None:
                    operation.write.sure = min(operation.write.sure, end)
                if "after_all" in operation.flags:
                    self.puts_are_sure(operation.end, operation.begin, end)

    def do_look(self, step: Step) -> Iterator[None]:
        self.look_region(step.worker, step.thread % 2, step.tag)
        self.look_words(step.worker)
        yield from ()

    def do_look_signal(self, step: Step) -> Iterator[None]:
        self.look_signal(step.worker)
        yield from ()

    def do_wait_signal(self, step: Step) -> Iterator[None]:
        """A wait with a short limit of time."""
        if not self.open(step.worker):
            return
        signal = self.places[step.worker].signal
        value = self.guarded(step.worker, None, lambda: signal.value)
        if value is None:
            return
        with self.lock:
            come = any(bit.sure != NEVER and (value & bit.value) == 0 for bit in self.places[step.worker].signalled.bits)
        try:
            self.guarded(step.worker, None, lambda: signal.wait(value, "!=", timeout=0.002))
        except tw.TimedOut:
            if come:
                self.wrong(f"a signal of worker {step.worker} that is sure did not end its wait")
        self.look_signal(step.worker)
        yield from ()

    def do_release_region(self, step: Step) -> Iterator[None]:
        """The owner ends a memory under its peers; what it keeps there next is not touched."""
        which = step.thread % 2
        with self.lock:
            region = self.places[step.worker].known[which]
            if region.released != NEVER or step.of % 2 == 1 or not self.readable(step.worker):
                return
        self.release_region(step.worker, which)
        yield from ()

    def release_region(self, worker: int, which: int) -> None:
        """Ends a memory; it is busy while there is a view of it."""
        place = self.places[worker]
        with self.lock:
            region = place.known[which]
            view = memoryview(place.regions[which])
        try:
            place.regions[which].release()
            self.wrong("a memory with a view of it was released")
        except tw.BusyError:
            view.release()
        with self.lock:
            region.released = self.now()
        place.regions[which].release()
        with self.lock:
            if which == 1:
                poison = bytes([self.random.randrange(256)]) * REGION
                place.registered[:] = poison
                self.parted.append((place.registered, poison))
