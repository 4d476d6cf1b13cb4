# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every wait at once, and what was waited for goes on."""

import contextlib
import os
import signal
import socket
import threading

import pytest
import thalweg as tw
from peers import connected

SECONDS = 20  # of the waits
SOON = 5


@contextlib.contextmanager
def ctrl_c():
    """Sends this process SIGINT; the body must be left by it, long before its time-out."""
    left, told = threading.Event(), []

    def send():
        os.kill(os.getpid(), signal.SIGINT)
        told.append(left.wait(SOON))

    sender = threading.Timer(0.1, send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        left.set()
        sender.join()
    assert told == [True], "the wait went on"


@pytest.fixture(params=["file", "serve"])
def store(request, tmp_path):
    address = f"file:{tmp_path}/store" if request.param == "file" else "serve:127.0.0.1:0"
    with tw.Store(address, job_key=b"k" * 32, timeout=SECONDS, rank=0, count=2) as made:
        yield made


@pytest.mark.parametrize("call", ["wait", "barrier", "exchange"])
def test_a_store(store, call):
    with ctrl_c():
        {"wait": lambda: store.wait("never"), "barrier": store.barrier, "exchange": lambda: store.exchange(b"x")}[call]()
    store.put("key", b"value")
    assert store.wait("key") == b"value"


def test_a_store_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as server, ctrl_c():  # listens, and never answers
        tw.Store(f"tcp:127.0.0.1:{server.getsockname()[1]}", job_key=b"k" * 32, timeout=SECONDS)


def test_plans(context, worker, me):
    with tw.Plan(context) as plan:
        plan.recv(me, bytearray(8), 99)
        with ctrl_c():
            plan.prepare(SECONDS)
    word = tw.Signal(worker)
    remote = tw.RemoteSignal(me, word.export())
    with tw.Plan(context, timeout=SECONDS) as plan:
        plan.wait(word, 1)
        plan.prepare(SECONDS)
        plan.trigger()
        with ctrl_c():
            plan.finish(SECONDS)
        remote.post(1)
        plan.finish(SECONDS)


def test_queues(context, worker, me):
    go_on = threading.Event()
    with tw.Queue(context) as queue:
        queue.call(lambda: go_on.wait(SECONDS))
        with ctrl_c():
            queue.synchronize()
        go_on.set()
        queue.synchronize()
        with ctrl_c():
            tw.recv_on(queue, me, bytearray(8), 98)
    with ctrl_c():
        tw.bind_recv(me, [bytearray(8)], 97, timeout=SECONDS)


def test_a_queue_that_prepares_an_operation_is_busy_for_its_own_thread(context, worker, me):
    answers = []

    def handler(message):
        with pytest.raises(tw.BusyError) as refused:
            tw.copy_on(queue, bytearray(8), bytearray(8))
        answers.append(refused.value)

    worker.am_register(9, handler)
    with tw.Queue(context) as queue:
        sent = me.iam_send(9)
        with ctrl_c():
            tw.recv_on(queue, me, bytearray(8), 96)
        assert len(answers) == 1
        tw.copy_on(queue, bytearray(8), bytearray(8))
        queue.synchronize()
        sent.wait()


@pytest.mark.parametrize("call", ["request", "recv", "signal", "worker", "accept", "wait_any"])
def test_waits_of_a_worker(worker, me, call):
    word = tw.Signal(worker)
    request = me.irecv(bytearray(8), 1)
    with worker.listen() as listener, ctrl_c():
        if call == "worker":
            while True:
                worker.wait(SECONDS)
        {
            "request": lambda: request.wait(SECONDS),
            "recv": lambda: me.recv(bytearray(8), 2, timeout=SECONDS),
            "signal": lambda: word.wait(1, timeout=SECONDS),
            "accept": lambda: listener.accept(SECONDS),
            "wait_any": lambda: tw.wait_any([request], SECONDS),
        }[call]()
    me.send(b"still works", 3)
    assert worker.recv(bytearray(16), 3).length == 11


def export_and_wait(endpoint, pipe):
    memory = tw.Memory.allocate(endpoint.worker.context, 4096)
    pipe.send((os.getpid(), memory.export()))
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)
    assert pipe.recv() == "end" and bytes(memory)[:5] == b"there"


def test_a_mapping_that_a_stopped_peer_does_not_answer():
    with connected(export_and_wait, transport="shm") as (endpoint, pipe):
        process, key = pipe.recv()
        os.kill(process, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process, os.WUNTRACED)[1])  # its service thread, too
        try:
            remote = tw.RemoteMemory(endpoint, key)
            with ctrl_c():
                remote.map()
        finally:
            os.kill(process, signal.SIGCONT)
        remote.map()[:5] = b"there"
        pipe.send("end")
