# SPDX-License-Identifier: Apache-2.0
"""Blocks by index between two processes: arrays of numbers, notifications, handlers, and what is refused."""

import gc
import weakref

import numpy as np
import pytest
import thalweg as tw
from peers import connected

LENGTH, COUNT = 1027, 300


def contents(context, memories):
    """What memories anywhere hold, one behind the other."""
    seen = np.empty((len(memories), COUNT * LENGTH), np.uint8)
    for row, memory in zip(seen, memories, strict=True):
        tw.copy(context, row, memory)
    return seen.tobytes()


def owner(endpoint, pipe, place="host"):
    """Offers two pools as one set of blocks; tells each notification with what the pools hold by then."""
    context, worker = endpoint.worker.context, endpoint.worker
    pools = [tw.Memory.allocate(context, COUNT * LENGTH, place=place) for _ in range(2)]
    for pool in pools:
        tw.copy(context, pool, np.zeros(COUNT * LENGTH, np.uint8))
    blocks = tw.Blocks(context, [(pool, 0, COUNT) for pool in pools], LENGTH)
    handled = []
    worker.am_register(7, lambda message: handled.append(bytes(message.header)))
    pipe.send(blocks.export())
    while not pipe.poll(0):
        worker.wait(0.01)
        while (news := worker.next_notification()) is not None or handled:
            if news is not None:
                assert news[0] is endpoint
            text = news[1] if news is not None else handled.pop()
            pipe.send((text, contents(context, pools)))
    pipe.recv()
    blocks.close()


def told(endpoint, pipe):
    """What the owner says next; progresses meanwhile."""
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)
    return pipe.recv()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, list])
def test_there_and_back(transport, kind):
    with connected(owner, transport=transport) as (endpoint, pipe):
        remote = tw.RemoteBlocks(endpoint, pipe.recv())
        assert (len(remote), remote.length) == (2 * COUNT, LENGTH)
        random = np.random.default_rng()
        mine = random.integers(0, 256, (400, LENGTH), np.uint8)
        local = tw.Blocks(endpoint.worker.context, [(mine, 0, 400)], LENGTH)
        numbers = random.permutation(400)[:350], random.permutation(2 * COUNT)[:350]
        index = [n.tolist() if kind is list else n.astype(kind) for n in numbers]
        expected = np.zeros((2 * COUNT, LENGTH), np.uint8)
        expected[numbers[1]] = mine[numbers[0]]
        endpoint.put_blocks(local, index[0], remote, index[1], notification=b"arrived")
        text, seen = told(endpoint, pipe)
        assert text == b"arrived" and seen == expected.tobytes()

        before = mine.copy()
        back = np.full((400, LENGTH), 0xA5, np.uint8)
        mine[:] = back
        request = endpoint.iget_blocks(local, index[0], remote, index[1], notification=b"", handler=7)
        request.wait(20)
        back[numbers[0]] = before[numbers[0]]
        assert (mine == back).all()
        assert told(endpoint, pipe)[0] == b""
        pipe.send("end")


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize(
    ("here", "there"),
    [("emulated:0", "emulated:1"), ("host", "emulated:0"), ("emulated-pool:0", "host"), ("emulated:1", "emulated-managed:0")],
)
def test_on_devices(transport, here, there):
    with connected(owner, there, transport=transport) as (endpoint, pipe):
        context = endpoint.worker.context
        remote = tw.RemoteBlocks(endpoint, pipe.recv())
        random = np.random.default_rng()
        payload = random.integers(0, 256, (COUNT, LENGTH), np.uint8)
        mine = tw.Memory.allocate(context, payload.size, place=here)
        tw.copy(context, mine, payload)
        local = tw.Blocks(context, [(mine, 0, COUNT)], LENGTH)
        mine_at, theirs_at = random.permutation(COUNT)[:251], random.permutation(2 * COUNT)[:251]
        expected = np.zeros((2 * COUNT, LENGTH), np.uint8)
        expected[theirs_at] = payload[mine_at]
        endpoint.put_blocks(local, mine_at, remote, theirs_at, notification=b"on the device")
        text, seen = told(endpoint, pipe)
        assert text == b"on the device" and seen == expected.tobytes()

        tw.copy(context, mine, np.full(payload.size, 0xA5, np.uint8))
        endpoint.get_blocks(local, mine_at[::-1].copy(), remote, theirs_at)
        back = np.full((COUNT, LENGTH), 0xA5, np.uint8)
        back[mine_at[::-1]] = expected[theirs_at]
        now = np.empty((COUNT, LENGTH), np.uint8)
        tw.copy(context, now, mine)
        assert (now == back).all()
        pipe.send("end")


def test_what_is_refused():
    with connected(owner) as (endpoint, pipe):
        remote = tw.RemoteBlocks(endpoint, pipe.recv())
        context = endpoint.worker.context
        room = bytearray(LENGTH * 10)
        local = tw.Blocks(context, [(room, 0, 10)], LENGTH)
        some = np.arange(3)
        with pytest.raises(tw.OutOfBounds):
            endpoint.put_blocks(local, some, remote, some + 2 * COUNT - 2)
        with pytest.raises(tw.OutOfBounds):
            endpoint.put_blocks(local, np.array([-1], np.int32), remote, some[:1])
        with pytest.raises(tw.InvalidError):
            endpoint.put_blocks(local, some, remote, some[:2])
        with pytest.raises(tw.InvalidError):
            endpoint.put_blocks(local, some.astype(float), remote, some)
        with pytest.raises(tw.LimitReached):
            endpoint.put_blocks(local, some, remote, some, notification=bytes(65))
        with pytest.raises(tw.OutOfBounds):
            tw.Blocks(context, [(room, 1, 10)], LENGTH)
        with pytest.raises(tw.InvalidError):
            local.export()
        with pytest.raises(tw.InvalidError):
            tw.RemoteBlocks(endpoint, b"rubbish")
        assert endpoint.worker.next_notification() is None
        pipe.send("end")


def test_memory_under_blocks_is_not_released(context):
    memory, other = (tw.Memory.allocate(context, COUNT * LENGTH) for _ in range(2))
    blocks = tw.Blocks(context, [(memory, 0, 10), (other, 0, 10)], LENGTH)
    for each in (memory, other):
        with pytest.raises(tw.BusyError, match="blocks"):
            each.release()
    blocks.close()
    memory.release()
    blocks = tw.Blocks(context, [(other, 0, 10)], LENGTH)
    del blocks
    other.release()


def stopped_owner(endpoint, pipe):
    memory = tw.Memory.allocate(endpoint.worker.context, COUNT * LENGTH)
    blocks = tw.Blocks(endpoint.worker.context, [(memory, 0, COUNT)], LENGTH)
    pipe.send(blocks.export())
    assert pipe.recv() == "go on"  # it has not progressed until then
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)
    pipe.send(bytes(memory))
    pipe.recv()


class Watched(bytearray):
    """Has weak references."""


def test_closed_blocks_are_kept_by_what_is_under_way():
    with connected(stopped_owner, transport="tcp") as (endpoint, pipe):
        context = endpoint.worker.context
        remote = tw.RemoteBlocks(endpoint, pipe.recv())
        memory = tw.Memory.allocate(context, COUNT * LENGTH)
        payload = np.random.default_rng().integers(0, 256, COUNT * LENGTH, np.uint8)
        tw.copy(context, memory, payload)
        half = COUNT // 2
        buffer = Watched(payload[half * LENGTH :].tobytes())
        alive = weakref.ref(buffer)
        local = tw.Blocks(context, [(memory, 0, half), (buffer, 0, half)], LENGTH)
        request = endpoint.iput_blocks(local, np.arange(COUNT), remote, np.arange(COUNT), visible=True)
        assert not request.done()
        local.close()
        del local, buffer
        gc.collect()
        assert alive() is not None
        with pytest.raises(tw.BusyError):
            memory.release()
        pipe.send("go on")
        request.wait(20)
        del request
        memory.release()
        assert alive() is None
        pipe.send("told")
        assert pipe.recv() == payload.tobytes()
        pipe.send("end")


def test_a_notification_is_contiguous_bytes_of_the_host(context, worker, me):
    memory = tw.Memory.allocate(context, COUNT * LENGTH)
    blocks = tw.Blocks(context, [(memory, 0, COUNT)], LENGTH)
    remote = tw.RemoteBlocks(me, blocks.export())
    there = tw.Memory.allocate(context, 16, place="emulated:0")
    for notification in (np.arange(16, dtype=np.uint8)[::2], there):
        for move in (me.put_blocks, me.get_blocks):
            with pytest.raises(tw.InvalidError, match="contiguous bytes on the host"):
                move(blocks, [0], remote, [1], notification=notification)
    me.put_blocks(blocks, [0], remote, [1], notification=np.arange(16, dtype=np.uint8))
    while (news := worker.next_notification()) is None:
        worker.progress()
    assert news[1] == bytes(range(16))
