# SPDX-License-Identifier: Apache-2.0
"""Runs programs between processes, in a pool of them."""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Iterator
from typing import Any

from .channels import Channels
from .pool import Pool, Process
from .program import Program
from .reference import NEVER

AGAIN = int(os.environ.get("THALWEG_PYTHON_MODEL_AGAIN", 20))  # how often a program runs once one has failed
WARM = 2  # programs of a process, in which it makes what it keeps


class Processes(Channels):
    """The parent of one program."""

    def turn(self) -> None:
        """All children progress at the same time."""
        times = self.pauses.choice((1, 1, 2, 5))
        now = time.monotonic()
        going = [one for one in self.all_processes if one.alive and not one.dying and one.stopped < now]
        for process in going:
            process.send("turn", times)
        answers = [process.receive("turn") for process in going]
        for process, (value, error, notes) in zip(going, answers, strict=True):
            if error is not None:
                self.wrong(f"progress: {error}")
            values, self.links_there[process.number] = value
            self.signals.update(values)
            self.take(notes)
        if not going:
            time.sleep(0.001)

    def finish(self) -> Iterator[None]:
        yield from super().finish()
        yield from self.until(lambda: not self.too_many_links(), self.too_many_links)

    def too_many_links(self) -> str:
        """Ends of connections that are there for nothing."""
        found = []
        for process in self.all_processes:
            if not process.alive:
                continue
            wanted = sum(other.alive for _, other, _ in process.proxies)
            for link in self.links.values():
                if link.ending == NEVER:
                    wanted += sum(self.lives_in(end, process) for end in set(link.workers))
            if self.links_there.get(process.number, 0) > wanted:
                found.append(f"process {process.number} has {self.links_there[process.number]} links instead of {wanted}")
        return "; ".join(found)

    def end_all(self) -> None:
        going = [process for process in self.all_processes if process.alive]
        for place in self.places:
            place.closing = min(place.closing, self.now())
        for process in going:
            process.send("end")
        for process in going:
            for problem in process.receive("end")[0]:
                self.wrong(problem)
        for process in going:
            self.nothing_left(process)

    def nothing_left(self, process: Process) -> None:
        """A process holds no more than before. What it makes once for all programs comes with the first ones."""
        process.programs += 1
        before: Any = process.before
        if process.programs <= WARM:
            return
        if process.number in self.kept:
            before = self.kept[process.number].beside(before)
        now = self.ask(process, "census", before)
        if any(mine > its for mine, its in zip(now, before, strict=True)):
            names = self.ask(process, "descriptors")
            self.wrong(f"process {process.number} has {now} instead of {before}: {names}")

    def all(self) -> None:
        """The program; processes that failed are not used again."""
        try:
            super().all()
        except BaseException:
            for process in self.all_processes:
                if process.alive:
                    process.kill()
            raise
        finally:
            for process in self.all_processes:
                self.pool.give_back(process)


@functools.cache
def _pool() -> Pool:
    pool = Pool()
    atexit.register(pool.close)
    return pool


_failed = False


def run(program: Program) -> None:
    """Runs it; many times once a program has failed, because the same program has another timing each time."""
    global _failed
    for _ in range(AGAIN if _failed else 1):
        try:
            Processes(program, _pool()).all()
        except BaseException:
            _failed = True
            raise
