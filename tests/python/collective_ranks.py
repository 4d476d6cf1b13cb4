# SPDX-License-Identifier: Apache-2.0
"""One rank of test_collectives.py: the functions that it runs by name, each against references of NumPy's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time

import numpy as np
import thalweg
from thalweg import aio

FOLDS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
FLOATS = ["float16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
COUNTS = [0, 1, 7, 1001, 70_003]


def inputs(world, count, dtype, seed=0):
    """All ranks' random elements: small integers, so that sums of floats are exact."""
    random = np.random.default_rng([seed, count])
    if dtype == "bool":
        return random.integers(0, 2, (world.size, count)).astype(bool)
    low = 0 if dtype == "uint8" else -4
    return random.integers(low, 5, (world.size, count)).astype(dtype)


def fold(op, rows):
    """The rows' reduction in their type."""
    with np.errstate(all="ignore"):
        result = rows[0].copy()
        for row in rows[1:]:
            result = FOLDS[op](result, row).astype(rows.dtype)
    return result


class Guarded:
    """An array with bytes around it that nobody may touch."""

    def __init__(self, count, dtype):
        item = np.dtype(dtype).itemsize
        self.whole = np.full(count * item + 128, 0xA5, np.uint8)
        self.array = self.whole[64 : 64 + count * item].view(dtype)

    def check(self, expected):
        np.testing.assert_array_equal(self.array, expected)
        assert (self.whole[:64] == 0xA5).all() and (self.whole[-64:] == 0xA5).all()


def check_reductions(world):
    for dtype in [*FLOATS, *INTEGERS]:
        for op in FOLDS if dtype in INTEGERS else ["sum", "product", "min", "max"]:
            for count in COUNTS if op == "sum" else [1001]:
                rows = inputs(world, count, dtype)
                expected, mine = fold(op, rows), rows[world.rank]
                got = Guarded(count, dtype)
                world.allreduce(mine, got.array, op)
                got.check(expected)
                np.testing.assert_array_equal(mine, rows[world.rank])
                got.array[:] = mine
                world.allreduce(got.array, op=op)
                got.check(expected)


def check_bool(world):
    for op, together in [("or", np.any), ("and", np.all)]:
        rows = inputs(world, 333, "bool")
        got = Guarded(333, "bool")
        world.allreduce(rows[world.rank], got.array, op)
        got.check(together(rows, axis=0))


def check_roots(world):
    for root in range(world.size):
        rows = inputs(world, 515, "float32", root)
        mine, expected = rows[world.rank], fold("sum", rows)
        here = world.rank == root
        got = Guarded(515, "float32")
        before = got.array.copy()
        world.reduce(mine, got.array if here else None, root=root)
        got.check(expected if here else before)
        in_place = mine.copy()
        world.reduce(in_place, root=root)
        np.testing.assert_array_equal(in_place, expected if here else mine)
        buffer = mine.copy()
        world.broadcast(buffer, root)
        np.testing.assert_array_equal(buffer, rows[root])
        flat = np.zeros(rows.size, "float32") if here else None
        world.gather(mine, flat, root)
        if here:
            np.testing.assert_array_equal(flat, rows.ravel())
            flat[:] = 0
            flat.reshape(rows.shape)[root] = mine
        world.gather(None if here else mine, flat, root)
        if here:
            np.testing.assert_array_equal(flat, rows.ravel())
        part = np.zeros(515, "float32")
        world.scatter(flat, part, root)
        np.testing.assert_array_equal(part, mine)
        part[:] = 0
        world.scatter(flat, None if here else part, root)
        assert here or (part == mine).all()


def check_shares(world):
    n, me = world.size, world.rank
    for count in [1, 129, 9000]:
        rows = inputs(world, n * count, "int32")
        parts = rows.reshape(n, n, count)
        got = Guarded(count, "int32")
        world.reduce_scatter(rows[me].copy(), got.array, "max")
        got.check(fold("max", rows).reshape(n, count)[me])
        whole = rows[me].copy()
        world.reduce_scatter(whole, op="sum")
        np.testing.assert_array_equal(whole[:count], fold("sum", rows).reshape(n, count)[me])
        got = Guarded(n * count, "int32")
        world.allgather(parts[me, 0].copy(), got.array)
        got.check(parts[:, 0].ravel())
        got.array[:] = 0
        got.array.reshape(n, count)[me] = parts[me, 1 % n]
        world.allgather(None, got.array)
        got.check(parts[:, 1 % n].ravel())
        got = Guarded(n * count, "int32")
        world.alltoall(rows[me].copy(), got.array)
        got.check(parts[:, me].ravel())
        got.array[:] = rows[me]
        world.alltoall(None, got.array)
        got.check(parts[:, me].ravel())
        got = Guarded(n * count, "int32")
        world.scan(rows[me].copy(), got.array)
        got.check(fold("sum", rows[: me + 1]))
        got.array[:] = 77
        world.exclusive_scan(rows[me].copy(), got.array)
        got.check(fold("sum", rows[:me]) if me else np.full(n * count, 77, "int32"))


def check_v(world):
    n, me = world.size, world.rank
    counts = [3 * i + (0 if i == 1 else 5) for i in range(n)]
    ends = np.cumsum(counts)
    total, begins = int(ends[-1]), [int(end - count) for end, count in zip(ends, counts, strict=True)]
    rows = inputs(world, total, "float64")
    mine = rows[me, : counts[me]].copy()
    joined = np.concatenate([rows[i, : counts[i]] for i in range(n)])
    got = Guarded(total, "float64")
    world.allgatherv(mine, got.array, counts)
    got.check(joined)
    apart = np.full(total + n, -9.0)
    world.allgatherv(mine, apart, counts, [begin + i for i, begin in enumerate(begins)])
    for i in range(n):
        np.testing.assert_array_equal(apart[begins[i] + i :][: counts[i]], rows[i, : counts[i]])
    root = n - 1
    whole = np.zeros(total) if me == root else None
    world.gatherv(mine, whole, counts if me == root else None, root=root)
    assert me != root or (whole == joined).all()
    part = np.zeros(counts[me])
    world.scatterv(whole, part, counts if me == root else None, root=root)
    np.testing.assert_array_equal(part, mine)
    got = Guarded(counts[me], "float64")
    world.reduce_scatterv(rows[me].copy(), got.array, counts)
    got.check(fold("sum", rows)[begins[me] :][: counts[me]])
    matrix = [[(i * 7 + j * 3) % 11 for j in range(n)] for i in range(n)]
    send = np.concatenate([np.full(matrix[me][j], 100 * me + j, "int16") for j in range(n)])
    recv = Guarded(sum(matrix[i][me] for i in range(n)), "int16")
    world.alltoallv(send, matrix[me], recv.array, [matrix[i][me] for i in range(n)])
    recv.check(np.concatenate([np.full(matrix[i][me], 100 * i + me, "int16") for i in range(n)]))


def check_operations(world):
    rows = inputs(world, 257, "float32")
    got = Guarded(257, "float32")
    world.allreduce(rows[world.rank], got.array, "average")
    np.testing.assert_allclose(got.array, rows.mean(axis=0), rtol=1e-6)
    world.allreduce(rows[world.rank], got.array, "scaled_sum", scale=0.5)
    np.testing.assert_allclose(got.array, rows.sum(axis=0) * 0.5, rtol=1e-6)
    world.allreduce(rows[world.rank], got.array, np.maximum)
    got.check(rows.max(axis=0))

    def last(lower, higher):
        lower[:] = higher

    world.allreduce(rows[world.rank], got.array, last, commutative=False)
    got.check(rows[-1])
    random = np.random.default_rng(world.rank).standard_normal(5000).astype("float32")
    first, second = np.empty_like(random), np.empty_like(random)
    world.allreduce(random, first, repeatable=True)
    world.allreduce(random, second, repeatable=True)
    assert first.tobytes() == second.tobytes()
    world.allreduce(rows[world.rank], got.array, algorithm="ring")
    got.check(rows.sum(axis=0))


def check_closing_functions(world):
    """A function that combines elements runs in the middle of the worker's progress: the worker cannot end there."""
    refused = []

    def combine(lower, higher):
        for closing in (world.worker.close, world.close):
            try:
                closing()
            except thalweg.BusyError as error:
                refused.append(str(error))
        return lower + higher

    for turn in range(3):
        rows = inputs(world, 1000, "int64", turn)
        request = world.iallreduce(recv := rows[world.rank].copy(), op=combine)
        while not request.done():
            pass
        np.testing.assert_array_equal(recv, rows.sum(0))
        world.allreduce(recv := rows[world.rank].copy(), op=combine)
        np.testing.assert_array_equal(recv, rows.sum(0))
    assert refused and len(refused) % 2 == 0


def check_short_floats(world):
    import ml_dtypes

    for name in ["bfloat16", "float8_e4m3fn", "float8_e5m2"]:
        dtype = getattr(ml_dtypes, name)
        rows = (inputs(world, 300, "int8") % 2).astype(dtype)
        got = np.zeros(300, dtype)
        world.allreduce(rows[world.rank], got, "max")
        np.testing.assert_array_equal(got.astype("float32"), rows.astype("float32").max(axis=0))
        raw = bytearray(rows[world.rank].tobytes())
        world.allreduce(raw, op="sum", dtype=name)
        np.testing.assert_array_equal(np.frombuffer(raw, dtype).astype("float32"), rows.astype("float32").sum(axis=0))


def check_torch(world):
    import torch

    for dtype in [torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int64]:
        mine = torch.full((3, 5), world.rank % 2, dtype=dtype)
        got = torch.zeros((3, 5), dtype=dtype)
        world.allreduce(mine, got, "max")
        assert (got.float() == min(1, world.size - 1)).all(), (dtype, got)


def check_devices(world):
    count = 4099
    place = f"emulated:{world.rank % 2}"
    rows = inputs(world, count, "float32")
    mine = thalweg.Memory.allocate(world.context, 4 * count, place=place)
    got = thalweg.Memory.allocate(world.context, 4 * count, place=place)
    host = np.empty(count, "float32")
    thalweg.copy(world.context, mine, rows[world.rank])
    world.allreduce(mine, got, dtype="float32")
    thalweg.copy(world.context, host, got)
    np.testing.assert_array_equal(host, fold("sum", rows))
    world.broadcast(mine if world.rank == 0 else host, 0, dtype="float32")  # of several kinds of memory
    if world.rank != 0:
        np.testing.assert_array_equal(host, rows[0])
    try:
        world.allreduce(mine, host, dtype="float32")
    except thalweg.Unsupported as error:
        assert "device" in str(error)
    else:
        raise AssertionError("one buffer on a device, one on the host")


class Held:
    """An array at a place: of NumPy's, or Memory of an emulated device."""

    def __init__(self, world, place, array):
        self.world, self.array = world, array.copy()
        self.buffer = self.array
        if place != "host":
            self.buffer = thalweg.Memory.allocate(world.context, array.nbytes, place=place)
            thalweg.copy(world.context, self.buffer, self.array)

    def check(self, expected):
        if self.buffer is not self.array:
            thalweg.copy(self.world.context, self.array, self.buffer)
        np.testing.assert_array_equal(self.array, expected)


def call_all(world, place, call):
    """call(name, *arguments, **options) of every collective, with buffers of its own; gives what has to be in them then."""
    me, size, dtype = world.rank, world.size, {"dtype": "int32"}
    root = size - 1
    wanted = []

    def held(array, expected=None):
        wanted.append((Held(world, place, array), array if expected is None else expected))
        return wanted[-1][0].buffer

    def empty(expected, here=True):
        return held(
            np.full(expected.size, 77, expected.dtype), expected if here else np.full(expected.size, 77, expected.dtype)
        )

    rows, whole = inputs(world, 37, "int32"), inputs(world, 5 * size, "int32", 1)
    share = slice(5 * me, 5 * me + 5)
    call("barrier")
    call("broadcast", held(rows[me], rows[root]), root, **dtype)
    call("allreduce", held(rows[me], fold("sum", rows)), **dtype)
    call("allreduce", held(rows[me]), empty(fold("max", rows)), "max", repeatable=True, **dtype)
    call("reduce_to_root", held(rows[me]), empty(fold("sum", rows), me == root), root=root, **dtype)
    call("reduce_scatter", held(whole[me]), empty(fold("sum", whole)[share]), **dtype)
    call("allgather", held(rows[me]), empty(rows.reshape(-1)), **dtype)
    call("gather", held(rows[me]), empty(rows.reshape(-1), me == 0), **dtype)
    call("scatter", held(whole[me]), empty(whole[0][share]), **dtype)
    call("alltoall", held(whole[me]), empty(whole[:, share].reshape(-1)), **dtype)
    call("scan", held(rows[me]), empty(fold("sum", rows[: me + 1])), **dtype)
    call("exclusive_scan", held(rows[me]), empty(fold("sum", rows[:me]) if me else np.full(37, 77, "int32")), **dtype)
    counts = [2 + rank for rank in range(size)]
    begins = [sum(counts[:rank]) for rank in range(size)]
    mine = slice(begins[me], begins[me] + counts[me])
    many = inputs(world, sum(counts), "int32", 2)
    own, joined = many[me][mine], np.concatenate([many[rank][begins[rank] :][: counts[rank]] for rank in range(size)])
    call("reduce_scatterv", held(many[me]), empty(fold("sum", many)[mine]), counts, **dtype)
    call("allgatherv", held(own), empty(joined), counts, begins, **dtype)
    call("gatherv", held(own), empty(joined, me == 0), counts, **dtype)
    call("scatterv", held(many[me]), empty(many[0][mine]), counts, **dtype)
    call("alltoallv", held(many[me]), counts, empty(many[:, mine].reshape(-1)), [counts[me]] * size, **dtype)
    return wanted


def check_queues(world):
    for place in ("host", f"emulated:{world.rank % 2}"):
        group = world.duplicate()  # whose first call decides how its collectives on queues go
        with thalweg.Queue(world.context, place) as queue:

            def call(name, *arguments, on=(queue, group), **options):
                assert getattr(thalweg, name + "_on")(*on, *arguments, **options) is None

            wanted = call_all(world, place, call)
            queue.synchronize()
            for held, expected in wanted:
                held.check(expected)
            raised(thalweg.InvalidError, "timeout_ns", thalweg.barrier_on, queue, group, timeout=1)
            raised(thalweg.InvalidError, "steps of a plan", thalweg.barrier_on, queue, group, after=[0])
            raised(thalweg.Unsupported, "progress", thalweg.allreduce_on, queue, group, np.ones(3), op=lambda a, b: a + b)
            raised(thalweg.InvalidError, "elements", thalweg.allreduce_on, queue, group, np.ones(3), np.ones(4))
            raised(TypeError, "positional", thalweg.barrier_on)
            raised(TypeError, "group", thalweg.barrier_on, queue, queue)
            world.barrier()
        group.close()


def check_counted(world):
    """What each rank sends is known to its device alone: counts come from there, also those of a captured call."""
    place, width, me, size = f"emulated:{world.rank % 2}", 3, world.rank, world.size
    rows = np.arange(40 * width, dtype="int32").reshape(40, width) + 1000 * me
    group = world.duplicate()
    with thalweg.Queue(world.context, place) as queue:
        counts = np.array([[(sender + 2 * to) % 5 for to in range(size)] for sender in range(size)], np.uint64)
        send, to, got, came = (
            Held(world, place, array) for array in (rows, counts[me], np.zeros_like(rows), np.zeros(size, np.uint64))
        )

        def call():
            thalweg.alltoallv_counted_on(
                queue, group, send.buffer, to.buffer, got.buffer, came.buffer, row_bytes=4 * width, dtype="int32"
            )

        def check(counts):
            expected = np.zeros_like(rows)
            parts = [rows[int(counts[rank, :me].sum()) :][: int(counts[rank, me])] + 1000 * (rank - me) for rank in range(size)]
            together = np.concatenate(parts)
            expected[: len(together)] = together
            queue.synchronize()
            came.check(counts[:, me])
            got.check(expected)

        call()
        check(counts)
        queue.begin_capture()
        call()
        graph = queue.end_capture()
        world.barrier()
        more = counts + np.uint64(1)  # another launch's, which send more
        thalweg.copy(world.context, to.buffer, np.ascontiguousarray(more[me]))
        graph.launch(queue)
        check(more)
        short = np.zeros(1, np.uint64)
        counted = thalweg.alltoallv_counted_on
        raised(thalweg.InvalidError, "int64", counted, queue, group, rows, np.zeros(size), rows, np.zeros(size))
        raised(thalweg.InvalidError, "64 bits", thalweg.alltoallv_counted_on, queue, group, rows, short, rows, short)
        world.barrier()
    group.close()


class DeviceArray:
    """An array on a device, as CuPy describes its own."""

    def __init__(self, memory, dtype):
        self.memory, self.dtype = memory, np.dtype(dtype)
        self.__cuda_array_interface__ = {
            "shape": (len(memory) // self.dtype.itemsize,),
            "typestr": self.dtype.str,
            "data": (memory.address, False),
            "stream": None,
            "version": 3,
        }


def check_captured(world):
    place = f"emulated:{world.rank % 2}"
    rows = inputs(world, 501, "float32")
    mine, got = (Held(world, place, array) for array in (rows[world.rank], np.zeros(501, "float32")))
    send, recv = (DeviceArray(held.buffer, "float32") for held in (mine, got))
    with thalweg.Queue(world.context, place) as queue:
        thalweg.allreduce_on(queue, world, send, recv)  # prepares
        queue.begin_capture()
        thalweg.allreduce_on(queue, world, send, recv)
        graph = queue.end_capture()
        for _ in range(3):
            graph.launch(queue)
        queue.synchronize()
        got.check(fold("sum", rows))
        world.barrier()
        graph.close()


def check_windows(world):
    """Buffers in windows of the group: kernels of all ranks use them themselves."""
    place, group = f"emulated:{world.rank % 2}", world.duplicate()
    rows = inputs(world, 1501, "float32")
    mine, got = (Held(world, place, array) for array in (rows[world.rank], np.zeros(1501, "float32")))
    send, recv = (DeviceArray(held.buffer, "float32") for held in (mine, got))
    with thalweg.Queue(world.context, place) as queue:
        raised(thalweg.Unsupported, "", thalweg.allreduce_on, queue, group, send, recv, algorithm="symmetric")
        windows = [group.window(held.buffer) for held in (mine, got)]
        for window in windows:
            window.register_on(queue)
        raised(thalweg.InvalidError, "registered already", windows[0].register_on, queue)
        world.barrier()
        thalweg.allreduce_on(queue, group, send, recv, algorithm="symmetric")
        queue.synchronize()
        got.check(fold("sum", rows))
        world.barrier()
        for window in windows:
            window.close()
    group.close()


def check_plans(world):
    for place in ("host", f"emulated:{world.rank % 2}"):
        with thalweg.Plan(world.context, place=place) as plan, thalweg.Queue(world.context, place) as queue:
            steps = []

            def call(name, *arguments, to=(plan, steps), **options):
                to[1].append(getattr(to[0], name)(world, *arguments, after=to[1][-1:], **options))

            wanted = call_all(world, place, call)
            assert steps == sorted(set(steps))
            raised(thalweg.InvalidError, "time", plan.barrier, world, timeout=1)
            raised(thalweg.InvalidError, "", plan.barrier, world, after=[9999])
            plan.prepare(20)
            raised(thalweg.InvalidError, "part of", plan.update, steps[2], np.zeros(37, "int32"))
            plan.run(20)
            for held, expected in wanted[3:]:
                held.check(expected)
            plan.trigger(queue)
            queue.synchronize()
            for held, expected in wanted[3:]:
                held.check(expected)
            world.barrier()


def check_requests(world):
    rows = [inputs(world, 999, "int64", seed) for seed in range(8)]
    got = [np.zeros(999, "int64") for _ in rows]
    requests = [world.iallreduce(row[world.rank].copy(), to) for row, to in zip(rows, got, strict=True)]
    requests.append(world.ibarrier())
    gc.collect()
    for request in reversed(requests):
        assert request.wait(20) is None
    for row, to in zip(rows, got, strict=True):
        np.testing.assert_array_equal(to, fold("sum", row))
    world.iallreduce(rows[0][world.rank].copy(), got[0])  # dropped: it goes on
    world.barrier()


def check_coroutines(world):
    async def main():
        group = aio.Group(world)
        rows = inputs(world, 4000, "float32")
        got = [np.zeros(4000, "float32") for _ in range(4)]
        await asyncio.gather(*(group.allreduce(rows[world.rank], to) for to in got))
        for to in got:
            np.testing.assert_array_equal(to, fold("sum", rows))
        all_ranks = np.zeros(group.size, "int32")
        await group.allgather(np.array([group.rank], "int32"), all_ranks)
        assert all_ranks.tolist() == list(range(group.size))
        await group.barrier()
        group.close()
        assert world.closed and world.worker.closed

    asyncio.run(main())


def raised(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"not raised: {kind} {text}")


def check_errors(world):
    n = world.size
    floats, wrong = np.zeros(6 * n, "float32"), np.zeros(6 * n, "int32")
    invalid, bad = thalweg.InvalidError, thalweg.Unsupported
    raised(invalid, "different types", world.allreduce, floats, wrong)
    raised(invalid, "instead of", world.allreduce, floats, floats[:3].copy())
    raised(invalid, "no operation 'plus'", world.allreduce, floats, op="plus")
    raised(invalid, "no type 'complex64'", world.allreduce, np.zeros(3, "complex64"))
    raised(invalid, "no dtype", world.allreduce, bytearray(8))
    raised(invalid, "no rank", world.broadcast, floats, n)
    raised(invalid, "read-only", world.allreduce, floats, bytes(4 * floats.size), dtype="float32")
    raised(bad, "contiguous", world.allreduce, np.zeros((8, 8), "float32")[:, ::2])
    raised(TypeError, "function of two arrays", world.allreduce, floats, op=3)
    raised(TypeError, "positional", world.allreduce, floats, None, "sum", 3)
    raised(invalid, "entries", world.allgatherv, floats[:1].copy(), floats, [1] * (n + 1))
    raised(invalid, "reach to", world.allgatherv, np.zeros(7, "float32"), floats, [7] * n)
    raised(invalid, "algorithm", world.allreduce, floats, algorithm="none such")
    raised(invalid, "overlap", world.allreduce, floats[:-1], floats[1:])
    if n > 1:
        raised(invalid, "evenly", world.allgather, floats, np.zeros(n + 1, "float32"))
    world.barrier()  # the group goes on

    def fails(_lower, _higher):
        raise KeyError("of the function")

    for blocking in [True, False]:
        group = world.duplicate()
        failed = False
        try:
            if blocking:
                group.allreduce(floats, op=fails)
            else:
                group.iallreduce(floats, op=fails).wait(20)
        except KeyError as error:
            assert "of the function" in str(error)
            failed = True
        except thalweg.InvalidError as error:  # of a rank that combined before this one
            assert "reduction function failed" in str(error) and "rank" in str(error)
            failed = True
        assert failed == (n > 1)  # nowhere a result without what one of them was to combine
        if failed:
            raised(thalweg.InvalidError, "rank", group.barrier)
    world.barrier()


def check_loss(world):
    world.barrier()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    buffer = np.ones(100_000, "float32")
    begin = time.monotonic()
    try:
        while True:
            world.allreduce(buffer, op="max")
    except thalweg.PeerLost as error:
        assert "rank 1" in str(error), error
    assert time.monotonic() - begin < 5
    raised(thalweg.PeerLost, "rank 1", world.barrier)


def ended(kind, text, call, *arguments):
    """The one that another rank left may still end here, by what that rank gave before; the next does not."""
    with contextlib.suppress(kind):
        call(*arguments)
    raised(kind, text, call, *arguments)


def check_timeout(world):
    world.barrier()
    if world.rank == 0:
        raised(thalweg.TimedOut, "rank 1", world.barrier, timeout=0.3)
    else:
        time.sleep(1)
        ended(thalweg.TimedOut, "rank 1", world.barrier)


def check_interrupt(world):
    world.barrier()
    if world.rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            world.allreduce(np.ones(5))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        raised(thalweg.Canceled, "rank 0 was interrupted", world.barrier)
    else:
        time.sleep(0.6)
        ended(thalweg.Canceled, "rank 0 was interrupted", world.allreduce, np.ones(5))


if __name__ == "__main__":
    # The launcher ends all when its own child is killed.
    if sys.argv[-1] == "loss" and (child := os.fork()):
        os.waitpid(child, 0)
        sys.exit(0)
    world = thalweg.init(timeout=30)
    for name in sys.argv[1:]:
        globals()["check_" + name](world)
    if not world.closed and sys.argv[-1] not in ("loss", "timeout", "interrupt"):
        world.barrier()
        world.close()
    print("good")
