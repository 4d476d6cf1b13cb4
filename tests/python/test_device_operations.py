# SPDX-License-Identifier: Apache-2.0
"""Every operation with buffers on devices, between processes and within one. On emulated devices."""

import asyncio

import numpy as np
import pytest
import thalweg as tw
from peers import connected, spawn
from test_devices import CudaArray

SIZES = [1, 8, 5001, 300_001]


def random_bytes(length):
    return np.random.default_rng().integers(0, 256, length, np.uint8)


def place_of(context, payload, place):
    """The payload in new memory at a place."""
    memory = tw.Memory.allocate(context, payload.size, place=place)
    tw.copy(context, memory, payload)
    return memory


def bytes_of(context, buffer, length):
    seen = np.empty(length, np.uint8)
    tw.copy(context, seen, buffer)
    return seen


def echo(endpoint, pipe, place, sizes):
    """Receives into memory at a place and sends from it."""
    context = endpoint.worker.context
    for size in sizes:
        memory = place_of(context, random_bytes(size), place)
        assert endpoint.recv(memory, 1).length == size
        endpoint.send(memory, 2)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("here", "there"), [("emulated:0", "emulated:1"), ("host", "emulated-vmm:0"), ("emulated-pool:1", "host")]
)
def test_messages(transport, here, there):
    with connected(echo, there, SIZES, transport=transport) as (endpoint, _):
        context = endpoint.worker.context
        for size in SIZES:
            payload = random_bytes(size)
            memory = place_of(context, payload, here)
            request = endpoint.isend(memory, 1)
            back = place_of(context, random_bytes(size), here)
            assert endpoint.recv(back, 2).length == size
            request.wait()
            assert (bytes_of(context, back, size) == payload).all()


def target(endpoint, pipe, place, length):
    """Offers memory at a place, then says what lies in it."""
    context = endpoint.worker.context
    memory = place_of(context, np.full(length, 0xA5, np.uint8), place)
    pipe.send(memory.export())
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)
    pipe.recv()
    pipe.send(bytes_of(context, memory, length))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(("here", "there"), [("emulated:0", "emulated:1"), ("emulated:1", "host"), ("host", "emulated-vmm:0")])
def test_put_and_get(transport, here, there):
    length = 300_001
    with connected(target, there, length, transport=transport) as (endpoint, pipe):
        context = endpoint.worker.context
        remote = tw.RemoteMemory(endpoint, pipe.recv())
        payload = random_bytes(200_003)
        source = place_of(context, payload, here)
        endpoint.put(source, remote, 77, visible=True)
        into = place_of(context, random_bytes(payload.size), here)
        endpoint.get(into, remote, 77)
        assert (bytes_of(context, into, payload.size) == payload).all()
        pipe.send("done")
        expected = np.full(length, 0xA5, np.uint8)
        expected[77 : 77 + payload.size] = payload
        assert (pipe.recv() == expected).all()


def test_strided_arrays_of_a_framework(context, worker, me):
    whole = random_bytes(40 * 64)
    source = place_of(context, whole, "emulated:0")
    into = place_of(context, np.full(40 * 30, 0x11, np.uint8), "emulated:1")
    request = me.isend(CudaArray(source, (40, 30), strides=(64, 1)), 3)
    worker.recv(into, 3)
    request.wait()
    assert (bytes_of(context, into, 1200).reshape(40, 30) == whole.reshape(40, 64)[:, :30]).all()


def test_a_stream_reaches_the_library(context, worker, me):
    memory = place_of(context, random_bytes(100), "emulated:0")
    into = place_of(context, random_bytes(100), "emulated:1")
    for array in (CudaArray(memory, (100,), stream=None), CudaArray(memory, (100,), stream=1)):  # none; the default stream
        request = me.isend(array, 4)
        worker.recv(into, 4)
        request.wait()
        assert (bytes_of(context, into, 100) == bytes_of(context, memory, 100)).all()
    for buffer, after in ((CudaArray(memory, (100,), stream=4711), None), (memory, 4711)):
        with pytest.raises(tw.ThalwegError):  # no stream of that device
            me.isend(buffer, 4, after=after)
    request = me.isend(CudaArray(memory, (100,), stream=4711), 4, after=False)
    worker.recv(into, 4)
    request.wait()
    with pytest.raises(TypeError, match="after is a stream"):
        me.isend(memory, 4, after="now")


def test_a_stream_waits_for_a_request(context, worker, me):
    payload = random_bytes(70_001)
    first = place_of(context, random_bytes(payload.size), "emulated:0")
    second = place_of(context, random_bytes(payload.size), "emulated:1")
    received = worker.irecv(first, 5)
    received.before(0)  # the default stream
    forwarded = me.isend(first, 6, after=0)  # what that stream's work so far leaves there
    last = worker.irecv(second, 6)
    for _ in range(2000):
        worker.progress()
    assert not forwarded.ended and not last.ended
    me.send(payload, 5)
    last.wait(10)
    forwarded.wait(10)
    received.wait(10)
    received.before(0)  # over: nothing to wait for
    assert (bytes_of(context, second, payload.size) == payload).all()
    for nonsense in ("now", None, False):
        with pytest.raises(TypeError):
            received.before(nonsense)
    with pytest.raises(tw.ThalwegError):  # no stream of that device
        worker.irecv(first, 5).before(4711)


@pytest.mark.parametrize("size", [100, 300_001])
def test_active_messages(context, worker, me, size):
    payload = random_bytes(size)
    into = place_of(context, random_bytes(size), "emulated:1")
    ended = []

    def handler(message):
        ended.append(message.irecv(into))

    worker.am_register(5, handler)
    request = me.iam_send(5, b"header", place_of(context, payload, "emulated:0"))
    while not ended or not ended[0].done():
        worker.wait(0.01)
    request.wait()
    ended[0].wait()
    assert (bytes_of(context, into, size) == payload).all()
    with pytest.raises(tw.InvalidError, match="on the host"):
        me.am_send(5, into if size == 100 else place_of(context, payload[:10], "emulated:0"))


def give_back(pipe):
    """Sends what it gets, received on the other device."""
    while (value := pipe.recv(device=lambda number: 1 - number)) is not None:
        pipe.send(value)


def test_a_pipe_carries_device_memory():
    a, b = tw.Pipe()
    process = spawn.Process(target=give_back, args=(b,))
    process.start()
    context = tw.Context(job_key=b"k" * 32)
    for place in ("emulated:0", "emulated-vmm:1"):
        payload = random_bytes(70_001)
        a.send({"first": place_of(context, payload, place), "more": payload})
        back = a.recv()
        assert back["first"].place == place[:-1] + str(1 - int(place[-1]))
        assert (bytes_of(context, back["first"], payload.size) == payload).all() and (back["more"] == payload).all()
        del back
    a.send(None)
    process.join(20)
    assert process.exitcode == 0
    a.close()


def test_coroutines(context):
    async def run():
        with tw.aio.Worker(context) as worker:
            me = await worker.connect(worker.core.address)
            payload = random_bytes(70_001)
            got, _ = await asyncio.gather(
                me.recv_object(7, device=1), me.send_object([place_of(context, payload, "emulated:0")], 7)
            )
            assert got[0].place == "emulated:1" and (bytes_of(context, got[0], payload.size) == payload).all()

    asyncio.run(run())


def test_explain_of_a_buffer(context, me):
    memory = place_of(context, random_bytes(5000), "emulated:0")
    text = me.explain("send", buffer=memory)
    assert "5000 bytes with device memory" in text and "staging" in text
    assert "with device memory" not in me.explain("send", buffer=bytes(5000))
    remote = tw.RemoteMemory(me, memory.export())
    text = remote.explain("put", buffer=bytearray(100))
    assert "100 bytes with device memory" in text and "chosen: " in text
    with pytest.raises(tw.InvalidError):
        me.explain("put", buffer=memory)
