# SPDX-License-Identifier: Apache-2.0
"""Threads: several waiters of one request, a close under a wait, and objects that end in another thread than their worker's."""

import contextlib
import functools
import gc
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest
import thalweg as tw
from peers import connected, context, spawn

SECONDS = 20


class Outcome(threading.Thread):
    """Runs a function in a thread and keeps what it returned or raised."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args = function, args
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.function(*self.args)
        except Exception as error:
            self.error = error

    def end(self):
        """Waits for it; the exception or None."""
        self.join(SECONDS)
        assert not self.is_alive(), "it waits for ever"
        return self.error


def until(condition):
    """Asks until the condition holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"


def connect(first, second):
    """Both sides' endpoints of two workers of this thread."""
    endpoint = first.connect(second.address, wait=False)
    other = second.connect(first.address, wait=False)
    until(lambda: first.progress() + second.progress() >= 0 and endpoint.state == other.state == "ok")
    return endpoint, other


def test_a_lost_peer_is_told_to_all_threads_that_wait_for_one_request(context):
    for _ in range(20):
        with tw.Worker(context, threads="multi") as worker:
            other = tw.Worker(context)
            endpoint, _ = connect(worker, other)
            request = endpoint.irecv(bytearray(8), 1)
            waiters = [Outcome(request.wait, SECONDS) for _ in range(3)]
            other.close()
            for waiter in waiters:
                assert isinstance(waiter.end(), (tw.PeerLost, tw.ClosedError)), waiter.value
            with pytest.raises((tw.PeerLost, tw.ClosedError)):
                request.wait()


def test_a_value_is_told_to_all_threads_that_wait_for_it(worker, context):
    with tw.Worker(context, threads="multi") as shared:
        endpoint, other = connect(shared, worker)
        for turn in range(20):
            request = endpoint.irecv(bytearray(8), 1)
            waiters = [Outcome(request.wait, SECONDS) for _ in range(2)]
            other.send(b"x" * (turn % 8), 1)
            for waiter in waiters:
                assert waiter.end() is None and waiter.value.length == turn % 8


WAITS = {
    "request": lambda worker, endpoint: endpoint.irecv(bytearray(8), 7).wait,
    "recv": lambda worker, endpoint: lambda: endpoint.recv(bytearray(8), 7),
    "signal": lambda worker, endpoint: functools.partial(tw.Signal(worker).wait, 1),
    "worker": lambda worker, endpoint: lambda: [worker.wait() for _ in iter(int, 1)],
}


@pytest.mark.parametrize("how", WAITS)
@pytest.mark.parametrize("threads", ["single", "multi"])
def test_a_close_ends_the_waits_of_other_threads_by_name(context, threads, how):
    worker = tw.Worker(context, threads=threads)
    endpoint = worker.connect(worker.address)
    waits = [WAITS[how](worker, endpoint) for _ in range(3 if threads == "multi" else 1)]
    waiters = [Outcome(wait) for wait in waits]
    until(lambda: all(waiter.is_alive() for waiter in waiters))
    worker.close()
    for waiter in waiters:
        assert isinstance(waiter.end(), tw.ClosedError), waiter.error
    with pytest.raises(tw.ClosedError):
        endpoint.send(b"x")


@pytest.mark.parametrize("ask", ["done", "wait"])
@pytest.mark.parametrize("by", ["the handler", "another thread"])
def test_a_worker_closed_while_a_handler_runs_ends_what_was_asked_by_name(context, ask, by):
    worker = tw.Worker(context, threads="multi")
    endpoint = worker.connect(worker.address)

    def handle(_message):
        if by == "the handler":
            worker.close()
        else:
            Outcome(worker.close).end()

    worker.am_register(3, handle)
    request = endpoint.irecv(bytearray(8), 7)
    sent = endpoint.iam_send(3, b"")
    with pytest.raises(tw.ClosedError):
        for _ in iter(lambda: getattr(request, ask)(), True):
            pass
    assert worker.closed and sent is not None


@pytest.mark.parametrize("how", ["request", "recv", "signal"])
@pytest.mark.parametrize("threads", ["single", "multi"])
def test_who_is_told_of_a_close_has_the_buffers_again(context, threads, how):
    for _ in range(10):
        worker = tw.Worker(context, threads=threads)
        wait = WAITS[how](worker, worker.connect(worker.address))

        def closed(worker=worker, wait=wait):
            try:
                wait()
            except tw.ClosedError:
                return worker.closed
            return None

        waiters = [Outcome(closed) for _ in range(2 if threads == "multi" else 1)]
        until(lambda waiters=waiters: all(waiter.is_alive() for waiter in waiters))
        worker.close()
        for waiter in waiters:
            assert waiter.end() is None and waiter.value


def entered(worker):
    """Is another thread inside a single-threaded worker?"""
    try:
        worker.progress()
    except tw.ThreadError:
        return True
    return False


def test_what_ends_in_another_thread_is_handed_to_the_one_inside(context):
    with tw.Worker(context) as worker, tw.Worker(context) as other:
        endpoint, theirs = connect(worker, other)
        memory, word = tw.Memory.allocate(context, 4096), tw.Signal(other)
        dropped = [endpoint, tw.RemoteMemory(endpoint, memory.export()), tw.RemoteSignal(endpoint, word.export())]
        dropped += [tw.Signal(worker), worker.listen(), worker.irecv(bytearray(8), 5)]
        held = tw.Signal(worker)
        waiter = Outcome(held.wait, 1, ">=", SECONDS)
        until(lambda: entered(worker))
        dropped.clear()
        del endpoint
        gc.collect()
        held.reset(1)
        assert waiter.end() is None
        # The connection was closed in its turn: the peer is told.
        until(lambda: worker.progress() + other.progress() >= 0 and theirs.state != "ok")
        with pytest.raises(tw.BusyError):
            stays = tw.Signal(worker)
            waiter = Outcome(stays.wait, 1, ">=", SECONDS)
            until(lambda: entered(worker))
            try:
                stays.close()
            finally:
                stays.reset(1)
                assert waiter.end() is None


def send_and_stop(endpoint, pipe, length):
    """Sends an RTS, then does not progress until it is told to."""
    payload = os.urandom(length)
    request = endpoint.isend(payload, 3)
    pipe.send(payload)
    pipe.recv()
    request.wait(SECONDS)


def test_a_time_out_does_not_wait_for_a_transfer_that_cannot_be_cancelled():
    length = 8 << 20
    with connected(send_and_stop, length, transport="tcp") as (endpoint, pipe):
        payload = pipe.recv()
        until(lambda: endpoint.worker.probe(3) is not None)
        buffer = bytearray(length)
        with pytest.raises(tw.TimedOut, match="goes on"):
            endpoint.recv(buffer, 3, timeout=0.2)
        with pytest.raises(BufferError):  # the library has it still
            buffer.extend(b"x")
        pipe.send("go on")
        until(lambda: endpoint.worker.progress() >= 0 and buffer == payload)


def import_and_wait(pipe, key):
    worker = tw.Worker(context(key, "shm"))
    pipe.send(worker.address)
    endpoint = worker.connect(pipe.recv())
    there = tw.RemoteMemory(endpoint, pipe.recv())
    here = tw.Memory.allocate(worker.context, 4096, place="emulated:0")
    endpoint.put(here, there, visible=True)
    pipe.send("imported")
    while not pipe.poll(0):
        worker.wait(0.01)


def test_memory_that_a_stopped_peer_uses_stays_until_it_is_released():
    key = secrets.token_bytes(32)
    here, there = spawn.Pipe()
    process = spawn.Process(target=import_and_wait, args=(there, key))
    process.start()
    own = tw.Context(job_key=key, transports="self,shm", silent_timeout=0.3)
    try:
        with tw.Worker(own) as worker:
            theirs = here.recv()
            here.send(worker.address)
            endpoint = worker.connect(theirs)
            memory = tw.Memory.allocate(own, 1 << 20, place="emulated:0")
            here.send(memory.export())
            until(lambda: worker.progress() >= 0 and here.poll(0))
            assert here.recv() == "imported"
            os.kill(process.pid, signal.SIGSTOP)
            assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
            with pytest.raises(tw.BusyError):
                memory.release()
            assert not memory.released and len(memory) == 1 << 20
            os.kill(process.pid, signal.SIGCONT)
            memory.release()
            assert memory.released and endpoint.state == "ok"
            here.send("end")
            process.join(SECONDS)
            assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


SINKS = {"counter": (tw.Counter, lambda sink: sink.wait(1)), "queue": (tw.CompletionQueue, lambda sink: sink.wait())}


@pytest.mark.parametrize("threads", ["single", "multi"])
@pytest.mark.parametrize("what", SINKS)
def test_what_operations_end_in_is_not_closed_under_a_wait(context, threads, what):
    make, wait = SINKS[what]
    with tw.Worker(context, threads=threads) as worker, tw.Worker(context) as other:
        endpoint, theirs = connect(worker, other)
        while True:
            sink, buffer = make(worker), bytearray(8)
            request = endpoint.irecv(buffer, 1)
            request.tell(**{what: sink})
            waiter = Outcome(wait, sink)
            until(lambda: threads == "multi" or entered(worker))
            try:
                sink.close()
            except tw.BusyError:
                break
            assert isinstance(waiter.end(), tw.HandleError), "it was closed, and not before the wait"
            assert request.cancel()
        theirs.send(b"x" * 8, 1)
        assert waiter.end() is None
        assert request.wait(SECONDS).length == 8 and buffer == b"x" * 8
        sink.close()


def test_who_waits_for_a_request_that_another_takes_from_a_queue_has_its_end(context):
    with tw.Worker(context, threads="multi") as worker:
        endpoint = worker.connect(worker.address)
        queue, going_on, taken = tw.CompletionQueue(worker), threading.Event(), []

        def take():
            while not going_on.is_set():
                taken.extend(queue.poll())
                with contextlib.suppress(tw.TimedOut):
                    taken.extend(queue.wait(timeout=0.0005))

        taker = Outcome(take)
        for turn in range(2000):
            request = endpoint.irecv(bytearray(8), 1)
            request.tell(queue=queue)
            if turn % 2:
                endpoint.send(b"x" * (turn % 8), 1)
                assert request.wait(SECONDS).length == turn % 8
            else:
                endpoint.send(b"x" * 9, 1)
                with pytest.raises(tw.Truncated, match="9 bytes for a buffer of 8"):
                    request.wait(SECONDS)
        until(lambda: len(taken) == 2000)
        going_on.set()
        assert taker.end() is None


def test_several_threads_close_one_plan(context, worker, me):
    for _ in range(30):
        plan = tw.Plan(context)
        into, source = bytearray(1 << 16), os.urandom(1 << 16)
        plan.recv(me, into, 1)
        plan.send(me, source, 1)
        plan.prepare(SECONDS)
        plan.run(SECONDS)
        assert into == source
        for closer in [Outcome(plan.close) for _ in range(4)]:
            assert closer.end() is None
        with pytest.raises(tw.HandleError):
            plan.run(SECONDS)


def test_several_threads_close_one_group():
    for _ in range(10):
        world = tw.init(threads="multi")
        world.barrier()
        for closer in [Outcome(world.close) for _ in range(4)]:
            assert closer.end() is None
        assert world.closed
        until(lambda world=world: world.worker.closed)


DAEMON = """
import secrets, sys, threading, time
import thalweg as tw

worker = tw.Worker(tw.Context(job_key=secrets.token_bytes(32)))
me = worker.connect(worker.address)


def wait(how):
    if how == "recv":
        worker.recv(bytearray(8), 1)
    elif how == "signal":
        tw.Signal(worker).wait(1)
    elif how == "worker":
        worker.wait()
    elif how == "queue":
        tw.CompletionQueue(worker).wait()
    elif how == "plan":
        plan = tw.Plan(worker.context)
        plan.recv(me, bytearray(8), 99)
        plan.prepare()
    elif how == "store":
        tw.Store("serve:127.0.0.1:0", job_key=b"k" * 32, timeout=60, rank=0, count=2).barrier()


entered = threading.Event()
threading.Thread(target=lambda: (entered.set(), wait(sys.argv[1])), daemon=True).start()
entered.wait()
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("wait", ["recv", "signal", "worker", "queue", "plan", "store"])
def test_a_daemon_thread_that_waits_lets_the_interpreter_end(wait):
    for turn in range(5):
        done = subprocess.run(
            [sys.executable, "-c", DAEMON, wait, str(turn * 0.01)], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


DEADLOCK = """
import os, secrets, sys, threading, time
import thalweg as tw

context = tw.Context(job_key=secrets.token_bytes(32))
worker = tw.Worker(context)
me = worker.connect(worker.address)
word = tw.Signal(worker)
queue = tw.Queue(context)
call = {
    "wait_on": lambda: tw.wait_on(queue, word, 1),
    "copy_on": lambda: tw.copy_on(queue, bytearray(8), bytearray(8)),
    "reduce_on": lambda: tw.reduce_on(queue, bytearray(8), [bytearray(8)], dtype="int64"),
}[sys.argv[1]]
threading.Thread(target=lambda: tw.recv_on(queue, me, bytearray(8), 5), daemon=True).start()
time.sleep(0.3)  # it waits for its peer
threading.Thread(target=call, daemon=True).start()
for _ in range(10):
    time.sleep(0.05)
os._exit(7)
"""


@pytest.mark.parametrize("call", ["wait_on", "copy_on", "reduce_on"])
def test_a_queue_that_prepares_an_operation_does_not_stop_the_interpreter(call):
    done = subprocess.run([sys.executable, "-c", DEADLOCK, call], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (7, "")
