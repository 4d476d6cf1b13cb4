# SPDX-License-Identifier: Apache-2.0
"""Plans between two processes: channels in one or both directions, run by the host, moved to other buffers, ended by a loss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .buffers import payload
from .deaths import Deaths
from .far import FarBuffer, Kept
from .program import Step
from .reference import NEVER
from .state import LIMIT, Link


class Side:
    """One end: a plan, and the buffers of its steps."""

    def __init__(self, world: Any, worker: int, end: Any, kinds: list[str], tag: int) -> None:
        self.world, self.worker, self.process, self.tag = world, worker, end.process, tag
        self.name = next(world.names)
        self.verbs = kinds
        self.buffers: list[FarBuffer] = []

    def new_buffers(self, kind: str, size: int) -> None:
        """One for each step."""
        world = self.world
        self.buffers = []
        for _ in self.verbs:
            number, context = next(world.numbers), world.context_of(self.worker)
            self.buffers.append(FarBuffer(world, self.process, number, kind, size, world.random.randrange(256), context))


class Channels(Deaths):
    """The step `plan`."""

    def do_plan(self, step: Step) -> Iterator[None]:
        link = self.link(step.worker, step.peer)
        if link is None or link.ending != NEVER or not self.apart(link):
            return
        both = "both" in step.flags
        tag = 100 + next(self.numbers) if "own" in step.flags else step.tag
        verbs = (["send", "recv"], ["recv", "send"]) if both else (["send"], ["recv"])
        sides = [
            Side(self, worker, link.ends[worker], kinds, tag)
            for worker, kinds in zip((step.worker, step.peer), verbs, strict=True)
        ]
        yield from self.quiet()
        for side in sides:
            side.new_buffers(step.kind, step.size)
            steps = [(verb, one.number, tag) for verb, one in zip(side.verbs, side.buffers, strict=True)]
            self.ask(side.process, "plan", side.name, self.context_of(side.worker), link.ends[side.worker].name, steps, LIMIT)
        for side, other in (sides, sides[::-1]):
            self.note_plan(side, other)
        self.well(self.together("prepare", sides, LIMIT), "cannot prepare a plan")
        for number in range(1 + step.of % 3):
            if number > 0 and "update" in step.flags:
                self.update(sides, step)
            self.run_once(sides)
        if "lost" in step.flags:
            self.lose_one(sides, link, step)
        for side in sides:
            if side.process.alive:
                self.ask(side.process, "close_plan", side.name)

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
        kept = self.kept.setdefault(process.number, Kept())
        if context not in process.planned:
            process.planned.add(context)
            kept.agents += 1
        pair = (context, other.process, self.context_of(other.worker))
        if pair not in process.agents:
            process.agents.add(pair)
            kept.peers.append(other.process)

    def together(self, what: str, sides: list[Side], *arguments: Any) -> list[Any]:
        """A command at both sides at the same time; the errors."""
        for side in sides:
            side.process.send(what, side.name, *arguments)
        errors = []
        for side in sides:
            _, error, notes = side.process.receive(what)
            self.take(notes)
            errors.append(error)
        return errors

    def well(self, errors: list[Any], what: str) -> None:
        if any(error is not None for error in errors):
            self.wrong(f"{what}: {errors}")

    def fill(self, sides: list[Side]) -> None:
        """New bytes to be sent."""
        for side in sides:
            for verb, buffer in zip(side.verbs, side.buffers, strict=True):
                if verb == "send":
                    buffer.write(payload(self.program.seed, next(self.numbers), buffer.size))

    def run_once(self, sides: list[Side]) -> None:
        """Both run; every byte comes, and no other is written."""
        self.fill(sides)
        self.well(self.together("run", sides, LIMIT), "a plan's run")
        self.compare(sides)

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

    def update(self, sides: list[Side], step: Step) -> None:
        """The steps of one or both sides move to other buffers; the ones before are their user's."""
        for side in sides[: 1 + step.of % 2]:
            before = side.buffers
            side.new_buffers(step.kind, step.size)
            for number, buffer in enumerate(side.buffers):
                self.ask(side.process, "update", side.name, number, buffer.number)
            for buffer in before:
                buffer.poison(self.random.randrange(256))

    def lose_one(self, sides: list[Side], link: Link, step: Step) -> None:
        """A side is killed before or in a run; the other one is told, and its buffers are its own again."""
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
