# SPDX-License-Identifier: Apache-2.0
"""Programs by the package's blocking and `i` forms: one thread, or three that share workers and requests."""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import thalweg as tw

from .program import Program, Step
from .state import BUFFER, HANDLER, LIMIT, LOST_WITH_WORKER, HandlerRaised, Operation, Wrong, outcome_of
from .world import World

THREADS = 3
SHORT = 0.002  # seconds that a wait may take whose end is not sure
SHARED = 0.02


class Plain(World):
    """One thread, or several that wait for the same requests."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.shared: list[collections.deque[Operation]] = [collections.deque() for _ in range(THREADS)]
        self.through: set[int] = set()  # threads that have done their steps
        for number, place in enumerate(self.places):
            place.core.am_register(HANDLER, self.handler(number))

    def make_worker(self, its: tw.Context) -> Any:
        threads = "multi" if self.program.mode == "threads" else "single"
        return tw.Worker(its, threads=threads, progress="thread" if self.program.polling else "caller")

    def start(self, operation: Operation, target: Any, verb: str, *arguments: Any, **options: Any) -> None:
        given = [operation.buffer.give() if one is BUFFER and operation.buffer is not None else one for one in arguments]
        outcome = None
        try:
            request = getattr(target, "i" + verb)(*given, **options)
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        given.clear()
        self.stamp(operation)
        if outcome is None:
            operation.request = request
        else:
            self.end(operation, outcome)

    def stamp(self, operation: Operation) -> None:
        """It is posted now."""
        operation.posted = self.now()
        for thing in (operation.message, operation.receive, operation.active, operation.write):
            if thing is not None and operation.what != "take_receive":
                thing.posted = operation.posted

    def handler(self, worker: int) -> Any:
        """What a worker does with active messages."""

        def handle(message: tw.AmMessage) -> None:
            active = self.handler_starts(worker, message.header, message.length, message.endpoint)
            if "raises" in active.flags:
                self.handler_raises(active)
            if "reply" in active.flags:
                self.reply(active)
            if "drop" in active.flags:
                return
            # A large payload needs progress of its sender, which this thread may be.
            far = active.sender != worker and (len(active.data) > 4096 or "rendezvous" in active.flags)
            if active.data and (far or "keep" in active.flags):
                self.keep(active, message)
            else:
                with self.lost_with(active):
                    self.handler_data(active, message.data)
            if "raises_late" in active.flags:
                self.handler_raises(active)

        return handle

    @contextlib.contextmanager
    def lost_with(self, active: Any) -> Iterator[None]:
        """What came of an active message may be lost with its connection."""
        try:
            yield
        except (tw.PeerLost, tw.ClosedError):
            if active.link.ending > self.now() and self.open(active.receiver):
                raise

    def keep(self, active: Any, message: Any) -> None:
        """Receives the payload of an active message later."""
        with self.lock:
            operation = self.operation("active_receive", Step("active_receive", active.receiver), active.link)
            operation.core = True
            operation.data = active.data
            self.buffer(operation, "memoryview", len(active.data))
            self.operations.append(operation)
        Plain.start(self, operation, message, "recv", BUFFER)

    def look(self, operation: Operation) -> None:
        request = operation.request
        if request is None or operation.outcome is not None:
            return
        try:
            if not self.call(request.done):
                return
        except tw.ClosedError as error:
            self.must_be_closed(operation.worker, error)
            return self.after_worker(operation)
        self.collect(operation, request)

    def collect(self, operation: Operation, request: Any, timeout: float = 0) -> bool:
        """Waits for it; False: it has not ended, or that is unknown."""
        try:
            value = request.wait(timeout=timeout)
        except HandlerRaised as error:
            self.tell(error)
            return False
        except tw.TimedOut:
            return False
        except tw.ThalwegError as error:
            self.not_early(operation.worker, error)
            outcome = outcome_of(error)
        else:
            outcome = ("ok", self.value(operation, value))
        self.end(operation, outcome)
        return True

    def value(self, operation: Operation, value: Any) -> Any:
        """What it brought, to be compared."""
        if not isinstance(value, tw.RecvInfo):
            return value
        return (value.tag, value.immediate, value.length)

    def ask_cancel(self, operation: Operation) -> None:
        request = operation.request
        if request is None:
            return
        with self.lock:
            before, operation.asked = self.now(), True
        try:
            done = request.cancel()
        except tw.ClosedError as error:
            self.must_be_closed(operation.worker, error)
            return
        with self.lock:
            operation.canceled = operation.canceled or done
            for sent in (operation.message, operation.active):
                if done and sent is not None:
                    sent.withdrawn = True
            if done and operation.receive is not None:
                operation.receive.over = min(operation.receive.over, before)
            if done and operation.outcome is not None and operation.outcome[0] == "ok":
                self.wrong(f"{self.text(operation)} was told as complete, and could be cancelled")

    def must_be_closed(self, worker: int, error: tw.ClosedError) -> None:
        """A waiter that is ended by another thread's close gets that when the close is done."""
        if self.open(worker):
            raise error
        self.not_early(worker, error)

    def not_early(self, worker: int, error: tw.ThalwegError) -> None:
        """What another thread's close ends, ends when that is done."""
        if "another thread" in str(error) and not self.places[worker].core.closed:
            self.wrong(f"a call at {worker} was told of a close that is not done")

    def after_worker(self, operation: Operation) -> None:
        request = operation.request
        if request is not None and operation.outcome is None:
            try:
                request.wait(0)
            except tw.ThalwegError as error:
                if not isinstance(error, (tw.ClosedError, tw.PeerLost, tw.Truncated, tw.Canceled, tw.Stale)):
                    self.wrong(f"{self.text(operation)} ended with its worker as {error!r}")
        self.end(operation, LOST_WITH_WORKER)

    # ------------------------------------------------------------------------------------------- blocking calls

    def do_wait(self, step: Step) -> Iterator[None]:
        operation = self.chosen(step)
        if operation is not None:
            if "shared" in step.flags and self.program.mode == "threads":
                self.share_out(step.thread, operation)
            self.wait(operation, SHARED if self.program.mode == "threads" else SHORT if "long" in step.flags else 0)
        yield from ()

    def do_close_worker(self, step: Step) -> Iterator[None]:
        """The others wait for something of it meanwhile."""
        if self.program.mode == "threads":
            for operation in [one for one in self.pending() if one.worker == step.worker][-1:]:
                self.share_out(step.thread, operation)
            for _ in range(step.of):
                yield
        yield from super().do_close_worker(step)

    def share_out(self, thread: int, operation: Operation) -> None:
        """The other threads wait for it too."""
        for number, queue in enumerate(self.shared):
            if number != thread:
                queue.append(operation)

    def do_wait_any(self, step: Step) -> Iterator[None]:
        """Waits for one of several, shortly."""
        some = [one for one in self.pending() if self.open(one.worker)][-1 - step.of :]
        requests = [one.request for one in some]
        if some and None not in requests:
            try:
                index = tw.wait_any(requests, timeout=SHORT)
                if not requests[index].ended:
                    self.wrong(f"{self.text(some[index])} has not ended, but wait_any says so")
                self.collect(some[index], requests[index])
            except HandlerRaised as error:
                self.tell(error)
            except tw.TimedOut:
                pass
            except tw.ClosedError:
                if all(self.open(one.worker) for one in some):
                    raise
        yield from ()

    def wait(self, operation: Operation, timeout: float) -> None:
        """Waits for a request, which others may wait for, too."""
        request = operation.request
        if request is None:
            return
        try:
            self.collect(operation, request, timeout)
        except tw.ClosedError as error:
            self.must_be_closed(operation.worker, error)

    def do_send_now(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = self.link(step.worker, step.peer)
            if link is None:
                return
            operation = self.operation("send_now", step, link)
            kind = "memoryview" if step.kind == "library" else step.kind
            message = self.new_message(operation, link, step.tag, step.size, kind)
            self.operations.append(operation)
        options = {"sync": True} if "sync" in step.flags else {}
        end = link.ends[step.worker]
        self.now_or_never(operation, end.send, step.tag, immediate=message.number, **options)
        yield from ()

    def do_receive_now(self, step: Step) -> Iterator[None]:
        with self.lock:
            link = None if "anyone" in step.flags else self.link(step.worker, step.peer)
            if not self.open(step.worker) or (link is None and "anyone" not in step.flags):
                return
            operation = self.operation("receive_now", step, link)
            capacity = step.size if "short" in step.flags else max(step.size, 6000)
            receive = self.new_receive(operation, step, link, capacity)
            if operation.buffer is not None and operation.buffer.kind == "library":
                self.buffers.remove(operation.buffer)
                self.buffer(operation, "memoryview", capacity)
            self.operations.append(operation)
        target = self.places[step.worker].core if link is None else link.ends[step.worker]
        self.now_or_never(operation, target.recv, receive.tag, receive.mask)
        yield from ()

    def now_or_never(self, operation: Operation, function: Any, *arguments: Any, **options: Any) -> None:
        """A blocking call with a short limit of time: it ends, is cancelled, or goes on by itself."""
        goes_on = False
        buffer = operation.buffer
        assert buffer is not None
        try:
            value = function(buffer.give(), *arguments, timeout=SHORT, **options)
        except HandlerRaised as error:
            self.tell(error)
            goes_on, outcome = True, ("", "")
            operation.asked = True  # a call that raises cancels what it waited for
        except tw.TimedOut as error:
            goes_on = "goes on" in str(error)
            operation.asked, outcome = True, ("Canceled", "")
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        else:
            outcome = ("ok", self.value(operation, value))
        self.stamp(operation)
        if operation.receive is not None and (goes_on or outcome[0] == "Canceled"):
            operation.receive.over = operation.begin  # the time of its cancellation is unknown
        if goes_on:
            self.detach(operation, unsure=True)
        else:
            self.end(operation, outcome)

    # ------------------------------------------------------------------------------------------- running

    def turn(self) -> None:
        """Everybody progresses, and what has ended is seen."""
        for number, place in enumerate(self.places):
            if self.open(number):
                self.guarded(number, None, place.core.progress)
        for operation in self.pending():
            self.look(operation)

    def drive(self, steps: Iterator[None]) -> None:
        """Runs what waits."""
        for _ in steps:
            self.turn()

    def share(self, thread: int) -> None:
        """Waits for what another thread waits for."""
        while self.shared[thread]:
            self.wait(self.shared[thread].popleft(), SHARED)

    def thread(self, number: int) -> None:
        """The steps of one thread."""
        try:
            for step in self.program.steps:
                self.share(number)
                if self.problem is not None:
                    return
                if step.thread == number and step.what != "settle":
                    self.drive(self.run(step))
            self.through.add(number)
            while len(self.through) < THREADS and self.problem is None:
                self.share(number)
                self.turn()
        except BaseException as error:
            self.problem = self.problem or error

    def steps(self) -> None:
        """All steps."""
        if self.program.mode != "threads":
            for step in self.program.steps:
                self.drive(self.run(step))
            return
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            threads = [threading.Thread(target=self.thread, args=(number,), daemon=True) for number in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(2 * LIMIT)
                if thread.is_alive():
                    raise self.problem or Wrong("a thread waits for ever")
        finally:
            sys.setswitchinterval(before)
        if self.problem is not None:
            raise self.problem

    def all(self) -> None:
        """The whole program."""
        self.drive(self.begin())
        self.steps()
        self.drive(self.finish())
        self.end_all()
