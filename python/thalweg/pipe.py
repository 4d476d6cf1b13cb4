# SPDX-License-Identifier: Apache-2.0
"""Pipe: multiprocessing.Pipe with Thalweg underneath; works across spawn and inside one process.

Life of a pipe. Pipe() makes two ends, a random job key of their own and a socket pair. An end is nothing more until its first
use, so it can be pickled to another process before that (the key travels through the parent's private channel). At its first
use an end joins its process's host for this pipe: one context and worker. End 0 then sends its worker's address through the
socket pair; end 1 waits for it, connects, and says hello; from then on all data goes over the connection, and the sockets
only report a peer that ends before it ever connected. Objects sent before the peer is there wait in a small outbox, as they
would in a system pipe's buffer; a thread connects and sends them, so that the program may do something else meanwhile.

Both ends may live in one process, also in two threads: they share the host then. A message waits in memory until it is
taken, so that one thread may send and then receive; only arrays on devices, and what is beyond _HERE_BYTES, wait for the
receiver.

Like multiprocessing's, an end is used by one thread at a time; its two directions have their own tags.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.util
import os
import secrets
import select
import threading
import time
import weakref
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from . import _core
from .errors import ClosedError, PeerLost, ThalwegError, TimedOut, Truncated
from .objects import HEADER_BYTES, RECEIVED, Incoming, demand_length, demand_whole, encode, post_object, whole

_OUTBOX_BYTES = 1 << 16
_HERE_BYTES = 1 << 28  # sent and not yet taken, between ends of one process
_NAP = 0.1  # seconds between two looks at whether the peer is there, where nothing tells
_LINGER = 5.0  # seconds that close() gives a peer that has not connected yet to fetch what was sent
_HELLO, _DATA = 0, 2  # tags: hello; data of end 0 is _DATA, of end 1 _DATA + 1
_END = b""  # an empty message: no more will come

_hosts: weakref.WeakValueDictionary[bytes, _Host] = weakref.WeakValueDictionary()
_ends: weakref.WeakSet[PipeEnd] = weakref.WeakSet()
_counting = threading.RLock()  # of _ends, where other threads make ends while one goes through them; also in a signal's handler
_joining = threading.Lock()
_closing = 0  # the process that closes its ends when it ends


def _all_ends() -> list[PipeEnd]:
    """Those that there are in this process."""
    with _counting:
        return list(_ends)


class _Host:
    """The context and worker of a pipe's ends in this process."""

    def __init__(self, name: bytes, key: bytes) -> None:
        self.name = name
        self.pid = os.getpid()
        self.context = _core.Context(job_key=key, tls=True)  # objects do not travel over plain tcp
        self.worker = _core.Worker(self.context, threads="multi")  # of both ends, and of what sends their outboxes
        self.ends: list[PipeEnd] = []
        self.lock = threading.RLock()  # each end steps the other, too
        self.settled = False  # all ends are connected
        _close_all_at_exit()

    def leave(self, end: PipeEnd) -> None:
        with _joining, self.lock:
            self.ends.remove(end)
            if self.ends:
                return
            if _hosts.get(self.name) is self:
                del _hosts[self.name]
        self.worker.close()
        self.context.close()


def _host_bytes(header: bytes, rest: list[Any]) -> int | None:
    """Bytes of a message; None: some of it lies on a device."""
    if not all(isinstance(part, (bytes, memoryview)) for part in rest):
        return None
    return len(header) + sum(memoryview(part).nbytes for part in rest)


class PipeEnd:
    """One end of a Pipe, with the methods of multiprocessing's Connection. Made by Pipe()."""

    def __init__(self, role: int, name: bytes, key: bytes, socket: Connection, readable: bool, writable: bool) -> None:
        self.readable = readable
        self.writable = writable
        self._role = role
        self._name = name
        self._key = key
        self._socket = socket
        self._host: _Host | None = None
        self._endpoint: _core.Endpoint | None = None
        self._hello: _core.Request | None = None
        self._address: bytes | None = None  # the peer's, as its end gave it
        self._header = bytearray(HEADER_BYTES)
        self._posted: _core.Request | None = None
        self._outbox: list[bytes] = []
        self._pushed: list[_core.Request] = []  # what was in the outbox
        self._pusher: threading.Thread | None = None
        self._untaken: deque[tuple[_core.Request, int]] = deque()  # by an end of this process, with their bytes
        self._pid = os.getpid()
        self._moved = False
        self._ended = False
        self._epoll: select.epoll | None = None
        self.closed = False
        with _counting:
            _ends.add(self)

    # -- becoming connected

    def __reduce__(self) -> tuple[Any, ...]:
        if self._host is not None or self.closed:
            raise ValueError("an end that was used or closed stays in its process: pickle it before its first use")
        self._moved = True
        return PipeEnd, (self._role, self._name, self._key, self._socket, self.readable, self.writable)

    def _join(self) -> _Host:
        if self.closed:
            raise OSError("handle is closed")
        if self._host is None:
            with _joining:
                host = _hosts.get(self._name)
                if host is None or host.pid != os.getpid():
                    host = _hosts[self._name] = _Host(self._name, self._key)
                with host.lock:
                    host.ends.append(self)
                    host.settled = False
                    self._host = host
            for end in _all_ends():  # the peer's copy here went to another process: its death must show on the socket
                if end._name == self._name and end._moved:
                    end._socket.close()
            with host.lock:
                if self._role == 0:
                    self._hello = host.worker.irecv(bytearray(1), _HELLO)
                    with contextlib.suppress(ConnectionError):  # a lost peer shows at the next poll of the socket
                        self._socket.send_bytes(host.worker.address)
        return self._host

    def _peer_here(self) -> PipeEnd | None:
        """The other end, when it is open in this process, was not pickled to another one, and is no copy that a fork made."""
        for end in _all_ends():
            here = end._pid == os.getpid() and not end._moved and not end.closed
            if here and end._name == self._name and end._role != self._role:
                return end
        return None

    def _step(self) -> bool:
        """One try to get connected; raises EOFError when the peer ended before it was."""
        if self._endpoint is not None:
            return True
        host = self._join()
        with host.lock:
            return self._endpoint is not None or self._connect(host)

    def _connect(self, host: _Host) -> bool:
        if self._role == 1:
            if self._address is None:
                if not self._socket.poll(0):
                    return False
                self._address = self._taken()  # kept: a connect that fails here is tried again by the next call
            endpoint = host.worker.connect(self._address, wait=False)
            endpoint.isend(b"\0", _HELLO)
            self._send_outbox(endpoint)
            return True
        if self._hello is None:  # another thread is about to post it
            return False
        if self._hello.done():
            endpoint = self._hello.wait().endpoint
            assert endpoint is not None
            self._hello = None
            self._send_outbox(endpoint)
            return True
        if self._socket.poll(0):
            self._taken()  # nothing is ever sent this way: raises EOFError
        return False

    def _taken(self) -> bytes:
        """What the peer has sent through the socket; EOFError also where it ended and had not read what is for it."""
        try:
            return self._socket.recv_bytes()
        except ConnectionResetError as error:
            raise EOFError("the other end was closed") from error

    def _send_outbox(self, endpoint: _core.Endpoint) -> None:
        """Sends what waited for the endpoint; only then others see it and send more."""
        waiting, self._outbox = self._outbox, []
        try:
            for frame in waiting:
                self._pushed.append(endpoint.isend(frame, _DATA + self._role))
        except (PeerLost, ClosedError):
            pass  # it has ended, and may have sent before: what uses the endpoint is told
        finally:
            self._endpoint = endpoint

    def _push(self, host: _Host) -> None:
        """What a thread does while there is an outbox: connects and sends it, whatever the program does meanwhile."""
        with contextlib.suppress(OSError, EOFError, ThalwegError):  # the next call of the program reports it
            while not self._step():  # raises OSError where the end is closed
                if self._role == 0:
                    host.worker.wait(_NAP)
                else:
                    self._socket.poll(_NAP)
            for request in self._pushed:
                while not self.closed and not request.ended:
                    with contextlib.suppress(TimedOut):
                        request.wait(_NAP)
        self._pushed = []

    def _start_pushing(self, host: _Host) -> None:
        if self._pusher is None:
            pusher = threading.Thread(target=self._push, args=(host,), name="thalweg-pipe", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads at the interpreter's end: close() sends the outbox
                pusher.start()
                self._pusher = pusher

    def _stop_pushing(self, host: _Host) -> None:
        """Behind close(): the thread uses neither the worker nor the socket any more."""
        if self._pusher is not None:
            host.worker.wake()
            self._pusher.join()
            self._pusher = None

    def _connected(self, timeout: float | None = None) -> _core.Endpoint | None:
        """The endpoint, waiting for the peer at most timeout seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        nap = 0.0002
        host = self._join()
        while True:
            # Both ends may live here: each moves on while the other waits, and what one has in its outbox is for the other.
            with host.lock:
                ready = [end._step() for end in list(host.ends) if not end.closed]
                if all(ready):
                    host.settled = True
                    return self._endpoint
            left = nap if deadline is None else min(nap, deadline - time.monotonic())
            if left <= 0:
                return None
            host.worker.wait(left)
            nap = min(nap * 1.5, 0.01)

    # -- sending

    def send(self, value: Any) -> None:
        """Sends any picklable object; large buffers (NumPy arrays, tensors, arrays and Memory on devices) are not copied and
        may be changed again when this returns. Raises BrokenPipeError when the peer has ended."""
        if not self.writable:
            raise OSError("connection is read-only")
        header, rest = encode(value)
        endpoint = self._endpoint
        if endpoint is None or self.closed:
            endpoint = self._reach(header, rest)
            if endpoint is None:
                return
        tag = _DATA + self._role
        try:
            if self._host is not None and len(self._host.ends) > 1 and self._keep(header, rest):
                return
            if not rest:
                endpoint.send(header, tag)
                return
            for request in post_object(endpoint, header, rest, tag):
                request.wait()
        except (PeerLost, ClosedError) as error:
            raise BrokenPipeError(str(error)) from error

    def _reach(self, header: bytes, rest: list[Any]) -> _core.Endpoint | None:
        """The endpoint; or None, and the message is in the outbox."""
        try:
            host = self._join()
            with host.lock:
                if self._step():
                    return self._endpoint
                size, held = _host_bytes(header, rest), sum(map(len, self._outbox))
                here = self._peer_here() is not None
                if size is not None and (held + size <= (_HERE_BYTES if here else _OUTBOX_BYTES) or (here and not held)):
                    self._outbox += [header, *(bytes(part) for part in rest)]
                    self._start_pushing(host)
                    return None
            return self._connected()
        except EOFError as error:
            raise BrokenPipeError("the other end was closed") from error

    def _keep(self, header: bytes, rest: list[Any]) -> bool:
        """Sends a copy to the end in this process, which this thread may be the one to use; False: it has to be waited for."""
        assert self._endpoint is not None
        while self._untaken and self._untaken[0][0].done():
            self._untaken.popleft()
        size = _host_bytes(header, rest)
        if size is None or (self._untaken and sum(each for _, each in self._untaken) + size > _HERE_BYTES):
            return False
        for part in (header, *map(bytes, rest)):
            request = self._endpoint.isend(part, _DATA + self._role)
            if not request.ended:
                self._untaken.append((request, len(part)))
        return True

    def send_bytes(self, buffer: Any, offset: int = 0, size: int | None = None) -> None:
        """Sends bytes, to be taken by recv_bytes. Raises ValueError where the buffer has not as many."""
        view = memoryview(buffer).cast("B")
        if offset < 0 or offset > len(view):
            raise ValueError(f"offset {offset} is not in a buffer of {len(view)} bytes")
        if size is None:
            size = len(view) - offset
        if size < 0 or offset + size > len(view):
            raise ValueError(f"{size} bytes from offset {offset} on are not in a buffer of {len(view)} bytes")
        self.send(bytes(view[offset : offset + size]))

    # -- receiving

    def recv(self, device: Any = None) -> Any:
        """The next object, waiting for it with the GIL released. Shapes and types travel, this side allocates. device: where
        arrays go that lay on devices: None (the same number here), a number, "cuda:1", "cpu", or a function from the sender's
        number to one of these. Raises EOFError when the peer closed its end or died and nothing is left."""
        if not self.readable:
            raise OSError("connection is write-only")
        endpoint, host = self._endpoint, self._host
        if endpoint is None or host is None or self.closed or not host.settled:
            endpoint = self._connected()
            assert endpoint is not None
        if self._ended:
            raise EOFError
        tag = _DATA + 1 - self._role
        try:
            demand_whole(endpoint, RECEIVED, tag)
            posted = self._posted or self._post()
            assert posted is not None
            try:
                length = posted.wait().length
            finally:
                if posted.ended:  # one that is interrupted stays posted
                    self._posted = None
            if length == 0:
                self._ended = True
                raise EOFError
            incoming = Incoming(self._header, length, endpoint.worker.context, device)
            with whole(endpoint, RECEIVED, tag):
                for part, size in incoming.parts():
                    demand_length(endpoint.recv(part, tag).length, size)
            return incoming.load()
        except (PeerLost, ClosedError) as error:
            self._posted = None
            self._ended = True
            raise EOFError(str(error)) from error

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """The next bytes sent by send_bytes. Raises OSError when they are more than maxlength."""
        data = self.recv()
        if not isinstance(data, bytes):
            raise OSError("this was sent by send, not by send_bytes")
        if maxlength is not None and len(data) > maxlength:
            raise OSError("bad message length")
        return data

    def recv_bytes_into(self, buffer: Any, offset: int = 0) -> int:
        """The next bytes into a buffer at offset; returns their number."""
        data = self.recv_bytes()
        view = memoryview(buffer).cast("B")
        if len(data) > len(view) - offset:
            error = Truncated("the buffer is shorter than the message")
            error.length = len(data)
            raise error
        view[offset : offset + len(data)] = data
        return len(data)

    def _post(self) -> _core.Request | None:
        """Has a receive posted, so that the next message can be waited for."""
        if self._posted is None and self._endpoint is not None:
            self._posted = self._endpoint.irecv(self._header, _DATA + 1 - self._role)
        return self._posted

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Is there something to receive (also: the end)? Waits at most timeout seconds (None: no limit)."""
        if not self.readable:
            raise OSError("connection is write-only")
        if self._ended:
            return True
        start = time.monotonic()
        try:
            if self._connected(timeout) is None:
                return False
            request = self._post()
        except (EOFError, PeerLost, ClosedError):
            self._ended = True
            return True
        assert request is not None
        if request.done():
            return True
        left = None if timeout is None else timeout - (time.monotonic() - start)
        if left is not None and left <= 0:
            return False
        try:
            request.wait(left)
        except TimedOut:
            return False
        except Exception:  # recv() raises it
            return True
        return True

    def fileno(self) -> int:
        """A descriptor that is readable when there may be something to receive: for multiprocessing.connection.wait."""
        host = self._join()
        if self._epoll is None:
            self._epoll = select.epoll()
            self._epoll.register(host.worker.fileno(), select.EPOLLIN)
            self._epoll.register(self._socket.fileno(), select.EPOLLIN)
        request = None
        try:
            self._connected(0)
            request = self._post()
        except (EOFError, PeerLost, ClosedError):
            self._ended = True
        if self._ended or (request is not None and request.done()) or not host.worker.arm():
            host.worker.wake()
        return self._epoll.fileno()

    # -- the end

    def close(self) -> None:
        """Ends this end; the peer receives what was sent, then EOFError."""
        if self.closed:
            return
        host = self._host
        if host is not None and host.pid == os.getpid():
            try:
                if self._outbox:
                    peer = self._peer_here()
                    if peer is not None:  # unused until now, it takes what is for it
                        peer._join()
                    self._connected(_LINGER)
                if self._endpoint is not None and self._endpoint.state == "ok":
                    self._endpoint.send(_END, _DATA + self._role)
            except (OSError, EOFError, PeerLost, ClosedError):
                pass  # the peer has ended: there is nothing to report to
            self.closed = True
            self._stop_pushing(host)
            if self._posted is not None:
                self._posted.cancel()
                self._posted = None
            self._leave(host)
        self.closed = True
        if self._epoll is not None:
            self._epoll.close()
        self._socket.close()

    def _leave(self, host: _Host) -> None:
        self._untaken.clear()  # the worker keeps them
        here_alone = host.ends == [self]
        if self._endpoint is not None and here_alone:
            with contextlib.suppress(TimedOut, PeerLost, ClosedError):
                self._endpoint.iclose().wait(_LINGER)
        self._endpoint = None
        self._hello = None
        host.leave(self)
        self._host = None

    def explain(self, verb: str = "send", length: int = 8) -> str:
        """The table of protocols for an operation to the peer; see thalweg.Endpoint.explain."""
        endpoint = self._connected()
        assert endpoint is not None
        return endpoint.explain(verb, length)

    def __enter__(self) -> PipeEnd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open" if self._endpoint is None else "connected"
        return f"<thalweg.PipeEnd {self._role} {state}>"


def Pipe(duplex: bool = True) -> tuple[PipeEnd, PipeEnd]:
    """Two connected ends, as multiprocessing.Pipe: give one to a child process as an argument before its first use.
    duplex=False: the first end only receives, the second only sends. The pipe has its own random key."""
    first, second = multiprocessing.Pipe(duplex=True)
    name, key = secrets.token_bytes(16), secrets.token_bytes(32)
    return (
        PipeEnd(0, name, key, first, True, duplex),  # type: ignore[arg-type]
        PipeEnd(1, name, key, second, duplex, True),  # type: ignore[arg-type]
    )


def _close_all_at_exit() -> None:
    """Has this process close its ends when it ends: also a child of multiprocessing's, which does not run what atexit knows."""
    global _closing
    if _closing != os.getpid():
        _closing = os.getpid()
        multiprocessing.util.Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    for end in _all_ends():
        if end._host is not None:
            end.close()
