# SPDX-License-Identifier: Apache-2.0
"""Plans between two processes: channels in one or both directions, run by the host or on queues of the host or of a device,
moved to other buffers, ended by a loss or beside a peer that is stopped; and single operations on queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import thalweg as tw

from .buffers import payload
from .child import Given, Ref
from .deaths import Deaths
from .far import FarBuffer, Leftovers
from .pool import Process
from .program import Step
from .reference import NEVER
from .state import LIMIT, Link

SHORT = 0.03  # seconds to wait for a run without a partner
BRIEF, FEW = 0.1, 2.0  # seconds: the limits of plans of which no run is met, and of which one perhaps is not
UNMET = ("TimedOut", "ClosedError", "PeerLost")  # how it ends, and how that of its peer does
UNASKED = 4096  # bytes: a message of so many is eager
SINGLE = 300  # tags of operations on queues come behind it
# A partner that is prepared already keeps the way of its channel, so each pair of executors has tags of its own.
EXECUTORS = (None, "host", "emulated:0", "emulated:1")


class Side:
    """One end: a plan, and the buffers of its steps. place: of the queue that it runs on; None: the host runs it."""

    def __init__(self, world: Any, worker: int, end: Any, kinds: list[str], tag: int, place: str | None, limit: float) -> None:
        self.world, self.worker, self.process, self.tag, self.place = world, worker, end.process, tag, place
        self.limit = limit
        self.name = next(world.names)
        self.verbs = kinds
        self.buffers: list[FarBuffer] = []

    def new_buffer(self, kind: str, size: int) -> FarBuffer:
        """Of this kind; where its queue is a device's, of that device's memory."""
        world = self.world
        number, context = next(world.numbers), world.context_of(self.worker)
        if self.place is not None:
            world.note_place(self.process, context, self.place)
            if self.place != "host":
                kind, size = self.place, max(size, 1)
        return FarBuffer(world, self.process, number, kind, size, world.random.randrange(256), context)

    def new_buffers(self, kind: str, size: int) -> None:
        """One for each step."""
        self.buffers = [self.new_buffer(kind, size) for _ in self.verbs]


def places_of(step: Step) -> list[str | None]:
    """Where the queues of both sides are."""
    if "device" in step.flags:
        return [f"emulated:{side}" if step.thread in (side, 2) else "host" for side in range(2)]
    return ["host", "host"] if "queue" in step.flags else [None, None]


def tag_of(step: Step, places: list[str | None]) -> int:
    """Of its own for each pair of executors."""
    first, second = places if step.worker < step.peer else places[::-1]
    return step.tag + 1000 * (4 * EXECUTORS.index(first) + EXECUTORS.index(second))


class Channels(Deaths):
    """The steps `plan` and `on_queue`."""

    def do_plan(self, step: Step) -> Iterator[None]:
        link = self.link(step.worker, step.peer)
        if link is None or link.ending != NEVER or not self.apart(link):
            return
        both = "both" in step.flags
        places = places_of(step)
        tag = 100 + next(self.numbers) if "own" in step.flags else tag_of(step, places)
        verbs = (["send", "recv"], ["recv", "send"]) if both else (["send"], ["recv"])
        unmet = "stopped" in step.flags and step.of % 4 == 3
        limit = BRIEF if unmet else FEW if "stopped" in step.flags else LIMIT
        sides = [
            Side(self, worker, link.ends[worker], kinds, tag, place, limit)
            for worker, kinds, place in zip((step.worker, step.peer), verbs, places, strict=True)
        ]
        yield from self.quiet()
        # What a device's side cannot be of length 0 is so at neither.
        size = max(step.size, 1) if "device" in step.flags else step.size
        for side in sides:
            side.new_buffers(step.kind, size)
            steps = [(verb, one.number, tag) for verb, one in zip(side.verbs, side.buffers, strict=True)]
            context, end = self.context_of(side.worker), link.ends[side.worker].name
            self.ask(side.process, "plan", side.name, context, end, steps, side.place, limit)
        for side, other in (sides, sides[::-1]):
            self.note_plan(side, other)
        self.well(self.together("prepare", sides, LIMIT), "cannot prepare a plan")
        for number in range(0 if unmet else 1 + step.of % 3):
            if number > 0 and "update" in step.flags:
                self.update(sides, size, step)
            self.run_once(sides, 1 + (step.of + number) % 2)
        if "lost" in step.flags and not unmet:
            self.lose_one(sides, link, step)
        elif "stopped" in step.flags:
            yield from self.leave_one(sides[:: 1 if step.thread % 2 == 0 else -1], step)
        for side in sides:
            if side.process.alive:
                self.close_plan(side)

    def apart(self, link: Link) -> bool:
        """Are its workers in two processes that live?"""
        first, second = (self.places[worker].process for worker in link.workers)
        return first is not second and first.alive and second.alive

    def quiet(self) -> Iterator[None]:
        """Nobody is stopped."""
        yield from self.until(lambda: not self.anybody_stopped(), lambda: "a process does not go on")

    def note_plan(self, side: Side, other: Side) -> None:
        """What the first plan of a context, and the first one with another process, leave there for good."""
        process, context = side.process, self.context_of(side.worker)
        kept = self.kept.setdefault(process.number, Leftovers())
        if context not in process.planned:
            process.planned.add(context)
            kept.proxies += 1
        pair = (context, other.process, self.context_of(other.worker))
        if pair not in process.proxies:
            process.proxies.add(pair)
            kept.peers.append(other.process)

    def note_place(self, process: Process, context: int, place: str) -> None:
        """The first queue of a context there."""
        kept = self.kept.setdefault(process.number, Leftovers())
        kept.queued = True
        if (context, place) not in process.devices:
            process.devices.add((context, place))
            kept.devices += 1

    def together(self, what: str, sides: list[Side], *arguments: Any) -> list[Any]:
        """A command at both sides at the same time; the errors."""
        for side in sides:
            side.process.send(what, side.name, *arguments)
        return [self.answer(side.process, what) for side in sides]

    def answer(self, process: Any, what: str) -> Any:
        """The error that a command ended with."""
        _, error, notes = process.receive(what)
        self.take(notes)
        return error

    def well(self, errors: list[Any], what: str) -> None:
        if any(error is not None for error in errors):
            self.wrong(f"{what}: {errors}")

    def fill(self, sides: list[Side]) -> None:
        """New bytes to be sent."""
        for side in sides:
            for verb, buffer in zip(side.verbs, side.buffers, strict=True):
                if verb == "send":
                    buffer.write(payload(self.program.seed, next(self.numbers), buffer.size))

    def run_once(self, sides: list[Side], times: int) -> None:
        """Both run, on a queue perhaps twice without a look between; every byte comes, and no other is written."""
        self.fill(sides)
        self.well(self.together("run", sides, LIMIT, times), "a plan's run")
        self.compare(sides)

    def close_plan(self, side: Side) -> None:
        """Its buffers are their user's then. It is busy while a peer, stopped for a moment, may still write to one."""
        end = time.monotonic() + LIMIT
        while side.name is not None:
            try:
                self.ask(side.process, "close_plan", side.name)
                side.name = None
            except tw.BusyError as error:
                if time.monotonic() > end:
                    self.wrong(f"a plan at {side.worker} stays busy: {error}")
                time.sleep(0.001)

    def leave_one(self, sides: list[Side], step: Step) -> Iterator[None]:
        """A receiver's plan is closed beside a peer that is stopped, perhaps behind a run without a partner: one whose limit is
        over, or one that goes on and keeps the plan. The buffer stays as its user leaves it then, whatever the peer runs."""
        leaver, other = sides if "recv" in sides[0].verbs else sides[::-1]
        if "send" in leaver.verbs:
            return
        self.fill(sides)
        if step.of % 2 == 1 and self.keeps_running(leaver):
            leaver.process.send("finish", leaver.name, LIMIT)
            self.well(self.together("run", [other], LIMIT), "a plan's run behind another one's limit")
            self.well([self.answer(leaver.process, "finish")], "a plan's run that was met late")
            return self.compare(sides)
        other.process.stop(0.004)
        self.close_plan(leaver)
        self.leave_buffers(leaver)
        yield from self.quiet()
        # An RTS to a receiver whose plan has ended keeps its sender's plan until that process takes the next message.
        if other.place in (None, "host") and other.buffers[0].size <= UNASKED:
            error = self.together("run", [other], SHORT)[0]
            if error is not None and error[0] not in UNMET:
                self.wrong(f"a plan at {other.worker} whose peer's has ended tells {error}")
        for buffer in leaver.buffers:
            buffer.show(self.ask(leaver.process, "show", buffer.number))
            if not buffer.untouched():
                self.wrong(f"the buffer of a closed plan at {leaver.worker} was written to")

    def keeps_running(self, leaver: Side) -> bool:
        """Runs it alone. Does it still run behind that? Then it cannot be closed."""
        goes_on = leaver.limit != BRIEF
        error = self.together("start" if goes_on else "run", [leaver], SHORT if goes_on else LIMIT)[0]
        if error is not None and error[0] not in UNMET:
            self.wrong(f"a plan at {leaver.worker} that nobody met ended with {error}")
        if error is None and "recv" in leaver.verbs and not (goes_on and leaver.place is not None):
            self.wrong(f"a plan at {leaver.worker} received what nobody has sent")
        if not goes_on or (error is None and leaver.place is None):
            return False
        try:
            self.ask(leaver.process, "close_plan", leaver.name)
        except tw.BusyError:
            return True
        if "recv" in leaver.verbs:
            self.wrong(f"a plan at {leaver.worker} was closed while it ran")
        leaver.name = None  # a send may end by itself
        return False

    def leave_buffers(self, side: Side) -> None:
        """They are their user's again; what is around them is as it was."""
        for buffer in side.buffers:
            buffer.show(self.ask(side.process, "show", buffer.number))
            if not buffer.guarded():
                self.wrong(f"a plan at {side.worker} wrote outside of its buffer")
            buffer.poison(self.random.randrange(256))

    def compare(self, sides: list[Side]) -> None:
        for side, other in (sides, reversed(sides)):
            for verb, buffer, source in zip(side.verbs, side.buffers, other.buffers, strict=True):
                buffer.show(self.ask(side.process, "show", buffer.number))
                if verb == "send" and not buffer.untouched():
                    self.wrong(f"the source of a plan at {side.worker} was written to")
                if verb == "recv":
                    if not buffer.has(source.read()):
                        self.wrong(f"a plan at {side.worker} did not bring what was sent, or wrote outside of its buffer")
                    buffer.poison(self.random.randrange(256))

    def update(self, sides: list[Side], size: int, step: Step) -> None:
        """The steps of one or both sides move to other buffers; the ones before are their user's. A receive does not move to
        one that must not be written to, and keeps the one that it has."""
        for side in sides[: 1 + step.of % 2]:
            before = side.buffers
            for number, verb in enumerate(side.verbs):
                if verb == "recv" and side.place in (None, "host"):
                    self.read_only_is_refused(side, number, size)
            side.new_buffers(step.kind, size)
            for number, buffer in enumerate(side.buffers):
                self.ask(side.process, "update", side.name, number, buffer.number)
            for buffer in before:
                buffer.poison(self.random.randrange(256))

    def read_only_is_refused(self, side: Side, number: int, size: int) -> None:
        """Before anything happens."""
        try:
            self.ask(side.process, "update_to_read_only", side.name, number, size)
        except tw.InvalidError as error:
            if "read-only" in str(error):
                return
            raise
        self.wrong(f"a plan at {side.worker} receives into a buffer that is read-only")

    def do_on_queue(self, step: Step) -> Iterator[None]:
        """Operations on queues, which are prepared by their first call."""
        link = self.link(step.worker, step.peer)
        if link is None or link.ending != NEVER or not self.apart(link):
            return
        workers, places = (step.worker, step.peer), [place or "host" for place in places_of(step)]
        # The first operation decides how the channel goes for all later ones of a queue (decision 0019).
        tag = SINGLE + tag_of(step, places) + (100 if step.kind == "library" else 0)
        sides = [
            Side(self, worker, link.ends[worker], [], tag, place, LIMIT) for worker, place in zip(workers, places, strict=True)
        ]
        yield from self.quiet()
        for side, other in (sides, sides[::-1]):
            self.note_plan(side, other)
            self.ask(side.process, "on_queue", side.name, self.context_of(side.worker), side.place)
        size = max(step.size, 1)
        # Open (docs/testing.md): the receiver's second buffer cannot be imported while the sender's kernel waits for it.
        devices = sum(place != "host" for place in places)
        for number in range(1 if devices == 2 else 1 + step.of % 3):
            first, second = sides[:: -1 if "both" in step.flags and number % 2 else 1]
            if number == 0 and "put" in step.flags:  # what the host carries needs a proxy at both sides, which this makes
                self.send_on(first, second, link, step, size)
            self.put_on(first, second, link, step.kind, size) if "put" in step.flags else self.send_on(
                first, second, link, step, size
            )
        for side in sides:
            self.ask(side.process, "close_queue", side.name)

    def send_on(self, first: Side, second: Side, link: Link, step: Step, size: int) -> None:
        """A message from one queue to another one."""
        sent, got = first.new_buffer(step.kind, size), second.new_buffer(step.kind, size)
        sent.write(payload(self.program.seed, next(self.numbers), size))
        ends = ((second, "recv", got), (first, "send", sent))
        for side, verb, buffer in ends:  # the first call waits for the other side's
            arguments = [Ref(link.ends[side.worker].name), Given(buffer.number), side.tag]
            side.process.send("enqueue", side.name, verb, arguments)
        self.well([self.answer(side.process, "enqueue") for side, _, _ in ends], "an operation on a queue")
        self.well(self.together("synchronize", [first, second]), "operations on queues")
        got.show(self.ask(second.process, "show", got.number))
        if not got.has(sent.read()):
            self.wrong(
                f"an operation on a queue at {second.worker} did not bring what was sent, or wrote outside of its buffer"
            )
        for buffer in (sent, got):
            buffer.poison(self.random.randrange(256))

    def put_on(self, first: Side, second: Side, link: Link, kind: str, size: int) -> None:
        """To memory of the other side, and back, in the order of the queue."""
        there = second.new_buffer("library", size)
        sent, back = first.new_buffer(kind, size), first.new_buffer(kind, size)
        sent.write(payload(self.program.seed, next(self.numbers), size))
        name, key = next(self.names), self.ask(second.process, "export", there.number)
        self.ask(first.process, "import", name, link.ends[first.worker].name, key, "memory")
        for verb, buffer in (("put", sent), ("get", back)):
            self.ask(first.process, "enqueue", first.name, verb, [Given(buffer.number), Ref(name), 0])
        self.well(self.together("synchronize", [first]), "operations on a queue")
        for side, buffer in ((first, back), (second, there)):
            buffer.show(self.ask(side.process, "show", buffer.number))
            if not buffer.has(sent.read()):
                self.wrong(f"a put and a get on a queue at {first.worker} left other bytes at {side.worker}")
        self.ask(first.process, "drop", name)
        for buffer in (sent, back, there):
            buffer.poison(self.random.randrange(256))

    def lose_one(self, sides: list[Side], link: Link, step: Step) -> None:
        """A side is killed before or in a run; the other one gets the error, and its buffers are its own again."""
        victim, other = sides if step.thread % 2 == 0 else reversed(sides)
        if not self.may_kill(victim.process):
            return
        self.fill(sides)
        for side in (victim, other) if step.of % 2 == 0 else (other,):
            side.process.send("run", side.name, LIMIT)
        time.sleep(self.pauses.random() * 0.002)
        self.kill(victim.process)
        _, error, notes = other.process.receive("run")
        self.take(notes)
        if error is not None and error[0] != "PeerLost":
            self.wrong(f"a plan at {other.worker} whose peer was killed ended with {error}")
        again = self.together("run", [other], LIMIT)[0]
        if again is None or again[0] != "PeerLost":
            self.wrong(f"a plan at {other.worker} with a killed peer was run, and told {again}")
        for buffer in other.buffers:
            buffer.show(self.ask(other.process, "show", buffer.number))
            if not buffer.guarded():
                self.wrong(f"a plan at {other.worker} whose peer was killed wrote outside its buffer")
            buffer.poison(self.random.randrange(256))
