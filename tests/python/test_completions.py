# SPDX-License-Identifier: Apache-2.0
"""Completion queues, counters and signals that requests tell of their ends; notifications of puts and posted signals."""

import gc
import random

import pytest
import thalweg as tw


def irecv(worker, size, tag):
    buffer = bytearray(size)
    return buffer, worker.irecv(buffer, tag)


def test_requests_end_in_a_queue(worker, me):
    queue = tw.CompletionQueue(worker)
    told = {}
    for tag in range(300):
        buffer, request = irecv(worker, 8, tag)
        request.tell(queue=queue)
        told[id(request)] = (buffer, request, tag)
    assert len(queue) == 300
    payloads = {tag: random.randbytes(8) for tag in range(300)}
    order = random.sample(range(300), 300)
    sends = [me.isend(payloads[tag], tag) for tag in order]
    ended = []
    while len(ended) < 300:
        ended += queue.wait(count=7, timeout=20)
    assert [told[id(request)][2] for request in ended] == order, "in the order of their ends"
    for request in ended:
        buffer, _, tag = told[id(request)]
        assert request.ended and request.wait().tag == tag
        assert bytes(buffer) == payloads[tag]
    assert queue.poll() == [] and len(queue) == 0
    with pytest.raises(tw.TimedOut):
        queue.wait(timeout=0.01)
    tw.wait_all(sends, 20)


def test_what_has_ended_is_told_at_once(worker, me):
    queue, counter, signal = tw.CompletionQueue(worker), tw.Counter(worker), tw.Signal(worker, "add")
    buffer, request = irecv(worker, 5, 1)
    me.send(b"hello", 1)
    request.wait(20)
    request.tell(queue=queue)
    assert queue.poll() == [request]
    request.tell(counter=counter)
    request.tell(signal=signal, value=7)
    assert (counter.completed, counter.failed, signal.value) == (1, 0, 7)
    assert bytes(buffer) == b"hello"


def test_counters_and_signals_count(worker, me):
    counter, signal = tw.Counter(worker), tw.Signal(worker, "add")
    requests = []
    for tag in range(20):
        _, request = irecv(worker, 100, tag)
        request.tell(**({"counter": counter} if tag % 2 else {"signal": signal, "value": 3}))
        requests.append(request)
    for tag in range(20):
        me.send(random.randbytes(100), tag)
    counter.wait(10, 20)
    signal.wait(30, timeout=20)
    assert counter.completed == 10
    tw.wait_all(requests, 20)
    with pytest.raises(tw.TimedOut):
        counter.wait(11, 0.01)


def test_failures_are_told(worker, me):
    queue, counter, signal = tw.CompletionQueue(worker), tw.Counter(worker), tw.Signal(worker)
    requests = [irecv(worker, 3, 5)[1] for _ in range(3)]
    requests[0].tell(queue=queue)
    requests[1].tell(counter=counter)
    requests[2].tell(signal=signal)
    for _ in range(3):
        me.send(b"too long", 5)
    assert queue.wait(timeout=20) == [requests[0]]
    with pytest.raises(tw.Truncated, match="8 bytes for a buffer of 3"):
        requests[0].wait()
    counter.wait(1, 20)
    assert counter.failed == 1
    with pytest.raises(tw.Truncated):
        requests[2].wait(20)
    assert signal.value == 0


def test_one_is_named(worker, me):
    queue, counter = tw.CompletionQueue(worker), tw.Counter(worker)
    _, request = irecv(worker, 3, 5)
    with pytest.raises(tw.InvalidError):
        request.tell()
    with pytest.raises(tw.InvalidError):
        request.tell(queue=queue, counter=counter)
    request.tell(queue=queue)
    with pytest.raises(tw.InvalidError):
        request.tell(counter=counter)
    request.cancel()
    assert queue.wait(timeout=20) == [request]


def test_dropped_queues_leave_requests_to_the_worker(worker, me):
    queue, counter = tw.CompletionQueue(worker), tw.Counter(worker)
    buffer, request = irecv(worker, 5, 9)
    request.tell(queue=queue)
    other, counted = irecv(worker, 5, 9)
    counted.tell(counter=counter)
    del queue, counter, request, counted
    gc.collect()
    me.send(b"first", 9)
    me.send(b"other", 9)
    for _ in range(50):
        worker.progress()
    assert (bytes(buffer), bytes(other)) == (b"first", b"other")


@pytest.mark.parametrize("size", [0, 1, 4099, 65537])
def test_puts_notify(worker, me, size):
    memory = tw.Memory.allocate(worker.context, 1 << 17)
    remote = tw.RemoteMemory(me, memory.export())
    payload, immediate = random.randbytes(size), random.getrandbits(64)
    me.put(payload, remote, 3, immediate=immediate)
    while (got := worker.next_notification()) is None:
        worker.progress()
    assert got == (me, immediate.to_bytes(8, "little"))
    assert bytes(memoryview(memory)[3 : 3 + size]) == payload
    queue = tw.CompletionQueue(worker, notifications=True)
    me.iput(payload, remote, 5, immediate=immediate).wait(20)
    assert queue.wait(timeout=20) == [(me, immediate.to_bytes(8, "little"))]
    headers = []
    worker.am_register(11, lambda message: headers.append(message.header))
    me.put(payload, remote, 5, immediate=7, handler=11)
    while not headers:
        worker.progress()
    assert headers == [(7).to_bytes(8, "little")]
    with pytest.raises(tw.InvalidError):
        me.put(payload, remote, 5, handler=11)
    with pytest.raises(tw.Unsupported):
        me.get(bytearray(3), remote, 0, immediate=1)
    worker.am_register(11, None)
    remote.release()
    memory.release()


def test_posted_signals_notify(worker, me):
    signal = tw.Signal(worker, "add")
    remote = tw.RemoteSignal(me, signal.export(), "add")
    remote.post(4, immediate=99)
    while (got := worker.next_notification()) is None:
        worker.progress()
    assert got == (me, (99).to_bytes(8, "little"))
    assert signal.value == 4
    remote.release()


def test_what_was_taken_is_returned_though_a_handler_raises(worker, me):
    def broken(message):
        raise LookupError(message.header)

    worker.am_register(5, broken)
    queue = tw.CompletionQueue(worker)
    for turn in range(20):
        _, request = irecv(worker, 8, 1)
        request.tell(queue=queue)
        me.send(b"eight by", 1)
        me.am_send(5, b"1")
        me.am_send(5, b"2")
        ended, raised = [], []
        while len(ended) < 1 or len(raised) < 2:
            try:
                ended += queue.wait(timeout=20) if turn % 2 and not ended else queue.poll()
            except LookupError as error:
                raised.append(error.args[0])
        assert ended == [request] and raised == [b"1", b"2"]
        assert len(queue) == 0 and request.wait().length == 8
    worker.am_register(5, None)


@pytest.mark.parametrize("how", ["close", "drop"])
def test_what_ended_in_a_queue_that_nobody_asked_has_its_outcome(worker, me, how):
    queue = tw.CompletionQueue(worker)
    buffer, request = irecv(worker, 8, 1)
    short, failed = irecv(worker, 3, 2)
    request.tell(queue=queue)
    failed.tell(queue=queue)
    me.send(b"eight by", 1)
    me.send(b"eight by", 2)
    worker.progress()
    if how == "close":
        queue.close()
    del queue
    assert request.wait(20).length == 8 and buffer == b"eight by"
    with pytest.raises(tw.Truncated, match="8 bytes for a buffer of 3"):
        failed.wait(20)
    assert bytes(short) == b"eig"
