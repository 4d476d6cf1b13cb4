# SPDX-License-Identifier: Apache-2.0
"""Objects over an endpoint of asyncio. Each is several messages: one that has begun goes on to its end, also where the task
that sent or received it is cancelled, because what follows on its tag would else be taken for the next one."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from .errors import Canceled
from .objects import (
    RECEIVED,
    Incoming,
    demand_length,
    demand_whole,
    encode,
    give_header,
    kept_of,
    post_object,
    take_header,
    unsafe,
    whole,
)

if TYPE_CHECKING:
    from .aio import Worker

_T = TypeVar("_T")


class Objects:
    """What is sent and received as objects on one endpoint. An object that is under way keeps it; one that has come waits with
    the connection (objects.Kept)."""

    __slots__ = ("__weakref__", "_begun", "_receiving", "core", "worker")

    def __init__(self, worker: Worker, core: _core.Endpoint) -> None:
        self.worker = worker
        self.core = core
        self._receiving = asyncio.Lock()
        self._begun: dict[int, asyncio.Task[Incoming | None]] = {}  # by tag: takes an object to its end

    async def send(self, value: Any, tag: int) -> None:
        """As Endpoint.send_object."""
        await self._demand_safe()
        header, rest = encode(value)
        requests = post_object(self.core, header, rest, tag)
        if all(request.ended for request in requests):
            for request in requests:
                request._value()
        else:
            await asyncio.shield(self._go_on(self._sent(requests)))

    async def _sent(self, requests: list[_core.Request]) -> None:
        """All of an object's messages have ended. Raises how the first one failed."""
        errors: list[Exception] = []
        for request in requests:
            try:
                await self._outcome(request)
            except Exception as error:  # the others use their buffers all the same
                errors.append(error)
        try:
            if errors:
                raise errors[0]
        finally:
            errors.clear()

    async def _outcome(self, request: _core.Request) -> Any:
        """That of a message which no task's cancelling cancels."""
        return request._value() if request.ended else await self.worker._value(request, cancels=False)

    def _go_on(self, rest: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """A task that nobody has to wait for."""
        task = asyncio.ensure_future(rest)
        self.worker._tasks.add(task)
        task.add_done_callback(self.worker._tasks.discard)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # told to who asks
        return task

    async def recv(self, tag: int, device: Any) -> Any:
        """As Endpoint.recv_object."""
        await self._demand_safe()
        async with self._receiving:
            while (incoming := await self._next(tag)) is None:
                await self._begin(tag, device)
            if isinstance(incoming, Incoming):
                value = incoming.load()
                give_header(incoming.header)
                return value
            try:
                raise incoming
            finally:
                del incoming  # it has this frame

    async def _next(self, tag: int) -> Incoming | BaseException | None:
        """The object that has begun, complete, or how it ended; None: none has. Who is cancelled leaves it to the next one."""
        if (task := self._begun.get(tag)) is not None:
            await asyncio.wait((task,))
        return kept_of(self.core).arrived.pop(tag, None)

    async def _begin(self, tag: int, device: Any) -> None:
        """The next object has come, or is under way."""
        demand_whole(self.core, RECEIVED, tag)
        header = take_header()
        request = self.core.irecv(header, tag)
        try:
            info = request._value() if request.ended else await self.worker._value(request)
        except asyncio.CancelledError:
            if not self.worker._closed:
                self._take_on(self._take_if_begun(request, header, tag, device), tag)
            raise
        incoming = Incoming(header, info.length, self.worker.core.context, device)
        if (rest := self._take_ended(incoming, tag)) is not None:
            self._take_on(rest, tag)
        else:
            kept_of(self.core).arrived[tag] = incoming

    def _take_on(self, rest: Coroutine[Any, Any, Incoming | None], tag: int) -> None:
        """Takes an object to its end."""
        task = self._begun[tag] = self._go_on(rest)
        task.add_done_callback(functools.partial(self._taken, tag))

    def _taken(self, tag: int, task: asyncio.Task[Incoming | None]) -> None:
        del self._begun[tag]
        kept = kept_of(self.core)
        if task.cancelled():  # with its loop, perhaps before its first step
            kept.broken.add((RECEIVED, tag))
        elif (error := task.exception()) is not None:
            kept.arrived[tag] = error.with_traceback(None)  # the frames there have this endpoint
        elif (incoming := task.result()) is not None:
            kept.arrived[tag] = incoming

    async def _take_if_begun(self, request: _core.Request, header: bytearray, tag: int, device: Any) -> Incoming | None:
        """Takes an object whose header came all the same when its receive was to be cancelled."""
        try:
            info = await self._outcome(request)
        except Canceled:
            return None
        incoming = Incoming(header, info.length, self.worker.core.context, device)
        if (rest := self._take_ended(incoming, tag)) is not None:
            await rest
        return incoming

    def _take_ended(self, incoming: Incoming, tag: int) -> Coroutine[Any, Any, Incoming] | None:
        """Takes the parts that are here already. What takes the others; None: it is complete."""
        parts = incoming.parts()
        with whole(self.core, RECEIVED, tag):
            for part, length in parts:
                request = self.core.irecv(part, tag)
                if not request.ended:
                    return self._take(request, length, parts, incoming, tag)
                demand_length(request._value().length, length)
        return None

    async def _take(
        self, request: _core.Request, length: int, parts: Iterator[tuple[Any, int]], incoming: Incoming, tag: int
    ) -> Incoming:
        """Takes the part under way, and those behind it."""
        with whole(self.core, RECEIVED, tag):
            demand_length((await self._outcome(request)).length, length)
            for part, size in parts:
                demand_length((await self._outcome(self.core.irecv(part, tag))).length, size)
        return incoming

    async def _demand_safe(self) -> None:
        """Objects are sent only where no third party can inject bytes."""
        if self.core.protected:
            return
        await self.worker._until(lambda: self.core.state != "in_progress" or None)
        if error := unsafe(self.core):
            raise error
