# SPDX-License-Identifier: Apache-2.0
"""Plans, queues and operations on queues: on the host's queues and on an emulated device, in one process and between two."""

import os
import secrets
import signal
import sys
import threading
import time

import numpy as np
import peers
import pytest
import thalweg as tw
from peers import connected

ROUNDS = 5


def random_array(shape):
    """Fresh random doubles."""
    return np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64).reshape(shape).copy()


def echo_plan(endpoint, pipe, shape):
    """The other process: receives a face and sends it back, negated, by a plan on a queue of the host."""
    context = endpoint.worker.context
    buffer = np.zeros(shape, dtype=np.uint64)
    with tw.Queue(context) as queue, tw.Plan(context) as there, tw.Plan(context) as back:
        there.recv(endpoint, buffer, 1)
        back.send(endpoint, buffer, 2)
        there.prepare(20)
        back.prepare(20)
        for _ in range(ROUNDS):
            there.trigger(queue)
            queue.call(lambda: np.invert(buffer, out=buffer))
            back.trigger(queue)
        queue.synchronize()
        pipe.recv()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_channels_between_queues_of_two_processes(transport):
    shape = (13, 11)
    with connected(echo_plan, shape, transport=transport) as (endpoint, pipe):
        context = endpoint.worker.context
        grid = np.full((13, 40), 7, dtype=np.uint64)
        answers = [np.full((13, 40), 9, dtype=np.uint64) for _ in range(ROUNDS)]
        sent = []
        with tw.Queue(context) as queue, tw.Plan(context) as plan:
            number = plan.send(endpoint, grid[:, 3:14], 1)
            received = plan.recv(endpoint, answers[0][:, 5:16], 2, after=[number])
            assert (number, received) == (0, 1)
            plan.prepare(20)
            assert "send" in plan.explain()
            frozen = np.zeros((13, 40), dtype=np.uint64)
            frozen.flags.writeable = False
            with pytest.raises(tw.InvalidError, match="read-only"):
                plan.update(received, frozen[:, 5:16])
            for turn in range(ROUNDS):
                sent.append(random_array(shape))
                grid[:, 3:14] = sent[-1]
                if turn > 0:
                    plan.update(received, answers[turn][:, 5:16])
                plan.trigger(queue)
                queue.synchronize()
        for payload, answer in zip(sent, answers, strict=True):
            assert (answer[:, 5:16] == ~payload).all()
            answer[:, 5:16] = 9
            assert (answer == 9).all()
        pipe.send("end")


def plan_when_told(endpoint, pipe, verb, kinds):
    """The other process: a plan of one step for each kind of memory, in turn; each waits to be told what its buffer has."""
    context = endpoint.worker.context
    for kind in kinds:
        payload = pipe.recv()
        buffer = tw.Memory.allocate(context, 700) if kind == "library" else bytearray(700)
        memoryview(buffer)[:] = payload
        with tw.Plan(context) as plan:
            getattr(plan, verb)(endpoint, buffer, 1)
            plan.prepare(20)
            plan.run(20)
        pipe.send(bytes(buffer))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_channel_that_was_mapped_is_carried_for_buffers_that_the_peer_does_not_reach(transport):
    kinds = ["library", "ordinary", "library", "ordinary"]
    with connected(plan_when_told, "recv", kinds, transport=transport) as (endpoint, pipe):
        context = endpoint.worker.context
        for _ in kinds:
            payload = os.urandom(700)
            pipe.send(bytes(700))
            with tw.Plan(context) as plan:
                plan.send(endpoint, bytearray(payload), 1)
                plan.prepare(20)
                plan.run(20)
            assert pipe.recv() == payload


def test_an_answer_to_an_earlier_question_is_not_one_to_the_next():
    """The receiver is content with the mapped channel, hears that its buffer is not reached, and that the sender is content."""
    key = secrets.token_bytes(32)
    pipes, processes = [], []
    for verb in ("send", "recv"):
        here, there = peers.spawn.Pipe()
        given = (there, key, "shm", plan_when_told, (verb, ["library", "ordinary"]))
        processes.append(peers.spawn.Process(target=peers.run_connected, args=given, daemon=True))
        processes[-1].start()
        pipes.append(here)
    sender, receiver = (process.pid for process in processes)
    first, second = [pipe.recv() for pipe in pipes]
    pipes[0].send(second)
    pipes[1].send(first)
    try:
        payload = os.urandom(700)
        pipes[0].send(payload)
        pipes[1].send(bytes(700))
        assert [pipe.recv() for pipe in pipes] == [payload, payload]
        os.kill(sender, signal.SIGSTOP)
        pipes[1].send(bytes(700))
        time.sleep(0.3)  # it has asked
        os.kill(receiver, signal.SIGSTOP)
        os.kill(sender, signal.SIGCONT)
        time.sleep(0.3)  # that the buffer is not reached was said
        payload = os.urandom(700)
        pipes[0].send(payload)
        time.sleep(0.3)  # that the sender is content was said, too
        os.kill(receiver, signal.SIGCONT)
        assert [pipe.recv() for pipe in pipes] == [payload, payload]
    finally:
        for process in processes:
            process.kill()


def take_until_killed(pipe, key):
    """A process that receives by a plan into the library's memory."""
    its = peers.context(key, "shm")
    worker = tw.Worker(its)
    pipe.send(worker.address)
    endpoint = worker.connect(pipe.recv())
    plan = tw.Plan(its)
    plan.recv(endpoint, tw.Memory.allocate(its, 700), 1)
    plan.prepare(20)
    plan.run(20)
    pipe.send("ran")
    while True:
        worker.wait(1)


def mapped_segments():
    with open("/proc/self/maps") as maps:
        return sum("memfd:" in line for line in maps)


def test_killed_peers_of_plans_leave_nothing_mapped():
    key = secrets.token_bytes(32)
    its = peers.context(key, "shm")
    mapped = []
    with tw.Worker(its) as worker:
        for _ in range(5):
            here, there = peers.spawn.Pipe()
            process = peers.spawn.Process(target=take_until_killed, args=(there, key), daemon=True)
            process.start()
            theirs = here.recv()
            here.send(worker.address)
            with worker.connect(theirs) as endpoint, tw.Plan(its) as plan:
                plan.send(endpoint, bytearray(700), 1)
                plan.prepare(20)
                plan.run(20)
                assert here.recv() == "ran"
                process.kill()
                process.join()
                with pytest.raises(tw.PeerLost):
                    plan.run(20)
            deadline = time.monotonic() + 20
            while (now := mapped_segments()) > min(mapped, default=now) and time.monotonic() < deadline and len(mapped) > 1:
                worker.wait(0.01)
            mapped.append(now)
    assert mapped[-1] == mapped[1], mapped


def test_a_plan_by_the_host(context):
    to, source = bytearray(1003), bytearray(os.urandom(1003))
    with tw.Plan(context) as plan:
        plan.copy(to, source)
        plan.prepare(10)
        plan.trigger()
        plan.finish(10)
        assert plan.test()
        assert to == source
        source[:] = os.urandom(1003)
        plan.run(timeout=10)
        assert to == source
        other = bytearray(1003)
        source[:] = os.urandom(1003)
        with pytest.raises(tw.InvalidError):
            plan.update(3, other)
        for change in ({"buffer": other}, {"value": 1}, {}):
            with pytest.raises(tw.InvalidError, match="no step 99"):
                plan.update(99, **change)
        with pytest.raises(tw.OutOfBounds):
            plan.update(0, bytearray(5))
    with pytest.raises(tw.HandleError):
        plan.trigger()
    with pytest.raises(BufferError), tw.Plan(context) as held:
        held.copy(to, source)
        to.extend(b"a plan's buffer stays where it is")


@pytest.mark.parametrize("place", ["host", "emulated:0"])
def test_puts_signals_and_waits_on_a_queue(context, place):
    with tw.Worker(context) as worker:
        me = worker.connect(worker.address)
        memory = tw.Memory.allocate(context, 4096, place=place)
        remote = tw.RemoteMemory(me, memory.export())
        source = tw.Memory.allocate(context, 1001, place="pinned")
        arrived = tw.Memory.allocate(context, 1001, place="pinned")
        with tw.Queue(context, place) as queue:
            for _ in range(3):
                payload = os.urandom(1001)
                np.frombuffer(source, dtype=np.uint8)[:] = np.frombuffer(payload, dtype=np.uint8)
                tw.put_on(queue, source, remote, 17)
                tw.get_on(queue, arrived, remote, 17)
                queue.synchronize()
                assert bytes(arrived) == payload


def echo_on_queue(endpoint, pipe, length):
    """The other process: sends back what it gets, from new buffers of its own every second time."""
    worker = endpoint.worker
    with tw.Queue(worker.context) as queue:
        buffers = [bytearray(length), bytearray(length)]
        for turn in range(ROUNDS):
            buffer = buffers[turn % 2]
            tw.recv_on(queue, endpoint, buffer, 3)
            tw.send_on(queue, endpoint, buffer, 4)
            queue.synchronize()
        pipe.recv()


def test_single_operations_on_queues_of_two_processes():
    length = 5003
    with connected(echo_on_queue, length, transport="shm") as (endpoint, pipe):
        grid = np.zeros((length, 3), dtype=np.uint8)
        answer = bytearray(length)
        with tw.Queue(endpoint.worker.context) as queue:
            for _ in range(ROUNDS):
                payload = os.urandom(length)
                grid[:, 1] = np.frombuffer(payload, dtype=np.uint8)
                tw.send_on(queue, endpoint, grid[:, 1], 3)  # a new array object every time, of the same memory
                tw.recv_on(queue, endpoint, answer, 4)
                queue.synchronize()
                assert answer == payload
        pipe.send("end")


def test_captured_work_is_launched_again_and_again(context):
    to, source = bytearray(777), bytearray(777)
    with tw.Plan(context) as plan, tw.Queue(context) as queue:
        plan.copy(to, source)
        plan.prepare(10)
        queue.begin_capture()
        plan.trigger(queue)
        graph = queue.end_capture()
        assert to == source
        for _ in range(4):
            source[:] = os.urandom(777)
            graph.launch(queue)
            queue.synchronize()
            assert to == source
        graph.close()
        with pytest.raises(tw.HandleError):
            graph.launch(queue)


def held(buffer):
    """Does the library, or a view, have it?"""
    try:
        buffer.append(0)
        buffer.pop()
    except BufferError:
        return True
    return False


def test_a_plan_that_is_dropped_while_it_runs_ends_later():
    with tw.Context(job_key=os.urandom(32)) as context:
        to, source = bytearray(777), bytearray(os.urandom(777))
        worker = tw.Worker(context)
        endpoint = worker.connect(worker.address)
        gate = tw.Signal(worker)
        remote = tw.RemoteSignal(endpoint, gate.export())
        queue, plan = tw.Queue(context), tw.Plan(context)
        plan.copy(to, source, after=[plan.wait(gate, 1)])
        plan.prepare(10)
        plan.trigger(queue)
        del plan
        assert held(to) and held(source)
        with pytest.raises(tw.BusyError):
            context.close()
        remote.post(1)
        while gate.value < 1:
            worker.progress()
        queue.synchronize()
        assert to == source
        assert held(to), "nobody has tried again"
        with tw.Plan(context):
            assert not held(to) and not held(source)
        queue.close()
        del gate, remote, endpoint
        worker.close()


def test_a_graph_keeps_the_buffers_that_it_was_captured_with(context):
    with tw.Plan(context) as plan, tw.Queue(context) as queue:
        to = bytearray(777)
        step = plan.copy(to, bytearray(777))
        contents, graphs = [], []
        plan.prepare(10)
        for _ in range(3):
            contents.append(os.urandom(777))
            plan.update(step, bytearray(contents[-1]))  # nobody else keeps it
            queue.begin_capture()
            plan.trigger(queue)
            graphs.append(queue.end_capture())
        for which in (0, 2, 1, 0):
            to[:] = bytes(777)
            graphs[which].launch(queue)
            queue.synchronize()
            assert to == contents[which]
        for graph in graphs:
            graph.close()


def test_a_queue_lets_go_of_buffers_that_nothing_uses_any_more(context):
    length = 1003
    with tw.Queue(context) as queue:

        def copies(count):
            made = []
            for _ in range(count):
                to, source = bytearray(length), bytearray(os.urandom(length))
                tw.copy_on(queue, to, source)
                queue.synchronize()
                assert to == source
                made.append((to, source))
            return made

        pair = copies(1)[0]
        queue.begin_capture()
        tw.copy_on(queue, *pair)
        graph = queue.end_capture()
        assert queue.uses(pair[0]) and queue.uses(pair[1])
        made = copies(120)
        assert sum(held(buffer) for each in made for buffer in each) < 120
        assert all(held(buffer) for buffer in pair), "the graph has them"
        pair[1][:] = os.urandom(length)
        graph.launch(queue)
        queue.synchronize()
        assert pair[0] == pair[1]
        graph.close()
        made += copies(80)
        assert not any(held(buffer) for buffer in pair)
        assert not queue.uses(pair[0])


def test_a_queue_keeps_buffers_of_what_has_not_run(context):
    length = 1003
    gate = threading.Event()
    with tw.Queue(context) as queue:
        queue.call(gate.wait)
        contents = [os.urandom(length) for _ in range(80)]
        arrived = [bytearray(length) for _ in contents]
        for to, content in zip(arrived, contents, strict=True):
            tw.copy_on(queue, to, bytearray(content))  # the source is the queue's alone
        assert all(queue.uses(to) and held(to) for to in arrived)
        assert not queue.uses(contents[0])
        gate.set()
        queue.synchronize()
        assert arrived == contents
        assert not any(queue.uses(to) for to in arrived)


def test_a_captured_call_is_made_as_often_as_its_graph_is_launched(context):
    made = []

    def call():
        made.append(len(made))

    before = sys.getrefcount(call)
    with tw.Queue(context) as queue:
        queue.begin_capture()
        queue.call(call)
        graph = queue.end_capture()
        held = sys.getrefcount(call)
        assert held > before and not made
        for _ in range(1000):
            graph.launch(queue)
        queue.synchronize()
        assert made == list(range(1000)) and sys.getrefcount(call) == held
        go_on = threading.Event()
        queue.call(lambda: go_on.wait(20))
        for _ in range(3):
            graph.launch(queue)
        graph.close()  # what is launched has its functions still
        go_on.set()
        queue.synchronize()
        assert len(made) == 1003 and sys.getrefcount(call) == before
        queue.call(call)
        queue.synchronize()
        assert len(made) == 1004 and sys.getrefcount(call) == before


def test_a_queue_that_ends_lets_go_of_calls_that_it_has_not_made(context):
    def call():
        time.sleep(0.001)

    before = sys.getrefcount(call)
    queue = tw.Queue(context)
    go_on = threading.Event()
    queue.call(lambda: go_on.wait(20))
    for _ in range(1000):
        queue.call(call)
    ending = threading.Thread(target=queue.close)
    ending.start()
    go_on.set()
    ending.join()
    assert sys.getrefcount(call) == before


def test_an_update_has_the_layout_that_was_prepared(context, worker, me):
    payload = np.frombuffer(os.urandom(50), np.uint8)
    first, second = np.zeros(100, np.uint8), np.zeros(100, np.uint8)
    with tw.Plan(context) as plan:
        step = plan.recv(me, first[::2], 7)
        plan.send(me, payload, 7)
        plan.prepare(20)
        for wrong in (bytearray(50), bytearray(100), second[::-2], second[:75].reshape(25, 3)[:, :2]):
            with pytest.raises(tw.InvalidError, match="strides"):
                plan.update(step, wrong)
        plan.update(step, second[1::2])
        plan.run(20)
        assert (second[1::2] == payload).all() and not second[::2].any() and not first.any()
    layout = tw.Layout.strided(1, [50], [2])
    for options, sent in (({}, bytes(100)), ({"layout": layout}, bytes(50))):
        with tw.Plan(context) as plan:
            step = plan.recv(me, bytearray(100), 8, **options)
            plan.send(me, sent, 8)
            plan.prepare(20)
            with pytest.raises(tw.InvalidError, match="contiguous"):
                plan.update(step, first[::-1])
            with pytest.raises(tw.OutOfBounds):
                plan.update(step, bytearray(99))
            plan.update(step, first)
            plan.run(20)


def test_streams_of_a_device_trigger_what_is_prepared_there(context):
    class Stream:
        """As CuPy, Numba and others name theirs."""

        def __init__(self, number):
            self.number = number

        def __cuda_stream__(self):
            return (0, self.number)

    near = tw.Memory.allocate(context, 3001, place="emulated:0")
    far = tw.Memory.allocate(context, 3001, place="emulated:1")
    result = bytearray(3001)
    with tw.Plan(context, place="emulated:0") as plan, tw.Queue(context, "emulated:0") as queue:
        plan.copy(far, near)
        plan.prepare(20)
        for on in (queue, queue.native, Stream(queue.native)):
            payload = os.urandom(3001)
            tw.copy(context, near, payload)
            plan.trigger(on)
            queue.synchronize()
            tw.stream_check(Stream(queue.native))
            tw.copy(context, result, far)
            assert result == payload
        with tw.Queue(context, "emulated:1") as other, pytest.raises(tw.ThalwegError):
            plan.trigger(other)
        with pytest.raises(tw.ThalwegError):
            plan.trigger(0)
        with pytest.raises(TypeError):
            plan.trigger("a word")


def test_a_partner_that_is_missing_is_named(context, worker, me):
    with tw.Plan(context) as plan:
        plan.recv(me, bytearray(10), 99)
        with pytest.raises(tw.TimedOut, match="99"):
            plan.prepare(0.2)


def test_streams_that_are_none(context):
    with pytest.raises(TypeError):
        tw.Queue(context, "emulated:0", stream="a word")
    with pytest.raises(tw.ThalwegError):
        tw.Queue(context, "emulated:0", stream=0)
    with pytest.raises(tw.InvalidError):
        tw.Queue(context, "pinned")
    with tw.Queue(context, "emulated:0") as own, tw.Queue(context, "emulated:0", stream=own) as same:
        assert same.native == own.native
        same.check()
        tw.stream_check(own)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["sum", "product", "min", "max"])
def test_reductions(context, dtype, op):
    sources = [(np.random.default_rng().random(1003) * 16).astype(dtype) for _ in range(3)]
    wide = [source.astype("float32" if dtype == "float16" else dtype) for source in sources]
    call = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    expected = call(call(wide[0], wide[1]), wide[2]).astype(dtype)
    to, again = np.zeros(1003, dtype=dtype), np.zeros(1003, dtype=dtype)
    with tw.Plan(context) as plan, tw.Queue(context) as queue:
        plan.reduce(to, sources, op)
        plan.prepare(20)
        plan.run(20)
        tw.reduce_on(queue, again, sources, op, dtype=to.dtype)
        queue.synchronize()
        assert (to == expected).all() and (again == expected).all()
        with pytest.raises(tw.InvalidError, match="number of bytes"):
            tw.reduce_on(queue, again, [sources[0][1:]], op)
        with pytest.raises(tw.InvalidError, match="different types"):
            tw.reduce_on(queue, again, [sources[0], sources[1].view(f"V{to.itemsize}")], op)
        with pytest.raises(tw.InvalidError, match="no operation 'mean'"):
            tw.reduce_on(queue, again, sources, "mean")
        tw.copy_on(queue, again, sources[1])
        queue.synchronize()
        assert (again == sources[1]).all()


def lend_array(endpoint, pipe):
    """The other process: library memory with random numbers, for as long as it is read."""
    memory = tw.Memory.allocate(endpoint.worker.context, 4096)
    numbers = np.frombuffer(memory, dtype=np.int32)
    numbers[:] = np.random.default_rng().integers(-(2**31), 2**31, 1024, dtype=np.int32)
    pipe.send((memory.export(), numbers.tobytes()))
    pipe.recv()  # mapped: nothing here has to progress
    del numbers
    memory.release()


def test_a_reduction_of_the_peers_memory():
    with connected(lend_array, transport="shm") as (endpoint, pipe):
        key, there = pipe.recv()
        context = endpoint.worker.context
        mine = np.random.default_rng().integers(-(2**31), 2**31, 512, dtype=np.int32)
        to = np.zeros_like(mine)
        remote = tw.RemoteMemory(endpoint, key)
        with tw.Plan(context) as plan:
            plan.reduce(to, [mine, (remote, 2048)], "xor")
            plan.prepare(20)
            plan.run(20)
            assert (to == (mine ^ np.frombuffer(there, dtype=np.int32)[512:])).all()
        pipe.send(None)
