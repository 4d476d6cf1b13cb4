# SPDX-License-Identifier: Apache-2.0
"""The processes of mode "processes": kept from program to program, replaced when they were killed."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import thalweg as tw

from .child import Census, main
from .state import LIMIT, Wrong

HANGS = 3 * LIMIT  # seconds for one command, whatever waits in it
SPARE = 3  # processes that wait for a program


class Killed(tw.ClosedError):
    """A process that this program has killed was asked something."""


class Process:
    """A process of the pool, seen from here. Commands without an answer go with the next one that has one."""

    def __init__(self, key: bytes, folder: Path, number: int) -> None:
        self.number = number
        self.said = folder / f"said-{number}"
        spawn = _server()
        self.pipe, theirs = spawn.Pipe()
        given = (number, theirs, key, str(folder / "sockets"), str(self.said))
        self.process = spawn.Process(target=main, args=given, daemon=True)
        self.process.start()
        theirs.close()
        self.poller = select.poll()
        self.poller.register(self.pipe, select.POLLIN)
        self.alive = True
        self.dying = False  # it is about to be killed: its answers are not awaited
        self.stopped = 0.0  # until when
        self.before: Census | None = None
        self.programs = 0
        self.planned: set[int] = set()  # contexts that have had a plan
        self.devices: set[tuple[int, str]] = set()  # that have had queues: context, place
        self.proxies: set[tuple[int, Process, int]] = set()  # which are connected: context, the other process and its context
        self.commands: list[tuple[str, tuple[Any, ...]]] = []

    def tell(self, name: str, *arguments: Any) -> None:
        """A command without an answer."""
        if self.alive:
            self.commands.append((name, arguments))

    def send(self, name: str, *arguments: Any, answer: bool = True) -> None:
        """A command; receive() brings its answer."""
        if not self.alive:
            raise Killed("its process was killed")
        commands, self.commands = [*self.commands, (name, arguments)], []
        try:
            self.pipe.send((commands, answer))
        except OSError:
            self.crashed(name)

    def receive(self, name: str) -> tuple[Any, ...]:
        """The answer: value, error, notes."""
        try:
            if not self.poller.poll(1000 * HANGS):
                self.hangs(name)
            value, error, notes, broken = self.pipe.recv()
        except (EOFError, OSError):
            self.crashed(name)
        if broken is not None:
            raise Wrong(f"process {self.number} at {name}: {broken}")
        return value, error, notes

    def stop(self, seconds: float) -> None:
        """Stops it for a moment."""
        os.kill(self.process.pid, signal.SIGSTOP)
        self.stopped = time.monotonic() + seconds
        threading.Timer(seconds, self._go_on).start()

    def _go_on(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self.process.kill()
        self.process.join(HANGS)
        self.pipe.close()

    def crashed(self, name: str) -> None:
        """It ended by itself: a finding."""
        self.process.join(HANGS)
        self.alive = False
        raise Wrong(f"process {self.number} ended with {self.process.exitcode} at {name}: {self._last_words()}")

    def hangs(self, name: str) -> None:
        """It does not answer: a finding, with the stacks of its threads."""
        os.kill(self.process.pid, signal.SIGUSR1)
        native = ""
        if shutil.which("gdb"):
            command = ["gdb", "-p", str(self.process.pid), "-batch", "-ex", "thread apply all bt 14"]
            native = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
        time.sleep(0.5)
        self.kill()
        raise Wrong(f"process {self.number} hangs at {name}: {self._last_words()}\n{native[-8000:]}")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self.said.read_text(errors="replace")[-8000:]
        return ""


def _server() -> Any:
    """Forks children from a process that has imported all they need, and nothing that runs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["model.child"])
    return context


class Pool:
    """Idle processes."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self.folder = Path(tempfile.mkdtemp(prefix="thalweg-model-"))
        (self.folder / "sockets").mkdir(mode=0o700)
        self.numbers = itertools.count(1)
        self.idle: list[Process] = []
        kept = {name: os.environ.get(name) for name in ("PYTHONPATH", "OPENBLAS_NUM_THREADS", "THALWEG_EMULATED")}
        os.environ["THALWEG_EMULATED"] = "devices=2"
        os.environ["PYTHONPATH"] = os.pathsep.join(one for one in sys.path if one)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        try:
            self._fill(SPARE)
        finally:
            for name, value in kept.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def _fill(self, count: int) -> None:
        while len(self.idle) < count:
            self.idle.append(Process(self.key, self.folder, next(self.numbers)))

    def take(self) -> Process:
        """A process for a program; another one starts meanwhile."""
        taken = self.idle.pop(0) if self.idle else Process(self.key, self.folder, next(self.numbers))
        return taken

    def give_back(self, process: Process) -> None:
        """It has done its program; the oldest come first the next time, so that all grow old."""
        if process.alive:
            self.idle.insert(0, process)
        self._fill(SPARE)

    def close(self) -> None:
        """Ends all."""
        for process in self.idle:
            process.kill()
        self.idle.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
