# SPDX-License-Identifier: Apache-2.0
"""Objects over an endpoint of asyncio. Each is several messages: one that has begun goes on to its end, also where the task
that sent or received it is cancelled, because what follows on its tag would else be taken for the next one."""

from __future__ import annotations

import asyncio
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
    post_object,
    take_header,
    unsafe,
    whole,
)

if TYPE_CHECKING:
    from .aio import Worker

_T = TypeVar("_T")


class Objects:
    """What is sent and received as objects on one endpoint."""

    __slots__ = ("_begun", "_receiving", "core", "worker")

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
            incoming = None
            while incoming is None and tag in self._begun:  # by one that was cancelled
                incoming = await self._rest_of(tag)
            if incoming is None:
                incoming = await self._next_object(tag, device)
            value = incoming.load()
            give_header(incoming.header)
            return value

    async def _rest_of(self, tag: int) -> Incoming | None:
        """The object that its task in _begun takes to its end; who is cancelled leaves it there. None: it had not begun."""
        task = self._begun[tag]
        if task.done() and task.cancelled():
            demand_whole(self.core, RECEIVED, tag)
        try:
            incoming = await asyncio.shield(task)
        except Exception:
            del self._begun[tag]
            raise
        del self._begun[tag]
        return incoming

    async def _next_object(self, tag: int, device: Any) -> Incoming:
        """A new one, complete."""
        demand_whole(self.core, RECEIVED, tag)
        header = take_header()
        request = self.core.irecv(header, tag)
        try:
            info = request._value() if request.ended else await self.worker._value(request)
        except asyncio.CancelledError:
            if not self.worker._closed:
                self._begun[tag] = self._go_on(self._take_if_begun(request, header, tag, device))
            raise
        incoming = Incoming(header, info.length, self.worker.core.context, device)
        if (rest := self._take_ended(incoming, tag)) is not None:
            self._begun[tag] = self._go_on(rest)
            await self._rest_of(tag)
        return incoming

    async def _take_if_begun(self, request: _core.Request, header: bytearray, tag: int, device: Any) -> Incoming | None:
        """Takes an object whose header came all the same when its receive was to be cancelled."""
        try:
            info = await self._outcome(request)
        except Canceled:
            return None
        except asyncio.CancelledError:
            with whole(self.core, RECEIVED, tag):
                raise
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
