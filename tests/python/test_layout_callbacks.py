# SPDX-License-Identifier: Apache-2.0
"""Layouts of Python functions: any object is the buffer."""

import os
import random
import threading

import pytest
import thalweg as tw
from peers import connected

SIZES = [1, 1000, 8193, 70001, (1 << 20) + 3]


def pieces_of(data):
    """The bytes in lists of odd lengths, which no layout of bytes names."""
    pieces = []
    while data:
        n = random.randint(1, max(1, len(data) // 2))
        pieces.append(bytearray(data[:n]))
        data = data[n:]
    return pieces


def pack(pieces, offset, dest):
    """Never more than a third of what may be written."""
    some = b"".join(pieces)[offset : offset + max(1, len(dest) // 3)]
    dest[: len(some)] = some
    return len(some)


def unpack(pieces, offset, source):
    assert source.readonly
    for piece in pieces:
        if offset < len(piece) and len(source):
            n = min(len(piece) - offset, len(source))
            piece[offset : offset + n] = source[:n]
            source = source[n:]
            offset = 0
        else:
            offset -= len(piece)
    assert not len(source)


PIECES = tw.Layout.callbacks(size=lambda pieces: sum(map(len, pieces)), pack=pack, unpack=unpack)


def echo(endpoint, pipe):
    for size in SIZES:
        pieces = pieces_of(bytes(size))
        assert endpoint.recv(pieces, 1, layout=PIECES).length == size
        endpoint.send(pieces, 2, layout=PIECES)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_messages_between_processes(transport):
    with connected(echo, transport=transport) as (endpoint, _):
        for size in SIZES:
            data = os.urandom(size)
            back = pieces_of(bytes(size))
            request = endpoint.isend(pieces_of(data), 1, layout=PIECES)
            assert endpoint.recv(back, 2, layout=PIECES).length == size
            request.wait()
            assert b"".join(back) == data


def test_every_operation_that_takes_one(context, worker, me):
    data = os.urandom(5000)
    taken = []
    worker.am_register(3, taken.append)
    for size in (100, 5000):
        me.am_send(3, b"h", pieces_of(data[:size]), layout=PIECES)
        while not taken:
            worker.progress()
        back = pieces_of(bytes(size))
        taken.pop().recv(back, layout=PIECES)
        assert b"".join(back) == data[:size]
    request = me.isend(pieces_of(data), 4, layout=PIECES)
    message = None
    while message is None:
        message = worker.probe(4, take=True)
    back = pieces_of(bytes(6000))
    assert message.recv(back, layout=PIECES).length == 5000
    assert b"".join(back) == data + bytes(1000)
    request.wait()
    with tw.Memory.allocate(context, 6000) as memory:
        remote = tw.RemoteMemory(me, memory.export())
        me.put(pieces_of(data), remote, 11, layout=PIECES, visible=True)
        assert bytes(memory)[11:5011] == data
        back = pieces_of(bytes(5000))
        me.get(back, remote, 11, layout=PIECES)
        assert b"".join(back) == data
        remote.release()


def test_what_functions_raise_is_how_the_operation_ends(worker, me):
    class Odd(Exception):
        pass

    def bad(*_):
        raise Odd("no")

    both = {"size": lambda pieces: sum(map(len, pieces)), "pack": bad, "unpack": bad}
    raising = tw.Layout.callbacks(**both)
    with pytest.raises(Odd):
        me.send([bytearray(8)], 1, layout=raising)
    with pytest.raises(Odd):
        me.irecv([bytearray(8)], 1, layout=tw.Layout.callbacks(size=bad, unpack=bad))
    with pytest.raises(tw.errors.InvalidError):
        me.send([bytearray(8)], 1, layout=tw.Layout.callbacks(size=lambda _: 8, pack=lambda *_: 9))
    request = me.irecv([bytearray(8)], 1, layout=raising)
    me.send(b"12345678", 1)
    with pytest.raises(Odd):
        request.wait()
    assert request.done()
    with pytest.raises(Odd):
        request.wait()
    me.isend(b"12345678", 1)
    with pytest.raises(Odd):
        worker.recv([bytearray(8)], 1, layout=raising)
    request = me.irecv([bytearray(4)], 1, layout=PIECES)  # and the connection goes on
    me.send(b"1234", 1)
    assert request.wait().length == 4


def test_unpack_may_use_the_worker_and_waits_for_others_only(worker, me):
    requests = []

    def nested(pieces, offset, source):
        with pytest.raises(tw.errors.BusyError):
            requests[0].wait()
        me.send(b"from inside", 2)
        got = bytearray(11)
        me.recv(got, 2)
        pieces.append(bytes(source) + bytes(got))

    back = []
    requests.append(me.irecv(back, 1, layout=tw.Layout.callbacks(size=lambda _: 8, unpack=nested)))
    me.send(b"12345678", 1)
    assert requests[0].wait().length == 8
    assert back == [b"12345678from inside"]
    for _ in range(3):  # of requests that nobody keeps
        me.irecv(
            back, 1, layout=tw.Layout.callbacks(size=lambda _: 8, unpack=lambda pieces, _, source: pieces.append(bytes(source)))
        )
    for i in range(3):
        me.send(b"dropped%d" % i, 1)
    me.send(b"", 3)
    me.recv(bytearray(0), 3, timeout=20)
    while len(back) < 4:
        worker.progress()
    assert sorted(back[1:]) == [b"dropped0", b"dropped1", b"dropped2"]


def test_all_threads_that_wait_see_what_was_unpacked(context):
    with tw.Worker(context, threads="multi") as worker:
        me = worker.connect(worker.address)
        begun, go_on = threading.Event(), threading.Event()

        def slow(pieces, offset, source):
            begun.set()
            assert go_on.wait(20)
            unpack(pieces, offset, source)

        back, seen = [bytearray(8)], []
        request = me.irecv(back, 1, layout=tw.Layout.callbacks(size=lambda pieces: 8, unpack=slow))

        def wait():
            request.wait()
            seen.append(bytes(back[0]))

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        me.send(b"12345678", 1)
        assert begun.wait(20)
        go_on.set()
        for thread in threads:
            thread.join(20)
        assert seen == [b"12345678"] * 3


def test_where_none_is_taken(context, me):
    with pytest.raises(tw.errors.InvalidError):
        tw.Layout.callbacks(size=len)
    with pytest.raises(tw.errors.Unsupported):
        me.send([b"x"], 1, layout=tw.Layout.callbacks(size=len, unpack=unpack))
    with pytest.raises(tw.errors.Unsupported):
        me.irecv([bytearray(1)], 1, layout=tw.Layout.callbacks(size=len, pack=pack))
    with tw.Memory.allocate(context, 64) as memory:
        remote = tw.RemoteMemory(me, memory.export())
        with pytest.raises(tw.errors.Unsupported, match="names no bytes"):
            me.put(b"x" * 64, remote, remote_layout=PIECES)
        remote.release()
    plan = tw.Plan(context)
    with pytest.raises(tw.errors.Unsupported, match="names no bytes"):
        plan.send(me, bytearray(8), 1, layout=PIECES)
    plan.close()
    assert PIECES.bytes == 0


def test_what_ends_in_a_completion_queue_is_unpacked(worker, me):
    queue = tw.CompletionQueue(worker)
    data = [os.urandom(size) for size in SIZES]
    back = [pieces_of(bytes(size)) for size in SIZES]
    requests = [me.irecv(pieces, tag, layout=PIECES) for tag, pieces in enumerate(back)]
    for request in requests:
        request.tell(queue=queue)
    sends = [me.isend(each, tag) for tag, each in enumerate(data)]
    ended = []
    while len(ended) < len(SIZES):
        ended += queue.wait(timeout=20)
        for request in ended:
            tag = requests.index(request)
            assert request.ended and b"".join(back[tag]) == data[tag]
            assert request.wait().length == SIZES[tag]
    tw.wait_all(sends, 20)


def test_what_unpack_raises_or_waits_for_in_a_completion_queue(worker, me):
    class Odd(Exception):
        pass

    def bad(*_):
        raise Odd("no")

    queue, waited = tw.CompletionQueue(worker), []

    def other(pieces, offset, source):
        waited.append((requests[2].wait(20).length, requests[1].ended))
        with pytest.raises(tw.BusyError):
            requests[0].wait()
        pieces.append(bytes(source))

    def plain(pieces, offset, source):
        pieces.append(bytes(source))

    back, requests = [], []
    for tag, unpack in enumerate((other, bad, plain), 1):
        requests.append(me.irecv(back, tag, layout=tw.Layout.callbacks(size=lambda _: 8, unpack=unpack)))
    for request in requests:
        request.tell(queue=queue)
    for tag in (1, 2, 3):
        me.send(bytes([tag]) * 8, tag)
    ended = []
    while len(ended) < 3:
        ended += queue.poll()
    assert ended == requests
    assert requests[0].wait().length == 8
    with pytest.raises(Odd):
        requests[1].wait()
    assert back == [b"\3" * 8, b"\1" * 8]
    assert waited == [(8, False)]
