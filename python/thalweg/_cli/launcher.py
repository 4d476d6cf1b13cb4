# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a local job and looks after them to the end.

Life of a job: every rank is started in a process group of its own and set to die with the launcher (PR_SET_PDEATHSIG).
One selector then waits for output, for ends (pidfd) and for signals; nothing is polled. It is looked at between two starts, and
once the job ends no further rank is started. The first rank that fails decides the exit code; the others get SIGTERM, and
SIGKILL after a grace time, and so does what the ranks have started in their groups, also where the rank itself has ended: only
for that, once no rank is left, is asked now and then. Signals the launcher gets go to every rank, but for those that it was
started to ignore (nohup).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import pathlib
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from . import placement
from .output import Output

PR_SET_PDEATHSIG = 1
LINE_LIMIT = 1 << 20  # a line longer than this is cut, so that a rank that never ends its line costs bounded memory
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
LOOK_AGAIN = 0.1  # seconds between looks for what ended ranks have left behind
UNREAD = 1.0  # seconds that are left to who reads the output, once a signal has ended the job
DESCRIPTORS = 4  # of a rank: its two outputs, its end, and its connection to the store, which this process serves
SPARE = 16  # descriptors: the launcher's own, and those that are open while a rank is started
AT_END = 32  # reads of what a rank has left in a pipe: more than a pipe holds


class CannotStart(Exception):
    """A rank's program did not start."""


def hear_of_children() -> None:
    """Undoes an inherited SIG_IGN of SIGCHLD, under which the kernel throws exit codes away. Before the first child of any
    command: their programs inherit it, too."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def signal_name(number: int) -> str:
    """A signal as users write it. Real-time signals between the first and the last have a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def make_room(ranks: int) -> None:
    """Raises this process's soft limit of descriptors to what these ranks take.

    Errors: CannotStart where the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + DESCRIPTORS * ranks + SPARE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise CannotStart(
            f"cannot start {ranks} ranks: they take {needed} descriptors here, {DESCRIPTORS} each, and the hard limit is "
            f"{hard}: raise it (as root: ulimit -n {needed}), or start fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def living_groups(groups: set[int]) -> set[int]:
    """Of these process groups those with a process that is no zombie: a container's first process may not reap."""
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if words[0] not in "ZX" and int(words[2]) in groups:
                found.add(int(words[2]))
    return found


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
    group_gone: bool = False  # its number may be another's from then on

    def signal_group(self, number: int) -> None:
        """Signals the rank and what it started."""
        if self.group_gone:
            return
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            self.group_gone = self.exit_code is not None
        except PermissionError:
            pass


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
        output: Output,
        bind: bool = False,
        grace: float = 5.0,
    ) -> None:
        self._command, self._count, self._environment = list(command), count, environment
        self._output, self._grace = output, grace
        self._places = placement.assign(count) if bind else [None] * count
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)  # the ranks'
        self._selector = selectors.DefaultSelector()
        self._streams: list[Stream] = []  # those that have not ended
        self._paused = {False: False, True: False}  # by Stream.error
        self.ranks: list[Rank] = []
        self.exit_code = 0
        self.failed_rank: int | None = None
        self.unread = False  # output was left that nobody read
        self._ending = False
        self._signalled = 0  # the first signal by the user, or who acts for them, that ends the job
        self._kill_at: float | None = None

    def run(self) -> int:
        """Starts all, returns when all have ended. The exit code: 0, or that of the first rank that failed.

        Errors: CannotStart."""
        with self._hearing() as wake:
            try:
                self._start_all()
                self._output.start(wake)
                while self._running() or self._heirs():
                    self._step()
            except BaseException:
                self._signal_all(signal.SIGKILL)
                raise
            self.unread = not self._drain()
        return self.exit_code

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[Callable[[], None]]:
        """While signals are heard by the selector. Gives what wakes it, from any thread."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        heard = [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, lambda *_: None) for number in heard}
        wake_before = signal.set_wakeup_fd(wake_write)
        self._selector.register(wake_read, selectors.EVENT_READ, ("signal", wake_read))

        def wake() -> None:
            with contextlib.suppress(BlockingIOError):  # it is awake
                os.write(wake_write, b"\0")  # no signal's number

        try:
            yield wake
        finally:
            self._output.stop_waking()
            signal.set_wakeup_fd(wake_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(wake_read)
            os.close(wake_write)

    def _start_all(self) -> None:
        make_room(self._count)
        libc, launcher = ctypes.CDLL(None), os.getpid()
        for rank in range(self._count):
            self._step(0.0)
            if self._ending:
                if self.failed_rank is None:  # also where all that were started end well: the job was not done
                    self.exit_code = 128 + self._signalled
                return
            try:
                self._start(rank, libc, launcher)
            except (OSError, subprocess.SubprocessError) as error:
                why = getattr(error, "strerror", None) or str(error)
                if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                    why += f"; each of the {self._count} ranks takes {DESCRIPTORS} here: raise ulimit -n, or start fewer"
                raise CannotStart(f"cannot start {self._command[0]}: {why}") from error

    def _start(self, rank: int, libc: ctypes.CDLL, launcher: int) -> None:
        place = self._places[rank]

        def prepare() -> None:
            os.setpgid(0, 0)
            die_with(libc, launcher, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)  # not ours: select() fails beyond 1,024
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
            self._streams.append(Stream(rank, source, error))
            self._selector.register(source, selectors.EVENT_READ, ("output", self._streams[-1]))

    def _running(self) -> bool:
        return any(r.exit_code is None for r in self.ranks)

    def _heirs(self) -> bool:
        """Does anything live that ranks of a job that was ended have left in their groups, and has yet to be killed?"""
        if self._kill_at is None:
            return False
        for entry in self.ranks:
            entry.signal_group(0)
        return bool(living_groups({entry.process.pid for entry in self.ranks if not entry.group_gone}))

    def _step(self, longest: float | None = None) -> None:
        """What has happened; waits for it, at most so many seconds."""
        timeout = longest if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        if timeout is not None and not self._running():
            timeout = min(timeout, LOOK_AGAIN)
        events = self._selector.select(timeout)
        # Output first: a rank's text comes before the message of its end.
        for key, _ in sorted(events, key=lambda event: event[0].data[0] != "output"):
            kind = key.data[0]
            if kind == "output":
                if not self._output.full(key.data[1].error):
                    self._read(key.data[1])
            elif kind == "signal":
                self._hear(key.data[1])
            else:
                self._selector.unregister(key.data[2])
                os.close(key.data[2])
                self._ended(key.data[1])
        self._pause_or_resume()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._output.say(f"still running {self._grace:g} s after the signal: killing what is left")
            self._signal_all(signal.SIGKILL)
            self._kill_at = None

    def _hear(self, wake_read: int) -> None:
        for number in os.read(wake_read, 256):
            self._forward(number)

    def _pause_or_resume(self) -> None:
        """Ranks whose output nobody takes are not read: they wait in their writes."""
        for error, was in self._paused.items():
            now = self._output.full(error)
            if now == was:
                continue
            self._paused[error] = now
            for stream in self._streams:
                if stream.error == error:
                    self._select(stream, not now)

    def _select(self, stream: Stream, wanted: bool) -> None:
        if wanted:
            self._selector.register(stream.source, selectors.EVENT_READ, ("output", stream))
        else:
            self._selector.unregister(stream.source)

    def _read(self, stream: Stream) -> bool:
        """Passes complete lines on. False: the end is reached."""
        lines = stream.read()
        if lines is None:
            self._write_rest(stream)
            if not self._paused[stream.error]:
                self._select(stream, False)
            self._streams.remove(stream)
            stream.source.close()
            return False
        for line in lines:
            self._output.line(stream.rank, line, stream.error)
        return True

    def _write_rest(self, stream: Stream) -> None:
        if stream.pending:
            self._output.line(stream.rank, bytes(stream.pending), stream.error)
            stream.pending.clear()

    def _drain(self) -> bool:
        """Reads what is there after the last rank's end, without waiting for heirs that keep the pipes open, and waits until it
        is written. False: a signal has ended the job, and nobody reads."""
        for stream in self._streams:
            if not self._paused[stream.error]:
                self._select(stream, False)
        self._paused = {False: True, True: True}
        for stream in list(self._streams):
            for _ in range(AT_END):
                if not self._await(functools.partial(self._has_room, stream.error)):
                    return False
                if not self._read(stream):
                    break
            self._write_rest(stream)
        return self._await(self._output.idle)

    def _has_room(self, error: bool) -> bool:
        return not self._output.full(error)

    def _await(self, done: Callable[[], bool]) -> bool:
        """Hears signals until this is so, or until nobody is expected to make it so."""
        leave_at: float | None = None
        while not done():
            if self._signalled and leave_at is None:
                leave_at = time.monotonic() + UNREAD
            timeout = None if leave_at is None else leave_at - time.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            for key, _ in self._selector.select(timeout):
                if key.data[0] == "signal":
                    self._hear(key.data[1])
        return True

    def _ended(self, entry: Rank) -> None:
        code = entry.process.wait()
        entry.seconds = time.monotonic() - entry.started
        entry.exit_code = code if code >= 0 else 128 - code
        entry.signal_group(0)  # whether it has left something
        if entry.exit_code == 0 or self.failed_rank is not None:
            return
        self.failed_rank, self.exit_code = entry.rank, entry.exit_code
        if not self._ending:
            how = f"with exit code {code}" if code >= 0 else f"by {signal_name(-code)}"
            others = sum(r.exit_code is None for r in self.ranks)
            self._output.say(f"rank {entry.rank} ended {how}" + (f"; ending the other {others}" if others else ""))
        self._begin_end(signal.SIGTERM)

    def _forward(self, number: int) -> None:
        if number in ENDING:
            self._signalled = self._signalled or number
            self._begin_end(number)
        elif number in FORWARDED:
            for entry in self.ranks:
                if entry.exit_code is None:
                    entry.signal_group(number)

    def _begin_end(self, number: int) -> None:
        self._signal_all(number)
        self._signal_all(signal.SIGCONT)  # a stopped rank must hear it too
        if not self._ending:
            self._kill_at = time.monotonic() + self._grace
        self._ending = True

    def _signal_all(self, number: int) -> None:
        """Every rank's group, also that of one that has ended: what it has started may live."""
        for entry in self.ranks:
            entry.signal_group(number)
