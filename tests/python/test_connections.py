# SPDX-License-Identifier: Apache-2.0
"""Listeners, addresses, keys, forks, peers that die, the store and the log."""

import gc
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest
import thalweg as tw
from peers import connected, spawn


def drive(*workers, until):
    """Progresses several workers of this thread until a condition holds."""
    end = time.monotonic() + 20
    while not until():
        for worker in workers:
            worker.progress()
        assert time.monotonic() < end, "nothing happened in time"


@pytest.fixture
def other(context):
    with tw.Worker(context) as made:
        yield made


@pytest.mark.parametrize("transport", [None, "tcp"])
def test_listen_connect_accept(worker, other, transport):
    with worker.listen("127.0.0.1:0") as listener:
        assert listener.port > 0
        client = other.connect(f"127.0.0.1:{listener.port}", data=b"hello", transport=transport, wait=False)
        requests = []
        drive(worker, other, until=lambda: requests.append(listener.next()) or requests[-1] is not None)
        request = requests[-1]
        assert request.data == b"hello" and "127.0.0.1" in request.peer
        server = request.accept(b"welcome")
        with pytest.raises(tw.HandleError):
            request.accept()
        drive(worker, other, until=lambda: client.state == server.state == "ok")
        assert client.data == b"welcome"
        if transport:
            assert client.transport == transport
    got = bytearray(3)
    receive = server.irecv(got, 1)
    client.isend(b"abc", 1)
    drive(worker, other, until=receive.done)
    assert got == b"abc" and receive.wait().endpoint is server


def test_unix_socket_address_in_use_and_nobody_there(worker, other, tmp_path):
    address = f"unix:{tmp_path}/door"
    with worker.listen(address), pytest.raises(tw.AddressInUse):
        other.listen(address)
    with pytest.raises((tw.Unreachable, tw.SystemCallError)):
        other.connect(f"unix:{tmp_path}/nobody", timeout=2)


def test_connecting_twice_is_one_connection(worker, other):
    first = other.connect(worker.address, wait=False)
    second = other.connect(worker.address, wait=False)
    drive(worker, other, until=lambda: first.state == second.state == "ok")
    got = [bytearray(1), bytearray(1)]
    receives = [worker.irecv(buffer, 1) for buffer in got]
    first.isend(b"1", 1)
    second.isend(b"2", 1)
    drive(worker, other, until=lambda: all(receive.done() for receive in receives))
    assert sorted(bytes(buffer) for buffer in got) == [b"1", b"2"]
    assert receives[0].wait().endpoint is receives[1].wait().endpoint


def test_another_key_is_refused_and_counted(context, worker):
    stranger = tw.Worker(tw.Context(job_key=secrets.token_bytes(32)))
    listener = worker.listen()
    with pytest.raises(tw.AuthenticationError):
        stranger.connect(f"127.0.0.1:{listener.port}", timeout=5)
    counters = context.counters()
    assert any(count > 0 for name, count in counters.items() if isinstance(count, int) and name not in ("links", "named"))
    listener.close()
    stranger.close()


@pytest.mark.parametrize("size", [8, 70_000, 3_000_001])
def test_moved_counts_by_the_way_that_explain_names(context, worker, size):
    endpoint = worker.connect(worker.address)
    data, got = bytearray(secrets.token_bytes(size)), bytearray(size)
    said = endpoint.explain("send", buffer=data)
    way = next(line.split(": ")[1] for line in said.splitlines() if line.startswith("way into ordinary memory: "))
    before = context.counters()["moved"]
    receive = worker.irecv(got, 7)
    send = endpoint.isend(data, 7)
    receive.wait()
    send.wait()
    assert got == data
    after = context.counters()["moved"]
    changed = {
        name: (counts["operations"] - before[name]["operations"], counts["bytes"] - before[name]["bytes"])
        for name, counts in after.items()
        if counts != before[name]
    }
    assert changed == {way: (1, size)}
    assert way == "eager" or size > 8


def test_info_says_what_is_there(context):
    info = context.info()
    assert info["version"] == tw.__version__ and "transports" in info


def wait_to_be_killed(endpoint, pipe):
    pipe.send(os.getpid())
    while True:
        endpoint.worker.wait()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_peer_ends_what_waits(transport):
    with (
        pytest.raises(tw.PeerLost),
        connected(wait_to_be_killed, transport=transport) as (endpoint, pipe),
    ):
        pid = pipe.recv()
        pending = [endpoint.irecv(bytearray(8), tag) for tag in range(5)]
        threading.Timer(0.2, lambda: os.kill(pid, signal.SIGKILL)).start()
        start = time.monotonic()
        with pytest.raises(tw.PeerLost):
            endpoint.recv(bytearray(8), 9, timeout=20)
        assert time.monotonic() - start < 4
        for request in pending:
            with pytest.raises(tw.PeerLost):
                request.wait(5)
        assert endpoint.state == "peer_lost"
        endpoint.send(b"x")


def test_a_forked_child_gets_an_error_and_leaves_the_parent_alone(context, worker, me):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            me.send(b"from the child", 1)
        except tw.ForkedError:
            try:
                tw.Worker(context)
            except tw.ForkedError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    request = me.isend(b"still here", 1)
    got = bytearray(10)
    worker.recv(got, 1, timeout=10)
    request.wait(10)
    assert got == b"still here"


def test_a_busy_context_is_not_closed():
    context = tw.Context(job_key=secrets.token_bytes(32))
    worker = tw.Worker(context)
    with pytest.raises(tw.BusyError):
        context.close()
    worker.close()
    context.close()
    with pytest.raises(tw.ClosedError):
        tw.Worker(context)


def test_the_end_of_a_block_does_not_hide_its_error():
    with pytest.raises(ValueError, match="the block's"), tw.Context() as context:
        worker = tw.Worker(context)
        raise ValueError("the block's")
    with pytest.raises(tw.BusyError), tw.Context() as other:
        still = tw.Worker(other)
    worker.close()
    context.close()
    still.close()
    other.close()


def rank(address, key, number, count, pipe):
    with tw.Store(address, job_key=key, rank=number, count=count, timeout=20) as store:
        store.put(f"from {number}", bytes([number]) * 5000)
        seen = [store.wait(f"from {other}") for other in range(count)]
        values = store.exchange(bytes([number]) * 3)
        store.barrier()
        pipe.send((seen, values, store.get("absent"), store.get("absent", b"-")))


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_store(kind, tmp_path):
    key, count = secrets.token_bytes(32), 3
    served = None
    if kind == "tcp":
        served = tw.Store("serve:127.0.0.1:0", job_key=key, timeout=20)
        address = served.address
    else:
        address = f"file:{tmp_path}/store"
    pipes, processes = [], []
    for number in range(count):
        here, there = spawn.Pipe()
        process = spawn.Process(target=rank, args=(address, key, number, count, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        assert pipe.poll(30)
        seen, values, absent, default = pipe.recv()
        assert seen == [bytes([number]) * 5000 for number in range(count)]
        assert values == [bytes([number]) * 3 for number in range(count)]
        assert absent is None and default == b"-"
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    if served:
        served.close()


def test_an_address_is_any_buffer(worker, other):
    for made in (bytearray, memoryview, lambda address: memoryview(bytearray(address))):
        assert worker.connect(made(other.address), wait=False) is worker.connect(other.address, wait=False)
    for wrong in (None, 5, ["127.0.0.1:1"]):
        with pytest.raises(TypeError, match="address"):
            worker.connect(wrong)
    with pytest.raises(tw.InvalidError, match="contiguous"):
        worker.connect(memoryview(other.address + other.address)[::2])


def test_a_store_takes_any_buffer(tmp_path):
    with tw.Store(f"file:{tmp_path}/store", job_key=secrets.token_bytes(32), timeout=5) as store:
        for number, value in enumerate((b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], memoryview(b""))):
            store.put(f"key {number}", value)
            assert store.get(f"key {number}") == bytes(value)
        for wrong in (None, 5, "text"):
            with pytest.raises(TypeError, match="value"):
                store.put("key", wrong)
        with pytest.raises(tw.InvalidError, match="contiguous"):
            store.put("key", memoryview(b"abcd")[::2])
        assert store.get("key") is None


def test_a_key_of_a_store_has_no_nul(tmp_path):
    with tw.Store(f"file:{tmp_path}/store", job_key=secrets.token_bytes(32), timeout=5) as store:
        store.put("a", b"stays")
        for call in (lambda: store.put("a\0b", b"over it"), lambda: store.get("a\0b", b""), lambda: store.wait("a\0b")):
            with pytest.raises(tw.InvalidError, match="NUL"):
                call()
        assert store.get("a") == b"stays"
    with pytest.raises(tw.InvalidError, match="NUL"):
        tw.Store(f"file:{tmp_path}/store\0more", job_key=secrets.token_bytes(32))


def test_the_log_comes_by_logging(worker, other, caplog):
    """An active message without a handler is a warning of the library."""
    with caplog.at_level(logging.WARNING, logger="thalweg"):
        me = worker.connect(worker.address)
        me.am_send(77, b"", b"for nobody")
        for _ in range(100):
            worker.progress()
        end = time.monotonic() + 5
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)  # the interpreter delivers it between two of its instructions
    assert any(record.name == "thalweg" and "77" in record.getMessage() for record in caplog.records)


FORKS_WITH_A_LINE = """
import logging, os, threading
import thalweg as tw

lines = []
handler = logging.Handler()
handler.emit = lines.append
logging.getLogger("thalweg").addHandler(handler)

def fork():
    with tw.Worker(tw.Context()) as worker:
        worker.connect(worker.address).am_send(78, b"", b"for nobody")
        for _ in range(100):
            worker.progress()
        if (pid := os.fork()) == 0:
            tw._core._flush_log()
            os._exit(len(lines))
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

thread = threading.Thread(target=fork)
thread.start()
thread.join()
tw._core._flush_log()
print("parent", len(lines))
"""


def test_a_line_of_the_log_that_waits_as_a_process_forks_is_the_parents_alone():
    """The main thread, which would deliver it, waits for the one that forks. The child's queue is its own, as its lock is."""
    done = subprocess.run([sys.executable, "-c", FORKS_WITH_A_LINE], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["child 0", "parent 1"], done.stderr


def close_when_told(endpoint, pipe):
    """The other process: closes in good order."""
    pipe.recv()
    endpoint.close()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_peer_that_closes_is_closed_and_not_lost(transport):
    with connected(close_when_told, transport=transport) as (endpoint, pipe):
        request = endpoint.irecv(bytearray(8), 1)
        pipe.send("close")
        with pytest.raises(tw.ClosedError):
            request.wait(20)
        assert endpoint.state == "closed"
        endpoint.close()


def test_connections_to_one_worker_are_closed_by_one_close(worker, other):
    first, second = (worker.connect(other.address, wait=False) for _ in range(2))
    assert first is second
    theirs = other.connect(worker.address, wait=False)
    drive(worker, other, until=lambda: first.state == theirs.state == "ok")
    assert worker.connect(other.address) is first
    closing = first.iclose()
    drive(worker, other, until=lambda: closing.ended or closing.done())
    drive(worker, other, until=lambda: theirs.state != "ok")
    for kind in ("close", "drop"):
        again = worker.connect(other.address, wait=False)
        assert again is not first and worker.connect(other.address, wait=False) is again
        theirs = other.connect(worker.address, wait=False)
        drive(worker, other, until=lambda again=again, theirs=theirs: again.state == theirs.state == "ok")
        if kind == "close":
            again.close(force=True)
        del again
        gc.collect()
        drive(worker, other, until=lambda theirs=theirs: theirs.state != "ok")


def test_a_connection_request_that_is_dropped_is_rejected(worker, other):
    with worker.listen("127.0.0.1:0") as listener:
        client = other.connect(f"127.0.0.1:{listener.port}", wait=False)
        requests = []
        drive(worker, other, until=lambda: requests.append(listener.next()) or requests[-1] is not None)
        assert client.state == "in_progress"
        requests.clear()
        drive(worker, other, until=lambda: client.state == "rejected")


def asking(worker, other, listener):
    """(a client that waits for its answer, the request that it made)"""
    client = other.connect(f"127.0.0.1:{listener.port}", wait=False)
    requests = []
    drive(worker, other, until=lambda: requests.append(listener.next()) or requests[-1] is not None)
    return client, requests[-1]


def test_an_answer_that_is_refused_leaves_the_client_to_be_answered(worker, other):
    with worker.listen("127.0.0.1:0") as listener:
        client, request = asking(worker, other, listener)
        with pytest.raises(tw.InvalidError, match="bogus"):
            request.accept(transport="bogus")
        with pytest.raises(tw.InvalidError, match="private data"):
            request.reject(bytes(100_000))
        request.reject(b"no")
        drive(worker, other, until=lambda: client.state == "rejected")
        assert client.data == b"no"
        with pytest.raises(tw.HandleError, match="answered"):
            request.accept()
        client, request = asking(worker, other, listener)
        with pytest.raises(tw.InvalidError, match="private data"):
            request.accept(bytes(100_000))
        endpoint = request.accept()
        drive(worker, other, until=lambda: client.state == endpoint.state == "ok")
        client = other.connect(f"127.0.0.1:{listener.port}", wait=False)
        other.progress()
        with pytest.raises(tw.InvalidError, match="bogus"):
            listener.accept(20, transport="bogus")
        drive(worker, other, until=lambda: client.state == "rejected")


def test_a_sender_that_has_gone_is_none_whoever_has_its_place(worker, other):
    theirs = other.connect(worker.address, wait=False)
    requests = [worker.irecv(bytearray(8), 1) for _ in range(2)]
    for _ in requests:
        theirs.isend(b"12345678", 1)
    drive(worker, other, until=lambda: all([request.done() for request in requests]))
    sender = requests[0].wait().endpoint
    assert sender.state == "ok"
    sender.close(force=True)
    with worker.listen("127.0.0.1:0") as listener:
        for endpoint in [worker.connect(f"127.0.0.1:{listener.port}", wait=False) for _ in range(70)]:
            endpoint.close(force=True)
        there = [worker.connect(f"127.0.0.1:{listener.port}", wait=False) for _ in range(5)]
        assert requests[1].wait().endpoint is None
        assert all(endpoint.state == "in_progress" for endpoint in there)


def test_an_endpoint_that_ended_with_its_peer_is_closed_whoever_has_its_place(context, worker):
    met = []
    for turn in range(340):  # the worker keeps 256 that were lost, and 64 places that are free
        with tw.Worker(context) as other:
            theirs = other.connect(worker.address, wait=False)
            theirs.isend(b"here", 1)
            request = worker.irecv(bytearray(4), 1)
            drive(worker, other, until=request.done)
            if turn < 3:
                met.append(request.wait().endpoint)
                assert met[-1].state == "ok" and not met[-1].closed
            theirs.close(force=True)
    for _ in range(1000):
        worker.progress()
    for endpoint in met:
        assert endpoint.closed and endpoint.state == "closed"
        with pytest.raises(tw.ClosedError):
            endpoint.isend(b"for whom?", 1)
        endpoint.close()


@pytest.mark.parametrize("owned", [True, False], ids=["connect", "sender"])
def test_what_is_told_of_an_endpoints_end_may_ask_for_it(worker, owned):
    """A callback of a weak reference runs when the object has no reference any more."""
    ends = []

    def again(_):
        ends.append(worker.connect(worker.address) if owned else worker.recv(bytearray(1), 1).endpoint)

    first = worker.connect(worker.address)
    first.isend(b"x", 1).wait(20)
    watch = weakref.ref(first, again)
    del first
    gc.collect()
    assert watch() is None
    (end,) = ends
    ends.clear()
    got = bytearray(5)
    receive = end.irecv(got, 2)
    end.send(b"hello", 2)
    assert receive.wait(20).length == 5
    assert got == b"hello"
    assert worker.connect(worker.address) is end
    end.close()
    assert end.closed
