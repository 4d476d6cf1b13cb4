# SPDX-License-Identifier: Apache-2.0
"""Arguments that change what an operation does: layouts, signals, budgets; and the signatures that tell of them."""

import inspect
import os

import numpy as np
import pytest
import thalweg as tw
from thalweg import _core

EVERY_SECOND = tw.Layout.strided(1, [50], [2])


def test_texts_with_a_nul_are_refused(context, worker, me, tmp_path):
    path = tmp_path / "key"
    path.write_text(os.urandom(32).hex())
    path.chmod(0o600)
    tw.Context(key_file=str(path)).close()
    remote = tw.RemoteMemory(me, tw.Memory.allocate(context, 64).export())
    calls = [
        lambda: tw.Context(key_file=f"{path}\0more"),
        lambda: tw.Context(job_key=bytes(32), transports="shm\0,tcp"),
        lambda: tw.Context(job_key=bytes(32), interfaces="lo\0"),
        lambda: tw.Context(job_key=bytes(32), socket_dir=f"{tmp_path}\0"),
        lambda: tw.Context(job_key=bytes(32), way="push\0"),
        lambda: context.trace(f"{tmp_path}/trace\0more"),
        lambda: worker.listen("127.0.0.1:0\0"),
        lambda: worker.listen(f"unix:{tmp_path}/socket\0more"),
        lambda: worker.connect("127.0.0.1:1\0"),
        lambda: worker.connect(worker.address, transport="self\0"),
        lambda: tw.init(store="file:/none\0", job_key=bytes(32)),
        lambda: tw.Memory.allocate(context, 64, place="host\0"),
        lambda: tw.Queue(context, "emulated:0\0"),
        lambda: tw.Plan(context, place="emulated:0\0"),
        lambda: me.explain("send\0"),
        lambda: me.explain("send\0", buffer=bytes(8)),
        lambda: me.atomic("add\0", remote, 0, 1),
        lambda: remote.explain("put\0"),
        lambda: _core.topology_distance("host\0", "host"),
    ]
    for call in calls:
        with pytest.raises(tw.InvalidError, match=r"NUL|an atomic operation is"):
            call()


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
