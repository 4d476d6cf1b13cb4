# SPDX-License-Identifier: Apache-2.0
"""Active messages: handlers run in the progressing thread, take the data at once or later, and may reply."""

import gc
import os
import time
import weakref

import pytest
import thalweg as tw


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 300_000])
@pytest.mark.parametrize("protocol", [None, "rendezvous"])
def test_header_and_payload_arrive(worker, me, size, protocol):
    got = []
    worker.am_register(5, lambda message: got.append((message.header, message.length, message.data, message.endpoint)))
    payload = os.urandom(size)
    request = me.iam_send(5, b"header", payload, protocol=protocol if size else None)
    while not got:
        worker.progress()
    assert got[0] == (b"header", size, payload, me)
    request.wait(10)


def test_data_taken_later(worker, me):
    kept = []
    worker.am_register(1, kept.append)
    payload = os.urandom(200_000)
    request = me.iam_send(1, buffer=payload, protocol="rendezvous")
    while not kept:
        worker.progress()
    assert not request.done()
    into = bytearray(200_000)
    assert kept.pop().recv(into).length == 200_000
    request.wait(10)
    assert into == payload


def test_a_dropped_payload_completes_its_sender(worker, me):
    worker.am_register(1, lambda message: None)
    me.iam_send(1, buffer=bytes(1 << 20), protocol="rendezvous").wait(10)


def test_reply_and_handler_errors(worker, me):
    def reply(message):
        message.endpoint.iam_send(2, b"reply to " + message.header)

    answers = []
    worker.am_register(1, reply)
    worker.am_register(2, lambda message: answers.append(message.header))
    me.am_send(1, b"question")
    while not answers:
        worker.progress()
    assert answers == [b"reply to question"]

    def broken(message):
        raise LookupError("in the handler")

    worker.am_register(3, broken)
    request = me.iam_send(3)
    with pytest.raises(LookupError, match="in the handler"):
        for _ in range(10_000):
            worker.progress()
    request.wait(5)
    worker.am_register(3, None)


def test_limits(me):
    with pytest.raises(tw.InvalidError):
        me.am_send(4096)
    with pytest.raises(tw.InvalidError):
        me.am_send(1, memoryview(bytes(600))[::2])


@pytest.mark.parametrize("length", [0, 1, 256, 257, 4096, 65_280, 65_281, 1 << 20])
@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_headers_of_any_length(worker, me, length, size):
    got = []
    worker.am_register(6, lambda message: got.append((message.header, message.data)))
    payload = os.urandom(size)
    for kind in (bytes, bytearray, memoryview):
        header = kind(os.urandom(length))
        wanted = bytes(header)
        request = me.iam_send(6, header, payload)
        if kind is bytearray:
            header[:] = bytes(length)  # it was copied
        while not got:
            worker.progress()
        assert got.pop() == (wanted, payload)
        request.wait(10)


def test_a_header_beyond_the_budget(worker, me):
    worker.am_register(6, lambda message: None)
    with pytest.raises(tw.LimitReached, match="unexpected_budget"):
        me.am_send(6, bytes(60 << 20))
    me.am_send(6, bytes(2 << 20))


def kept_message(worker, me, payload, **options):
    kept = []
    worker.am_register(1, kept.append)
    request = me.iam_send(1, buffer=payload, **options)
    while not kept:
        worker.progress()
    return kept.pop(), request


@pytest.mark.parametrize("protocol", ["eager", "rendezvous"])
@pytest.mark.parametrize("first", ["too short", "received", "by request"])
def test_a_payload_is_received_once(worker, me, protocol, first):
    payload = os.urandom(9001)
    message, request = kept_message(worker, me, payload, protocol=protocol)
    into = bytearray(9001)
    if first == "too short":
        with pytest.raises(tw.Truncated):
            message.recv(bytearray(100))
    elif first == "received":
        assert message.recv(into).length == 9001 and into == payload
    else:
        assert message.irecv(into).wait(10).length == 9001 and into == payload
    into = bytearray(9001)
    for again in (lambda: message.recv(into), lambda: message.irecv(into), lambda: message.data):
        with pytest.raises(tw.HandleError):
            again()
    assert not any(into)
    request.wait(10)


@pytest.mark.parametrize("size", [1, 4096])
def test_a_short_payload_stays_with_its_message(worker, me, size):
    payload = os.urandom(size)
    message, request = kept_message(worker, me, payload)
    for _ in range(2):
        into = bytearray(size)
        assert message.recv(into).length == size and into == payload
        assert message.data == payload
    request.wait(10)


@pytest.mark.parametrize("protocol", ["eager", "rendezvous"])
def test_a_refused_receive_leaves_the_payload(worker, me, protocol):
    payload = os.urandom(8000)
    message, request = kept_message(worker, me, payload, protocol=protocol)
    overlapping = tw.Layout.strided(1000, [8], [500])
    for receive in (message.recv, message.irecv):
        with pytest.raises(tw.InvalidError, match="overlap"):
            receive(bytearray(8000), layout=overlapping)
    assert protocol == "eager" or not request.done()
    assert message.data == payload
    request.wait(10)


@pytest.mark.parametrize(("header", "size"), [(b"", 4000), (b"h" * 250, 0), (b"h", 1)])
def test_a_flood_is_bounded_while_python_is_busy_elsewhere(context, header, size):
    """The receiver's own thread progresses, and no handler runs: the sender has to wait for them."""
    with (
        tw.Worker(context, progress="thread", unexpected_budget=1 << 20) as receiver,
        tw.Worker(context, unexpected_budget=1 << 20) as sender,
    ):
        got = []
        receiver.am_register(1, lambda message: got.append((message.header[:4], message.data)))
        endpoint = sender.connect(receiver.address)
        most = (24 << 20) // (size + len(header) + 100)
        payloads = [os.urandom(size) for _ in range(100)]
        requests = []

        def send():
            number = len(requests)
            whole = number.to_bytes(4, "little") + header
            try:
                requests.append(endpoint.iam_send(1, whole, payloads[number % 100], no_wait=True))
            except tw.Again:
                return False
            return True

        end = time.monotonic() + 1  # without credit
        while len(requests) < most and time.monotonic() < end:
            if send():
                end = time.monotonic() + 1
            else:
                sender.progress()
        first, end = len(requests), time.monotonic() + 20
        assert first < most, "it has sent everything, and nobody has taken any of it"
        while len(requests) < 2 * first or len(got) < len(requests):
            assert time.monotonic() < end, f"{len(got)} of {len(requests)}"
            receiver.progress()
            if len(requests) < 2 * first:
                send()
            sender.progress()
        tw.wait_all(requests, 20)
        assert got == [(i.to_bytes(4, "little"), payloads[i % 100]) for i in range(len(requests))]


def test_a_worker_whose_handlers_lead_back_to_it_is_collected(context):
    class Service:
        def __init__(self):
            self.worker = tw.Worker(context)
            self.worker.am_register(1, self.on_message)

        def on_message(self, message):
            raise AssertionError("nothing was sent")

    service = Service()
    there = weakref.ref(service), weakref.ref(service.worker)
    del service
    gc.collect()
    assert [one() for one in there] == [None, None]
