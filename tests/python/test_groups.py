# SPDX-License-Identifier: Apache-2.0
"""thalweg.init() and Group under ``thalweg run``, and alone."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest
import thalweg

RUN = [sys.executable, "-m", "thalweg._cli.main", "run"]
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "ring.py"


def run(tmp_path: pathlib.Path, ranks: int, text: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """A script's ranks; each has `world`."""
    path = tmp_path / "rank.py"
    path.write_text(f"import thalweg\nworld = thalweg.init(timeout={timeout})\n" + textwrap.dedent(text))
    return subprocess.run([*RUN, "-n", str(ranks), str(path)], capture_output=True, text=True, timeout=100, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the ranks have said."""
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_the_example():
    done = subprocess.run([*RUN, "-n", "3", str(EXAMPLE)], capture_output=True, text=True, timeout=100, check=False)
    assert lines(done) == ["[0] ring: 3 ranks, each added its number: 6"]


def test_messages_between_all(tmp_path):
    done = run(
        tmp_path,
        3,
        """
        requests = []
        for rank in range(world.size):
            got = bytearray(8)
            requests.append((rank, got, world.worker.irecv(got, 1, source=world.endpoint(rank))))
            world.endpoint(rank).send(world.rank.to_bytes(8, "little"), 1)
        for rank, got, request in requests:
            request.wait(20)
            assert int.from_bytes(got, "little") == rank
        world.barrier()
        assert world.exchange(bytes([world.rank] * 3)) == [bytes([rank] * 3) for rank in range(3)]
        assert world.lost() == []
        print(world.rank, world.size)
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] 0 3", "[1] 1 3", "[2] 2 3"]


def test_parts(tmp_path):
    done = run(
        tmp_path,
        3,
        """
        part = world.split(None if world.rank == 1 else 7, key=9 - world.rank)
        host = world.split_by("host")
        copy = host.duplicate()
        copy.barrier()
        print(part and (part.rank, part.size), host.size, copy.rank)
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] (1, 2) 3 0", "[1] None 3 1", "[2] (0, 2) 3 2"]


def test_a_window(tmp_path):
    done = run(
        tmp_path,
        3,
        """
        memory = thalweg.Memory.allocate(world.context, 3)
        with world.window(memory) as window:
            for rank in range(3):
                view = window.view(rank)
                view[world.rank] = 10 * rank + world.rank
                view.release()
            world.barrier()
            print(list(memoryview(memory)))
            world.barrier()
    """,
    )
    assert lines(done) == ["[0] [0, 1, 2]", "[1] [10, 11, 12]", "[2] [20, 21, 22]"]


def test_a_windows_end_waits_for_that_window(tmp_path):
    """Not for the end of another one, which the other rank makes half of the time later; and the next call is in step again."""
    done = run(
        tmp_path,
        2,
        """
        import time

        memories = [thalweg.Memory.allocate(world.context, 64) for _ in range(2)]
        windows = [world.window(memory) for memory in memories]
        world.barrier()
        time.sleep(4 * world.rank)
        for window in windows if world.rank == 0 else reversed(windows):
            try:
                window.close()
                print("ended")
            except thalweg.TimedOut:
                print("too early")
        assert world.exchange(bytes([world.rank])) == [bytes([0]), bytes([1])]
        world.barrier()
    """,
        timeout=8,
    )
    assert lines(done) == ["[0] ended", "[0] too early", "[1] ended", "[1] ended"]


def test_a_window_that_is_dropped_takes_part_in_no_call(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        memory = thalweg.Memory.allocate(world.context, 64)
        window = world.window(memory)
        world.barrier()
        if world.rank == 0:
            del window
            world.worker.recv(bytearray(1), 5)
        else:
            try:
                window.close()
            except thalweg.TimedOut as error:
                assert "rank 0" in str(error), error
                print("alone")
            world.endpoint(0).send(b"x", 5)
        assert world.exchange(bytes([world.rank])) == [bytes([0]), bytes([1])]
        world.barrier()
    """,
        timeout=5,
    )
    assert lines(done) == ["[1] alone"]


def test_windows_end_with_their_group(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        part = world.duplicate()
        memory = thalweg.Memory.allocate(world.context, 64)
        window = part.window(memory)
        assert window.endpoint(1 - world.rank) is world.endpoint(1 - world.rank)
        view = window.view(1 - world.rank)
        try:
            part.close()
        except thalweg.BusyError as error:
            assert "views" in str(error), error
        assert not part.closed and not window.closed
        view.release()
        part.close()
        print(window.closed)
        window.close()
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] True", "[1] True"]


def test_a_close_that_is_refused_leaves_windows_open(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        memory = thalweg.Memory.allocate(world.context, 64)
        part = world.duplicate()
        window = part.window(memory)
        if world.rank == 0:
            under_way = part.ibarrier()
            try:
                part.close()
                print("closed")
            except thalweg.BusyError:
                pass
        world.barrier()
        if world.rank == 1:
            under_way = part.ibarrier()
        under_way.wait()
        with window.view(world.rank) as view:
            view[3] = world.rank + 1
        part.barrier()
        with window.view(1 - world.rank) as view:
            print(view[3])
        window.close()
        part.close()
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] 2", "[1] 1"]


def test_a_rank_that_ends_is_named_and_left_behind(tmp_path):
    done = run(
        tmp_path,
        3,
        """
        world.barrier()
        if world.rank == 1:
            world.close()
        else:
            try:
                world.barrier()
            except thalweg.PeerLost as error:
                assert "rank 1:" in str(error), error
            left = world.shrink()
            left.barrier()
            print(left.rank, left.size, world.lost())
            left.barrier()
    """,
    )
    assert lines(done) == ["[0] 0 2 [1]", "[2] 1 2 [1]"]


def test_alone():
    with thalweg.init() as world:
        assert (world.rank, world.size) == (0, 1)
        world.barrier()
        got = bytearray(9)
        request = world.worker.irecv(got, 3, source=world.endpoint(0))
        world.endpoint(0).send(b"to myself", 3)
        request.wait(20)
        assert got == b"to myself"
    assert world.closed and world.worker.closed


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(thalweg.InvalidError, match="THALWEG_STORE"):
        thalweg.init(rank=0, count=2)
    with pytest.raises(thalweg.TimedOut, match="1 did not come"):
        thalweg.init(store=f"file:{tmp_path}/store", rank=0, count=2, timeout=0.3)
    with thalweg.init() as world:
        with pytest.raises(thalweg.InvalidError, match="no rank 1"):
            world.endpoint(1)
        with pytest.raises(thalweg.InvalidError, match="numa"):
            world.split_by("rack")
        for wrong in (-1, -world.rank - 1, 2**32, 2**70, -(2**70)):
            with pytest.raises(thalweg.InvalidError, match="add one number to the keys"):
                world.split(0, wrong)
            with pytest.raises(thalweg.InvalidError, match="add one number to the keys"):
                world.split_by("host", key=wrong)
            with pytest.raises(thalweg.InvalidError, match="None says"):
                world.split(wrong)
        with pytest.raises(TypeError):
            world.split(0, 1.5)
        with world.split(2**32 - 2, 2**32 - 1) as part:
            assert part.size == 1
    with pytest.raises(thalweg.HandleError):
        world.barrier()


def test_handlers_run_in_calls_of_the_group_that_wait(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        worker, answers, plan = world.worker, [], thalweg.Plan(world.context)
        calls = {
            "barrier": world.barrier,
            "exchange": lambda: world.exchange(bytes([world.rank])),
            "split": lambda: world.split(0).close(),
            "plan": plan.prepare,
        }
        other = world.endpoint(1 - world.rank)
        into = bytearray(8)
        plan.send(other, bytes(8), 1) if world.rank else plan.recv(other, into, 1)
        me = worker.connect(worker.address)

        def answer(message):
            if message.header == b"plan":  # a plan with channels, in the middle of another one's preparation
                with thalweg.Plan(world.context) as inner:
                    got = bytearray(5)
                    inner.recv(me, got, 7)
                    inner.send(me, b"inner", 7)
                    inner.prepare(20)
                    inner.run(20)
                    assert got == b"inner"
            message.endpoint.iam_send(2, message.header + b" answered")

        worker.am_register(1, answer)
        worker.am_register(2, lambda message: answers.append(message.header))
        world.barrier()
        for name, call in calls.items():
            if world.rank == 1:  # rank 0 is in the call by then, or will be
                other.am_send(1, name.encode())
                while not answers:
                    worker.wait(1)
                assert answers.pop() == name.encode() + b" answered"
            call()
        print(world.rank)
        world.barrier()
        plan.close()
    """,
    )
    assert lines(done) == ["[0] 0", "[1] 1"]


def test_what_handlers_raise_in_calls_of_the_group_comes_out_of_them(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        worker, got = world.worker, []
        other = world.endpoint(1 - world.rank)

        def broken(message):
            got.append(message.header)
            message.endpoint.iam_send(2, b"handled")
            try:
                worker.close()  # in the middle of the barrier
            except thalweg.BusyError:
                got.append(b"busy")
            raise LookupError(message.header)

        worker.am_register(1, broken)
        worker.am_register(2, lambda message: got.append(message.header))
        raised = []
        for turn in range(2):
            if turn == 1 and world.rank == 1:
                other.am_send(1, b"raises")
                while not got:
                    worker.wait(1)
            try:
                world.barrier()
            except LookupError as error:
                raised.append(error.args)
        print(world.rank, got, raised)
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] 0 [b'raises', b'busy'] [(b'raises',)]", "[1] 1 [b'handled'] []"]


def test_an_exchange_returns_its_values_also_if_a_handler_raised_meanwhile(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        worker, got = world.worker, []
        other = world.endpoint(1 - world.rank)

        def broken(message):
            message.endpoint.iam_send(2, b"handled")
            raise LookupError(message.header)

        worker.am_register(1, broken)
        worker.am_register(2, lambda message: got.append(message.header))
        if world.rank == 1:
            other.am_send(1, b"raises")
            while not got:
                worker.wait(1)
        values, raised = world.exchange(b"%d" % world.rank), []
        try:
            worker.progress()
        except LookupError as error:
            raised.append(error.args)
        print(world.rank, values, raised)
        world.barrier()
    """,
    )
    assert lines(done) == ["[0] 0 [b'0', b'1'] [(b'raises',)]", "[1] 1 [b'0', b'1'] []"]


def test_a_collective_under_way_ends_with_its_worker(tmp_path):
    done = run(
        tmp_path,
        2,
        """
        peer = world.endpoint(1 - world.rank)
        world.barrier()
        if world.rank == 0:
            request = world.ibarrier()
            world.worker.close()
            try:
                request.wait(10)
            except thalweg.ClosedError:
                print("ended")
        else:
            try:
                world.worker.recv(bytearray(1), 3, source=peer)
            except (thalweg.PeerLost, thalweg.ClosedError):
                print("alone")
    """,
    )
    assert lines(done) == ["[0] ended", "[1] alone"]
