# SPDX-License-Identifier: Apache-2.0
"""Arguments that change what an operation does: layouts, signals, budgets; and the signatures that tell of them."""

import inspect
import os

import numpy as np
import pytest
import thalweg as tw
from thalweg import _core

EVERY_SECOND = tw.Layout.strided(1, [50], [2])


def test_a_plan_on_a_device_waits_for_a_signal_in_its_memory(context, worker, me):
    place = "emulated:0"
    words = tw.Memory.allocate(context, 64, place=place)
    signal = tw.Signal(worker, "add", 5, memory=words, offset=24)
    remote = tw.RemoteSignal(me, signal.export(), "add")
    source, target = (tw.Memory.allocate(context, 100, place=place) for _ in range(2))
    tw.copy(context, source, bytes(range(100)))
    with tw.Plan(context, place=place, timeout=20) as plan, tw.Queue(context, place) as queue:
        waited = plan.wait(signal, 7)
        plan.copy(target, source, after=[waited])
        plan.prepare(20)
        plan.trigger(queue)
        remote.post(1, visible=True)
        assert signal.value == 6
        remote.post(1, visible=True)
        queue.synchronize()
    arrived = bytearray(100)
    tw.copy(context, arrived, target)
    assert arrived == bytes(range(100))
    for wrong in ({"offset": 8}, {"memory": words, "offset": 4}, {"memory": words, "offset": 64}):
        with pytest.raises(tw.ThalwegError):
            tw.Signal(worker, **wrong)


def test_a_put_on_a_queue_touches_a_signal(context, worker, me):
    memory, signal = tw.Memory.allocate(context, 100), tw.Signal(worker)
    remote, word = tw.RemoteMemory(me, memory.export()), tw.RemoteSignal(me, signal.export())
    with tw.Queue(context) as queue:
        for turn in range(1, 4):
            payload = os.urandom(100)
            buffer = np.frombuffer(payload, np.uint8).copy()
            tw.put_on(queue, buffer, remote, signal=word, value=turn)
            signal.wait(turn, timeout=20)
            assert bytes(memory) == payload
        queue.synchronize()


def test_a_copy_of_a_plan_has_a_layout_on_each_side(context):
    source, target = bytearray(os.urandom(100)), bytearray(100)
    with tw.Plan(context) as plan:
        plan.copy(target, source, layout=EVERY_SECOND, to_layout=tw.Layout.pieces([(50, 50)]))
        plan.prepare(20)
        plan.run(20)
        with pytest.raises(tw.InvalidError):
            plan.copy(target, source, layout=EVERY_SECOND)
    assert target == bytes(50) + source[::2]


def test_messages_taken_by_probe_and_active_ones_have_layouts(worker, me):
    data, got = os.urandom(100), bytearray(100)
    request = me.isend(data, 1, layout=EVERY_SECOND)
    while (message := worker.probe(1, take=True)) is None:
        pass
    message.recv(got, layout=EVERY_SECOND, timeout=20)
    request.wait(20)
    assert got[::2] == data[::2] and not any(got[1::2])
    kept = []
    worker.am_register(5, kept.append)
    request = me.iam_send(5, b"header", data, layout=EVERY_SECOND, protocol="rendezvous")
    while not kept:
        worker.progress()
    got = bytearray(100)
    kept[0].recv(got, layout=EVERY_SECOND, timeout=20)
    request.wait(20)
    assert got[::2] == data[::2] and not any(got[1::2])
    with pytest.raises(tw.OutOfBounds):
        me.send(bytes(10), 1, layout=EVERY_SECOND)


def test_no_wait_says_again_instead_of_queueing(context):
    with tw.Worker(context, unexpected_budget=1 << 20) as worker, tw.Worker(context) as other:
        endpoint = other.connect(worker.address, wait=False)
        worker.connect(other.address, wait=False)
        while endpoint.state != "ok":
            worker.progress()
            other.progress()
        requests = []
        with pytest.raises(tw.Again):
            for _ in range(100_000):
                requests.append(endpoint.isend(bytes(1000), 1, no_wait=True))
        buffer = bytearray(1000)
        while not all(request.ended for request in requests):
            other.progress()
            [request.done() for request in requests if not request.ended]
            worker.irecv(buffer, 1)


def test_a_client_may_be_taken_by_one_transport(context):
    with tw.Worker(context) as worker, tw.Worker(context) as other, worker.listen() as listener:
        client = other.connect(f"127.0.0.1:{listener.port}", wait=False)
        while (request := listener.next()) is None:
            worker.progress()
            other.progress()
        server = request.accept(transport="tcp")
        while client.state == "in_progress" or server.state == "in_progress":
            worker.progress()
            other.progress()
        assert client.transport == server.transport == "tcp"


def functions():
    for name in dir(_core):
        thing = getattr(_core, name)
        if inspect.isclass(thing):
            members = [(f"{name}.{key}", value) for key, value in vars(thing).items() if not key.startswith("__")]
        else:
            members = [(name, thing)]
        for where, member in members:
            member = getattr(member, "__func__", member)
            if callable(member):
                yield pytest.param(member, id=where)


@pytest.mark.parametrize("function", list(functions()))
def test_every_function_has_a_signature(function):
    assert inspect.signature(function) is not None


def test_signatures_are_those_of_the_functions(context, worker, me):
    assert str(inspect.signature(tw.send_on)) == "(queue, peer, buffer, channel=0, *, layout=None)"
    assert str(inspect.signature(tw.Memory.allocate)).endswith("*, access='rwa', huge_pages=False, place='host')")
    assert list(inspect.signature(tw.Worker).parameters) == ["context", "threads", "progress", "unexpected_budget"]
    assert list(inspect.signature(tw.Signal).parameters) == ["worker", "kind", "initial", "memory", "offset"]
    assert list(inspect.signature(worker.connect).parameters)[0] == "address"
    assert list(inspect.signature(me.isend).parameters)[:2] == ["buffer", "tag"]
    assert inspect.signature(me.recv).bind(bytearray(1), 2, timeout=3).arguments["timeout"] == 3
