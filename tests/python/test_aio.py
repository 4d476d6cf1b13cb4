# SPDX-License-Identifier: Apache-2.0
"""asyncio: every operation awaited, in both modes; an idle loop sleeps; cancelling and closing end what waits."""

import asyncio
import contextlib
import fcntl
import functools
import gc
import os
import resource
import secrets
import threading
import weakref

import numpy as np
import pytest
import thalweg as tw
from peers import spawn
from thalweg import aio, objects

MODES = pytest.mark.parametrize("polling", [False, True], ids=["sleeping", "polling"])
SECONDS = 30


def run(function):
    """Runs a coroutine test with a limit of time."""

    @functools.wraps(function)
    def test(*args, **kwargs):
        asyncio.run(asyncio.wait_for(function(*args, **kwargs), SECONDS))

    return test


async def serve(pipe, key, polling):
    """Echoes messages and objects of one client, until an object says stop."""
    async with aio.Worker(tw.Context(job_key=key), polling=polling) as worker:
        memory = tw.Memory.allocate(worker.core.context, 1 << 16)
        signal = tw.Signal(worker.core)
        worker.am_register(3, answer)
        with worker.listen() as listener:
            pipe.send((listener.port, memory.export(), signal.export()))
            endpoint = await listener.accept(data=b"welcome")
        buffer = bytearray(1 << 20)
        while (size := (await endpoint.recv(buffer, 1)).length) > 0:
            await endpoint.send(memoryview(buffer)[:size], 2)
        await worker.wait_signal(signal, 9)
        assert bytes(memory)[:5] == b"there"
        while not isinstance(value := await endpoint.recv_object(4), str):
            await endpoint.send_object(value, 4)
        await endpoint.send_object("stopped", 4)
        with contextlib.suppress(tw.PeerLost, tw.ClosedError):
            await endpoint.recv(buffer, 99)  # until the client has closed


async def answer(message):
    """The handler of active messages: takes the payload later and replies."""
    data = await message.data()
    await message.endpoint.am_send(4, message.header, bytes(data)[::-1])


def serving(pipe, key, polling):
    asyncio.run(serve(pipe, key, polling))


ROUNDS = 30


async def wait_for_signals(pipe, key):
    """Tells of every value of its signal; nothing but the signal itself wakes it."""
    async with aio.Worker(tw.Context(job_key=key)) as worker:
        signal = tw.Signal(worker.core)
        with worker.listen() as listener:
            pipe.send((listener.port, signal.export()))
            _endpoint = await listener.accept()  # dropped, it would be closed
        for value in range(1, ROUNDS + 1):
            await asyncio.wait_for(worker.wait_signal(signal, value, nap=None), SECONDS)
            pipe.send(value)


def waiting(pipe, key):
    asyncio.run(wait_for_signals(pipe, key))


@run
async def test_a_mapped_signal_wakes_a_sleeping_loop():
    key = secrets.token_bytes(32)
    here, there = spawn.Pipe()
    process = spawn.Process(target=waiting, args=(there, key))
    process.start()
    port, signal_key = await asyncio.to_thread(here.recv)
    async with aio.Worker(tw.Context(job_key=key)) as worker:
        endpoint = await worker.connect(f"127.0.0.1:{port}")
        assert endpoint.core.transport == "shm"
        signal = tw.RemoteSignal(endpoint.core, signal_key)
        for value in range(1, ROUNDS + 1):
            signal.post(value)
            assert here.poll(SECONDS)  # this side makes no progress meanwhile
            assert here.recv() == value
    process.join(SECONDS)
    assert process.exitcode == 0


@MODES
@run
async def test_a_service_in_another_process(polling):
    key = secrets.token_bytes(32)
    here, there = spawn.Pipe()
    process = spawn.Process(target=serving, args=(there, key, polling))
    process.start()
    port, memory_key, signal_key = await asyncio.to_thread(here.recv)
    async with aio.Worker(tw.Context(job_key=key), polling=polling) as worker:
        endpoint = await worker.connect(f"127.0.0.1:{port}", data=b"hello")
        assert endpoint.data == b"welcome" and endpoint.state == "ok"
        for size in (1, 8, 5000, 70_001, 1 << 20):
            data, back = os.urandom(size), bytearray(size)
            sending = asyncio.ensure_future(endpoint.send(data, 1))
            assert (await endpoint.recv(back, 2)).length == size
            await sending
            assert back == data
        await endpoint.send(b"", 1)
        remote = tw.RemoteMemory(endpoint.core, memory_key)
        signal = tw.RemoteSignal(endpoint.core, signal_key)
        await endpoint.put(b"there", remote, signal=signal, value=9)
        back = bytearray(5)
        await endpoint.flush()
        await endpoint.get(back, remote)
        assert back == b"there"
        assert await endpoint.atomic("add", remote, 64, 5) == 0
        assert await endpoint.atomic("add", remote, 64, 5) == 5
        await endpoint.flush()
        await worker.flush()
        replies: asyncio.Queue = asyncio.Queue()
        worker.am_register(4, lambda message: replies.put_nowait(message))
        payload = os.urandom(100_000)
        await endpoint.am_send(3, b"head", payload)
        reply = await replies.get()
        assert reply.header == b"head" and await reply.data() == payload[::-1]
        array = np.random.default_rng().random((300, 200))
        for value in (1, {"a": [None, "text"]}, array, [array[:50], array.T]):
            await endpoint.send_object(value, 4)
            back = await endpoint.recv_object(4)
            np.testing.assert_equal(back, value)
        await endpoint.send_object("stop", 4)
        assert await endpoint.recv_object(4) == "stopped"
        await endpoint.close()
    await asyncio.to_thread(process.join, 10)
    assert process.exitcode == 0


@MODES
@run
async def test_many_at_once_and_create_task(context, polling):
    async with aio.Worker(context, polling=polling) as worker:
        me = await worker.connect(worker.address)
        buffers = [bytearray(3000) for _ in range(200)]
        receives = [asyncio.create_task(me.recv(buffer, tag)) for tag, buffer in enumerate(buffers)]
        await asyncio.sleep(0)
        await asyncio.gather(*(me.send(bytes([tag]) * 3000, tag) for tag in reversed(range(200))))
        infos = await asyncio.gather(*receives)
        assert [info.tag for info in infos] == list(range(200))
        assert all(buffer == bytes([tag]) * 3000 for tag, buffer in enumerate(buffers))


@MODES
@run
async def test_cancelling_a_receive(context, polling):
    async with aio.Worker(context, polling=polling) as worker:
        me = await worker.connect(worker.address)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(me.recv(bytearray(4), 1), 0.05)
        got = bytearray(4)
        receive = asyncio.create_task(me.recv(got, 1))
        await asyncio.sleep(0)
        await me.send(b"next", 1)
        await receive
        assert got == b"next"


@MODES
@run
async def test_closing_the_worker_ends_what_waits(context, polling):
    worker = aio.Worker(context, polling=polling)
    me = await worker.connect(worker.address)
    receive = asyncio.create_task(me.recv(bytearray(4), 1))
    await asyncio.sleep(0.01)
    worker.close()
    with pytest.raises(tw.ClosedError):
        await receive
    with pytest.raises(tw.ClosedError):
        await me.send(b"x")


@run
async def test_an_idle_loop_sleeps(context):
    async with aio.Worker(context) as worker:
        me = await worker.connect(worker.address)
        receive = asyncio.create_task(me.recv(bytearray(4), 1))
        await asyncio.sleep(0.1)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(1.0)
        after = resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert used < 0.2, f"{used:.3f} s of CPU in an idle second"
        await me.send(b"wake", 1)
        await receive


@run
async def test_a_failed_operation_raises_in_its_task(context):
    async with aio.Worker(context) as worker:
        me = await worker.connect(worker.address)
        receive = asyncio.create_task(me.recv(bytearray(2), 1))
        await asyncio.sleep(0)
        await me.send(b"too long", 1)
        with pytest.raises(tw.Truncated) as caught:
            await receive
        assert caught.value.length == 8


@run
async def test_rejection_carries_its_reason(context):
    async with aio.Worker(context) as worker, aio.Worker(context) as other:
        listener = worker.listen()
        connecting = asyncio.create_task(other.connect(f"127.0.0.1:{listener.port}", data=b"let me in"))
        request = await listener.next()
        assert request.data == b"let me in"
        request.reject(b"not today")
        with pytest.raises(tw.Rejected, match="not today"):
            await connecting
        listener.close()


@run
async def test_a_worker_belongs_to_one_loop(context):
    worker = aio.Worker(context)
    await worker.connect(worker.address)

    def elsewhere():
        async def use():
            worker._attach()

        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(use())

    await asyncio.to_thread(elsewhere)
    worker.close()


VERBS = {
    "recv": lambda worker, me, lost: me.recv(lost, 1),
    "worker_recv": lambda worker, me, lost: worker.recv(lost, 1),
    "recv_object": lambda worker, me, lost: me.recv_object(1),
    "send": lambda worker, me, lost: me.send(b"lost", 1),
    "am_send": lambda worker, me, lost: me.am_send(1, b"lost"),
    "bytes_recv": lambda worker, me, lost: me.bytes_recv(lost),
    "flush": lambda worker, me, lost: worker.flush(),
    "connect": lambda worker, me, lost: worker.connect(worker.address),
    "close": lambda worker, me, lost: me.close(),
}


@pytest.mark.parametrize("verb", VERBS)
@MODES
def test_what_another_loop_awaits_is_not_posted(context, polling, verb):
    async def first():
        worker = aio.Worker(context, polling=polling)
        return worker, await worker.connect(worker.address)

    async def second():
        with pytest.raises(tw.ThreadError, match="another event loop"):
            await VERBS[verb](worker, me, lost)

    lost, got = bytearray(4), bytearray(4)
    worker, me = asyncio.run(first())
    asyncio.run(second())
    sending = me.core.isend(b"next", 1)
    assert worker.core.recv(got, 1, timeout=SECONDS).length == 4
    sending.wait(SECONDS)
    assert got == b"next" and lost == bytes(4)
    worker.close()


@MODES
def test_a_receive_whose_coroutine_ends_takes_no_message(context, polling):
    """As where its await raises something else than a cancellation."""
    loop = asyncio.new_event_loop()
    worker = aio.Worker(context, polling=polling)
    me = loop.run_until_complete(worker.connect(worker.address))
    lost, got = bytearray(4), bytearray(4)

    async def interrupted():
        receive = me.recv(lost, 1)
        receive.send(None)
        with pytest.raises(KeyboardInterrupt):
            receive.throw(KeyboardInterrupt())
        receive = asyncio.ensure_future(me.recv(got, 1))
        await asyncio.sleep(0)
        await me.send(b"next", 1)
        await receive

    loop.run_until_complete(asyncio.wait_for(interrupted(), SECONDS))
    assert got == b"next" and lost == bytes(4)
    worker.close()
    loop.close()


@MODES
@run
async def test_a_handler_that_raises_does_not_stall_the_worker(polling):
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["exception"]))
    context = tw.Context(job_key=secrets.token_bytes(32))

    def refuse(message):
        raise ValueError(message.header)

    with aio.Worker(context, polling=polling) as worker, tw.Worker(context) as sender:
        worker.am_register(1, refuse)
        endpoint = sender.connect(worker.address, wait=False)
        for turn in range(20):
            buffer = bytearray(8)
            receiving = asyncio.ensure_future(worker.recv(buffer, turn))
            await asyncio.sleep(0)
            requests = [endpoint.iam_send(1, b"first"), endpoint.isend(b"behind", turn), endpoint.iam_send(1, b"last")]
            while not all(request.done() for request in requests):
                await asyncio.sleep(0)
            assert (await receiving).length == 6
            while len(told) < 2 * turn + 2:
                await asyncio.sleep(0)
        assert [str(error) for error in told] == [str(b"first"), str(b"last")] * 20


@pytest.mark.parametrize("whose", ["worker", "endpoint"])
@run
async def test_a_flush_leaves_the_loop_awake_for_what_comes_next(context, whose):
    with aio.Worker(context) as worker, tw.Worker(context) as other:
        there = other.connect(worker.address, wait=False)
        connecting = asyncio.ensure_future(worker.connect(other.address))
        while not connecting.done() or there.state != "ok":
            other.progress()
            await asyncio.sleep(0)
        endpoint = await connecting
        for turn in range(5):
            came = asyncio.get_running_loop().create_future()
            worker.am_register(1, lambda message, came=came: came.set_result(message.header))
            for _ in range(200):  # until it sleeps
                await asyncio.sleep(0)
            await (worker.flush() if whose == "worker" else endpoint.flush())
            there.am_send(1, b"%d" % turn)
            assert await asyncio.wait_for(came, 10) == b"%d" % turn


@pytest.fixture
def no_collector():
    """Objects end with their last reference, not when the collector comes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@MODES
@run
async def test_a_handler_that_raises_gives_its_payload_back(no_collector, polling):
    context = tw.Context(job_key=secrets.token_bytes(32))
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: None)

    def refuse(message):
        raise ValueError("no")

    with aio.Worker(context, polling=polling) as worker, tw.Worker(context) as sender:
        worker.am_register(1, refuse)
        endpoint = sender.connect(worker.address, wait=False)
        request = endpoint.iam_send(1, b"", os.urandom(100_000), protocol="rendezvous")
        while not request.done():
            await asyncio.sleep(0)


@MODES
@run
async def test_buffers_are_the_users_when_the_worker_is_closed(context, no_collector, polling):
    worker = aio.Worker(context, polling=polling)
    me = await worker.connect(worker.address)
    buffer = bytearray(4)
    receive = asyncio.ensure_future(me.recv(buffer, 1))
    await asyncio.sleep(0)
    worker.close()
    with contextlib.suppress(tw.ClosedError):
        await receive
    del receive
    await asyncio.sleep(0)  # the loop had it yet
    buffer.extend(b"more")  # BufferError while the library has it


@MODES
def test_a_worker_with_a_handler_goes_behind_its_loop(polling):
    async def use():
        worker = aio.Worker(tw.Context(), polling=polling)
        worker.am_register(5, print)
        await asyncio.sleep(0)
        return weakref.ref(worker), weakref.ref(worker.core)

    known = asyncio.run(use())
    gc.collect()
    assert [one() for one in known] == [None, None]


async def spin(worker, there):
    """A receive whose message has come, so that it ends without a turn of the loop."""
    there.send(b"x", 1)
    await worker.recv(bytearray(8), 1)


async def by_core(call):
    """A call of the core, which progresses."""
    call()


PROGRESSING = {
    "probe": lambda worker, there: by_core(lambda: worker.core.probe(1)),
    "progress": lambda worker, there: by_core(worker.core.progress),
    "wait": lambda worker, there: by_core(lambda: worker.core.wait(0.001)),
    "flush": lambda worker, there: by_core(worker.core.flush),
    "spin": spin,
}


@pytest.mark.parametrize("call", PROGRESSING)
@run
async def test_a_call_that_progresses_leaves_the_loop_awake_for_what_comes_next(context, call):
    with aio.Worker(context, spin=1e-3) as worker, tw.Worker(context) as other:
        there = other.connect(worker.address, wait=False)
        connecting = asyncio.ensure_future(worker.connect(other.address))
        while not connecting.done() or there.state != "ok":
            other.progress()
            await asyncio.sleep(0)
        _endpoint = await connecting
        for turn in range(5):
            came = asyncio.get_running_loop().create_future()
            worker.am_register(1, lambda message, came=came: came.set_result(message.header))
            for _ in range(200):  # until it sleeps
                await asyncio.sleep(0)
            await PROGRESSING[call](worker, there)
            there.am_send(1, b"%d" % turn)
            assert await asyncio.wait_for(came, 10) == b"%d" % turn


@pytest.mark.parametrize("how", ["close", "iclose"])
@run
async def test_a_close_ends_what_is_awaited_there(context, how):
    with aio.Worker(context) as worker:
        me = await worker.connect(worker.address)
        receive = asyncio.ensure_future(worker.recv(bytearray(8), 1, source=me))
        for _ in range(200):  # until it sleeps
            await asyncio.sleep(0)
        if how == "close":
            await me.close()
        else:
            me.core.iclose(force=True)
        with pytest.raises(tw.ClosedError):
            await asyncio.wait_for(receive, 10)


@MODES
@pytest.mark.parametrize("by", ["group", "worker", "another thread"])
@run
async def test_whoever_closes_the_worker_ends_what_is_awaited(polling, by):
    world = tw.init()
    async with aio.Group(world, worker=aio.Worker.of(world.worker, polling=polling)) as group:
        me = await group.worker.connect(group.worker.address)
        word = tw.Signal(world.worker)
        tasks = [me.recv(bytearray(4), 1), group.worker.wait_signal(word, 1, nap=None)]
        tasks = [asyncio.create_task(task) for task in tasks]
        await asyncio.sleep(0.01)
        del word
        if by == "another thread":
            await asyncio.to_thread(world.worker.close)
        else:
            (world if by == "group" else world.worker).close()
        for task in tasks:
            with pytest.raises(tw.ClosedError):
                await task
        assert group.worker.core.closed


@MODES
@run
async def test_an_unpack_that_closes_the_worker_ends_what_is_awaited(context, polling):
    worker = aio.Worker(context, polling=polling)
    me = await worker.connect(worker.address)
    closing = tw.Layout.callbacks(size=lambda _: 4, unpack=lambda *_: worker.close())
    tasks = [me.recv([], tag, layout=closing if tag == 3 else None) for tag in (3,)]
    tasks += [me.recv(bytearray(4), tag) for tag in range(4, 20)]
    tasks = [asyncio.create_task(task) for task in tasks]
    await asyncio.sleep(0.01)
    sends = [me.core.isend(b"four", tag) for tag in (3, 5, 7)]
    for task in tasks[1:]:
        with contextlib.suppress(tw.ClosedError):
            assert (await task).length == 4
    with contextlib.suppress(tw.ClosedError):
        await tasks[0]
    assert worker.core.closed and sends


@MODES
@run
async def test_an_object_that_has_begun_is_the_next_receivers(context, polling):
    """Its parts are never taken for an object."""
    value, after = np.frombuffer(os.urandom(100_000), np.uint8), {"after": np.arange(5000)}
    async with aio.Worker(context, polling=polling) as worker:
        me = await worker.connect(worker.address)
        header, rest = objects.encode(value)
        for turn in range(4):
            if turn == 3:  # it has not begun
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(me.recv_object(4), 0.05)
            sent = [me.core.isend(header, 4)]
            if turn < 3:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(me.recv_object(4), 0.05)
            if turn == 1:  # the next one, too
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(me.recv_object(4), 0.05)
            sent += [me.core.isend(part, 4) for part in rest]
            if turn == 2:  # it has come meanwhile
                await asyncio.sleep(0.05)
            sending = asyncio.ensure_future(me.send_object(after, 4))
            np.testing.assert_array_equal(await me.recv_object(4), value)
            np.testing.assert_equal(await me.recv_object(4), after)
            await sending
            tw.wait_all(sent)


@MODES
@pytest.mark.parametrize("part_comes", ["behind", "meanwhile", "short"])
@run
async def test_an_object_that_has_begun_outlives_its_endpoints_objects(polling, part_comes):
    """A group's endpoint is a new object each time: nothing keeps the one whose receiver has timed out."""
    value, after = np.frombuffer(os.urandom(100_000), np.uint8), {"after": np.arange(5000)}
    header, (part,) = objects.encode(value)
    core = tw.init(job_key=secrets.token_bytes(32))
    async with aio.Group(core, worker=aio.Worker.of(core.worker, polling=polling)) as world:
        sent = [core.endpoint(0).isend(header, 4)]
        objects_of_first = weakref.ref(world.endpoint(0)), weakref.ref(core.endpoint(0))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(world.endpoint(0).recv_object(4), 0.05)
        gc.collect()
        assert objects_of_first[0]() is None
        if part_comes == "behind":  # the next one, too
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(world.endpoint(0).recv_object(4), 0.05)
        sent.append(core.endpoint(0).isend(bytes(part)[1:] if part_comes == "short" else part, 4))
        if part_comes != "behind":
            for request in sent:
                _ = request.ended or await world.worker._value(request)
            while world.worker._tasks:
                await asyncio.sleep(0.001)
            tw.wait_all(sent)
            del request, sent[:]
            gc.collect()
            assert objects_of_first[1]() is None
        if part_comes == "short":
            for match in ("announced", "middle"):
                with pytest.raises(tw.ProtocolError, match=match):
                    await world.endpoint(0).recv_object(4)
            return
        np.testing.assert_array_equal(await world.endpoint(0).recv_object(4), value)
        sending = asyncio.ensure_future(world.endpoint(0).send_object(after, 4))
        np.testing.assert_equal(await world.endpoint(0).recv_object(4), after)
        await sending
        tw.wait_all(sent)


@MODES
@run
async def test_closing_a_listener_ends_what_waits_for_clients(context, polling):
    async with aio.Worker(context, polling=polling) as worker:
        listener = worker.listen()

        async def serve():
            return [endpoint async for endpoint in listener]

        serving, accepting = asyncio.ensure_future(serve()), asyncio.ensure_future(listener.accept())
        await asyncio.sleep(0.02)
        assert not serving.done() and not accepting.done()
        listener.close()
        assert await asyncio.wait_for(serving, 10) == []
        with pytest.raises(tw.ClosedError):
            await asyncio.wait_for(accepting, 10)
        assert [endpoint async for endpoint in listener] == []

    listener = (worker := aio.Worker(context, polling=polling)).listen()
    serving = asyncio.ensure_future(serve())
    await asyncio.sleep(0.02)
    worker.close()
    with pytest.raises(tw.ClosedError):
        await asyncio.wait_for(serving, 10)


@MODES
@run
async def test_a_client_that_comes_as_its_task_is_cancelled_is_the_next_ones(context, polling):
    async with aio.Worker(context, polling=polling) as worker, aio.Worker(context) as other:
        listener = worker.listen()
        accepting = asyncio.ensure_future(listener.accept())
        take = listener.core.next

        def taken():
            if (request := take()) is not None:
                asyncio.get_running_loop().call_soon(accepting.cancel)  # before the task has its turn
            return request

        await asyncio.sleep(0)
        ((_, future),) = worker._conditions
        worker._conditions = [(taken, future)]
        connecting = asyncio.ensure_future(other.connect(f"127.0.0.1:{listener.port}"))
        with pytest.raises(asyncio.CancelledError):
            await accepting
        endpoint = await asyncio.wait_for(listener.accept(), 10)
        await endpoint.send(b"welcome", 1)
        got = bytearray(7)
        await (await connecting).recv(got, 1)
        assert got == b"welcome"


@MODES
@run
async def test_a_client_that_goes_before_it_is_connected_does_not_end_the_others(context, polling):
    async with aio.Worker(context, polling=polling) as worker, aio.Worker(context) as other:
        listener = worker.listen()
        gone = tw.Worker(context)
        going = gone.connect(f"127.0.0.1:{listener.port}", wait=False)
        while (request := listener.core.next()) is None:
            worker.core.progress()
            gone.progress()
        gone.close()
        assert going.closed
        requests = [request]
        after = listener.next

        async def next_client():
            return requests.pop() if requests else await after()

        listener.next = next_client
        connecting = asyncio.ensure_future(other.connect(f"127.0.0.1:{listener.port}"))
        async for endpoint in listener:
            assert endpoint.state == "ok"
            await endpoint.send(b"welcome", 1)
            break
        assert not requests
        got = bytearray(9)
        assert (await (await connecting).recv(got, 1)).length == 7 and got[:7] == b"welcome"


@MODES
@run
async def test_an_object_whose_sender_is_cancelled_is_sent(context, polling):
    values = [np.frombuffer(os.urandom(2_000_000), np.uint8) for _ in range(3)]
    async with aio.Worker(context, polling=polling) as worker:
        me = await worker.connect(worker.address)
        for value in values:
            sending = asyncio.ensure_future(me.send_object([value, value[::-1].copy()], 4))
            await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            del sending
        for value in values:
            np.testing.assert_equal(await me.recv_object(4), [value, value[::-1]])


@MODES
@run
async def test_an_object_with_a_short_part_is_the_last_of_its_tag(context, polling):
    async with aio.Worker(context, polling=polling) as worker:
        me = await worker.connect(worker.address)
        header, (part,) = objects.encode(np.zeros(20_000, np.uint8))
        for tag, early in ((1, True), (2, False)):
            sent = [me.core.isend(header, tag)]
            if early:
                sent.append(me.core.isend(bytes(part)[1:], tag))
            receiving = asyncio.ensure_future(me.recv_object(tag))
            await asyncio.sleep(0.02)
            if not early:
                sent.append(me.core.isend(bytes(part)[1:], tag))
            with pytest.raises(tw.ProtocolError, match="announced"):
                await receiving
            sent.append(me.core.isend(objects.encode("data")[0], tag))
            with pytest.raises(tw.ProtocolError, match="middle"):
                await me.recv_object(tag)
            assert (await me.recv(bytearray(100), tag)).length > 0
            tw.wait_all(sent)


@MODES
@pytest.mark.parametrize("what", ["receive", "signal"])
@run
async def test_a_close_between_two_steps_of_a_wait_ends_it(monkeypatch, context, polling, what):
    worker = aio.Worker(context, polling=polling, spin=0)
    me = await worker.connect(worker.address)
    word = tw.Signal(worker.core)
    loop = asyncio.get_running_loop()
    make = loop.create_future
    mine = []

    def create_future():
        mine.append(asyncio.current_task())
        if mine[-1] is task:
            closing = threading.Thread(target=worker.core.close)
            closing.start()
            closing.join()
        return make()

    receive = me.recv(bytearray(4), 1) if what == "receive" else worker._until(lambda: word.test(1) or None)
    task = asyncio.ensure_future(receive)
    monkeypatch.setattr(loop, "create_future", create_future)
    await asyncio.sleep(0.01)
    monkeypatch.undo()
    assert task in mine
    with pytest.raises(tw.ClosedError):
        await asyncio.wait_for(task, 10)


@run
async def test_a_close_by_another_thread_leaves_the_number_of_its_descriptor_alone(context):
    """Files that are opened meanwhile may have the number of the worker's own descriptor."""
    worker = aio.Worker(context)
    me = await worker.connect(worker.address)
    receive = asyncio.ensure_future(me.recv(bytearray(4), 1))
    await asyncio.sleep(0.01)
    number = worker.core.fileno()
    closing = threading.Thread(target=worker.core.close)
    closing.start()
    closing.join()  # the loop has not run since
    pipe = os.pipe()
    theirs, ours = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 500) for end in pipe)
    for end in pipe:  # one of them may have the number
        os.close(end)
    os.dup2(theirs, number)
    came = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(number, lambda: came.done() or came.set_result(os.read(number, 9)))
    try:
        with pytest.raises(tw.ClosedError):
            await receive
        os.write(ours, b"something")
        assert await asyncio.wait_for(came, 10) == b"something"
    finally:
        asyncio.get_running_loop().remove_reader(number)
        for descriptor in {theirs, ours, number}:
            os.close(descriptor)
