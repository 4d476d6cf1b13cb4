# SPDX-License-Identifier: Apache-2.0
"""A process of mode "processes": it has workers of a program, and does what the program's parent tells it by a pipe.

It runs the package; what its outcomes mean the parent's reference says. What happens by itself (ends of requests, handlers)
goes to the parent with the next answer, as notes.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
import struct
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import thalweg as tw

from .buffers import Buffer, DeviceBuffer, payload
from .state import HANDLER, LIMIT, REGION, WORDS, HandlerRaised, outcome_of

HEADER = struct.Struct("<QQQQI16s")  # of active messages: number, kept, reply, seed, sender, flags
HANDLER_FLAGS = ("raises", "raises_late", "keep", "drop", "reply", "rendezvous")
FAR = 4096  # bytes of a payload that needs progress of its sender

ENDS_WITH_A_WORKER = (tw.ClosedError, tw.PeerLost, tw.Truncated, tw.Canceled, tw.Stale)


class Ref(NamedTuple):
    """Names an object of a child."""

    name: Any


class Given(NamedTuple):
    """Names an operation's buffer, as it is given to the library."""

    number: int


class Strided(NamedTuple):
    """A layout."""

    block: int
    count: int
    stride: int


class Census(NamedTuple):
    """What a process holds."""

    descriptors: int
    threads: int
    segments: int
    links: int


def header_of(number: int, kept: int, reply: int, seed: int, sender: int, flags: tuple[str, ...]) -> bytes:
    """The header of an active message: the handler does what it says."""
    chosen = bytes(flag in flags for flag in HANDLER_FLAGS)
    return HEADER.pack(number, kept, reply, seed, sender, chosen)


class Asked(NamedTuple):
    """A request that has not ended."""

    worker: int
    request: Any


class Child:
    """Its objects are named by the parent."""

    def __init__(self, number: int, pipe: Connection, key: bytes, folder: str) -> None:
        self.number, self.pipe, self.key, self.folder = number, pipe, key, folder
        self.contexts: dict[int, tw.Context] = {}
        self.broken: str | None = None
        self.forget()

    def forget(self) -> None:
        """Before a program."""
        self.notes: list[tuple[Any, ...]] = []
        self.objects: dict[Any, Any] = {}
        self.ends: dict[int, Any] = {}  # id of an endpoint: its name
        self.connecting: set[Any] = set()
        self.workers: dict[int, tw.Worker] = {}
        self.places: dict[int, dict[str, Any]] = {}
        self.queues: dict[Any, Any] = {}
        self.buffers: dict[int, Buffer] = {}
        self.requests: dict[int, Asked] = {}
        self.watched: set[int] = set()  # operations that are not tested any more
        self.parted: list[tuple[bytearray, bytes]] = []

    # ------------------------------------------------------------------------------------------- commands

    def serve(self) -> None:
        """Until the parent is gone."""
        while True:
            commands, answer = self.pipe.recv()
            value = error = None
            for name, arguments in commands:
                try:
                    value = getattr(self, "do_" + name)(*arguments)
                except tw.ThalwegError as told:
                    error = (type(told).__name__, str(told), getattr(told, "length", None))
                except Exception:
                    self.broken = self.broken or traceback.format_exc()
            if answer:
                notes, self.notes = self.notes, []
                self.pipe.send((value, error, notes, self.broken))
            elif error is not None:
                self.broken = self.broken or f"{name}: {error}"

    def resolve(self, value: Any) -> Any:
        """What the parent's names stand for."""
        if isinstance(value, Ref):
            return self.objects[value.name]
        if isinstance(value, Given):
            return self.buffers[value.number].give()
        if isinstance(value, Strided):
            return tw.Layout.strided(value.block, [value.count], [value.stride])
        return value

    def resolved(self, arguments: Any, options: Any) -> tuple[list[Any], dict[str, Any]]:
        return [self.resolve(one) for one in arguments], {name: self.resolve(one) for name, one in options.items()}

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        """A call that progresses: what handlers raise comes out of it, and it is made again."""
        while True:
            try:
                return function(*arguments, **options)
            except HandlerRaised as error:
                self.notes.append(("told", error.args[0]))

    def context(self, number: int) -> tw.Context:
        if number not in self.contexts:
            its = self.contexts[number] = tw.Context(job_key=self.key, silent_timeout=60, socket_dir=self.folder)
            with tw.Worker(its) as core:  # a context keeps the first block of signals for good
                tw.Signal(core).close()
        return self.contexts[number]

    def do_begin(self, contexts: int) -> Census:
        self.forget()
        for number in range(contexts):
            self.context(number)
        return self.census()

    def do_place(self, worker: int, context: int, polling: bool, seed: int) -> dict[str, Any]:
        """A worker, and what its peers may reach; its address and keys."""
        its = self.context(context)
        core = tw.Worker(its, progress="thread" if polling else "caller")
        core.am_register(HANDLER, self.handler(worker))
        regions = [tw.Memory.allocate(its, REGION)]
        registered = bytearray(payload(seed, -2 - 2 * worker, REGION))
        memoryview(regions[0])[:] = payload(seed, -1 - 2 * worker, REGION)
        regions.append(tw.Memory.register(its, registered))
        words = tw.Memory.allocate(its, 8 * WORDS)
        memoryview(words)[:] = bytes(8 * WORDS)
        word = tw.Signal(core, "add")
        self.workers[worker] = core
        self.objects[worker] = core
        self.places[worker] = {"regions": regions, "registered": registered, "words": words, "signal": word}
        keys: dict[Any, bytes] = {0: regions[0].export(), 1: regions[1].export(), "words": words.export()}
        return {"address": core.address, "keys": {**keys, "signal": word.export()}}

    def do_connect(self, name: Any, worker: int, address: bytes, options: dict[str, Any]) -> None:
        end = self.call(self.workers[worker].connect, address, **options)
        self.objects[name] = end
        self.ends[id(end)] = name
        self.connecting.add(name)

    def do_import(self, name: Any, end: Any, key: bytes, kind: str) -> None:
        make = tw.RemoteSignal(self.objects[end], key, "add") if kind == "signal" else tw.RemoteMemory(self.objects[end], key)
        self.objects[name] = make

    def do_call(self, target: Any, verb: str, arguments: Any, options: Any) -> Any:
        given, named = self.resolved(arguments, options)
        return self.call(getattr(self.resolve(target), verb), *given, **named)

    def do_buffer(self, number: int, kind: str, size: int, filler: int, context: int) -> None:
        make = DeviceBuffer if kind.startswith("emulated") else Buffer
        self.buffers[number] = make(kind, size, filler, self.context(context))

    def do_write(self, number: int, data: bytes) -> None:
        self.buffers[number].write(data)

    def do_poison(self, number: int, filler: int) -> None:
        self.buffers[number].poison(filler)

    def shown(self, number: int) -> bytes | None:
        """All bytes of a buffer, if it was written to."""
        buffer = self.buffers.get(number)
        if buffer is None:
            return None
        buffer.look()
        return None if buffer.untouched() else bytes(buffer.base)

    def do_post(self, number: int, worker: int, target: Any, verb: str, arguments: Any, options: Any) -> None:
        given, named = self.resolved(arguments, options)
        self.requests[number] = Asked(worker, getattr(self.resolve(target), "i" + verb)(*given, **named))

    def do_now(self, number: int, target: Any, verb: str, arguments: Any, options: Any) -> tuple[Any, ...]:
        """A blocking call with a limit of time: how it ended, and what the buffer shows."""
        given, named = self.resolved(arguments, options)
        goes_on = raised = False
        try:
            outcome = ("ok", self.value(getattr(self.resolve(target), verb)(*given, **named)))
        except HandlerRaised as error:
            self.notes.append(("told", error.args[0]))
            raised, outcome = True, ("", "")
        except tw.TimedOut as error:
            goes_on, outcome = "goes on" in str(error), ("Canceled", "")
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        return goes_on or raised, outcome, self.shown(number)

    def value(self, value: Any) -> Any:
        return (value.tag, value.immediate, value.length) if isinstance(value, tw.RecvInfo) else value

    def collect(self, number: int, timeout: float = 0) -> None:
        """Waits for a request that may have ended."""
        request = self.requests[number].request
        try:
            outcome = ("ok", self.value(request.wait(timeout=timeout)))
        except HandlerRaised as error:
            self.notes.append(("told", error.args[0]))
            return
        except tw.TimedOut:
            return
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        del self.requests[number], request
        self.notes.append(("ended", number, outcome, self.shown(number)))

    def do_wait(self, number: int, timeout: float) -> None:
        if number in self.requests:
            self.collect(number, timeout)

    def do_wait_any(self, numbers: list[int], timeout: float) -> str | None:
        numbers = [number for number in numbers if number in self.requests]
        if not numbers:
            return None
        requests = [self.requests[number].request for number in numbers]
        try:
            index = tw.wait_any(requests, timeout=timeout)
        except HandlerRaised as error:
            self.notes.append(("told", error.args[0]))
        except tw.TimedOut:
            pass
        else:
            if not requests[index].ended:
                return f"operation {numbers[index]} has not ended, but wait_any says so"
            self.collect(numbers[index])
        return None

    def do_cancel(self, number: int) -> bool:
        return self.requests[number].request.cancel() if number in self.requests else False

    def do_detach(self, number: int) -> None:
        self.requests.pop(number, None)
        self.watched.add(number)

    def do_turn(self, times: int) -> tuple[dict[int, int], int]:
        """Progress of all workers; the values of their signals, and how many links there are."""
        for _ in range(times):
            for core in self.workers.values():
                self.call(core.progress)
        for name in list(self.connecting):
            if (state := self.objects[name].state) != "in_progress":
                self.connecting.remove(name)
                self.notes.append(("state", self.number, name, state))
        for number, asked in list(self.requests.items()):
            if self.call(asked.request.done):
                self.collect(number)
        for number in list(self.watched):
            if not self.buffers[number].held():
                self.watched.remove(number)
                self.notes.append(("freed", number, self.shown(number)))
        return {worker: self.places[worker]["signal"].value for worker in self.workers}, self.links()

    def do_doze(self, seconds: float) -> None:
        """Progress for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for core in self.workers.values():
                self.call(core.progress)

    def do_probe(self, worker: int, name: Any, tag: int, mask: int, take: bool, source: Any) -> Any:
        options = {} if source is None else {"source": self.objects[source]}
        found = self.call(self.workers[worker].probe, tag, mask, take=take, **options)
        if found is None:
            return None
        self.objects[name] = found
        return (found.immediate, found.tag, found.length)

    def do_signal(self, worker: int) -> int:
        return self.places[worker]["signal"].value

    def do_wait_signal(self, worker: int, value: int, compare: str, timeout: float) -> None:
        self.call(self.places[worker]["signal"].wait, value, compare, timeout=timeout)

    def do_read(self, worker: int, which: int, offset: int, room: int) -> bytes:
        place = self.places[worker]
        return bytes(memoryview(place["registered"] if which == 1 else place["regions"][0])[offset : offset + room])

    def do_words(self, worker: int) -> list[int]:
        return [int(value) for value in np.frombuffer(self.places[worker]["words"], np.uint64)]

    def do_release_region(self, worker: int, which: int, filler: int) -> str | None:
        region = self.places[worker]["regions"][which]
        view = memoryview(region)
        try:
            region.release()
            return "a memory with a view of it was released"
        except tw.BusyError:
            view.release()
        region.release()
        if which == 1:
            registered = self.places[worker]["registered"]
            poison = bytes([filler]) * REGION
            registered[:] = poison
            self.parted.append((registered, poison))
        return None

    def do_release_buffer(self, number: int) -> None:
        memory = self.buffers[number].memory
        assert memory is not None
        memory.release()

    # ------------------------------------------------------------------------------------------- plans

    def do_plan(
        self, name: Any, context: int, end: Any, steps: list[tuple[str, int, int]], place: str | None, limit: float
    ) -> None:
        """A plan of sends and receives: verb, buffer, tag. With a place it runs on a queue there."""
        where = None if place == "host" else place
        plan = self.objects[name] = tw.Plan(self.context(context), place=where, timeout=limit)
        self.queues[name] = None if place is None else tw.Queue(self.context(context), place)
        for verb, number, tag in steps:
            getattr(plan, verb)(self.objects[end], self.buffers[number].give(), tag)

    def do_prepare(self, name: Any, limit: float) -> None:
        self.call(self.objects[name].prepare, limit)

    def do_run(self, name: Any, limit: float, times: int = 1) -> None:
        """By the host, or in the order of its queue."""
        plan, queue = self.objects[name], self.queues[name]
        for _ in range(times):
            self.call(plan.run, limit) if queue is None else plan.trigger(queue)
        if queue is not None:
            queue.synchronize()

    def do_start(self, name: Any, limit: float) -> None:
        """A run that is not waited for, or not for long."""
        plan, queue = self.objects[name], self.queues[name]
        self.call(plan.run, limit) if queue is None else plan.trigger(queue)

    def do_finish(self, name: Any, limit: float) -> None:
        """What was started."""
        plan, queue = self.objects[name], self.queues[name]
        self.call(plan.finish, limit) if queue is None else queue.synchronize()

    def do_update(self, name: Any, step: int, number: int) -> None:
        self.objects[name].update(step, self.buffers[number].give())

    def do_update_to_read_only(self, name: Any, step: int, size: int) -> None:
        self.objects[name].update(step, memoryview(bytes(size)))

    def do_close_plan(self, name: Any) -> None:
        """Busy: it is still there."""
        self.objects[name].close()
        del self.objects[name]
        if (queue := self.queues.pop(name)) is not None:
            queue.close()

    def do_on_queue(self, name: Any, context: int, place: str) -> None:
        self.queues[name] = tw.Queue(self.context(context), place)

    def do_enqueue(self, name: Any, verb: str, arguments: Any) -> None:
        """A single operation in the order of a queue."""
        given, _ = self.resolved(arguments, {})
        getattr(tw, verb + "_on")(self.queues[name], *given)

    def do_synchronize(self, name: Any) -> None:
        self.queues[name].synchronize()

    def do_close_queue(self, name: Any) -> None:
        self.queues.pop(name).close()

    def do_export(self, number: int) -> bytes:
        """The key of the library's memory of a buffer."""
        return self.buffers[number].memory.export()

    def do_drop(self, name: Any) -> None:
        del self.objects[name]

    def do_show(self, number: int) -> bytes | None:
        return self.shown(number)

    # ------------------------------------------------------------------------------------------- handlers

    def handler(self, worker: int) -> Any:
        """What a worker does with active messages: as the header says, because the parent cannot be asked here."""

        def handle(message: tw.AmMessage) -> None:
            number, kept, reply, seed, sender, chosen = HEADER.unpack(message.header)
            flags = {flag for flag, set_ in zip(HANDLER_FLAGS, chosen, strict=False) if set_}
            end = message.endpoint
            self.notes.append(("handled", worker, message.header, message.length, self.ends.get(id(end))))
            if "raises" in flags:
                self.notes.append(("raised", number))
                raise HandlerRaised(number)
            if "reply" in flags:
                self.reply(worker, number, reply, seed, end)
            if "drop" in flags:
                return
            far = sender != worker and (message.length > FAR or "rendezvous" in flags)
            if message.length and (far or "keep" in flags):
                self.keep(worker, number, kept, message)
            else:
                self.read_payload(number, seed, message)
            if "raises_late" in flags:
                self.notes.append(("raised", number))
                raise HandlerRaised(number)

        return handle

    def read_payload(self, number: int, seed: int, message: tw.AmMessage) -> None:
        try:
            data = bytes(message.data)
        except (tw.PeerLost, tw.ClosedError):
            self.notes.append(("payload_lost", number))
            return
        if data != payload(seed, number, message.length):
            self.notes.append(("problem", f"active message {number} has other bytes than were sent"))

    def reply(self, worker: int, number: int, reply: int, seed: int, end: Any) -> None:
        """A handler may post."""
        buffer = self.buffers[reply] = Buffer("bytearray", 8, 0, self.contexts[0])
        buffer.write(payload(seed, reply, 8))
        outcome = None
        try:
            request = end.iam_send(HANDLER, header_of(reply, 0, 0, seed, worker, ()), buffer.give())
            self.requests[reply] = Asked(worker, request)
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        self.notes.append(("replied", number, outcome))

    def keep(self, worker: int, number: int, kept: int, message: tw.AmMessage) -> None:
        """Receives a payload later."""
        buffer = self.buffers[kept] = Buffer("memoryview", message.length, kept % 256, self.contexts[0])
        outcome = None
        try:
            self.requests[kept] = Asked(worker, message.irecv(buffer.give()))
        except tw.ThalwegError as error:
            outcome = outcome_of(error)
        self.notes.append(("kept", number, outcome))

    # ------------------------------------------------------------------------------------------- ends

    def do_close_worker(self, worker: int) -> None:
        """Ends a worker; pending requests are reported."""
        core = self.workers.pop(worker)
        self.connecting = {name for name in self.connecting if self.objects[name].worker is not core}
        self.call(core.close)
        for number in [number for number, asked in self.requests.items() if asked.worker == worker]:
            try:
                self.requests.pop(number).request.wait(0)
            except tw.ThalwegError as error:
                if not isinstance(error, ENDS_WITH_A_WORKER):
                    self.notes.append(("problem", f"operation {number} ended with its worker as {error!r}"))
            self.notes.append(("ended", number, ("ClosedError", ""), self.shown(number)))

    def do_end(self) -> list[str]:
        """Closes everything; nothing is held or was touched."""
        open_ones = {*self.requests, *self.watched}
        for worker in list(self.workers):
            self.do_close_worker(worker)
        wrong = [note[1] for note in self.notes if note[0] == "problem"]
        self.objects.clear()
        self.ends.clear()
        for number, buffer in self.buffers.items():
            buffer.look()
            if buffer.held():
                wrong.append(f"operation {number}: its buffer is held behind the end of everything")
            elif number not in open_ones and not buffer.untouched():
                wrong.append(f"operation {number}: its buffer was written to behind its end")
        if any(bytes(memory) != poison for memory, poison in self.parted):
            wrong.append("memory was written to behind its release")
        for place in self.places.values():
            for region in [*place["regions"], place["words"]]:
                if not region.released:
                    region.release()
        for buffer in self.buffers.values():
            if buffer.memory is not None:
                buffer.memory.release()
        self.forget()
        return wrong

    def do_census(self, before: Census) -> Census:
        """What is held now; waits until it is no more than before."""
        end = time.monotonic() + LIMIT
        while True:
            now = self.census()
            if all(mine <= its for mine, its in zip(now, before, strict=True)) or time.monotonic() > end:
                return now
            time.sleep(0.001)
            gc.collect()

    def links(self) -> int:
        return next((context.counters().get("links", 0) for context in self.contexts.values()), 0)

    def census(self) -> Census:
        with open("/proc/self/maps") as maps:
            segments = sum("memfd:" in line or "/dev/shm" in line for line in maps)
        return Census(len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), segments, self.links())

    def do_descriptors(self) -> list[str]:
        """What its threads and descriptors are, for people."""
        names = []
        for one in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{one}/comm") as name:
                names.append(f"thread {name.read().strip()}")
        for one in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                names.append(f"{one} {os.readlink(f'/proc/self/fd/{one}')}")
        return names


def main(number: int, pipe: Connection, key: bytes, folder: str, said: str) -> None:
    """A process of the pool."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its parent's server
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    to = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(to, 1)
    os.dup2(to, 2)
    os.close(to)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        Child(number, pipe, key, folder).serve()
    os._exit(0)
