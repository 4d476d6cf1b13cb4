# SPDX-License-Identifier: Apache-2.0
"""Processes that are stopped for a moment, killed in the middle of something, and replaced."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator

import thalweg as tw

from .apart import Apart
from .pool import Process
from .program import Step
from .reference import NEVER
from .state import LOST_WITH_WORKER

LAST_WORDS = ("put", "send", "get", "active", "atomic")


class Deaths(Apart):
    """Steps about processes."""

    def do_stop(self, step: Step) -> Iterator[None]:
        """Stops a process for a moment, wherever its threads are."""
        process = self.places[step.worker].process
        if process.alive and process.stopped < time.monotonic():
            process.stop(0.002 * (1 + step.of))
        yield from ()

    def do_kill(self, step: Step) -> Iterator[None]:
        """Kills a process in the middle of progress, of an operation, or between."""
        process = self.places[step.worker].process
        if not self.may_kill(process):
            return
        with contextlib.suppress(tw.ClosedError):
            if "midway" in step.flags:
                process.dying = True
                for what in LAST_WORDS[step.of % 3 :][: 1 + step.of % 2]:
                    yield from self.run(dataclasses.replace(step, what=what, flags=()))
            if step.flags:
                process.send("doze", 0.02, answer=False)
                process.dying = True
                self.pause(self.pauses.random() * 0.003)
        self.kill(process)

    def victims(self, process: Process) -> list[int]:
        """Workers that end with it."""
        return [number for number in range(len(self.places)) if self.lives_in(number, process)]

    def may_kill(self, process: Process) -> bool:
        """A process must be left to see it."""
        return 0 < len(self.victims(process)) < sum(map(self.open, range(len(self.places))))

    def kill(self, process: Process) -> None:
        """Ends it, and says so to the reference."""
        victims = self.victims(process)
        process.kill()
        self.killed(victims)

    def anybody_stopped(self) -> bool:
        """Is a process stopped?"""
        return any(one.alive and one.stopped > time.monotonic() for one in self.all_processes)

    def lives_in(self, worker: int, process: Process) -> bool:
        """Is the worker open, and in that process?"""
        return self.open(worker) and self.places[worker].process is process

    def pause(self, seconds: float) -> None:
        """The others go on."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def killed(self, victims: list[int]) -> None:
        """What that means for all."""
        for worker in victims:
            self.places[worker].closing = self.now()
        for link in self.links.values():
            gone = set(link.workers) & set(victims)
            link.lost = link.lost or (bool(gone) and not link.closed)
            for worker in gone:
                self.may_end(link, worker, False)
                link.closed.setdefault(worker, True)
        for operation in self.operations:
            if operation.ended != NEVER or operation.worker not in victims:
                continue
            if operation.detached:
                operation.ended = self.now()
                if operation.receive is not None:
                    operation.receive.over = operation.receive.begin
            else:
                self.end(operation, LOST_WITH_WORKER)
        self.taken = [one for one in self.taken if one[1].worker not in victims]

    def do_restart(self, step: Step) -> Iterator[None]:
        """A worker that has ended begins anew: another incarnation."""
        ended = [number for number in range(len(self.places)) if not self.open(number)]
        if not ended:
            return
        worker = ended[step.of % len(ended)]
        yield from self.settle()
        self.taken = [one for one in self.taken if one[1].worker != worker]
        for link in self.links.values():
            if worker in link.workers:
                link.closed.setdefault(worker, True)
        self.links.pop((worker, worker), None)
        self.gone.append(self.places[worker])
        self.signals.pop(worker, None)
        self.places[worker] = self._place(worker)
        for peer in range(len(self.places)):
            yield from self.connect(worker, peer)
