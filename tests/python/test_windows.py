# SPDX-License-Identifier: Apache-2.0
"""Windows: between threads of one process, and with another process, in host memory and on emulated devices."""

import os
import secrets
import struct
import threading
import time

import numpy as np
import pytest
import thalweg as tw
from peers import connected

LENGTH = 30_011


class Meeting:
    """An exchange among threads; rank i calls the i-th of callables()."""

    def __init__(self, size):
        self.all = [b""] * size
        self.barrier = threading.Barrier(size, timeout=20)

    def exchange(self, rank, mine):
        self.all[rank] = mine
        self.barrier.wait()
        everyone = list(self.all)
        self.barrier.wait()
        return everyone


def run_ranks(size, body):
    """body(rank, worker, peers, exchange) for every rank in a thread of its own, each with a context."""
    meeting, key, errors = Meeting(size), secrets.token_bytes(32), []

    def run(rank):
        try:
            with tw.Context(job_key=key) as context, tw.Worker(context) as worker:

                def exchange(mine):
                    return meeting.exchange(rank, mine)

                addresses = exchange(worker.address)
                peers = [None if i == rank else worker.connect(address) for i, address in enumerate(addresses)]
                body(rank, context, worker, peers, exchange)
                exchange(b"end")
        except BaseException as error:  # told by the test's own thread
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_host_memory_is_viewed_and_put_into():
    def body(rank, context, worker, peers, exchange):
        memory = tw.Memory.allocate(context, LENGTH)
        mine = os.urandom(1001)
        with tw.Window(worker, peers, memory, exchange) as window:
            assert (window.rank, window.size, len(window)) == (rank, 3, LENGTH)
            everyone = exchange(mine)
            for other in range(3):
                view = np.frombuffer(window.view(other), dtype=np.uint8)
                view[7 + rank * 2000 :][: len(mine)] = np.frombuffer(mine, dtype=np.uint8)
                del view
            exchange(b"written")
            own = bytes(memory)
            for other in range(3):
                assert own[7 + other * 2000 :][:1001] == everyone[other]
            assert own[:7] == bytes(7)
            remote = window.remote((rank + 1) % 3)
            peers[(rank + 1) % 3].put(mine, remote, 9000)
            peers[(rank + 1) % 3].flush()
            myself = window.endpoint(rank)
            myself.put(mine, window.remote(rank), 12000)
            myself.flush()
            assert bytes(memory)[12000:13001] == mine
            assert window.endpoint((rank + 1) % 3) is peers[(rank + 1) % 3]
            exchange(b"put")
            assert bytes(memory)[9000:10001] == everyone[(rank + 2) % 3]
            kept = window.view(1)
            with pytest.raises(tw.BusyError):
                window.close()
            kept.release()
            window.check()
        assert window.closed
        with pytest.raises(tw.HandleError):
            window.view(0)
        with pytest.raises(tw.HandleError):
            peers[(rank + 1) % 3].put(mine, remote, 0)

    run_ranks(3, body)


def test_a_bound_window_is_the_struct_that_kernels_take():
    def body(rank, context, worker, peers, exchange):
        memory = tw.Memory.allocate(context, LENGTH, place=f"emulated:{rank}")
        with tw.Window(worker, peers, memory, exchange, timeout=7) as window:
            bound = window.bind(f"emulated:{rank}")
            assert (bound.rank, bound.size, bound.length, bound.limit) == (rank, 2, LENGTH, 7.0)
            numbers = struct.unpack("IIQQQQQQ8Q", bytes(bound))
            assert all(numbers[8:10]) and not any(numbers[10:])  # the addresses of two ranks
            assert numbers[:8] == (rank, 2, LENGTH, bound.bases, bound.abort_flag, bound.failure, bound.abort, 7_000_000_000)
            assert tw.memory_query(bound.bases)["place"] == f"emulated:{rank}"
            with pytest.raises(tw.Unsupported, match="rank 0.*device memory"):
                window.bind("host")
            with pytest.raises(tw.Unsupported, match="bind"):
                window.view(1 - rank)

    run_ranks(2, body)


def test_what_the_exchange_raises_or_gives_is_told(context, worker):
    memory = tw.Memory.allocate(context, LENGTH)

    def failing(mine):
        raise LookupError("nobody answers")

    with pytest.raises(LookupError, match="nobody answers"):
        tw.Window(worker, [None], memory, failing)
    for wrong in ([], [b"short"], 5):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            tw.Window(worker, [None], memory, lambda mine, wrong=wrong: wrong)
    with pytest.raises(tw.InvalidError, match="None for this one"):
        tw.Window(worker, [], memory, lambda mine: [mine])
    store = tw.Store("serve:127.0.0.1:0", job_key=secrets.token_bytes(32), rank=0, count=1)
    with store, tw.Window(worker, [None], memory, store) as window:
        assert bytes(window.view(0)) == bytes(LENGTH)


def test_lengths_that_differ_are_refused_everywhere():
    def body(rank, context, worker, peers, exchange):
        memory = tw.Memory.allocate(context, LENGTH + rank)
        with memory, pytest.raises(tw.InvalidError, match="rank 1"):
            tw.Window(worker, peers, memory, exchange)

    run_ranks(2, body)


def other_rank(endpoint, pipe, place, seed):
    """The other process: rank 1 writes what the test expects, and leaves the window as it is told."""

    def exchange(mine):
        pipe.send(mine)
        return [pipe.recv(), mine]

    worker = endpoint.worker
    memory = tw.Memory.allocate(worker.context, LENGTH, place=place)
    window = tw.Window(worker, [endpoint, None], memory, exchange)
    if place == "host":
        window.view(0)[5:1005] = seed
    pipe.send("written")
    if pipe.recv() == "vanish":
        endpoint.close(force=True)
    else:
        window.close()


@pytest.mark.parametrize("place", ["host", "emulated:1"])
@pytest.mark.parametrize("end", ["close", "vanish"])
def test_with_another_process(place, end):
    seed = os.urandom(1000)
    with connected(other_rank, place, seed, transport="shm") as (endpoint, pipe):

        def exchange(mine):
            theirs = pipe.recv()
            pipe.send(mine)
            return [mine, theirs]

        worker = endpoint.worker
        memory = tw.Memory.allocate(worker.context, LENGTH, place=place)
        window = tw.Window(worker, [None, endpoint], memory, exchange)
        assert window.bind(place).size == 2
        assert pipe.recv() == "written"
        if place == "host":
            assert bytes(memory)[5:1005] == seed
        pipe.send(end)
        if end == "close":
            window.close()
            return
        deadline = time.monotonic() + 20
        with pytest.raises(tw.PeerLost, match="rank 1"):  # without anybody's progress
            while time.monotonic() < deadline:
                window.check()
        with pytest.raises(tw.PeerLost):
            window.bind(place)
        with pytest.raises(tw.PeerLost):
            window.close()


def test_memory_under_a_window_is_not_released(context, worker):
    memory = tw.Memory.allocate(context, LENGTH)
    window = tw.Window(worker, [None], memory, lambda mine: [mine])
    with pytest.raises(tw.BusyError, match="window"):
        memory.release()
    window.view(0)[:3] = b"abc"
    assert bytes(memory)[:3] == b"abc"
    window.close()
    memory.release()
