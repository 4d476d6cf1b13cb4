# SPDX-License-Identifier: Apache-2.0
"""Asks processes with a context for their counters, over their live sockets (``src/core/live.hpp``)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import socket
import stat
import struct
import time
from collections.abc import Iterator
from typing import Any

ENDING = ".live"
REQUEST = b"snapshot\n"
LONGEST_ANSWER = 64 << 20  # bytes
ANSWER_SECONDS = 2.0  # of all processes together

Snapshot = dict[str, Any]

# What programs here look up in a snapshot. ANY: whatever names there are.
ANY = "*"
OPERATIONS = {"operations": int, "bytes": int}
MESSAGES = {"messages": int, "bytes": int}
COUNTS = {"sent": MESSAGES, "received": MESSAGES, "accesses": OPERATIONS, "retries": int}
ENDPOINT = {"id": int, "peer": str, "pid": int, "transport": str, "state": str, **COUNTS}
WORKER = {"id": str, "posted": int, "unexpected": int, "endpoints": int, "sum": COUNTS, "listed": [ENDPOINT]}
COUNTERS = {"links": int, "moved": {ANY: OPERATIONS}, "workers": [WORKER], "caches": {ANY: {"hits": int, "misses": int}}}
SHAPE = {"pid": int, "program": str, "context": str, "ranks": int, "rank": int, "time_ns": int, "counters": COUNTERS}


def fits(value: Any, shape: Any) -> bool:
    """Whether it has all that the shape names; it may have more."""
    if isinstance(shape, type):
        return type(value) is shape
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if not isinstance(value, dict):
        return False
    if ANY in shape:
        return all(fits(one, shape[ANY]) for one in value.values())
    return all(name in value and fits(value[name], part) for name, part in shape.items())


def printable(name: str) -> str:
    """A name from outside on one line: what is no visible character as \\xNN or \\uNNNN; a backslash is doubled."""
    return "".join(one if one.isprintable() and one != "\\" else escape(one) for one in name)


def escape(character: str) -> str:
    """Of printable()."""
    code = ord(character)
    return "\\\\" if character == "\\" else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def directories() -> list[pathlib.Path]:
    """Where sockets of this user may be: by this process's environment, and by those that other processes may have."""
    user = os.geteuid()
    parents = [os.environ.get("THALWEG_SOCKET_DIR"), os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}", "/tmp"]
    found = [pathlib.Path(parent).resolve() / f"thalweg-{user}" for parent in parents if parent]
    return [directory for directory in dict.fromkeys(found) if private(directory)]


def private(directory: pathlib.Path) -> bool:
    """A directory of this user's that no other can put anything into."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


class Process:
    """A context of some process, while it is there. Nothing here waits."""

    def __init__(self, path: pathlib.Path) -> None:
        self.late = False  # it did not answer in time
        self._asked = False
        self._answer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)  # a process that is stopped accepts none: once its queue is full, connect would block
        try:
            self._socket.connect(str(path))
            uid = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if uid not in (os.geteuid(), 0):
                raise PermissionError(f"{path} is another user's")
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """To wait for its answer with poll."""
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def begin(self) -> None:
        """Asks what it counts, unless an answer is still to come. Raises OSError when it has ended."""
        if not self._asked:
            self._socket.sendall(REQUEST)
            self._asked = True

    def read(self) -> Snapshot | None:
        """The answer once all of it is there. Raises OSError when the process has ended, ValueError for what is no snapshot."""
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionResetError("the process has ended")
        self._answer += part
        if len(self._answer) > LONGEST_ANSWER:
            raise ValueError("an answer without end")
        if not part.endswith(b"\n"):
            return None
        answer, self._answer, self._asked = self._answer, bytearray(), False
        return parsed(answer)


def parsed(answer: bytearray) -> Snapshot:
    """A snapshot. Raises ValueError for what is none."""
    try:
        snapshot = json.loads(answer.decode(errors="replace"))  # a program's name may be of any bytes
    except RecursionError:
        raise ValueError("not a snapshot") from None
    if not fits(snapshot, SHAPE):
        raise ValueError("not a snapshot")
    return snapshot


class Processes:
    """All contexts of this user's processes on this machine, found anew each time. One thread at a time."""

    def __init__(self) -> None:
        self._open: dict[pathlib.Path, Process] = {}

    def ask(self) -> list[Snapshot]:
        """A snapshot of each that answers, in the order of their process ids. Waits for at most ANSWER_SECONDS in all.

        One that did not answer in time keeps its one connection, and is not waited for until it has answered.
        """
        paths = [path for directory in directories() for path in sorted(directory.glob("*" + ENDING))]
        for path in set(self._open) - set(paths):
            self._drop(path)
        for path in paths:
            self._begin(path)
        found = {(one["pid"], one["context"]): one for one in self._answers(time.monotonic() + ANSWER_SECONDS)}
        return [found[key] for key in sorted(found)]

    def close(self) -> None:
        """Ends all connections."""
        for path in list(self._open):
            self._drop(path)

    def _begin(self, path: pathlib.Path) -> None:
        try:
            if path not in self._open:
                self._open[path] = Process(path)
            self._open[path].begin()
        except OSError:  # it has ended, it is none, or its queue is full
            self._drop(path)

    def _answers(self, deadline: float) -> list[Snapshot]:
        found = []
        poller = select.poll()
        waiting = {process.fileno(): path for path, process in self._open.items()}
        for fd in waiting:
            poller.register(fd, select.POLLIN)
        while waiting and (left := deadline - time.monotonic()) > 0:
            in_time = any(not self._open[path].late for path in waiting.values())
            ready = poller.poll(1000 * left if in_time else 0)
            if not ready:
                break
            for fd, _ in ready:
                snapshot = self._read(waiting[fd])
                if snapshot is not None:
                    found.append(snapshot)
                if snapshot is not None or waiting[fd] not in self._open:
                    poller.unregister(fd)
                    del waiting[fd]
        for path in waiting.values():
            self._open[path].late = True
        return found

    def _read(self, path: pathlib.Path) -> Snapshot | None:
        process = self._open[path]
        try:
            snapshot = process.read()
            if snapshot is not None and process.late:  # what it counted some time ago: asked anew
                process.late = False
                process.begin()
                return None
            return snapshot
        except (OSError, ValueError):
            self._drop(path)
            return None

    def _drop(self, path: pathlib.Path) -> None:
        if (process := self._open.pop(path, None)) is not None:
            process.close()


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    """Processes that are asked within the block."""
    found = Processes()
    try:
        yield found
    finally:
        found.close()


def title(snapshot: Snapshot) -> str:
    """ "python3 4711, rank 2 of 8"."""
    rank = f", rank {snapshot['rank']} of {snapshot['ranks']}" if snapshot["ranks"] else ""
    return f"{printable(snapshot['program'])} {snapshot['pid']}{rank}"
