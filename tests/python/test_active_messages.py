# SPDX-License-Identifier: Apache-2.0
"""Active messages: handlers run in the progressing thread, take the data at once or later, and may reply."""

import os

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
