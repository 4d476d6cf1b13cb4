# SPDX-License-Identifier: Apache-2.0
"""Put, get, atomics, signals, flush and keys between two processes."""

import ctypes
import gc
import os
import time

import numpy as np
import pytest
import thalweg as tw
from peers import connected

TRANSPORTS = ["shm", "tcp"]
BYTES = 1 << 20


def progress_until_told(endpoint, pipe):
    """Serves the endpoint until the other process has something to say."""
    while not pipe.poll(0):
        endpoint.worker.wait(0.01)


def target(endpoint, pipe):
    """Offers memory, a signal and a counter; checks what the signal covers."""
    context = endpoint.worker.context
    memory = tw.Memory.allocate(context, BYTES)
    view = np.frombuffer(memory, np.uint8)
    assert not view.any()
    signal = tw.Signal(endpoint.worker)
    counter = tw.Signal(endpoint.worker, "add", 5)
    registered = bytearray(b"\x11" * 4096)
    plain = tw.Memory.register(context, registered)
    pipe.send((memory.export(), signal.export(), counter.export(), plain.export(1024, 2048)))
    signal.wait(1, timeout=20)
    expected = pipe.recv()
    assert (view[100 : 100 + len(expected)] == np.frombuffer(expected, np.uint8)).all() and not view[:100].any()
    assert not view[100 + len(expected) :].any()
    counter.wait(12, timeout=20)
    pipe.send(counter.value)
    progress_until_told(endpoint, pipe)
    assert registered[:1024] == b"\x11" * 1024 and registered[3072:] == b"\x11" * 1024
    pipe.send(bytes(registered[1024:3072]))
    pipe.recv()
    del view
    memory.release()
    pipe.send("released")
    progress_until_told(endpoint, pipe)
    pipe.recv()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_everything_one_sided(transport):
    with connected(target, transport=transport) as (endpoint, pipe):
        keys = pipe.recv()
        remote = tw.RemoteMemory(endpoint, keys[0])
        assert len(remote) == BYTES
        signal, counter = tw.RemoteSignal(endpoint, keys[1]), tw.RemoteSignal(endpoint, keys[2], "add")
        data = os.urandom(70_001)
        endpoint.put(data, remote, 100, signal=signal, value=1)
        pipe.send(data)
        got = bytearray(70_001)
        endpoint.flush(20)  # a get is not ordered after a put
        endpoint.get(got, remote, 100)
        assert got == data
        counter.post(3)
        counter.post(4)
        progress_until_told(endpoint, pipe)
        assert pipe.recv() == 12

        word = 512 * 1024
        assert endpoint.atomic("add", remote, word, 7) == 0
        assert endpoint.atomic("cswap", remote, word, 99, compare=7) == 7
        assert endpoint.atomic("cswap", remote, word, 1, compare=7) == 99
        assert endpoint.atomic("swap", remote, word, 2**64 - 1) == 99
        assert endpoint.atomic("and", remote, word, 0xF0) == 2**64 - 1
        assert endpoint.atomic("or", remote, word, 0x0F, fetch=False) is None
        assert endpoint.atomic("xor", remote, word, 0xFF) == 0xFF
        assert endpoint.atomic("add", remote, word + 8, 2**32 - 1, size=4) == 0
        assert endpoint.atomic("add", remote, word + 8, 2, size=4) == 2**32 - 1
        assert endpoint.atomic("add", remote, word + 8, 0, size=4) == 1
        with pytest.raises(tw.Misaligned):
            endpoint.atomic("add", remote, word + 1, 1)

        rows = np.random.default_rng().integers(0, 256, (16, 64), np.uint8)
        endpoint.put(rows[:, 8:24], remote, 600_000, remote_layout=tw.Layout.strided(16, [16], [100]), visible=True)
        back = np.zeros((16, 100), np.uint8)
        endpoint.get(back[:, :16], remote, 600_000, remote_layout=tw.Layout.strided(16, [16], [100]))
        assert (back[:, :16] == rows[:, 8:24]).all() and not back[:, 16:].any()

        part = tw.RemoteMemory(endpoint, keys[3])
        assert len(part) == 2048
        fill = os.urandom(2048)
        endpoint.put(fill, part)
        endpoint.flush(20)
        endpoint.worker.flush(20)
        for offset, size in ((2048, 1), (2000, 49), (2**63, 8)):
            with pytest.raises(tw.OutOfBounds):
                endpoint.put(bytes(size), part, offset)
        pipe.send("filled")
        progress_until_told(endpoint, pipe)
        assert pipe.recv() == fill

        pipe.send("release it")
        progress_until_told(endpoint, pipe)
        assert pipe.recv() == "released"
        end = time.monotonic() + 10
        with pytest.raises(tw.Stale):  # as soon as the word of it has come
            while time.monotonic() < end:
                endpoint.get(bytearray(8), remote, 0)
                endpoint.worker.wait(0.01)
        pipe.send("end")


def mapped(endpoint, pipe):
    memory = tw.Memory.allocate(endpoint.worker.context, 1 << 16)
    signal = tw.Signal(endpoint.worker)
    pipe.send((memory.export(), signal.export()))
    signal.wait(1, timeout=20)
    assert (np.frombuffer(memory, np.uint8) == 0x3C).all()


def test_a_peers_memory_as_an_array():
    with connected(mapped, transport="shm") as (endpoint, pipe):
        key, signal = pipe.recv()
        remote = tw.RemoteMemory(endpoint, key)
        view = remote.map()
        np.frombuffer(view, np.uint8)[:] = 0x3C
        tw.RemoteSignal(endpoint, signal).post(1)


@pytest.mark.parametrize("size", [4, 8])
def test_operands_of_atomics_fit_their_word(context, me, size):
    memory = tw.Memory.allocate(context, 64)
    remote = tw.RemoteMemory(me, memory.export())
    whole = 2 ** (8 * size)
    value = 0
    for operand in (3, -5, whole - 1, -whole // 2, np.int32(-7), np.uint32(2**32 - 1)):
        assert me.atomic("add", remote, 0, operand, size=size) == value
        value = (value + int(operand)) % whole
    assert me.atomic("swap", remote, 0, -1, size=size) == value
    assert me.atomic("cswap", remote, 0, -2, compare=-1, size=size) == whole - 1
    assert me.atomic("add", remote, 0, 0, size=size) == whole - 2
    for wrong in (whole, whole + 3, -whole // 2 - 1, whole**2, -(whole**2), 2**64 - 1 if size == 4 else 2**64):
        with pytest.raises(tw.InvalidError, match="does not fit"):
            me.atomic("add", remote, 0, wrong, size=size)
        with pytest.raises(tw.InvalidError, match="does not fit"):
            me.atomic("cswap", remote, 0, 1, compare=wrong, size=size)
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            me.atomic("add", remote, 0, wrong, size=size)
    assert me.atomic("add", remote, 0, 0, size=size) == whole - 2
    assert not any(bytes(memory)[size:])


def test_operands_of_planned_atomics_fit_their_word(context, me):
    memory = tw.Memory.allocate(context, 64)
    remote = tw.RemoteMemory(me, memory.export())
    with tw.Plan(context, timeout=20) as plan:
        for wrong in ({"operand": (1 << 40) + 3}, {"operand": -(2**31) - 1}, {"operand": 0, "compare": 2**32}):
            with pytest.raises(tw.InvalidError, match="does not fit"):
                plan.atomic("cswap", remote, 0, **wrong, size=4)
        step = plan.atomic("add", remote, 0, -5, size=4)
        plan.prepare(20)
        plan.run(20)
        with pytest.raises(tw.InvalidError, match="does not fit"):
            plan.update(step, value=(1 << 40) + 3)
        plan.update(step, value=-2)
        plan.run(20)
        me.flush(20)
        assert int.from_bytes(bytes(memory)[:8], "little") == 2**32 - 7


def guarded(endpoint, pipe):
    memory = tw.Memory.allocate(endpoint.worker.context, 4096)
    memoryview(memory)[:5] = b"there"
    pipe.send([memory.export(access=access) for access in ("r", "ra", "rw", "w", "wa")])
    progress_until_told(endpoint, pipe)
    pipe.recv()
    assert bytes(memory)[:5] == b"store"


def test_a_map_has_the_access_of_its_key():
    with connected(guarded, transport="shm") as (endpoint, pipe):
        read, operates, both, *unread = (tw.RemoteMemory(endpoint, key) for key in pipe.recv())
        for remote in (read, operates):
            view = remote.map()
            assert view.readonly and bytes(view[:5]) == b"there"
            with pytest.raises(TypeError):
                view[0] = 0
            with pytest.raises(TypeError):
                (ctypes.c_char * 5).from_buffer(view)
        for remote in unread:
            with pytest.raises(tw.PermissionDenied, match="TW_MEMORY_READ"):
                remote.map()
            remote.release()
        view = both.map()
        assert not view.readonly
        view[:5] = b"store"
        pipe.send("end")


def test_memory_with_views_is_not_released(context):
    memory = tw.Memory.allocate(context, 4096)
    view = memoryview(memory)
    with pytest.raises(tw.BusyError):
        memory.release()
    view.release()
    memory.release()
    with pytest.raises(tw.HandleError):
        memory.export()


def test_access_is_checked(context, worker, me):
    memory = tw.Memory.register(context, b"only to be read", access="r")
    remote = tw.RemoteMemory(me, memory.export())
    got = bytearray(4)
    me.get(got, remote, 8)
    assert got == b"be read"[:4] or got == b"o be"
    with pytest.raises(tw.PermissionDenied):
        me.put(b"xxxx", remote)
        me.flush(5)
    with pytest.raises(tw.InvalidError):
        tw.Memory.register(context, b"read only")
    with pytest.raises(tw.InvalidError):
        tw.Memory.register(context, bytearray(8), access="x")
    with pytest.raises(tw.ThalwegError):
        tw.RemoteMemory(me, b"no key at all")


def test_signals_compare_cyclically(worker, me):
    signal = tw.Signal(worker, "add", 2**64 - 2)
    remote = tw.RemoteSignal(me, signal.export(), "add")
    assert signal.test(2**64 - 2) and not signal.test(1)
    remote.post(3)
    signal.wait(1, timeout=5)
    assert signal.value == 1 and signal.test(1, "==") and signal.test(2, "!=")
    with pytest.raises(tw.TimedOut):
        signal.wait(2, timeout=0.05)
    with pytest.raises(tw.InvalidError):
        signal.test(1, "<")
    signal.reset(0)
    assert signal.value == 0


def exporter(endpoint, pipe):
    """Offers library memory and plain memory, and serves."""
    context = endpoint.worker.context
    memories = tw.Memory.allocate(context, 4096), tw.Memory.register(context, bytearray(4096))
    pipe.send([memory.export() for memory in memories])
    progress_until_told(endpoint, pipe)
    pipe.recv()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_explain_of_a_remote_memory(transport):
    with connected(exporter, transport=transport) as (endpoint, pipe):
        library, plain = (tw.RemoteMemory(endpoint, key) for key in pipe.recv())
        if transport == "shm":
            library.map()
        for verb in ("put", "get", "atomic"):
            direct = transport == "shm"
            assert (f"* {verb}_mapped" in library.explain(verb, 8)) == direct
            assert f"chosen: {verb}_mapped" not in plain.explain(verb, 8)
            assert "impossible: " in plain.explain(verb, 8)
        with pytest.raises(tw.InvalidError):
            plain.explain("send")
        pipe.send("end")


STEPS = 200


def answer_late(endpoint, pipe):
    """A parameter server that takes a while for each step."""
    memory, word = tw.Memory.allocate(endpoint.worker.context, 64), tw.Signal(endpoint.worker)
    pipe.send((memory.export(), word.export()))
    theirs, their_word = pipe.recv()
    remote, signal = tw.RemoteMemory(endpoint, theirs), tw.RemoteSignal(endpoint, their_word)
    for step in range(1, STEPS + 1):
        word.wait(step, timeout=20)
        until = time.perf_counter() + 200e-6
        while time.perf_counter() < until:
            pass
        endpoint.put(bytes(memory), remote, signal=signal, value=step)
    pipe.recv()


def test_a_wait_for_a_signal_does_not_sleep_past_it():
    with connected(answer_late, transport="shm") as (endpoint, pipe):
        memory, word = tw.Memory.allocate(endpoint.worker.context, 64), tw.Signal(endpoint.worker)
        theirs, their_word = pipe.recv()
        pipe.send((memory.export(), word.export()))
        remote, signal = tw.RemoteMemory(endpoint, theirs), tw.RemoteSignal(endpoint, their_word)
        limit = time.monotonic() + STEPS * 0.05  # half of what a nap too long would take
        for step in range(1, STEPS + 1):
            payload = os.urandom(64)
            endpoint.put(payload, remote, signal=signal, value=step)
            word.wait(step, timeout=max(0.001, limit - time.monotonic()))
            assert bytes(memory) == payload
        pipe.send("end")


def test_memory_with_a_signal_in_it_is_not_released(context, worker, me):
    memory = tw.Memory.allocate(context, 4096)
    signal = tw.Signal(worker, "add", memory=memory, offset=64)
    remote = tw.RemoteSignal(me, signal.export(), "add")
    with pytest.raises(tw.BusyError, match="signal"):
        memory.release()
    remote.post(3, visible=True)
    assert signal.value == 3
    remote.release()
    request = worker.irecv(bytearray(8), 1)
    request.tell(signal=signal, value=4)
    with pytest.raises(tw.BusyError):
        signal.close()  # the receive would touch it
    with pytest.raises(tw.BusyError):
        memory.release()
    me.send(bytes(8), 1)
    request.wait(20)
    assert signal.value == 7
    signal.close()
    memory.release()


def test_a_dropped_signal_keeps_its_memory_while_an_operation_ends_in_it(context):
    memory = tw.Memory.allocate(context, 4096)
    with tw.Worker(context) as worker:
        signal = tw.Signal(worker, memory=memory)
        endpoint = worker.connect(worker.address)
        endpoint.irecv(bytearray(8), 1).tell(signal=signal, value=4)
        del signal
        gc.collect()
        with pytest.raises(tw.BusyError):
            memory.release()
        del endpoint
    memory.release()


class Heap(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in ("arena", "a", "b", "c", "mapped", "d", "e", "used", "free", "top"))


def used_by_the_library():
    """Bytes of malloc's: small objects of Python's come from elsewhere."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Heap
    return ask().used


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a C library without mallinfo2")
@pytest.mark.parametrize("closed", ["endpoint", "worker"])
@pytest.mark.parametrize("what", ["memory", "signal", "blocks"])
def test_what_is_imported_is_released_behind_its_endpoint(context, what, closed):
    number = 5000

    def turn():
        with tw.Worker(context) as worker, tw.Memory.allocate(context, 4096) as memory:
            me = worker.connect(worker.address)
            if what == "memory":
                kind, key = tw.RemoteMemory, memory.export()
            elif what == "signal":
                kind, key = tw.RemoteSignal, tw.Signal(worker).export()
            else:
                kind, key = tw.RemoteBlocks, tw.Blocks(context, [(memory, 0, 4)], 64).export()
            empty = used_by_the_library()
            imports = [kind(me, key) for _ in range(number)]
            full = used_by_the_library()
            (me if closed == "endpoint" else worker).close()
            for one in imports[::2]:
                one.release()
            imports.clear()
            gc.collect()
            return full - empty, used_by_the_library() - empty

    turn()  # tables grow
    full, left = turn()
    assert full > 100 * number
    assert left < full / 4
