# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a local job and looks after them to the end.

Life of a job: every rank is started in a process group of its own and set to die with the launcher (PR_SET_PDEATHSIG).
One selector then waits for output, for ends (pidfd) and for signals; nothing is polled. The first rank that fails decides the
exit code; the others get SIGTERM, and SIGKILL after a grace time. Signals the launcher gets go to every rank.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from . import placement

PR_SET_PDEATHSIG = 1
LINE_LIMIT = 1 << 20  # a line longer than this is cut, so that a rank that never ends its line costs bounded memory
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


def die_with(libc: ctypes.CDLL, parent: int, number: int) -> None:
    """In a child, before it runs its program: it gets signal `number` when its parent ends."""
    libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it ended before prctl: no signal would come any more
        os._exit(1)


@dataclasses.dataclass
class Rank:
    """One process of the job."""

    rank: int
    process: subprocess.Popen[bytes]
    started: float
    place: dict[str, Any] | None = None  # where it is bound
    exit_code: int | None = None  # 128 + signal when a signal ended it
    seconds: float | None = None

    def signal_group(self, number: int) -> None:
        """Signals the rank and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


@dataclasses.dataclass
class Stream:
    """One output of one rank, cut into whole lines."""

    rank: int
    source: IO[bytes]
    error: bool
    pending: bytearray = dataclasses.field(default_factory=bytearray)

    def read(self) -> list[bytes] | None:
        """The lines that are complete now; None at the end (what is left is then in ``pending``)."""
        try:
            data = os.read(self.source.fileno(), 1 << 16)
        except BlockingIOError:
            return []
        if not data:
            return None
        self.pending += data
        cut = self.pending.rfind(b"\n") + 1
        if not cut and len(self.pending) > LINE_LIMIT:
            cut = len(self.pending)
        lines = bytes(self.pending[:cut]).splitlines(keepends=False)
        del self.pending[:cut]
        return lines


class Job:
    """The ranks of one command."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        environment: dict[str, str],
        write: Callable[[int, bytes, bool], None],
        say: Callable[[str], None],
        bind: bool = False,
        grace: float = 5.0,
    ) -> None:
        self._command, self._count, self._environment = list(command), count, environment
        self._write, self._say, self._grace = write, say, grace
        self._places = placement.assign(count) if bind else [None] * count
        self._selector = selectors.DefaultSelector()
        self.ranks: list[Rank] = []
        self.exit_code = 0
        self.failed_rank: int | None = None
        self._ending = False
        self._kill_at: float | None = None

    def run(self) -> int:
        """Starts all, returns when all have ended. The exit code: 0, or that of the first rank that failed."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, lambda *_: None) for number in FORWARDED}
        wake_before = signal.set_wakeup_fd(wake_write)
        self._selector.register(wake_read, selectors.EVENT_READ, ("signal", wake_read))
        try:
            self._start_all()
            while any(r.exit_code is None for r in self.ranks):
                self._step()
            self._drain()
        except BaseException:
            self._signal_all(signal.SIGKILL)
            raise
        finally:
            signal.set_wakeup_fd(wake_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(wake_read)
            os.close(wake_write)
        return self.exit_code

    def _start_all(self) -> None:
        libc, launcher = ctypes.CDLL(None), os.getpid()
        for rank in range(self._count):
            place = self._places[rank]

            def prepare(place: dict[str, Any] | None = place) -> None:
                os.setpgid(0, 0)
                die_with(libc, launcher, signal.SIGKILL)
                if place and place["processors"]:
                    os.sched_setaffinity(0, place["processors"])

            process = subprocess.Popen(
                self._command,
                stdin=None if rank == 0 and not os.isatty(0) else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self._environment, "THALWEG_RANK": str(rank), **(placement.environment_of(place) if place else {})},
                preexec_fn=prepare,
                bufsize=0,
            )
            entry = Rank(rank, process, time.monotonic(), place)
            self.ranks.append(entry)
            pidfd = os.pidfd_open(process.pid)
            self._selector.register(pidfd, selectors.EVENT_READ, ("end", entry, pidfd))
            assert process.stdout and process.stderr
            for source, error in ((process.stdout, False), (process.stderr, True)):
                os.set_blocking(source.fileno(), False)
                self._selector.register(source, selectors.EVENT_READ, ("output", Stream(rank, source, error)))

    def _step(self) -> None:
        timeout = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        events = self._selector.select(timeout)
        # Output first: a rank's text comes before the message of its end.
        for key, _ in sorted(events, key=lambda event: event[0].data[0] != "output"):
            kind = key.data[0]
            if kind == "output":
                self._read(key.data[1])
            elif kind == "signal":
                for number in os.read(key.data[1], 256):
                    self._forward(number)
            else:
                self._selector.unregister(key.data[2])
                os.close(key.data[2])
                self._ended(key.data[1])
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._say(f"still running {self._grace:g} s after the signal: killing what is left")
            self._signal_all(signal.SIGKILL)

    def _read(self, stream: Stream) -> None:
        lines = stream.read()
        if lines is None:
            if stream.pending:
                self._write(stream.rank, bytes(stream.pending), stream.error)
                stream.pending.clear()
            self._selector.unregister(stream.source)
            stream.source.close()
            return
        for line in lines:
            self._write(stream.rank, line, stream.error)

    def _drain(self) -> None:
        """Reads what is there after the last rank's end, without waiting for heirs that keep the pipes open."""
        for _ in range(32):  # more than a pipe holds
            outputs = [key for key, _ in self._selector.select(0) if key.data[0] == "output"]
            for key in outputs:
                self._read(key.data[1])
            if not outputs:
                break
        for key in list(self._selector.get_map().values()):
            if key.data[0] == "output" and key.data[1].pending:
                self._write(key.data[1].rank, bytes(key.data[1].pending), key.data[1].error)

    def _ended(self, entry: Rank) -> None:
        code = entry.process.wait()
        entry.seconds = time.monotonic() - entry.started
        entry.exit_code = code if code >= 0 else 128 - code
        if entry.exit_code == 0 or self.failed_rank is not None:
            return
        self.failed_rank, self.exit_code = entry.rank, entry.exit_code
        if not self._ending:
            how = f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
            others = sum(r.exit_code is None for r in self.ranks)
            self._say(f"rank {entry.rank} ended {how}" + (f"; ending the other {others}" if others else ""))
        self._begin_end(signal.SIGTERM)

    def _forward(self, number: int) -> None:
        if number in ENDING:
            self._begin_end(number)
        elif number in FORWARDED:
            self._signal_all(number)

    def _begin_end(self, number: int) -> None:
        if any(r.exit_code is None for r in self.ranks):
            self._signal_all(number)
            self._signal_all(signal.SIGCONT)  # a stopped rank must hear it too
            if self._kill_at is None and not self._ending:
                self._kill_at = time.monotonic() + self._grace
        self._ending = True

    def _signal_all(self, number: int) -> None:
        for entry in self.ranks:
            if entry.exit_code is None:
                entry.signal_group(number)
