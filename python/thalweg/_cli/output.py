# SPDX-License-Identifier: Apache-2.0
"""What ``thalweg run`` writes: the ranks' lines, tagged, and its own words.

A thread for each stream writes, so that a reader who does not read stops neither signals nor ends of ranks from being heard.
What waits to be written is bounded: `full` tells the launcher to read no more of the ranks, who then wait in their own writes.
A stream that cannot be written is gone, the job is not.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable

COLOURS = (36, 33, 35, 32, 34, 31)
LIMIT = 1 << 20  # bytes that wait for a reader
AT_ONCE = 1 << 16


class Writer:
    """One descriptor, and the bytes that wait for it."""

    def __init__(self, descriptor: int | None, failed: Callable[[OSError], None]) -> None:
        self._descriptor, self._failed = descriptor, failed  # None: it was closed before this program began
        self._waiting: collections.deque[bytes] = collections.deque()
        self._bytes = 0  # of them, with what is just being written
        self._changed = threading.Condition()
        self._wake: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self.full = False

    def put(self, data: bytes) -> None:
        """To be written behind what waits already. Any thread; never waits."""
        with self._changed:
            if self._descriptor is None:
                return
            self._waiting.append(data)
            self._bytes += len(data)
            self.full = self.full or self._bytes > LIMIT
            self._changed.notify_all()

    def start(self, wake: Callable[[], None] | None) -> None:
        """From now on a thread writes. wake: called from it when the stream is not full any more, and when nothing waits."""
        with self._changed:
            self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, daemon=True)  # may be in a write for ever
            self._thread.start()

    def stop_waking(self) -> None:
        """The function given to `start` is not called again."""
        with self._changed:
            self._wake = None

    def idle(self) -> bool:
        """Whether all is written that ever will be."""
        with self._changed:
            return self._bytes == 0

    def wait(self) -> None:
        """Until all is written."""
        self.start(None)
        with self._changed:
            self._changed.wait_for(lambda: self._bytes == 0)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                data = self._take()
            try:
                self._write(data)
            except OSError as error:
                self._failed(error)
                self._give_up()

    def _take(self) -> bytes:
        """Several lines at once, but no copy of all that waits."""
        pieces, size = [], 0
        while self._waiting and size < AT_ONCE:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        rest = memoryview(data)
        while rest:
            try:
                count = os.write(self._descriptor, rest[:AT_ONCE])
            except BlockingIOError:  # whom we share it with has made it so
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
                continue
            rest = rest[count:]
            self._written(count)

    def _written(self, count: int) -> None:
        with self._changed:
            self._bytes -= count
            was, self.full = self.full, self._bytes > (LIMIT // 2 if self.full else LIMIT)
            if self._bytes == 0:
                self._changed.notify_all()
            if self._wake and (self._bytes == 0 or was != self.full):
                self._wake()

    def _give_up(self) -> None:
        with self._changed:
            self._descriptor = None
            self._waiting.clear()
            self._bytes, self.full = 0, False
            self._changed.notify_all()
            if self._wake:
                self._wake()


class Output:
    """Standard output and standard error of the launcher. One writer for each, so lines never mix."""

    def __init__(self, only_errors: bool) -> None:
        """only_errors: the ranks' output goes to standard error."""
        out, err = _descriptor(sys.stdout), _descriptor(sys.stderr)
        self._err = Writer(err, lambda error: self._lost("standard error", error, self._out))
        # Where both are the same, lines come in the order in which they were read.
        same = out is not None and err is not None and os.path.samestat(os.fstat(out), os.fstat(err))
        self._out = self._err if same else Writer(out, lambda error: self._lost("standard output", error, self._err))
        self._ranks_out = self._err if only_errors else self._out
        coloured = "NO_COLOR" not in os.environ
        self._coloured = {
            False: coloured and _is_terminal(err if only_errors else out),
            True: coloured and _is_terminal(err),
        }

    def line(self, rank: int, text: bytes, error: bool) -> None:
        """One line of a rank."""
        tag = f"[{rank}]"
        if self._coloured[error]:
            tag = f"\x1b[{COLOURS[rank % len(COLOURS)]}m{tag}\x1b[0m"
        self._writer(error).put(tag.encode() + b" " + text + b"\n")

    def say(self, text: str) -> None:
        """A word of the launcher's own."""
        self._err.put(f"thalweg run: {text}\n".encode())

    def tell(self, text: str) -> None:
        """A line of standard output."""
        self._out.put(f"{text}\n".encode())

    def full(self, error: bool) -> bool:
        """Whether no more of the ranks' output of this kind is wanted for now."""
        return self._writer(error).full

    def start(self, wake: Callable[[], None]) -> None:
        """Begins to write, in threads: to be called when nothing forks any more. wake: see `Writer.start`."""
        self._out.start(wake)
        self._err.start(wake)

    def stop_waking(self) -> None:
        """Ends what `start` was given."""
        self._out.stop_waking()
        self._err.stop_waking()

    def idle(self) -> bool:
        """Whether all is written."""
        return self._out.idle() and self._err.idle()

    def finish(self) -> None:
        """Waits until all is written."""
        self._out.wait()
        self._err.wait()

    def _writer(self, error: bool) -> Writer:
        return self._err if error else self._ranks_out

    def _lost(self, name: str, error: OSError, other: Writer) -> None:
        """In the thread of the stream that is gone. Of a reader who left (| head) there is nothing to say."""
        if not isinstance(error, BrokenPipeError):
            other.put(f"thalweg run: {name} cannot be written: {error.strerror}; the job goes on without it\n".encode())


def _descriptor(stream: object) -> int | None:
    with contextlib.suppress(OSError, AttributeError, ValueError):
        return stream.fileno()  # type: ignore[attr-defined]
    return None


def _is_terminal(descriptor: int | None) -> bool:
    return descriptor is not None and os.isatty(descriptor)
