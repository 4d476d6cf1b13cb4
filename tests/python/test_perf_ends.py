# SPDX-License-Identifier: Apache-2.0
"""How thalweg-perf ends: where the other process is lost, where it may not measure, and what it refuses."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import resource
import secrets
import select
import signal
import struct
import subprocess
import sys
import time

import pytest

pytest.importorskip("typer")

import thalweg as tw
from test_perf import perf, rows_of
from thalweg._cli import native
from thalweg._cli.perf import environment as packaged
from thalweg._cli.perf import rows as read_rows

SMALL = ",".join(["8"] * 100)  # more sizes than are measured before the other process is killed
KEY = secrets.token_hex(32)


@pytest.fixture
def begin():
    """Starts thalweg-perf. What the test leaves is killed."""
    started = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [native.program("thalweg-perf"), *arguments],
            env={**packaged(), "THALWEG_EMULATED": "devices=1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def child_of(pid: int) -> int:
    """The process that a program has started, once it has."""
    for _ in range(2000):
        if found := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return int(found[0])
        time.sleep(0.005)
    raise AssertionError("it has started no process")


@pytest.mark.parametrize(
    "arguments",
    [
        ["tag_lat", "--transport", "shm"],
        ["tag_lat", "--transport", "tcp"],
        ["am_lat"],
        ["am_bw"],
        ["put_lat", "--transport", "shm"],  # a put of 8 bytes is polled in mapped memory
        ["put_lat", "--transport", "tcp"],
        ["put_lat", "--memory", "plain"],  # a signal is waited for
        ["chain"],
        ["strided_put", "--trigger", "queue"],
    ],
)
def test_a_lost_process_ends_the_other(begin, arguments):
    process = begin(*arguments, "--size", SMALL, "--seconds", "0.2")
    process.stdout.readline()
    process.stdout.readline()  # the heading: it has connected
    os.kill(child_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 3, err
    assert "gone" in err or "peer_lost" in err


@pytest.mark.parametrize("test", ["floor", "sockets"])
def test_a_lost_process_ends_a_test_of_the_machine(begin, test):
    process = begin(test)
    os.kill(child_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 3 and "the other process is gone" in err


class Server:
    """thalweg perf --listen on a port of its own."""

    def __init__(self, begin) -> None:
        self.process = begin("--listen", "0", THALWEG_JOB_KEY=KEY)

    def port(self) -> str:
        """Where it serves next."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "serving on port" in line:
                return line.split()[-1]
        raise AssertionError(f"it has ended with {self.process.wait()}")


@pytest.mark.parametrize("test", ["tag_lat", "put_lat"])
def test_a_server_outlives_its_clients_and_they_its_end(begin, test):
    host, server = "127.0.0.1:", Server(begin)
    client = begin(test, host + server.port(), "--size", SMALL, "--seconds", "0.2", THALWEG_JOB_KEY=KEY)
    client.stdout.readline()
    client.kill()
    client = begin(test, host + server.port(), "--size", "8", "--seconds", "0.01", "--json", THALWEG_JOB_KEY=KEY)
    out, err = client.communicate(timeout=20)
    assert client.returncode == 0 and json.loads(out)["verified"], err
    client = begin(test, host + server.port(), "--size", SMALL, "--seconds", "0.2", THALWEG_JOB_KEY=KEY)
    client.stdout.readline()
    client.stdout.readline()
    os.kill(child_of(server.process.pid), signal.SIGKILL)
    _, err = client.communicate(timeout=10)
    assert client.returncode == 3 and ("gone" in err or "peer_lost" in err)
    server.port()


def packed_order(change) -> bytes:
    """As thalweg-perf sends it."""
    asked = {
        "test": b"tag_bw",
        "size": 64,
        "iterations": 3,
        "window": 4,
        "layout": (0, 0, 0),
        "trigger": 0,
        "waits": 0,
    } | change
    return struct.pack(
        "24s8Q8B24s24s",
        *(asked["test"], asked["size"], asked["iterations"], asked["window"], 1, 0, *asked["layout"]),
        *(0, asked["trigger"], asked["waits"], 0, 0, 0, 0, 0, b"plain", b"plain"),
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": (1, 0, 0)}, "at least one byte"),
        ({"layout": (1 << 62, 8, 8), "size": 64}, "up to 1024G"),
        ({"window": 1 << 60}, "--window"),
        ({"window": 0}, "--window"),
        ({"size": 1 << 63}, "up to 1024G"),
        ({"iterations": 1 << 60}, "iterations"),
        ({"test": b"blocks_bw", "size": 0}, "from 1"),
        ({"test": b"atomic_rate", "size": 4096}, "4 or 8"),
        ({"trigger": 200}, "no such trigger"),
        ({"waits": 7}, "no such --waits"),
        ({"test": b"x" * 24}, "unsupported"),
    ],
)
def test_a_server_checks_what_a_peer_orders(begin, change, words):
    """A client of this test's own, with the right key, which sends an order that thalweg-perf would not."""
    order = packed_order(change)
    server = Server(begin)
    with tw.Worker(tw.Context(job_key=bytes.fromhex(KEY))) as worker:
        endpoint = worker.connect(f"127.0.0.1:{server.port()}")
        endpoint.send(order, tag=0xFFFF000000000001)
        for line in server.process.stderr:
            if words in line:
                break
        else:
            raise AssertionError("it has ended")
    server.port()  # serves on


def refused(server, words) -> None:
    """The server says so, and serves the next one."""
    assert any(words in line for line in server.process.stderr), "it has ended"
    server.port()


@pytest.mark.parametrize("length", [1, 1 << 20])
def test_a_server_takes_no_active_message_that_was_not_ordered(begin, length):
    """Neither one that its handler would copy nor one that it would fetch, into a buffer of 64 bytes."""
    server = Server(begin)
    with tw.Worker(tw.Context(job_key=bytes.fromhex(KEY))) as worker:
        endpoint = worker.connect(f"127.0.0.1:{server.port()}")
        endpoint.send(packed_order({"test": b"am_bw", "window": 1}), tag=0xFFFF000000000001)
        endpoint.send(b"\0", tag=8)
        endpoint.am_send(1, bytes(length))
        refused(server, "what was not ordered")


@pytest.mark.parametrize("seconds", [1e18, float("nan"), float("inf"), -1.0])
def test_a_server_computes_for_no_longer_than_makes_sense(begin, seconds):
    server = Server(begin)
    with tw.Worker(tw.Context(job_key=bytes.fromhex(KEY))) as worker:
        endpoint = worker.connect(f"127.0.0.1:{server.port()}")
        endpoint.send(packed_order({"test": b"overlap", "iterations": 0}), tag=0xFFFF000000000001)
        endpoint.send(b"\0", tag=8)
        endpoint.send(struct.pack("d", seconds), tag=8)
        refused(server, "a transfer takes")


def test_a_server_without_a_port_ends(begin):
    done = perf("--listen", Server(begin).port(), environment={"THALWEG_JOB_KEY": KEY}, form="")
    assert done.returncode == 3 and "tw_listen" in done.stderr


@pytest.fixture(scope="module")
def wrong_byte(tmp_path_factory):
    """An environment in which the kernel's copies between processes end with a wrong byte, but for small ones."""
    library = tmp_path_factory.mktemp("preload") / "wrong_byte.so"
    source = """
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
typedef unsigned long number;
ssize_t process_vm_readv(pid_t p, const struct iovec* to, number n, const struct iovec* from, number m, number flags) {
  const ssize_t copied = syscall(SYS_process_vm_readv, p, to, n, from, m, flags);
  if (copied >= 4096) ((char*)to[n - 1].iov_base)[to[n - 1].iov_len - 1] ^= 1;
  return copied;
}
"""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}


WRONG = ["tag_lat", "--size", "1M", "--way", "kernel", "--transport", "shm", "--seconds", "0.01"]


@pytest.mark.parametrize(("test", "wrong"), [(["floor"], 4), (WRONG, 1)])
def test_wrong_data_is_no_success(wrong_byte, test, wrong):
    done = perf(*test, environment=wrong_byte)
    assert done.returncode == 1 and [row["verified"] for row in rows_of(done)].count(False) == wrong
    done = perf(*test, form="--csv", environment=wrong_byte)
    lines = [line.split(",") for line in done.stdout.splitlines()]
    assert done.returncode == 1 and [line[2:] for line in lines].count(["", "not verified"]) == wrong
    assert all(float(line[2]) > 0 for line in lines if line[3] != "not verified")


READS = """
import sys
from thalweg._cli.perf import rows

program = "import os, time; print('{\\"pid\\": %d}' % os.getpid(), flush=True); time.sleep(600)"
for row in rows([], command=[sys.executable, "-c", program]):
    print(row["pid"], flush=True)
"""


def test_a_measurement_dies_with_what_reads_it():
    with subprocess.Popen([sys.executable, "-c", READS], stdout=subprocess.PIPE, text=True) as reader:
        measurement = os.pidfd_open(int(reader.stdout.readline()))
        reader.kill()
    assert select.select([measurement], [], [], 10)[0], "the measurement outlived its reader"
    os.close(measurement)


@pytest.fixture(scope="module")
def one_copy(tmp_path_factory):
    """An environment in which only a process's first large copy from another one happens."""
    library = tmp_path_factory.mktemp("preload") / "one_copy.so"
    source = """
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
typedef unsigned long number;
ssize_t process_vm_readv(pid_t p, const struct iovec* to, number n, const struct iovec* from, number m, number flags) {
  static int copies;
  ssize_t asked = 0;
  for (number i = 0; i < n; ++i) asked += to[i].iov_len;
  if (asked >= 4096 && copies++) return asked;
  return syscall(SYS_process_vm_readv, p, to, n, from, m, flags);
}
"""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}


def test_lost_data_behind_the_first_is_no_success(one_copy):
    done = perf(*WRONG, environment=one_copy)
    assert done.returncode == 1 and [row["verified"] for row in rows_of(done)] == [False]


@pytest.mark.parametrize("form", ["", "--json", "--csv"])
@pytest.mark.parametrize("test", [["tag_lat", "--size", "8", "--seconds", "0.01"], ["atomics", "--seconds", "0.01"]])
def test_results_that_cannot_be_written_are_no_success(test, form):
    with open("/dev/full", "w") as full:
        command = [native.program("thalweg-perf"), *test, *form.split()]
        done = subprocess.run(command, env=packaged(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3 and "the results cannot be written: No space left" in done.stderr


def test_a_large_size_with_a_window_is_the_size_asked_for():
    (row,) = rows_of(perf("tag_bw", "--size", "64M", "--seconds", "0.01", "--transport", "shm"))
    assert row["size"] == 64 << 20 and row["verified"]


def test_a_check_of_no_bytes_is_refused():
    done = perf("tune", "--check", "--size", "0", environment={"THALWEG_EMULATED": "devices=2"})
    assert done.returncode == 2 and "--size from 1" in done.stderr and "nan" not in done.stdout


def test_wrong_data_is_in_the_rows_that_programs_read(wrong_byte, monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ | wrong_byte)
    assert [row["verified"] for row in read_rows(WRONG)] == [False]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["daxpy", "--size", "7"], "from 8"),
        (["blocks_bw", "--size", "0"], "from 1"),
        (["atomic_lat", "--size", "16"], "4 or 8"),
        (["tag_lat", "--size", "2048G"], "up to 1024G"),
        (["tag_lat", "--layout", "strided:4,8,16", "--size", "64"], "leave --size out"),
        (["tag_lat", "--layout", "strided:4,8,4"], "strided:COUNT,BLOCK,STRIDE"),
        (["chain", "--layout", "strided:4,8,16"], "does not apply"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, words):
    done = perf(*arguments)
    assert done.returncode == 2 and words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["daxpy", "--size", "100001", "--transport", "shm"], 100000),
        (["tag_lat", "--layout", "strided:100,8,24"], 800),
        (["tag_bw", "--layout", "strided:100,8,24", "--window", "3"], 800),
        (["am_lat", "--layout", "strided:3,5,7"], 15),
        (["put_lat", "--layout", "strided:100,8,24"], 800),
        (["tag_lat", "--layout", "strided:100,8,24", "--transport", "self"], 800),
        (["strided_put", "--size", "1000", "--transport", "shm"], 8 * 11 * 11),
        (["strided_put", "--size", "1000", "--trigger", "kernel", "--transport", "shm"], 8 * 11 * 11),
        (["chain", "--size", "1000", "--window", "7", "--transport", "shm"], 7 * 142),
    ],
)
def test_a_size_is_what_was_moved(arguments, size):
    done = perf(*arguments, "--seconds", "0.02")
    (row,) = rows_of(done)
    assert row["size"] == size and row["verified"], done
    if "latency_us" in row and "self" not in arguments:
        assert row["bandwidth_GBps"] * 1e3 * row["latency_us"]["p50"] == pytest.approx(size, rel=1e-4)


def test_gets_are_counted_as_they_are_timed():
    """A get of new data is timed alone, of a buffer that is reused in batches: of 20 where they are small."""
    counts = {}
    for more in ([], ["--reuse"]):
        (row,) = rows_of(perf("get_lat", "--size", "8", "--seconds", "0.0000001", *more))
        counts[len(more)] = row["iterations"]
    assert counts == {0: 3, 1: 60}


FORBIDDEN = {"x86_64": (0xC000003E, 310), "aarch64": (0xC00000B7, 270)}  # AUDIT_ARCH_*, process_vm_readv


def forbid_readv() -> None:
    """As a container's seccomp profile does: EPERM."""
    import ctypes

    architecture, number = FORBIDDEN[platform.machine()]
    lines = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 0, 3, architecture),
        (0x20, 0, 0, 0),  # load the call's number
        (0x15, 0, 1, number),
        (0x06, 0, 0, 0x00050001),  # SECCOMP_RET_ERRNO, EPERM
        (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filtered = 38, 22, 2
    assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, filtered, program, 0, 0) == 0


@pytest.mark.skipif(platform.machine() not in FORBIDDEN, reason="this machine's number of the call is not known")
def test_a_floor_that_is_forbidden_is_unavailable_not_absurd():
    command = [native.program("thalweg-perf"), "floor"]
    for form, tells in (("--json", None), ("--csv", "readv_none,4096,,unavailable"), ("", "unavailable: process_vm_readv")):
        done = subprocess.run(
            [*command, *form.split()], env=packaged(), preexec_fn=forbid_readv, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        if tells:
            assert tells in done.stdout
            continue
        rows = rows_of(done)
        (readv,) = (row for row in rows if row["test"] == "readv")
        assert "Operation not permitted" in readv["unavailable"] and "ptrace_scope" in readv["unavailable"]
        assert {row["test"] for row in rows if row is not readv} == {"cache_line", "memcpy", "memcpy_other", "raw_tcp"}
        assert all(row["verified"] for row in rows if row is not readv)


def test_tuning_uses_a_key_of_the_environment_again_and_again(tmp_path):
    """Each pass has two new processes and a context of its own."""
    done = perf(
        *("tune", "--check", "--paths", "shm,tcp", "--rounds", "1", "--size", "8", "--seconds", "0.001"),
        environment={"THALWEG_JOB_KEY": KEY, "THALWEG_COSTS": str(tmp_path / "costs")},
    )
    assert done.returncode in (0, 1), done.stderr  # 1: not within what it promises, so short
    assert [path["path"] for path in json.loads(done.stdout)["paths"]] == ["shm", "tcp"]


@pytest.mark.parametrize("memory", ["plain", "huge"])
def test_buffers_that_find_no_room_are_refused_with_the_remedy(memory):
    """More than the process may have of addresses."""
    done = subprocess.run(
        [native.program("thalweg-perf"), "tag_lat", "--size", "1024G", "--memory", memory],
        env=packaged(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 39, 1 << 39)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert f"bytes of {memory} memory" in done.stderr and "smaller --size" in done.stderr


def test_a_job_of_ranks_that_does_not_begin_leaves_no_folder(tmp_path):
    """The library is refused its settings once the store's folder is there."""
    done = perf("allreduce", "-n", "2", environment={"THALWEG_TLS": "perhaps", "TMPDIR": str(tmp_path)})
    assert done.returncode == 3 and "THALWEG_TLS" in done.stderr
    assert not list(tmp_path.glob("thalweg-perf-*"))


BATCH_SCRIPT = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
    "found", [BATCH_SCRIPT, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}]
)
@pytest.mark.parametrize(("asked", "ranks"), [([], 2), (["-n", "3"], 3)])
def test_a_launcher_of_one_process_does_not_make_ranks_one(found, asked, ranks):
    done = perf("allreduce", *asked, "--size", "8", "--seconds", "0.01", environment=found)
    assert done.returncode == 0, done.stderr
    assert [row["figures"]["ranks"] for row in rows_of(done)] == [ranks]


def test_another_number_of_ranks_than_the_launchers_is_refused():
    place = {"THALWEG_RANK": "0", "THALWEG_SIZE": "1"}
    done = perf("allreduce", "-n", "8", "--size", "8", environment=place)
    assert done.returncode == 3 and not done.stdout
    assert "-n 8" in done.stderr and "the size 1" in done.stderr and "leave -n out" in done.stderr
    assert perf("allreduce", "-n", "1", "--size", "8", "--seconds", "0.01", environment=place).returncode == 0


def test_a_job_of_ranks_leaves_no_folder(begin, tmp_path):
    """Not even one whose rank is killed."""
    process = begin("allreduce", "--size", SMALL, "--seconds", "0.2", TMPDIR=str(tmp_path))
    process.stdout.readline()
    assert not list(tmp_path.glob("thalweg-perf-*"))
    os.kill(child_of(process.pid), signal.SIGKILL)
    process.communicate(timeout=20)
    assert process.returncode == 3
    assert not list(tmp_path.glob("thalweg-perf-*"))
