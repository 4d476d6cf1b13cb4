# SPDX-License-Identifier: Apache-2.0
"""Programs by thalweg.aio: every operation is a task, which may be cancelled at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import thalweg as tw
from thalweg import aio

from .plain import SHORT, Plain
from .program import Program, Step
from .state import BUFFER, HANDLER, HandlerRaised, Operation, outcome_of
from .world import World


class Loop(Plain):
    """One event loop; its workers sleep, or poll."""

    def __init__(self, program: Program) -> None:
        self.workers: list[aio.Worker] = []
        self.tasks: set[asyncio.Task[None]] = set()
        World.__init__(self, program)
        asyncio.get_running_loop().set_exception_handler(self.heard)
        for number, worker in enumerate(self.workers):
            worker.am_register(HANDLER, self.handler(number))

    def make_worker(self, its: tw.Context) -> Any:
        self.workers.append(aio.Worker(its, polling=self.program.polling))
        return self.workers[-1].core

    def heard(self, loop: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        """What the loop tells: handlers' exceptions."""
        error = what.get("exception")
        if isinstance(error, HandlerRaised):
            self.tell(error)
        else:
            self.problem = self.problem or error or RuntimeError(what["message"])

    def buffer(self, operation: Operation, kind: str, size: int) -> Any:
        return super().buffer(operation, "memoryview" if kind == "library" else kind, size)

    def awaitable(self, target: Any) -> Any:
        """The coroutines' side of an endpoint or worker."""
        for worker in self.workers:
            if target is worker.core:
                return worker
            if isinstance(target, tw.Endpoint) and not target.closed and target.worker is worker.core:
                return worker.endpoint(target)
        return None

    def start(self, operation: Operation, target: Any, verb: str, *arguments: Any, **options: Any) -> None:
        other = None if operation.core else self.awaitable(target)
        if other is None:
            operation.core = True
            return super().start(operation, target, verb, *arguments, **options)
        if "source" in options:
            options["source"] = self.awaitable(options["source"])
            if options["source"] is None:
                return
        task = asyncio.ensure_future(self.task(operation, other, verb, arguments, options))
        operation.request = task
        self.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            if task.cancelled():  # before its first step
                self.never(operation)
            elif task.exception() is not None:
                self.problem = self.problem or task.exception()

        task.add_done_callback(ended)

    def never(self, operation: Operation) -> None:
        """A task that was cancelled before it began: nothing was posted."""
        operation.asked = True
        self.end(operation, ("Canceled", ""))
        for thing in (operation.write, operation.bit, operation.signal):
            if thing is not None:
                thing.possible = False

    async def task(self, operation: Operation, target: Any, verb: str, arguments: Any, options: Any) -> None:
        operation.begin = self.now()
        for thing in (operation.message, operation.receive, operation.active, operation.write, operation.bit, operation.signal):
            if thing is not None:
                thing.begin = operation.begin
        self.stamp(operation)
        buffer = operation.buffer
        try:
            value = await getattr(target, verb)(
                *[buffer.give() if one is BUFFER and buffer is not None else one for one in arguments], **options
            )
        except asyncio.CancelledError:
            outcome = None
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        else:
            outcome = ("ok", self.value(operation, value))
        if outcome is not None:
            self.end(operation, outcome)
        elif buffer is not None:
            self.detach(operation, unsure=True)
        else:
            operation.detached, operation.ended = True, self.now()

    def ask_cancel(self, operation: Operation) -> None:
        if operation.core:
            return super().ask_cancel(operation)
        if operation.request is None or operation.outcome is not None:
            return
        operation.asked = True
        if operation.receive is not None:
            operation.receive.over = min(operation.receive.over, self.now())
        operation.request.cancel()

    def look(self, operation: Operation) -> None:
        if operation.core:
            super().look(operation)

    def after_worker(self, operation: Operation) -> None:
        if operation.core:
            super().after_worker(operation)

    def must_end(self, operation: Operation) -> bool:
        if not self.open(operation.worker) and not operation.core and not operation.detached:
            return True
        return super().must_end(operation)

    def end_worker(self, worker: int) -> None:
        self.workers[worker].close()

    def handler(self, worker: int) -> Any:
        simple = super().handler(worker)

        async def later(message: aio.AmMessage, active: Any) -> None:
            with self.lost_with(active):
                self.handler_data(active, bytes(await message.data()))
            if "raises_late" in active.flags:
                self.handler_raises(active)

        def handle(message: aio.AmMessage) -> Any:
            flags = self.flags_of(message.header)
            if "coroutine" in flags and not {"raises", "keep", "drop", "reply"} & set(flags):
                return later(message, self.handler_starts(worker, message.header, message.length, message.endpoint.core))
            return simple(message.core)

        return handle

    def flags_of(self, header: bytes) -> tuple[str, ...]:
        """Of the active message with that header."""
        active = self.actives.get(int.from_bytes(header[:8], "little"))
        return () if active is None else active.flags

    def do_wait(self, step: Step) -> Iterator[None]:
        for _ in range(step.of):
            yield

    def do_wait_any(self, step: Step) -> Iterator[None]:
        yield from self.do_wait(step)

    def do_drop(self, step: Step) -> Iterator[None]:
        yield from ()  # a task that is dropped is cancelled: see do_cancel

    def do_send_now(self, step: Step) -> Iterator[None]:
        yield from self.now_or_cancelled(self.do_send(step))

    def do_receive_now(self, step: Step) -> Iterator[None]:
        yield from self.now_or_cancelled(self.do_receive(step))

    def now_or_cancelled(self, post: Iterator[None]) -> Iterator[None]:
        """As wait_for with a short limit of time."""
        known = len(self.operations)
        yield from post
        for operation in self.operations[known:]:
            if not operation.core and operation.request is not None:
                asyncio.get_running_loop().call_later(SHORT, self.ask_cancel, operation)

    def do_wait_signal(self, step: Step) -> Iterator[None]:
        """Waits in a task, which is cancelled in a while."""
        if self.open(step.worker):
            place = self.places[step.worker]
            task = asyncio.ensure_future(self.wait_signal(step.worker, place.signal.value))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
            asyncio.get_running_loop().call_later(SHORT, task.cancel)
        yield from ()

    async def wait_signal(self, worker: int, value: int) -> None:
        try:
            await self.workers[worker].wait_signal(self.places[worker].signal, value, "!=")
        except (asyncio.CancelledError, tw.ClosedError):
            return
        self.look_signal(worker)

    async def turn_of_loop(self) -> None:
        """Everybody's tasks go on."""
        await asyncio.sleep(0 if self.program.polling or self.random.random() < 0.9 else 1e-4)
        for operation in self.pending():
            self.look(operation)
        if self.problem is not None:
            raise self.problem

    async def drive_in_loop(self, steps: Iterator[None]) -> None:
        for _ in steps:
            await self.turn_of_loop()

    async def whole(self) -> None:
        """The program."""
        await self.drive_in_loop(self.begin())
        for step in self.program.steps:
            await self.drive_in_loop(self.run(step))
        await self.drive_in_loop(self.finish())
        await self.drive_in_loop(self.until(lambda: not self.tasks, lambda: f"{len(self.tasks)} tasks never end"))
        self.end_all()
        await self.turn_of_loop()
