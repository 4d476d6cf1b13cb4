# SPDX-License-Identifier: Apache-2.0
"""Programs between processes: each worker is in a child, which does what it is told by a pipe; the reference is here.

What the children do at the same time is their progress, the library's threads, and what a stopped or killed one leaves.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import thalweg as tw

from .buffers import Buffer, payload
from .child import Given, Strided, header_of
from .far import Asking, Far, FarBuffer, FarEnd, FarPlace, FarSignal, FarWorker, Leftovers, Mirror, contents, error_of
from .plain import SHORT, Plain
from .pool import Pool, Process
from .program import Program, Step
from .reference import NEVER, Region, Word
from .state import BUFFER, LOST_WITH_WORKER, WORDS, Active, Link, Operation, Place


class Apart(Plain):
    """Steps as commands to children, and their answers."""

    def __init__(self, program: Program, pool: Pool) -> None:
        self.pool = pool
        self.names = itertools.count(1000)
        self.ends: dict[tuple[int, Any], FarEnd] = {}
        self.by_number: dict[int, Operation] = {}
        self.processes: dict[int, Process] = {}  # by home
        self.all_processes: list[Process] = []
        self.signals: dict[int, int] = {}
        self.links_there: dict[int, int] = {}
        self.pauses = random.Random(f"{program.seed}/pauses")
        self.by_self = [number > 0 and program.ways[number - 1] == "self" for number in range(program.workers)]
        self.kept: dict[int, Leftovers] = {}  # of processes that had a plan
        self.gone: list[Place] = []  # of workers that were started again
        super().__init__(program)

    # ------------------------------------------------------------------------------------------- children

    def home(self, worker: int) -> int:
        """Which process a worker is in."""
        homes = self.program.homes or (0, 1, 2)
        return homes[0] if self.by_self[worker] else homes[worker]

    def context_of(self, worker: int) -> int:
        """Which context of its process: workers joined by self share one."""
        if self.by_self[worker]:
            return 0
        return sum(self.home(other) == self.home(worker) and not self.by_self[other] for other in range(worker))

    def ask(self, process: Process, name: str, *arguments: Any) -> Any:
        """A command, and its answer; None of a process that is about to be killed."""
        process.send(name, *arguments, answer=not process.dying)
        if process.dying:
            return None
        value, error, notes = process.receive(name)
        self.take(notes)
        if error is not None:
            raise error_of(*error)
        return value

    def take(self, notes: list[tuple[Any, ...]]) -> None:
        """What happened in a child by itself."""
        for what, *rest in notes:
            getattr(self, "note_" + what)(*rest)

    def named(self, arguments: Any, options: Any) -> tuple[list[Any], dict[str, Any]]:
        """Objects of the child by their names."""
        plain = lambda one: one.ref if isinstance(one, Far) else one  # noqa: E731
        return [plain(one) for one in arguments], {name: plain(one) for name, one in options.items()}

    def _place(self, number: int) -> FarPlace:
        home = self.home(number)
        if home not in self.processes or not self.processes[home].alive:
            process = self.processes[home] = self.pool.take()
            self.all_processes.append(process)
            contexts = sum(self.home(one) == home and not self.by_self[one] for one in range(self.program.workers))
            process.before = self.ask(process, "begin", contexts)
        process = self.processes[home]
        made = self.ask(process, "place", number, self.context_of(number), self.program.polling, self.program.seed)
        core = FarWorker(self, process, number)
        core.address = made["address"]
        known = [Region(content) for content in contents(self.program.seed, number)]
        words = [Word() for _ in range(WORDS)]
        signal = FarSignal(self, process, number)
        return FarPlace(core, [], bytearray(), None, signal, known, words, Word(), process=process, keys=made["keys"])

    # ------------------------------------------------------------------------------------------- notes of children

    def note_ended(self, number: int, outcome: tuple[str, Any], shown: bytes | None) -> None:
        operation = self.by_number[number]
        if isinstance(operation.buffer, FarBuffer):
            operation.buffer.show(shown)
        self.end(operation, outcome)

    def note_freed(self, number: int, shown: bytes | None) -> None:
        buffer = self.by_number[number].buffer
        assert isinstance(buffer, FarBuffer)
        buffer.show(shown)
        buffer.watched = False
        self.resolve()

    def note_state(self, home: int, name: Any, state: str) -> None:
        self.ends[home, name].state = state

    def note_told(self, number: int) -> None:
        self.told[number] = self.told.get(number, 0) + 1

    def note_raised(self, number: int) -> None:
        self.raised[number] = 1

    def note_problem(self, text: str) -> None:
        self.wrong(text)

    def note_payload_lost(self, number: int) -> None:
        active = self.actives[number]
        if active.link.ending == NEVER and self.open(active.receiver):
            self.wrong(f"the payload of active message {number} is lost, and nothing else is")

    def note_handled(self, worker: int, header: bytes, length: int, name: Any) -> None:
        end = self.ends.get((self.places[worker].process.number, name))
        self.handler_starts(worker, header, length, end)

    def note_replied(self, number: int, outcome: tuple[str, Any] | None) -> None:
        """The handler of an active message has posted one."""
        active = self.actives[number]
        reply = self.actives[active.reply]
        operation = Operation(active.reply, "active", active.receiver, active.link, active.begin)
        operation.active = reply
        if outcome == ("HandleError", "") and active.receiver in active.link.closed:
            outcome = LOST_WITH_WORKER  # a closed endpoint is not used any more
        reply.sure = outcome is None and active.link.ending == NEVER and self.open(active.sender)
        self.posted_there(operation, "bytearray", reply.data, 0, outcome)

    def note_kept(self, number: int, outcome: tuple[str, Any] | None) -> None:
        """A handler receives its payload later."""
        active = self.actives[number]
        operation = Operation(active.kept, "active_receive", active.receiver, active.link, active.begin)
        operation.core = True
        operation.data = active.data
        self.posted_there(operation, "memoryview", None, active.kept % 256, outcome)

    def posted_there(
        self, operation: Operation, kind: str, data: bytes | None, filler: int, outcome: tuple[str, Any] | None
    ) -> None:
        """A child has posted an operation that it was sent before."""
        process = self.places[operation.worker].process
        size = len(data) if data is not None else len(operation.data)
        made = Mirror(self, process, operation.number, kind, size, filler, 0)
        if data is not None:
            Buffer.write(made, data)
        operation.buffer = made
        operation.request = Asking(self, process, operation.number)
        self.buffers.append(made)
        self.operations.append(operation)
        self.by_number[operation.number] = operation
        self.stamp(operation)
        if outcome is not None:
            self.end(operation, outcome)

    # ------------------------------------------------------------------------------------------- operations

    def buffer(self, operation: Operation, kind: str, size: int) -> Buffer:
        process = self.places[operation.worker].process
        context = self.context_of(operation.worker)
        made = FarBuffer(self, process, operation.number, kind, size, self.random.randrange(256), context)
        operation.buffer = made
        self.buffers.append(made)
        return made

    def header_of(self, active: Active) -> bytes:
        """With what the handler does, and the numbers of what it posts."""
        if not active.header:
            active.kept, active.reply = next(self.numbers), next(self.numbers)
            if "reply" in active.flags:
                data = payload(self.program.seed, active.reply, 8)
                reply = Active(active.reply, active.link, active.receiver, active.sender, data, (), active.begin, sure=False)
                reply.header = header_of(reply.number, 0, 0, self.program.seed, reply.sender, ())
                self.actives[reply.number] = reply
            active.header = header_of(active.number, active.kept, active.reply, self.program.seed, active.sender, active.flags)
        return active.header

    def start(self, operation: Operation, target: Any, verb: str, *arguments: Any, **options: Any) -> None:
        self.by_number[operation.number] = operation
        given, named = self.named(arguments, options)
        given = [Given(operation.number) if one is BUFFER else one for one in given]
        outcome = None
        try:
            self.ask(target.process, "post", operation.number, operation.worker, target.ref, verb, given, named)
        except tw.ThalwegError as error:
            outcome = (type(error).__name__, error.length if isinstance(error, tw.Truncated) else "")
        self.stamp(operation)
        if outcome is None:
            operation.request = Asking(self, target.process, operation.number)
        else:
            self.end(operation, outcome)

    def collect(self, operation: Operation, request: Any, timeout: float = 0) -> bool:
        self.ask(request.process, "wait", operation.number, timeout)
        return operation.outcome is not None

    def look(self, operation: Operation) -> None:
        """Turns tell what has ended."""

    def after_worker(self, operation: Operation) -> None:
        self.end(operation, LOST_WITH_WORKER)

    def end_worker(self, worker: int) -> None:
        self.ask(self.places[worker].process, "close_worker", worker)

    def detach(self, operation: Operation, unsure: bool = False) -> None:
        if operation.outcome is None and not operation.detached and isinstance(operation.buffer, FarBuffer):
            operation.buffer.watched = True
            operation.buffer.process.tell("detach", operation.number)
        super().detach(operation, unsure)

    def do_wait_any(self, step: Step) -> Iterator[None]:
        some = [one for one in self.pending() if self.open(one.worker)][-1 - step.of :]
        if some:
            process = some[-1].request.process
            numbers = [one.number for one in some if one.request.process is process]
            problem = self.ask(process, "wait_any", numbers, SHORT)
            if problem is not None:
                self.wrong(problem)
        yield from ()

    def now_or_never(self, operation: Operation, function: Any, *arguments: Any, **options: Any) -> None:
        self.by_number[operation.number] = operation
        target, verb = function
        given, named = self.named(arguments, {**options, "timeout": SHORT})
        buffer = operation.buffer
        assert isinstance(buffer, FarBuffer)
        goes_on, outcome, shown = self.ask(
            target.process, "now", operation.number, target.ref, verb, [Given(operation.number), *given], named
        ) or (False, LOST_WITH_WORKER, None)  # it is about to be killed
        buffer.show(shown)
        if goes_on or outcome[0] == "Canceled":
            operation.asked = True
        self.stamp(operation)
        if operation.receive is not None and (goes_on or outcome[0] == "Canceled"):
            operation.receive.over = operation.begin
        if target.process.dying:
            return  # its end ends it
        if goes_on:
            self.detach(operation, unsure=True)
        else:
            self.end(operation, outcome)

    # ------------------------------------------------------------------------------------------- memory of others

    def how(self, way: str) -> dict[str, Any]:
        if way == "tls":
            return {**super().how("tcp"), "tls": True}
        return super().how(way)

    def make_import(self, link: Link, worker: int, what: Any) -> Any:
        there: Any = self.places[link.other(worker)]
        end = link.ends[worker]
        made = Far(self, end.process, next(self.names))
        self.ask(end.process, "import", made.name, end.name, there.keys[what], "signal" if what == "signal" else "memory")
        return made

    def layout(self, size: int) -> Any:
        return Strided(8, size // 8, 16)

    def region_bytes(self, worker: int, which: int, offset: int, room: int) -> bytes:
        return self.ask(self.places[worker].process, "read", worker, which, offset, room)

    def word_values(self, worker: int) -> list[int]:
        return self.ask(self.places[worker].process, "words", worker)

    def signal_seen(self, worker: int) -> int:
        return self.signals.get(worker, 0)

    def release_region(self, worker: int, which: int) -> None:
        process = self.places[worker].process
        self.places[worker].known[which].released = self.now()
        problem = self.ask(process, "release_region", worker, which, self.random.randrange(256))
        if problem is not None:
            self.wrong(problem)

    def readable(self, worker: int) -> bool:
        return self.places[worker].process.alive
