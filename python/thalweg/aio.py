# SPDX-License-Identifier: Apache-2.0
"""The same operations as coroutines of asyncio: `await endpoint.send(buffer, tag=1)`.

Life: a Worker belongs to the event loop that first awaits on it. What completes at once costs no turn of the loop. What does
not is watched natively and wakes its future when it ends. Two modes, chosen per worker:

- sleeping (default): the loop sleeps in its selector on the worker's file descriptor, which is armed (race-free) whenever
  nothing is left to progress. An idle program uses no CPU; a message costs a wake-up by the kernel.
- polling: before giving way an operation spins up to `spin` seconds natively, and the worker progresses in every turn of
  the loop, which therefore never sleeps. Lowest latency, one core.

A worker and its endpoints are used from the loop's thread alone; a coroutine of another loop raises ThreadError, and posts
nothing. Cancelling a task cancels an unmatched receive; a transfer under way continues and keeps its buffer until it ends. An
object is several messages: one that has begun goes on to its end also where its task is cancelled, and is the next receiver's.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

from . import _core
from ._aio_objects import Objects
from .errors import ClosedError, PeerLost, ThreadError, TimedOut

_running = asyncio._get_running_loop
_ROUNDS = 32  # turns of progress before other callbacks of the loop have theirs


class Worker:
    """A progress engine driven by the event loop.

    polling: progress in every turn of the loop instead of sleeping; spin: seconds that an operation may progress natively
    before its task gives way (None: 20e-6 when polling, else 0); unexpected_budget: bytes of unmatched messages (0: 64 MiB).
    """

    def __init__(
        self, context: _core.Context, *, polling: bool = False, spin: float | None = None, unexpected_budget: int = 0
    ) -> None:
        self._drive(_core.Worker(context, unexpected_budget=unexpected_budget), polling, spin)

    @classmethod
    def of(cls, core: _core.Worker, *, polling: bool = False, spin: float | None = None) -> Worker:
        """Drives a worker that there is, such as a Group's."""
        self = cls.__new__(cls)
        self._drive(core, polling, spin)
        return self

    def _drive(self, core: _core.Worker, polling: bool, spin: float | None) -> None:
        self.core = core
        self.polling = polling
        self.spin = (20e-6 if polling else 0.0) if spin is None else spin
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._thread = 0
        self._fd: weakref.finalize[[int], Any] | None = None  # closes the loop's own descriptor
        self._closed = False  # or about to be, by any thread
        self._pending: set[asyncio.Future[Any]] = set()
        self._conditions: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._endpoints: weakref.WeakValueDictionary[_core.Endpoint, Endpoint] = weakref.WeakValueDictionary()
        self._objects: weakref.WeakValueDictionary[_core.Endpoint, Objects] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Future[Any]] = set()
        me = weakref.ref(self)

        def disarmed() -> None:
            worker = me()
            if worker is None or worker._loop is None or worker._loop.is_closed():
                return
            if _running() is worker._loop:
                worker._kick()
            else:  # another thread, or code between two turns of the loop
                worker._loop.call_soon_threadsafe(worker._kick)

        self.core._on_disarm = disarmed

        def closing() -> None:
            if (worker := me()) is not None:
                worker._closing()

        self.core._on_close = closing

    # -- the loop's side

    def _attach(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._thread = threading.get_ident()
            if not self.polling:
                fd = os.dup(self.core.fileno())
                self._fd = weakref.finalize(self, os.close, fd)
                self._fd.atexit = False
                loop.add_reader(fd, self._turn)
            self._kick()
        elif self._loop is not loop:
            raise ThreadError(
                "this worker belongs to another event loop, the one that first awaited on it: await on it there, or make a "
                "worker for each loop"
            )
        return loop

    @property
    def _here(self) -> _core.Worker:
        """The worker, for an operation that the running loop is to await. Raises ThreadError where that is another one."""
        if _running() is not self._loop:
            self._attach()
        return self.core

    def _kick(self) -> None:
        """Has the worker progressed, and its descriptor armed, once the running task gives way."""
        if not self._scheduled and self._loop is not None and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self.core.closed or self._loop is None:
            return
        armed = False
        try:
            for _ in range(1 if self.polling else _ROUNDS):
                try:
                    ended = self.core._turn()
                except Exception as error:  # of a handler: the loop reports it, and the worker continues
                    # Raised into the loop, it would stay in a cycle, and with it the payload that the sender waits for.
                    self._loop.call_exception_handler({"message": "a handler of active messages raised", "exception": error})
                    if self.core.closed:
                        return
                    continue
                if ended:
                    for request in ended:
                        if request._token is not None and not request._token.done():  # None: its task was cancelled
                            request._token.set_result(None)
                if self._conditions:
                    self._check_conditions()
                if ended is None and not self.polling and self.core.arm():
                    armed = True
                    return
        finally:
            if not armed and not self.core.closed:
                self._kick()

    def _closing(self) -> None:
        """The core is about to end, by whomever: its descriptor goes, and nothing that is awaited here comes any more."""
        self._closed = True  # before the look at who waits: who comes later looks at this
        futures = [*self._pending, *(future for _, future in self._conditions)]
        self._conditions.clear()
        self._endpoints.clear()
        self._objects.clear()
        if self._loop is None or self._loop.is_closed():
            self._leave()
            return
        if threading.get_ident() == self._thread:
            self._end(futures)
        else:
            self._loop.call_soon_threadsafe(self._end, futures)

    def _leave(self) -> None:
        """The loop's descriptor is not used any more."""
        if self._fd is None or (held := self._fd.peek()) is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(held[2][0])
        self._fd()

    def _admit(self, future: asyncio.Future[Any]) -> None:
        """The future is among those that a close ends. Raises ClosedError where one has come before."""
        if self._closed or self.core.closed:
            future.cancel()
            raise ClosedError("the worker was closed")

    def _end(self, futures: list[asyncio.Future[Any]]) -> None:
        self._leave()
        for future in futures:
            if not future.done():
                future.set_exception(ClosedError("the worker was closed"))

    def _check_conditions(self) -> None:
        left = []
        for condition, future in self._conditions:
            if future.done():
                continue
            try:
                value = condition()
            except Exception as error:  # whatever it raises belongs to the task that waits
                future.set_exception(error)
                continue
            if value is None:
                left.append((condition, future))
            else:
                future.set_result(value)
        self._conditions = left

    async def _until(self, condition: Callable[[], Any], keep: Callable[[Any], None] | None = None) -> Any:
        """The first value of condition() that is not None. keep: takes one that comes as the task is cancelled."""
        loop = self._attach()
        value = condition()
        if value is not None:
            return value
        future = loop.create_future()
        self._conditions.append((condition, future))
        self._admit(future)
        self._kick()
        try:
            return await future
        except asyncio.CancelledError:
            if keep is not None and future.done() and not future.cancelled() and future.exception() is None:
                keep(future.result())
                self._kick()  # for another task that waits
            raise

    async def _value(self, request: _core.Request, *, cancels: bool = True) -> Any:
        """The outcome of a request that had not ended at once. cancels: what ends the wait for it cancels it, too."""
        future: asyncio.Future[Any] | None = None
        try:
            loop = self._attach()
            if not (self.spin > 0 and request._spin(self.spin)):
                future = loop.create_future()
                self._pending.add(future)
                request._token = future
                self._admit(future)
                self.core._watch(request)
                self._kick()
                await future
        except BaseException:  # nobody waits any more: it must not take the next message
            if cancels and not self.core.closed:
                request.cancel()  # too late for a transfer under way: the worker keeps its buffer until it ends
                self._kick()
            raise
        finally:
            if future is not None:
                request._token = None
                self._pending.discard(future)
            del future  # with what it raised, and that with this frame: the buffer would stay until the collector comes
        return request._value()

    # -- the program's side

    @property
    def address(self) -> bytes:
        """The bytes by which others connect: to travel by any means."""
        return self.core.address

    def endpoint(self, core: _core.Endpoint) -> Endpoint:
        """The endpoint of a RecvInfo.endpoint, to reply on."""
        known = self._endpoints.get(core)
        if known is None:
            known = self._endpoints[core] = Endpoint(self, core)
        return known

    async def connect(
        self,
        address: bytes | bytearray | memoryview | str,
        *,
        data: bytes | None = None,
        timeout: float | None = None,
        transport: str | None = None,
        tls: bool = False,
    ) -> Endpoint:
        """Connects to a worker's address (bytes) or a listener's ("host:port", "unix:/path"). As Worker.connect."""
        core = self._here.connect(address, data=data, timeout=timeout, transport=transport, tls=tls, wait=False)

        def connected() -> bool | None:
            return None if core.state == "in_progress" else core.wait(0)

        await self._until(connected)
        return self.endpoint(core)

    def listen(self, address: str = "127.0.0.1:0", *, backlog: int = 0) -> Listener:
        """Listens at "host:port" (port 0 picks one) or "unix:/path". As Worker.listen."""
        return Listener(self, self.core.listen(address, backlog=backlog))

    async def recv(
        self,
        buffer: Any,
        tag: int = 0,
        mask: int = _core.FULL_TAG_MASK,
        *,
        layout: _core.Layout | None = None,
        source: Endpoint | None = None,
        after: Any = None,
    ) -> _core.RecvInfo:
        """Receives from any endpoint, or from source. As thalweg.Worker.recv."""
        by = None if source is None else source.core
        request = self._here.irecv(buffer, tag, mask, layout=layout, source=by, after=after)
        return request._value() if request.ended else await self._value(request)

    async def flush(self) -> None:
        """Returns when all earlier one-sided operations of all endpoints are visible at their targets."""
        request = self._here.iflush()
        self._kick()  # it progresses, also where it ends at once: the descriptor is not armed any more
        return request._value() if request.ended else await self._value(request)

    async def wait_signal(self, signal: _core.Signal, value: int, compare: str = ">=", *, nap: float | None = 1e-3) -> None:
        """Returns when the comparison holds; what the signal covers is visible then.

        A signal of a host wakes the loop at once, also one that is stored into mapped memory over an endpoint of this worker.
        What device code signals (a kernel, a plan on a device's queue) wakes no thread: so the loop also polls every `nap`
        seconds. None: it does not, because only hosts signal.
        """
        self._attach()
        if signal.test(value, compare):
            return
        waiting = asyncio.ensure_future(self._until(lambda: signal.test(value, compare) or None))
        try:
            while not (await asyncio.wait((waiting,), timeout=nap))[0]:
                self._kick()
            await waiting
        finally:
            waiting.cancel()

    def am_register(self, id: int, handler: Callable[[AmMessage], Any] | None) -> None:
        """Calls handler(AmMessage) for active messages of id (below 4096); a coroutine function runs as a task. None takes
        it away."""
        if handler is None:
            self.core.am_register(id, None)
            return
        chosen, me = handler, weakref.ref(self)  # the core has the handler: with the worker in it, neither would ever go

        def call(message: _core.AmMessage) -> None:
            if (worker := me()) is None:
                return
            result = chosen(AmMessage(worker, message))
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                worker._tasks.add(task)
                task.add_done_callback(worker._tasks.discard)

        self._attach()
        self.core.am_register(id, call)

    def close(self) -> None:
        """Ends every endpoint without waiting; whatever is awaited on this worker raises ClosedError."""
        self.core.close()  # nothing where its group has ended it

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Worker:
        self._attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Listener:
    """Waits for connections. `async for endpoint in listener` takes them one by one until close(), but for clients that go
    before they are connected."""

    def __init__(self, worker: Worker, core: _core.Listener) -> None:
        self.worker = worker
        self.core = core
        self._kept: collections.deque[_core.ConnectionRequest] = collections.deque()  # of tasks that were cancelled

    @property
    def port(self) -> int:
        """The port listened on (0 for unix)."""
        return self.core.port

    async def next(self) -> _core.ConnectionRequest:
        """The next client, to be answered by self.take(request) or request.reject(data)."""
        return await self.worker._until(self._next, self._kept.append)

    def _next(self) -> _core.ConnectionRequest | None:
        return self._kept.popleft() if self._kept and not self.core.closed else self.core.next()

    def take(self, request: _core.ConnectionRequest, data: bytes | None = None) -> Endpoint:
        """Accepts a client; data: private bytes for it."""
        return self.worker.endpoint(request.accept(data))

    async def accept(self, *, data: bytes | None = None) -> Endpoint:
        """Waits for a client, accepts it, and returns once it is connected; data: private bytes for it."""
        return await self._connected(self.take(await self.next(), data))

    async def _connected(self, endpoint: Endpoint) -> Endpoint:
        await self.worker._until(lambda: endpoint.core.state != "in_progress" or None)
        endpoint.core.wait(0)
        return endpoint

    async def __aiter__(self) -> AsyncIterator[Endpoint]:
        while True:
            try:
                request = await self.next()
            except ClosedError:
                if self.core.closed:
                    return
                raise
            try:
                endpoint = await self._connected(self.take(request))
            except (ConnectionError, TimedOut):  # this client has gone: others come
                if self.worker._closed:
                    raise
                continue
            yield endpoint

    def close(self) -> None:
        """Stops listening; connections made stay. What waits for clients raises ClosedError, and `async for` ends."""
        self._kept.clear()
        self.core.close()
        self.worker._kick()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Endpoint:
    """A connection, with coroutines of the names and parameters of thalweg.Endpoint's blocking methods."""

    __slots__ = ("__weakref__", "_objects", "core", "worker")

    def __init__(self, worker: Worker, core: _core.Endpoint) -> None:
        self.worker = worker
        self.core = core
        known = worker._objects.get(core)  # of an Endpoint that was dropped while an object was under way
        if known is None:
            known = worker._objects[core] = Objects(worker, core)
        self._objects = known

    @property
    def _here(self) -> _core.Endpoint:
        """The endpoint, for an operation that the running loop is to await. Raises ThreadError where that is another one."""
        worker = self.worker
        if _running() is not worker._loop:
            worker._attach()
        return self.core

    async def send(
        self,
        buffer: Any,
        tag: int = 0,
        *,
        sync: bool = False,
        immediate: int = 0,
        layout: _core.Layout | None = None,
        after: Any = None,
        no_wait: bool = False,
    ) -> None:
        """Sends a buffer as one message; returns when it may be reused, with sync when it was matched. after, no_wait: as in
        thalweg.Endpoint.send."""
        if sync or immediate or layout is not None or after is not None or no_wait:
            request = self._here.isend(buffer, tag, sync=sync, immediate=immediate, layout=layout, after=after, no_wait=no_wait)
        else:
            request = self._here.isend(buffer, tag)
        return request._value() if request.ended else await self.worker._value(request)

    async def recv(
        self,
        buffer: Any,
        tag: int = 0,
        mask: int = _core.FULL_TAG_MASK,
        *,
        layout: _core.Layout | None = None,
        after: Any = None,
    ) -> _core.RecvInfo:
        """Receives a message of this endpoint's peer into a writable buffer. after: as in thalweg.Endpoint.recv."""
        if layout is None and after is None:
            request = self._here.irecv(buffer, tag, mask)
        else:
            request = self._here.irecv(buffer, tag, mask, layout=layout, after=after)
        return request._value() if request.ended else await self.worker._value(request)

    async def bytes_send(self, buffer: Any, *, no_wait: bool = False) -> None:
        """Appends a contiguous buffer to the byte stream."""
        request = self._here.ibytes_send(buffer, no_wait=no_wait)
        return request._value() if request.ended else await self.worker._value(request)

    async def bytes_recv(self, buffer: Any, *, all: bool = False) -> _core.RecvInfo:
        """Takes 1 to len(buffer) bytes, or with all that many, from the byte stream."""
        request = self._here.ibytes_recv(buffer, all=all)
        return request._value() if request.ended else await self.worker._value(request)

    async def am_send(
        self,
        id: int,
        header: Any = b"",
        buffer: Any = None,
        *,
        protocol: str | None = None,
        after: Any = None,
        layout: _core.Layout | None = None,
        no_wait: bool = False,
    ) -> None:
        """Sends an active message to the peer's handler of id; the rest as in thalweg.Endpoint.am_send."""
        request = self._here.iam_send(id, header, buffer, protocol=protocol, after=after, layout=layout, no_wait=no_wait)
        return request._value() if request.ended else await self.worker._value(request)

    async def put(self, buffer: Any, remote: _core.RemoteMemory, offset: int = 0, **options: Any) -> None:
        """Writes into the peer's memory; options as thalweg.Endpoint.put."""
        request = self._here.iput(buffer, remote, offset, **options)
        return request._value() if request.ended else await self.worker._value(request)

    async def get(self, buffer: Any, remote: _core.RemoteMemory, offset: int = 0, **options: Any) -> None:
        """Reads the peer's memory; options as thalweg.Endpoint.get."""
        request = self._here.iget(buffer, remote, offset, **options)
        return request._value() if request.ended else await self.worker._value(request)

    async def put_blocks(
        self, local: _core.Blocks, local_index: Any, remote: _core.RemoteBlocks, remote_index: Any, **options: Any
    ) -> None:
        """Moves blocks to the peer's by index; options as thalweg.Endpoint.put_blocks."""
        request = self._here.iput_blocks(local, local_index, remote, remote_index, **options)
        return request._value() if request.ended else await self.worker._value(request)

    async def get_blocks(
        self, local: _core.Blocks, local_index: Any, remote: _core.RemoteBlocks, remote_index: Any, **options: Any
    ) -> None:
        """Brings the peer's blocks by index; options as thalweg.Endpoint.get_blocks."""
        request = self._here.iget_blocks(local, local_index, remote, remote_index, **options)
        return request._value() if request.ended else await self.worker._value(request)

    async def atomic(self, op: str, remote: _core.RemoteMemory, offset: int, operand: int, **options: Any) -> int | None:
        """An atomic operation on the peer's memory; options as thalweg.Endpoint.atomic."""
        request = self._here.iatomic(op, remote, offset, operand, **options)
        return request._value() if request.ended else await self.worker._value(request)

    async def flush(self) -> None:
        """Returns when all earlier one-sided operations of the endpoint are visible at the target."""
        request = self._here.iflush()
        self.worker._kick()  # as Worker.flush
        return request._value() if request.ended else await self.worker._value(request)

    async def send_object(self, value: Any, tag: int = 0) -> None:
        """Sends any picklable object; see thalweg.send_object. One whose task is cancelled is sent all the same."""
        self.worker._attach()
        await self._objects.send(value, tag)

    async def recv_object(self, tag: int = 0, *, device: Any = None) -> Any:
        """Receives an object; see thalweg.recv_object. Receivers on one endpoint wait for each other. An object that has begun
        to arrive when its receiver is cancelled is the next receiver's, with its arrays where the first one asked for them."""
        self.worker._attach()
        return await self._objects.recv(tag, device)

    @property
    def protected(self) -> bool:
        """Can no third party read or change what travels? See thalweg.Endpoint.protected."""
        return self.core.protected

    @property
    def transport(self) -> str:
        """The transport in use: shm, tcp or self."""
        return self.core.transport

    @property
    def state(self) -> str:
        """The word ok, or the name of the error that ended it."""
        return self.core.state

    @property
    def data(self) -> bytes:
        """Private bytes that came with accept."""
        return self.core.data

    def explain(self, verb: str = "send", length: int = 8, *, buffer: Any = None) -> str:
        """The table of protocols for an operation; see thalweg.Endpoint.explain."""
        return self.core.explain(verb, length, buffer=buffer)

    async def close(self, *, force: bool = False) -> None:
        """Ends the connection; graceful unless force."""
        if self.core.closed:
            return
        with contextlib.suppress(PeerLost, ClosedError):  # lost already: as closed as can be
            core = self._here
            self.worker._endpoints.pop(core, None)
            request = core.iclose(force=force)
            return request._value() if request.ended else await self.worker._value(request)

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Group:
    """A group's collectives as coroutines of the names and parameters of thalweg.Group's blocking methods.

    The world's context and worker end with it: `async with aio.Group(thalweg.init()) as world`. Groups of one worker share
    an aio.Worker: worker=world.worker. A cancelled task's collective goes on, and keeps its buffers until it ends.
    """

    def __init__(self, core: _core.Group, *, worker: Worker | None = None) -> None:
        if worker is not None and worker.core is not core.worker:
            raise ValueError("the worker is not the group's")
        self.core = core
        self.worker = Worker.of(core.worker) if worker is None else worker

    @property
    def rank(self) -> int:
        """This process's number in the group."""
        return self.core.rank

    @property
    def size(self) -> int:
        """Ranks."""
        return self.core.size

    def endpoint(self, rank: int) -> Endpoint:
        """The endpoint to a rank. As thalweg.Group.endpoint, which may wait until it is connected."""
        return self.worker.endpoint(self.core.endpoint(rank))

    @property
    def _here(self) -> _core.Group:
        """The group, for an operation that the running loop is to await. Raises ThreadError where that is another one."""
        self.worker._attach()
        return self.core

    async def _end(self, request: _core.Request) -> None:
        self.worker._kick()
        return request._value() if request.ended else await self.worker._value(request)

    async def barrier(self, **options: Any) -> None:
        """Returns when all ranks have called it; options as thalweg.Group.ibarrier."""
        await self._end(self._here.ibarrier(**options))

    async def broadcast(self, buffer: Any, root: int = 0, **options: Any) -> None:
        """root's buffer to all others'; options as thalweg.Group.ibroadcast."""
        await self._end(self._here.ibroadcast(buffer, root, **options))

    async def reduce(self, send: Any, recv: Any = None, op: Any = "sum", root: int = 0, **options: Any) -> None:
        """As thalweg.Group.reduce; options as ireduce."""
        await self._end(self._here.ireduce(send, recv, op, root, **options))

    async def allreduce(self, send: Any, recv: Any = None, op: Any = "sum", **options: Any) -> None:
        """As thalweg.Group.allreduce; options as iallreduce."""
        await self._end(self._here.iallreduce(send, recv, op, **options))

    async def reduce_scatter(self, send: Any, recv: Any = None, op: Any = "sum", **options: Any) -> None:
        """As thalweg.Group.reduce_scatter; options as ireduce_scatter."""
        await self._end(self._here.ireduce_scatter(send, recv, op, **options))

    async def reduce_scatterv(self, send: Any, recv: Any, counts: Any, op: Any = "sum", **options: Any) -> None:
        """As thalweg.Group.reduce_scatterv; options as ireduce_scatterv."""
        await self._end(self._here.ireduce_scatterv(send, recv, counts, op, **options))

    async def allgather(self, send: Any, recv: Any, **options: Any) -> None:
        """As thalweg.Group.allgather; options as iallgather."""
        await self._end(self._here.iallgather(send, recv, **options))

    async def allgatherv(self, send: Any, recv: Any, counts: Any, offsets: Any = None, **options: Any) -> None:
        """As thalweg.Group.allgatherv; options as iallgatherv."""
        await self._end(self._here.iallgatherv(send, recv, counts, offsets, **options))

    async def gather(self, send: Any, recv: Any = None, root: int = 0, **options: Any) -> None:
        """As thalweg.Group.gather; options as igather."""
        await self._end(self._here.igather(send, recv, root, **options))

    async def gatherv(
        self, send: Any, recv: Any = None, counts: Any = None, offsets: Any = None, root: int = 0, **options: Any
    ) -> None:
        """As thalweg.Group.gatherv; options as igatherv."""
        await self._end(self._here.igatherv(send, recv, counts, offsets, root, **options))

    async def scatter(self, send: Any, recv: Any = None, root: int = 0, **options: Any) -> None:
        """As thalweg.Group.scatter; options as iscatter."""
        await self._end(self._here.iscatter(send, recv, root, **options))

    async def scatterv(
        self, send: Any, recv: Any = None, counts: Any = None, offsets: Any = None, root: int = 0, **options: Any
    ) -> None:
        """As thalweg.Group.scatterv; options as iscatterv."""
        await self._end(self._here.iscatterv(send, recv, counts, offsets, root, **options))

    async def alltoall(self, send: Any, recv: Any, **options: Any) -> None:
        """As thalweg.Group.alltoall; options as ialltoall."""
        await self._end(self._here.ialltoall(send, recv, **options))

    async def alltoallv(self, send: Any, send_counts: Any, recv: Any, recv_counts: Any, **options: Any) -> None:
        """As thalweg.Group.alltoallv; options as ialltoallv."""
        await self._end(self._here.ialltoallv(send, send_counts, recv, recv_counts, **options))

    async def scan(self, send: Any, recv: Any = None, op: Any = "sum", **options: Any) -> None:
        """As thalweg.Group.scan; options as iscan."""
        await self._end(self._here.iscan(send, recv, op, **options))

    async def exclusive_scan(self, send: Any, recv: Any = None, op: Any = "sum", **options: Any) -> None:
        """As thalweg.Group.exclusive_scan; options as iexclusive_scan."""
        await self._end(self._here.iexclusive_scan(send, recv, op, **options))

    async def __aenter__(self) -> Group:
        self.worker._attach()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the group; the world with its worker."""
        self.core.close()
        if self.core.worker.closed:
            self.worker.close()


class AmMessage:
    """An active message given to its handler. A payload not received is dropped with this object."""

    __slots__ = ("core", "worker")

    def __init__(self, worker: Worker, core: _core.AmMessage) -> None:
        self.worker = worker
        self.core = core

    @property
    def endpoint(self) -> Endpoint | None:
        """Reply here. None: the connection is over."""
        core = self.core.endpoint
        return None if core is None else self.worker.endpoint(core)

    @property
    def header(self) -> bytes:
        """The header's bytes."""
        return self.core.header

    @property
    def length(self) -> int:
        """Bytes of the payload."""
        return self.core.length

    async def recv(self, buffer: Any, *, layout: _core.Layout | None = None, after: Any = None) -> _core.RecvInfo:
        """Receives the payload into a writable buffer; layout and after as in thalweg.Endpoint.recv."""
        self.worker._attach()
        request = self.core.irecv(buffer, layout=layout, after=after)
        return request._value() if request.ended else await self.worker._value(request)

    async def data(self) -> bytearray:
        """The payload in a new bytearray."""
        buffer = bytearray(self.core.length)
        await self.recv(buffer)
        return buffer


__all__ = ["AmMessage", "Endpoint", "Group", "Listener", "Worker"]
