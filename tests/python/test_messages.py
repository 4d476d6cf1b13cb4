# SPDX-License-Identifier: Apache-2.0
"""Tagged messages between two processes and with oneself."""

import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import thalweg as tw
from hypothesis import given
from hypothesis import strategies as st
from peers import connected

TRANSPORTS = ["shm", "tcp"]
SIZES = [0, 1, 8, 63, 1000, 8193, 70001, 1 << 20, (5 << 20) + 3]


def echo(endpoint, pipe, rounds):
    for _ in range(rounds):
        size = pipe.recv()
        data = np.full(size + 16, 0xA5, np.uint8)
        info = endpoint.recv(data[8 : 8 + size], 7)
        assert info.length == size and info.immediate == size + 1 and info.endpoint is endpoint
        assert (data[:8] == 0xA5).all() and (data[8 + size :] == 0xA5).all()
        endpoint.send(data[8 : 8 + size], 8, immediate=info.immediate)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_echo_of_every_size(transport):
    with connected(echo, len(SIZES), transport=transport) as (endpoint, pipe):
        assert endpoint.transport == transport
        for size in SIZES:
            pipe.send(size)
            sent = np.frombuffer(os.urandom(size), np.uint8)
            got = np.zeros(size, np.uint8)
            request = endpoint.isend(sent, 7, immediate=size + 1)
            assert endpoint.recv(got, 8).immediate == size + 1
            request.wait()
            assert (got == sent).all()


tags = st.integers(0, 7) | st.integers(2**63, 2**64 - 1)


@given(st.lists(tags, min_size=1, max_size=12), st.lists(st.tuples(tags, st.sampled_from([0, 1, 3, 2**64 - 1])), max_size=12))
def test_matching_is_that_of_the_model(context, sent, received):
    worker = tw.Worker(context)
    me = worker.connect(worker.address)
    queue = list(enumerate(sent))
    requests = [me.isend(bytes([i]), tag, immediate=i) for i, tag in queue]
    for tag, mask in received:
        expected = next(((i, t) for i, t in queue if (t ^ tag) & mask == 0), None)
        seen = worker.probe(tag, mask)
        if expected is None:
            assert seen is None
            continue
        queue.remove(expected)
        assert (seen.immediate, seen.tag, seen.length) == (*expected, 1)
        into = bytearray(1)
        info = worker.recv(into, tag, mask)
        assert (info.immediate, info.tag) == expected and into[0] == expected[0]
    for i, tag in queue:
        assert worker.recv(bytearray(1), tag).immediate == i
    tw.wait_all(requests)
    worker.close()


def test_truncated_tells_the_length_and_writes_nothing_past(worker, me):
    buffer = bytearray(b"\xee" * 32)
    request = me.isend(bytes(20), 1)
    with pytest.raises(tw.Truncated) as caught:
        worker.recv(memoryview(buffer)[:10], 1)
    assert caught.value.length == 20
    assert buffer[10:] == b"\xee" * 22
    request.wait()


def test_a_receive_times_out_and_the_buffer_is_free_again(worker, me):
    buffer = bytearray(8)
    start = time.monotonic()
    with pytest.raises(tw.TimedOut):
        worker.recv(buffer, 1, timeout=0.1)
    assert 0.05 < time.monotonic() - start < 5
    request = me.isend(b"12345678", 1)
    later = bytearray(8)
    worker.recv(later, 1)
    request.wait()
    assert later == b"12345678" and buffer == bytes(8)


def test_cancel(worker, me):
    request = worker.irecv(bytearray(8), 1)
    assert not request.done()
    assert request.cancel()
    with pytest.raises(tw.Canceled):
        request.wait()
    assert not request.cancel()


def test_a_synchronous_send_waits_for_its_match(worker, me):
    request = me.isend(b"now", 1, sync=True)
    for _ in range(100):
        assert not request.done()
    worker.recv(bytearray(3), 1)
    request.wait(5)


def test_probe_takes_a_message_out_of_matching(worker, me):
    request = me.isend(b"first", 1)
    second = me.isend(b"second", 1)
    message = None
    while message is None:
        message = worker.probe(1, take=True)
    into = bytearray(6)
    assert worker.recv(into, 1).length == 6 and into == b"second"
    first = bytearray(message.length)
    assert message.recv(first).length == 5 and first == b"first"
    with pytest.raises(tw.HandleError):
        message.recv(first)
    tw.wait_all([request, second])


def test_wait_any(worker, me):
    requests = [worker.irecv(bytearray(1), tag) for tag in range(4)]
    me.send(b"x", 2)
    assert tw.wait_any(requests, 5) == 2
    del requests[2]
    with pytest.raises(tw.TimedOut):
        tw.wait_any(requests, 0.05)


def test_a_dropped_request_keeps_its_buffer(worker, me):
    for tag in range(50):
        worker.irecv(bytearray(4096), tag)  # nobody holds request or buffer
        assert tag >= 0
    for tag in range(50):
        me.isend(b"\x5a" * 4096, tag)
    for _ in range(1000):
        worker.progress()


def test_a_dropped_request_that_alone_held_its_worker_ends_it(context):
    worker, buffer = tw.Worker(context), np.zeros(8, np.uint8)
    known, request = weakref.ref(buffer), worker.irecv(buffer, 1)
    del worker, buffer
    assert known() is not None
    del request
    assert known() is None


def test_a_second_thread_on_a_single_thread_worker_is_refused(worker, me):
    waiting = threading.Event()
    errors = []

    def wait():
        waiting.set()
        try:
            worker.recv(bytearray(1), 1, timeout=10)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    refused = None
    end = time.monotonic() + 5
    while refused is None and time.monotonic() < end:
        try:
            worker.probe(2)
        except tw.ThreadError as error:
            refused = error
    assert "multi" in str(refused)
    while thread.is_alive():
        try:
            me.isend(b"x", 1)
        except tw.ThreadError:
            worker.wake()
            break
    # Only the waiting thread may use it: another worker of this thread answers.
    other = tw.Worker(worker.context)
    other.connect(worker.address, wait=False).isend(b"x", 1)
    while thread.is_alive():
        other.progress()
        thread.join(0.001)
    assert not errors
    other.close()


def test_the_gil_is_free_while_waiting(context):
    worker = tw.Worker(context, threads="multi")
    me = worker.connect(worker.address)
    got = bytearray(4)
    thread = threading.Thread(target=lambda: worker.recv(got, 1, timeout=20))
    thread.start()
    request = me.isend(b"free", 1)  # this line runs only because the other thread gave the GIL up
    thread.join(20)
    request.wait(10)
    assert got == b"free"
    worker.close()


def test_ctrl_c_ends_a_wait(worker):
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        worker.recv(bytearray(1), 1, timeout=30)
    timer.join()


def test_byte_stream(worker, me):
    data = os.urandom(100_000)
    request = me.ibytes_send(data)
    got = bytearray(100_000)
    first = me.bytes_recv(memoryview(got)[:10]).length
    assert 1 <= first <= 10
    rest = me.bytes_recv(memoryview(got)[first:], all=True)
    assert rest.length == 100_000 - first
    request.wait()
    assert got == data


def test_bad_arguments_are_refused(me):
    with pytest.raises(TypeError):
        me.send()
    with pytest.raises(TypeError):
        me.send(b"x", 1, wrong=2)
    with pytest.raises(TypeError):
        me.send(b"x", 1, tag=2)
    with pytest.raises(OverflowError):
        me.send(b"x", -1)
    with pytest.raises(OverflowError):
        me.send(b"x", 2**64)
    with pytest.raises(TypeError):
        me.send(b"x", "tag")
    me.isend(b"x", np.uint64(3))


def test_a_closed_worker_says_so(context):
    worker = tw.Worker(context)
    me = worker.connect(worker.address)
    request = worker.irecv(bytearray(1), 1)
    worker.close()
    for use in (lambda: me.send(b"x"), worker.progress, lambda: request.wait(1), lambda: worker.recv(bytearray(1))):
        with pytest.raises(tw.ClosedError):
            use()
    assert me.closed and worker.closed


@pytest.mark.parametrize("size", [8000, 1 << 20])
def test_a_refused_receive_leaves_the_probed_message(worker, me, size):
    payload = os.urandom(size)
    request = me.isend(payload, 1)
    message = None
    while message is None:
        message = worker.probe(1, take=True)
    overlapping = tw.Layout.strided(size // 8, [8], [size // 16])
    for receive in (message.recv, message.irecv):
        with pytest.raises(tw.InvalidError, match="overlap"):
            receive(bytearray(size), layout=overlapping)
    into = bytearray(size)
    assert message.recv(into).length == size and into == payload
    request.wait(10)


class Watched(bytearray):
    """For a WeakSet."""

    __hash__ = object.__hash__


@pytest.mark.parametrize("how", ["recv", "done", "isend"])
def test_buffers_of_dropped_requests_do_not_pile_up(worker, me, how):
    alive, most = weakref.WeakSet(), 0
    into = bytearray(3000)
    for _ in range(1000):
        buffer = Watched(os.urandom(3000))
        alive.add(buffer)
        me.isend(buffer, 1, sync=True)
        if how == "recv":
            worker.recv(into, 1)
        else:
            request = worker.irecv(into, 1)
            while not request.ended:
                request.done() if how == "done" else request._spin(1)
        assert into == buffer
        del buffer
        most = max(most, len(alive))
    assert most < 100


def test_wait_all_waits_on_behind_a_handler_that_raises(worker, me):
    def handler(message):
        me.isend(b"later", 2)
        raise LookupError("of the handler")

    worker.am_register(5, handler)
    requests = [worker.irecv(bytearray(5), 2), worker.irecv(bytearray(5), 2)]
    sent = me.iam_send(5)
    sender = me.isend(b"first", 2)
    with pytest.raises(LookupError, match="of the handler"):
        tw.wait_all([*requests, sent, sender], 20)
    assert all(request.ended for request in requests)
    worker.am_register(5, lambda message: None)
    unmatched = worker.irecv(bytearray(5), 3)
    begun = time.monotonic()
    with pytest.raises(tw.TimedOut):
        tw.wait_all([unmatched], 0.05)
    worker.close()
    with pytest.raises(tw.ClosedError):
        tw.wait_all([unmatched])
    assert time.monotonic() - begun < 10
