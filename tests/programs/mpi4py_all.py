# SPDX-License-Identifier: Apache-2.0
"""mpi4py's objects, buffers, windows and collectives, compared: ``mpirun -n 2..8 python mpi4py_all.py``."""

from __future__ import annotations

import array
import random

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
TO, FROM = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def objects() -> None:
    for size in (0, 10, 100_000, 3_000_000):
        mine = {"rank": RANK, "bytes": random.Random(RANK * 7 + size).randbytes(size), "list": list(range(size % 1000))}
        got = WORLD.sendrecv(mine, TO, 3, source=FROM, recvtag=3)
        assert got["rank"] == FROM and got["bytes"] == random.Random(FROM * 7 + size).randbytes(size)
        assert [one["rank"] for one in WORLD.allgather(mine)] == list(range(SIZE))
        assert WORLD.bcast(mine if RANK == SIZE - 1 else None, SIZE - 1)["rank"] == SIZE - 1
        requests = [WORLD.isend(mine, TO, 4), WORLD.irecv(8 + size * 2 + 100_000, FROM, 4)]
        assert MPI.Request.waitall(requests)[1]["rank"] == FROM
    message = WORLD.isend("probed", TO, 9)
    assert WORLD.mprobe(FROM, 9).recv() == "probed"
    message.wait()


def buffers() -> None:
    for count in (1, 1000, 300_000):
        out, got = array.array("d", (RANK + i for i in range(count))), array.array("d", bytes(8 * count))
        WORLD.Sendrecv(out, TO, 1, got, FROM, 1)
        assert got == array.array("d", (FROM + i for i in range(count)))
        WORLD.Allreduce(out, got, MPI.SUM)
        assert got == array.array("d", (SIZE * (SIZE - 1) / 2 + SIZE * i for i in range(count)))
        requests = [WORLD.Send_init(out, TO, 2), WORLD.Recv_init(got, FROM, 2)]
        for _ in range(10):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
        assert got[count - 1] == FROM + count - 1
        for request in requests:
            request.Free()
    vector = MPI.DOUBLE.Create_vector(500, 2, 7).Commit()
    out, got = array.array("d", (RANK * 10_000 + i for i in range(3500))), array.array("d", [-1.0] * 3500)
    WORLD.Sendrecv([out, 1, vector], TO, 5, [got, 1, vector], FROM, 5)
    assert all(got[i] == (FROM * 10_000 + i if i % 7 < 2 else -1) for i in range(3500))
    vector.Free()


def windows() -> None:
    for window in (
        MPI.Win.Allocate(80_000, 8, MPI.INFO_NULL, WORLD),
        MPI.Win.Create(bytearray(80_000), 8, MPI.INFO_NULL, WORLD),
    ):
        memory = memoryview(window.tomemory()).cast("B").cast("q")
        for i in range(10_000):
            memory[i] = 0
        WORLD.Barrier()
        out, got = array.array("q", range(RANK, RANK + 9000)), array.array("q", bytes(72_000))
        window.Lock_all()
        window.Put(out, TO, [1000, 9000, MPI.LONG_LONG])
        window.Flush(TO)
        window.Get(got, TO, [1000, 9000, MPI.LONG_LONG])
        window.Flush(TO)
        assert got == out
        one, old = array.array("q", [1]), array.array("q", [0])
        for target in range(SIZE):
            for _ in range(50):
                window.Fetch_and_op(one, old, target, 0, MPI.SUM)
                window.Accumulate(one, target, [1, 1, MPI.LONG_LONG], MPI.SUM)
        window.Flush_all()
        window.Unlock_all()
        WORLD.Barrier()
        window.Lock(RANK, MPI.LOCK_SHARED)
        assert memory[0] == 50 * SIZE and memory[1] == 50 * SIZE and memory[1000] == FROM
        window.Unlock(RANK)
        del memory
        window.Free()


for part in (objects, buffers, windows):
    part()
    WORLD.Barrier()
    if RANK == 0:
        print(f"mpi4py_all: {part.__name__}: right", flush=True)
