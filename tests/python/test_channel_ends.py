# SPDX-License-Identifier: Apache-2.0
"""Ends of channels for kernels. The kernel's twin here is Python that reads and writes an end's words on the host."""

import ctypes
import os
import time

import pytest
import thalweg as tw
from peers import connected

SLOTS, RECV_BUFFER_BYTES, MESSAGES, LIMIT = 32, 80, 70, 20


def words(address, count):
    """64-bit words of the host's memory."""
    return (ctypes.c_uint64 * count).from_address(address)


def await_word(word, index, number):
    """The info of a slot's word, when it belongs to operation `number`."""
    deadline = time.monotonic() + LIMIT
    while word[index] >> 16 < number + 1:
        assert time.monotonic() < deadline, "the other end does nothing"
    return word[index] & 0xFFFF


def send_message(end, payload):
    """As thalweg::device::Sender::send does, into a contiguous buffer."""
    count, credits, flags, recv_buffers, lengths = words(end.address, 5)
    recv_buffer = await_word(words(credits, SLOTS), count % SLOTS, count)
    entry = words(recv_buffers + recv_buffer * RECV_BUFFER_BYTES, RECV_BUFFER_BYTES // 8)
    base, capacity = entry[0], entry[-1]
    assert len(payload) <= capacity
    ctypes.memmove(base, payload, len(payload))
    if lengths:
        words(lengths, SLOTS)[count % SLOTS] = len(payload)
    words(flags, SLOTS)[count % SLOTS] = (count + 1) << 16
    words(end.address, 1)[0] = count + 1


def post(end, recv_buffer):
    """As thalweg::device::Receiver::post does."""
    posted, _, _, credits = words(end.address, 4)
    words(credits, SLOTS)[posted % SLOTS] = (posted + 1) << 16 | recv_buffer
    words(end.address, 1)[0] = posted + 1


def take(end):
    """As thalweg::device::Receiver::take does."""
    _, taken, flags, _ = words(end.address, 4)
    assert await_word(words(flags, SLOTS), taken % SLOTS, taken) == 0
    words(end.address, 2)[1] = taken + 1


def echo_by_a_plan(endpoint, pipe, length):
    """The other process: a plan on a queue of the host receives, and sends back from the same buffer."""
    context = endpoint.worker.context
    memory = tw.Memory.allocate(context, length)
    with tw.Queue(context) as queue, tw.Plan(context) as plan:
        received = plan.recv(endpoint, memory, 1)
        plan.send(endpoint, memory, 2, after=[received])
        plan.prepare(LIMIT)
        for _ in range(MESSAGES):
            plan.trigger(queue)
        queue.synchronize()
        pipe.recv()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_kernel_exchanges_messages_with_a_plan_of_another_process(transport):
    length = 1003
    with connected(echo_by_a_plan, length, transport=transport) as (endpoint, pipe):
        memory = tw.Memory.allocate(endpoint.worker.context, 2 * length)
        halves = [memoryview(memory)[:length], memoryview(memory)[length:]]
        with tw.bind_send(endpoint, 1, timeout=LIMIT) as out, tw.bind_recv(endpoint, halves, 2, timeout=LIMIT) as back:
            assert len(back.recv_buffers) == 2
            assert len(out.guard) == 32
            for end in out, back:
                assert ("mapped" if transport == "shm" else "by the host, as ") in end.explain()
            for turn in range(MESSAGES):
                payload = os.urandom(length)
                post(back, back.recv_buffers[turn % 2])
                send_message(out, payload)
                take(back)
                assert halves[turn % 2] == payload
            out.check()
            back.check()
        with pytest.raises(tw.HandleError):
            out.check()
        pipe.send("end")


def take_short_ones(endpoint, pipe):
    """The other process: its ends fail with the sender's."""
    with (
        pytest.raises(tw.LimitReached, match="message_bytes"),
        tw.bind_recv(endpoint, [bytearray(1000)], 2, timeout=LIMIT) as end,
    ):
        while True:
            end.check()
    with tw.bind_recv(endpoint, [bytearray(1000)], 1, timeout=LIMIT) as end:
        pipe.send("bound")  # an end that fails before is opened anew
        pipe.recv()
        with pytest.raises(tw.Truncated, match="message_bytes"):
            while True:
                end.check()
    pipe.recv()


def test_what_the_host_carries_has_a_longest_message():
    with connected(take_short_ones, transport="tcp") as (endpoint, pipe):
        with pytest.raises(tw.LimitReached, match="message_bytes"):
            tw.bind_send(endpoint, 2, timeout=LIMIT, message_bytes=1 << 30)
        with tw.bind_send(endpoint, 1, timeout=LIMIT, message_bytes=100) as end:
            pipe.recv()
            count, credits, flags, recv_buffers = words(end.address, 4)
            recv_buffer = await_word(words(credits, SLOTS), 0, 0)
            assert words(recv_buffers + recv_buffer * RECV_BUFFER_BYTES, RECV_BUFFER_BYTES // 8)[-1] == 100
            words(flags, SLOTS)[0] = 1 << 16 | -tw.Truncated.status  # as a kernel that would send more
            pipe.send("failed")
            with pytest.raises(tw.Truncated, match="message_bytes"):
                while True:
                    end.check()
        pipe.send("end")


def test_arguments_that_make_no_sense(me):
    with pytest.raises(tw.InvalidError):
        tw.bind_recv(me, [], 1)
    with pytest.raises(tw.TimedOut, match="channel 77"):
        tw.bind_send(me, 77, timeout=0.1)
