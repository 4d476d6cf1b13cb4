# SPDX-License-Identifier: Apache-2.0
"""Asks processes with a context for their counters, over their live sockets (``src/core/live.hpp``)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import stat
import struct
import time
from collections.abc import Iterator
from typing import Any

ENDING = ".live"
LONGEST_ANSWER = 64 << 20  # bytes
ANSWER_SECONDS = 2.0

Snapshot = dict[str, Any]


def directories() -> list[pathlib.Path]:
    """Where sockets of this user may be: by this process's environment, and by those that other processes may have."""
    user = os.geteuid()
    parents = [os.environ.get("THALWEG_SOCKET_DIR"), os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}", "/tmp"]
    found = [pathlib.Path(parent) / f"thalweg-{user}" for parent in dict.fromkeys(parents) if parent]
    return [directory for directory in found if private(directory)]


def private(directory: pathlib.Path) -> bool:
    """A directory of this user's that no other can put anything into."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


class Process:
    """A context of some process, while it is there."""

    def __init__(self, path: pathlib.Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
            uid = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if uid not in (os.geteuid(), 0):
                raise PermissionError(f"{path} is another user's")
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def ask(self) -> Snapshot:
        """What it counts now. Raises OSError when it has ended or does not answer, ValueError for what is no snapshot."""
        deadline = time.monotonic() + ANSWER_SECONDS
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.sendall(b"snapshot\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionResetError("the process has ended")
            answer += part
            if len(answer) > LONGEST_ANSWER:
                raise ValueError("an answer without end")
        snapshot = json.loads(answer)
        if not isinstance(snapshot, dict) or "counters" not in snapshot:
            raise ValueError("not a snapshot")
        return snapshot


class Processes:
    """All contexts of this user's processes on this machine, found anew each time."""

    def __init__(self) -> None:
        self._open: dict[pathlib.Path, Process] = {}

    def ask(self) -> list[Snapshot]:
        """A snapshot of each that answers, in the order of their process ids."""
        paths = [path for directory in directories() for path in sorted(directory.glob("*" + ENDING))]
        for path in set(self._open) - set(paths):
            self._drop(path)
        found = [snapshot for path in paths if (snapshot := self._ask(path)) is not None]
        return sorted(found, key=lambda one: (one["pid"], one["context"]))

    def close(self) -> None:
        """Ends all connections."""
        for path in list(self._open):
            self._drop(path)

    def _ask(self, path: pathlib.Path) -> Snapshot | None:
        try:
            if path not in self._open:
                self._open[path] = Process(path)
            return self._open[path].ask()
        except (OSError, ValueError):  # it has ended, or it is none
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
    return f"{snapshot['program']} {snapshot['pid']}{rank}"
