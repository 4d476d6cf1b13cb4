# SPDX-License-Identifier: Apache-2.0
"""Objects and pipes: shapes and types travel, the receiver allocates, and the end of a peer is the end of its pipe."""

import asyncio
import contextlib
import gc
import multiprocessing.connection
import os
import secrets
import signal
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import thalweg as tw
import thalweg.aio
import thalweg.objects
from hypothesis import given
from hypothesis import strategies as st
from peers import connected, spawn

VALUES = [
    None,
    "text" * 10_000,
    {"a": 1, "b": [2.5, (3, b"bytes")]},
    np.arange(12, dtype=np.int16).reshape(3, 4),
    np.random.default_rng(1).random((257, 311)),
    np.asfortranarray(np.random.default_rng(2).random((100, 64))),
    [np.zeros(20_000, np.uint8) + i for i in range(20)],
    {"x": np.float32(1.5), "empty": np.zeros((0, 3))},
]


def echo_objects(endpoint, pipe, count):
    for _ in range(count):
        value = endpoint.recv_object(3)
        if isinstance(value, np.ndarray) and value.size:
            value[...] = value  # what arrives may be written to
        tw.send_object(endpoint, value, 3)


@pytest.mark.parametrize("transport", ["shm", "tls"])
def test_objects_there_and_back(transport):
    with connected(echo_objects, len(VALUES), transport=transport) as (endpoint, _):
        for value in VALUES:
            endpoint.send_object(value, 3)
            np.testing.assert_equal(tw.recv_object(endpoint, 3, timeout=20), value)


def refused_objects(endpoint, pipe):
    assert not endpoint.protected
    with pytest.raises(tw.Unsupported, match="tls=True"):
        tw.recv_object(endpoint, 3, timeout=20)


def test_objects_do_not_travel_over_plain_tcp():
    with connected(refused_objects, transport="tcp") as (endpoint, _):
        with pytest.raises(tw.Unsupported, match="tls=True"):
            endpoint.send_object(1, 3)
        with pytest.raises(tw.Unsupported, match="tls=True"):
            asyncio.run(aio_send(endpoint))


async def aio_send(core):
    endpoint = tw.aio.Endpoint(tw.aio.Worker(core.worker.context), core)
    await endpoint.send_object(1, 3)


def half_of_a_pipe(end):
    value = end.recv()
    assert (end._endpoint.transport, end._endpoint.protected) == ("tcp", True)
    end.send(value)
    end.close()


def test_a_pipe_over_tcp_uses_tls_by_itself(monkeypatch):
    monkeypatch.setenv("THALWEG_TRANSPORTS", "self,tcp")
    mine, theirs = tw.Pipe()
    process = spawn.Process(target=half_of_a_pipe, args=(theirs,))
    process.start()
    mine.send({"a": np.arange(5)})
    np.testing.assert_equal(mine.recv(), {"a": np.arange(5)})
    process.join(30)
    assert process.exitcode == 0
    mine.close()


def test_something_else_is_no_object(me):
    for junk in (b"", b"short", b"x" * 500):
        request = me.isend(junk, 1)
        with pytest.raises(tw.ProtocolError):
            me.recv_object(1)
        request.wait()


def messages_of(value):
    """An object's header, and the parts behind it: as they are sent."""
    header, rest = thalweg.objects.encode(value)
    assert rest
    return header, [bytes(part) for part in rest]


ARRAY = np.frombuffer(os.urandom(50_000), np.uint8)


def test_an_object_with_a_part_of_another_length_is_the_last_of_its_tag(me):
    header, (part,) = messages_of(ARRAY)
    inner = thalweg.objects.encode("what a stranger gave the peer to send as data")[0]
    for tag, wrong in ((1, part[:-1]), (2, inner), (3, part + b"x")):
        sent = [me.isend(message, tag) for message in (header, wrong, inner)]
        with pytest.raises(tw.Truncated if tag == 3 else tw.ProtocolError):
            me.recv_object(tag)
        for _ in range(2):
            with pytest.raises(tw.ProtocolError, match="middle"):
                me.recv_object(tag, timeout=1)
        assert me.recv(bytearray(1000), tag).length == len(inner)  # nobody has taken it
        with contextlib.suppress(tw.Truncated):
            tw.wait_all(sent)
    done = me.isend(thalweg.objects.encode("fine")[0], 4)
    assert me.recv_object(4) == "fine"
    done.wait()


def test_an_object_whose_receiver_is_interrupted_is_the_last_of_its_tag(worker, me):
    def handler(message):
        raise LookupError("of the handler")

    worker.am_register(5, handler)
    header, (part,) = messages_of(ARRAY)
    sent = [me.isend(header, 1), me.iam_send(5)]
    with pytest.raises(LookupError):
        me.recv_object(1)
    sent.append(me.isend(part, 1))
    with pytest.raises(tw.ProtocolError, match="middle"):
        me.recv_object(1)
    assert me.recv(bytearray(len(part)), 1).length == len(part)
    tw.wait_all(sent)


def test_an_object_that_has_not_begun_may_time_out(me):
    with pytest.raises(tw.TimedOut):
        me.recv_object(1, timeout=0.02)
    sent = [me.isend(message, 1) for message in (lambda header, parts: (header, *parts))(*messages_of(ARRAY))]
    np.testing.assert_array_equal(me.recv_object(1, timeout=20), ARRAY)
    tw.wait_all(sent)


def test_an_object_that_cannot_be_sent_to_its_end_is_the_last_of_its_tag(me):
    header, _ = messages_of(ARRAY)
    with pytest.raises((tw.InvalidError, TypeError)):
        thalweg.objects.post_object(me, header, [object()], 1)
    with pytest.raises(tw.ProtocolError, match="middle"):
        me.send_object("next", 1)
    assert me.recv(bytearray(20_000), 1).length == len(header)


@contextlib.contextmanager
def endpoint_of_a_group(context):
    with tw.init(job_key=secrets.token_bytes(32)) as world:
        yield lambda: world.endpoint(0), lambda *message: world.endpoint(0).isend(*message)


@contextlib.contextmanager
def endpoint_of_a_sender(context):
    with tw.Worker(context) as worker, tw.Worker(context, progress="thread") as other:
        theirs = other.connect(worker.address, wait=False)

        def sender():
            theirs.isend(b"who", 9)
            return worker.recv(bytearray(3), 9).endpoint

        yield sender, theirs.isend


@pytest.mark.parametrize("made", [endpoint_of_a_group, endpoint_of_a_sender])
def test_an_object_that_ended_in_its_middle_is_the_last_one_also_of_another_python_object(context, made):
    """An endpoint that the program has not made is a new object where the last one was dropped."""
    header, (part,) = messages_of(ARRAY)
    inner = thalweg.objects.encode("what a stranger gave the peer to send as data")[0]
    with made(context) as (endpoint, isend):
        sent = [isend(message, 1) for message in (header, part[:-1], inner)]
        first = weakref.ref(endpoint())
        with pytest.raises(tw.ProtocolError, match="announced"):
            endpoint().recv_object(1, timeout=20)
        tw.wait_all(sent)
        sent.clear()
        for _ in range(2):
            gc.collect()
            assert first() is None
            first = weakref.ref(endpoint())
            with pytest.raises(tw.ProtocolError, match="middle"):
                endpoint().recv_object(1, timeout=20)
        assert endpoint().recv(bytearray(1000), 1).length == len(inner)  # nobody has taken it
        done = isend(thalweg.objects.encode("fine")[0], 2)
        assert endpoint().recv_object(2) == "fine"
        done.wait(20)


def test_ends_are_made_while_others_are_looked_for():
    first, second = tw.Pipe()
    others = [end for _ in range(100) for end in tw.Pipe()]  # to go through takes a while
    stop = threading.Event()

    def make():
        while not stop.is_set():
            for end in tw.Pipe():
                end.close()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    maker = threading.Thread(target=make)
    maker.start()
    try:
        for _ in range(3000):
            assert first._peer_here() is second
    finally:
        stop.set()
        maker.join()
        sys.setswitchinterval(before)
    for end in (first, second, *others):
        end.close()


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@given(json_like)
def test_both_ends_in_one_process(value):
    a, b = tw.Pipe()
    with a, b:
        a.send(value)
        assert b.recv() == value
        b.send([value])
        assert a.poll(5) and a.recv() == [value]
        assert not a.poll()


LARGE = [bytes(100_000), np.arange(1 << 20), {"a": np.ones(300_000), "b": os.urandom(3 << 20)}]


def test_one_thread_sends_and_receives_large_objects_through_both_ends():
    a, b = tw.Pipe()
    with a, b:
        for turn in range(3):  # before they are connected, and afterwards
            for value in LARGE:
                a.send(value)
                b.send(turn)
                np.testing.assert_equal(b.recv(), value)
                assert a.recv() == turn
        for value in [*LARGE, *range(300)]:
            a.send(value)
        for value in [*LARGE, *range(300)]:
            np.testing.assert_equal(b.recv(), value)
        array = np.arange(200_000)
        a.send(array)
        array[:] = 0  # the sender's again
        assert (b.recv() == np.arange(200_000)).all()
        a.send(LARGE[0])
        a.close()
        assert b.recv() == LARGE[0]
        with pytest.raises(EOFError):
            b.recv()


def answer(pipe, count):
    for _ in range(count):
        pipe.send(pipe.recv())


@pytest.mark.parametrize("first", [0, 1])
def test_two_threads_each_use_an_end_of_one_process(first):
    for _ in range(5):
        ends = tw.Pipe()
        mine, theirs = ends[first], ends[1 - first]
        thread = threading.Thread(target=answer, args=(theirs, 60), daemon=True)
        thread.start()
        for turn in range(20):
            for value in (turn, LARGE[turn % 3], os.urandom(turn)):
                mine.send(value)
                np.testing.assert_equal(mine.recv(), value)
        thread.join(30)
        assert not thread.is_alive()
        mine.close()
        theirs.close()


def test_what_is_sent_before_the_child_gets_its_end_may_be_large():
    a, b = tw.Pipe()
    for value in LARGE:
        a.send(value)
    process = start(child, b)
    for value in LARGE:
        np.testing.assert_equal(a.recv(), value)
    a.send("end")
    assert a.recv() == "bye"
    process.join(20)
    assert process.exitcode == 0
    a.close()


def is_text(value, text):
    """An array is not to be compared with a text."""
    return isinstance(value, str) and value == text


def child(pipe):
    while not is_text(value := pipe.recv(), "end"):
        pipe.send(value)
    pipe.send("bye")
    pipe.close()


def start(target, *args):
    process = spawn.Process(target=target, args=args)
    process.start()
    return process


def test_pipe_to_a_spawned_child():
    a, b = tw.Pipe()
    a.send("before the child is there")
    process = start(child, b)
    assert a.recv() == "before the child is there"
    for value in [*VALUES, np.random.default_rng(3).integers(0, 255, 8 << 20, np.uint8)]:
        a.send(value)
        np.testing.assert_equal(a.recv(), value)
    for beyond in [(b"abc", 5), (b"abc", 1, 9), (b"abcdef", -2), (b"abcdef", 0, -1)]:
        with pytest.raises(ValueError, match="buffer of"):
            a.send_bytes(*beyond)
    a.send_bytes(b"raw bytes", 4)
    into = bytearray(10)
    assert a.recv_bytes_into(into, 2) == 5 and into == b"\0\0bytes\0\0\0"
    assert "shm" in a.explain()
    a.send("end")
    assert a.recv() == "bye"
    with pytest.raises(EOFError):
        a.recv()
    process.join(10)
    assert process.exitcode == 0
    a.close()
    with pytest.raises(OSError):
        a.send(1)


def test_the_end_that_connects_may_stay():
    a, b = tw.Pipe()
    process = start(child, a)
    b.send([1, 2])
    assert b.recv() == [1, 2]
    b.send("end")
    assert b.recv() == "bye"
    process.join(10)
    b.close()


def killed(pipe):
    pipe.send(os.getpid())
    pipe.recv()


def test_a_killed_child_is_the_end():
    a, b = tw.Pipe()
    process = start(killed, b)
    os.kill(a.recv(), signal.SIGKILL)
    start_time = time.monotonic()
    with pytest.raises(EOFError):
        a.recv()
    assert time.monotonic() - start_time < 5
    with pytest.raises(BrokenPipeError):
        for _ in range(100):
            a.send(bytes(100_000))
    process.join(10)
    a.close()


def never_uses(pipe):
    pass


def test_a_child_that_never_used_its_end():
    a, b = tw.Pipe()
    process = start(never_uses, b)
    process.join(20)
    del b
    with pytest.raises(EOFError):
        a.recv()
    a.close()


def late(pipe):
    time.sleep(0.3)
    pipe.send("late")
    pipe.recv()


def test_poll_and_multiprocessing_wait():
    a, b = tw.Pipe()
    process = start(late, b)
    assert not a.poll(0)
    end = time.monotonic() + 20
    while not multiprocessing.connection.wait([a], 1) or not a.poll(0):
        assert time.monotonic() < end
    assert a.recv() == "late"
    start_time = time.monotonic()
    assert not a.poll(0.1)
    assert time.monotonic() - start_time < 2
    a.send("end")
    process.join(10)
    a.close()


def test_one_way():
    receiver, sender = tw.Pipe(duplex=False)
    sender.send(1)
    with pytest.raises(OSError):
        receiver.send(1)
    with pytest.raises(OSError):
        sender.recv()
    sender.close()
    receiver.close()


def takes_one(pipe, value):
    assert pipe.recv() == value


def starting(method):
    return multiprocessing.get_context(method)


METHODS = pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())


@METHODS
@pytest.mark.parametrize("mine", [0, 1])
def test_what_is_sent_arrives_also_while_its_sender_waits_for_the_child(method, mine):
    for before in (False, True):
        ends, value = tw.Pipe(), os.urandom(999)
        process = starting(method).Process(target=takes_one, args=(ends[1 - mine], value), daemon=True)
        if before:
            ends[mine].send(value)
        process.start()
        if not before:
            ends[mine].send(value)
        process.join(30)
        assert process.exitcode == 0
        ends[mine].close()


def ends_at_once(pipe):
    os._exit(0)


@pytest.mark.parametrize("mine", [0, 1])
def test_an_end_whose_peer_ended_before_its_first_use_says_so(mine):
    kept = []
    for _ in range(3):
        ends = tw.Pipe()
        process = start(ends_at_once, ends[1 - mine])
        process.join(30)
        kept.append((ends[mine], ends[1 - mine]))
    receiver, sender, waiter = (one for one, _ in kept)
    for _ in range(2):
        with pytest.raises(EOFError):
            receiver.recv()
        with pytest.raises(BrokenPipeError):
            sender.send(1)
        assert multiprocessing.connection.wait([waiter], 20) == [waiter] and waiter.poll(0)
    for one, _ in kept:
        one.close()


def ends_when_told(told, pipe):
    told.recv()
    os._exit(0)


def test_an_end_whose_peer_ended_without_reading_its_address_says_so():
    a, b = tw.Pipe()
    ready, told = spawn.Pipe()
    process = start(ends_when_told, told, b)
    assert not a.poll(0)  # sends its address
    ready.send("end")
    process.join(30)
    for _ in range(2):
        with pytest.raises(EOFError):
            a.recv()
        with pytest.raises(BrokenPipeError):
            a.send(1)
        assert a.poll(0)
    a.close()


def answers_and_ends(pipe):
    pipe.send("from the child")
    pipe.close()


@METHODS
def test_an_answer_of_a_child_that_read_nothing_is_received(method):
    for _ in range(25 if method == "fork" else 2):
        here, there = tw.Pipe()
        here.send("unread")
        process = starting(method).Process(target=answers_and_ends, args=(there,), daemon=True)
        process.start()
        time.sleep(0.02)
        assert here.poll(20) and here.recv() == "from the child"
        process.join(30)
        assert process.exitcode == 0
        here.close()


def sends_and_ends(told, pipe, value):
    pipe.send(value)
    told.send("sent")


@METHODS
@pytest.mark.parametrize("mine", [0, 1])
def test_what_a_child_sent_before_it_ended_is_received(method, mine):
    ends, value = tw.Pipe(), os.urandom(999)
    here, told = starting(method).Pipe()
    process = starting(method).Process(target=sends_and_ends, args=(told, ends[1 - mine], value), daemon=True)
    process.start()
    assert here.recv() == "sent"  # nothing more keeps the child
    assert ends[mine].poll(20) and ends[mine].recv() == value
    process.join(30)
    assert process.exitcode == 0 and ends[mine].poll(20)
    with pytest.raises(EOFError):
        ends[mine].recv()
    ends[mine].close()
