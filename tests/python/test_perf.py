# SPDX-License-Identifier: Apache-2.0
"""thalweg-perf itself: the memory of each side's buffers, and what it says of memory that is not there."""

from __future__ import annotations

import json
import subprocess

import pytest

pytest.importorskip("typer")

from thalweg._cli import native
from thalweg._cli.perf import environment as packaged


def perf(*arguments, form="--json", environment=None):
    """What thalweg-perf does, with an emulated device in both of its processes."""
    return subprocess.run(
        [native.program("thalweg-perf"), *arguments, *form.split()],
        env={**packaged(), "THALWEG_EMULATED": "devices=1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rows_of(done):
    """What it printed, row by row."""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("test", "memory"),
    [
        ("tag_lat", ["plain", "pinned"]),
        ("tag_bw", ["pinned", "huge"]),
        ("put_lat", ["host", "pinned"]),
        ("am_lat", ["host"] * 2),
        ("blocks_bw", ["plain", "host"]),
        ("get_lat", ["emulated:0", "host"]),
        ("get_bw", ["plain", "emulated:0"]),
    ],
)
def test_each_side_has_its_memory(test, memory):
    done = perf(
        test, "--size", "8,5001", "--seconds", "0.01", "--window", "3", "--memory", memory[0], "--peer-memory", memory[1]
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["size"] for row in rows] == [8, 5001]
    assert all(row["verified"] and row["memory"] == memory for row in rows)


@pytest.mark.parametrize("test", ["tag_lat", "tag_bw", "tag_bibw", "am_bw", "bytes_lat", "put_bw", "get_lat", "get_bw"])
def test_messages_are_new_data_unless_buffers_are_reused(test):
    for more, fresh in ((), True), (("--reuse",), False):
        done = perf(test, "--size", "5001", "--seconds", "0.01", "--window", "3", *more)
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)
        assert row["verified"] and row["fresh"] == fresh


def test_the_route_of_a_put_is_that_of_its_target():
    for memory, route in (("pinned", "put_mapped"), ("host", "put_mapped")):
        done = perf("put_lat", "--size", "8", "--seconds", "0.01", "--transport", "shm", "--peer-memory", memory)
        assert json.loads(done.stdout)["route"] == f"shm {route}", done
    done = perf("put_lat", "--size", "8", "--seconds", "0.01", "--transport", "shm", "--memory", "plain")
    assert "mapped" not in json.loads(done.stdout)["route"], done


def test_the_route_is_that_of_both_memories():
    routes = {}
    for peer in ("emulated:0", "pinned", "plain"):
        done = perf("tag_lat", "--size", "5001", "--seconds", "0.01", "--memory", "emulated:0", "--peer-memory", peer)
        routes[peer] = json.loads(done.stdout)["route"]
    assert "staging" in routes["plain"] and "staging" not in routes["emulated:0"] + routes["pinned"], routes


def test_host_memory_of_the_peer_is_the_librarys_unless_it_is_plain():
    for peer, way in (("host", "push by this device"), ("pinned", "push by this device"), ("plain", "staging")):
        done = perf(
            *("tag_lat", "--size", "100000", "--seconds", "0.01", "--transport", "shm"),
            *("--memory", "emulated:0", "--peer-memory", peer),
        )
        assert way in json.loads(done.stdout)["route"], done


@pytest.mark.parametrize("side", ["--memory", "--peer-memory"])
@pytest.mark.parametrize(("place", "words"), [("nowhere", "write host, pinned"), ("emulated:3", "sees 1")])
def test_memory_that_is_not_there_is_told(side, place, words):
    done = perf("tag_lat", "--size", "8", side, place)
    assert done.returncode == 3
    assert words in done.stderr


HOSTS = [(test, trigger, ["host"] * 2) for test in ("signal_lat", "put_lat", "chain") for trigger in ("host", "queue", "graph")]
DEVICES = [
    ("signal_lat", "graph", ["emulated:0", "emulated:0"]),
    ("put_lat", "queue", ["emulated:0", "host"]),
    ("chain", "host", ["host", "emulated:0"]),
]


@pytest.mark.parametrize(("test", "trigger", "memory"), [*HOSTS, ("strided_put", "graph", ["host", "host"]), *DEVICES])
def test_plans_are_started_by_each_trigger(test, trigger, memory):
    size = "3200" if memory == ["host", "host"] else "80000"  # large ones go one by one: emulated devices are slow
    done = perf(
        *(test, "--trigger", trigger, "--size", size, "--seconds", "0.01", "--window", "5"),
        *("--transport", "shm", "--memory", memory[0], "--peer-memory", memory[1]),
    )
    assert done.returncode == 0, done.stderr
    (row,) = (json.loads(line) for line in done.stdout.splitlines())
    assert row["verified"] and row["trigger"] == trigger and row["memory"] == memory and "plan" in row["route"], row
    assert row["latency_us"]["p50"] > 0


@pytest.mark.parametrize(
    ("test", "sizes"),
    [("signal_lat", "8"), ("put_lat", "8,5001"), ("put_bw", "8,5001"), ("tag_lat", "8,5001,70001"), ("strided_put", "20000")],
)
def test_device_code_on_the_cpu(test, sizes):
    done = perf(
        *(test, "--trigger", "kernel", "--size", sizes, "--seconds", "0.01", "--transport", "shm", "--window", "5"),
        *("--peer-memory", "pinned"),
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["size"] for row in rows] == [int(size) for size in sizes.split(",")], done.stderr
    assert all(row["verified"] and row["trigger"] == "kernel" for row in rows)


def test_a_plan_says_how_its_steps_go():
    for transport, way in (("shm", "mapped"), ("tcp", "by the host")):
        done = perf("put_lat", "--trigger", "host", "--size", "64", "--seconds", "0.01", "--transport", transport)
        assert json.loads(done.stdout)["route"] == f"{transport} plan, {way}", done


def test_a_chain_is_beside_what_it_replaces():
    done = perf("chain", "--size", "4000", "--window", "4", "--seconds", "0.01", "--transport", "shm")
    figures = json.loads(done.stdout)["figures"]
    assert figures["pieces"] == 4
    assert all(figures[name] > 0 for name in ("contiguous_us", "of_contiguous_percent", "single_calls_us", "cpu_per_piece_ns"))


@pytest.mark.parametrize("progress", ["caller", "thread"])
def test_overlap_is_a_share(progress):
    done = perf("overlap", "--size", "70001", "--seconds", "0.01", "--progress", progress, "--memory", "host")
    row = json.loads(done.stdout)
    assert row["verified"], done
    names = [name + "_percent" for name in ("hidden", "receiver_first_hidden", "sender_first_hidden", "channel_hidden")]
    assert all(0 <= row["figures"][name] <= 100 for name in names)


def test_daxpy_reads_the_other_process_in_place():
    done = perf("daxpy", "--size", "80000", "--seconds", "0.01", "--transport", "shm", "--peer-memory", "pinned")
    row = json.loads(done.stdout)
    assert row["verified"] and row["figures"]["get_GB/s"] > 0 and row["figures"]["of_get_percent"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tag_bw", "--trigger", "graph"], "is for tag_lat put_lat signal_lat chain strided_put, not for tag_bw"),
        (["chain", "--trigger", "kernel"], "put_lat put_bw daxpy signal_lat strided_put, not for chain"),
        (["put_lat", "--trigger", "kernel", "--memory", "emulated:0"], "emulated devices run no kernels of this tool"),
        (["put_lat", "--trigger", "kernel", "--layout", "strided:4,8,16"], "strided_put has faces"),
        (["put_bw", "--trigger", "kernel", "--peer-memory", "cuda:0"], "a CPU cannot store into a device"),
        (["put_lat", "--trigger", "kernel", "--memory", "cuda:0", "--threads", "2"], "--threads 1"),
        (["put_lat", "--trigger", "magic"], "host, queue, graph, kernel or plan"),
        (["chain", "--transport", "self", "--trigger", "host"], "--transport self measures tag_lat"),
        (["strided_put", "--layout", "strided:4,8,16"], "does not apply"),
        (["daxpy", "--memory", "emulated:0"], "emulated devices run no kernels of this tool"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    done = perf(*arguments, "--size", "64")
    assert done.returncode == 2
    assert words in done.stderr


COLLECTIVES = ["allreduce", "alltoall", "allgather", "reduce_scatter", "bcast", "barrier"]


@pytest.mark.parametrize("test", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_are_verified_and_have_both_bandwidths(test, ranks):
    done = perf(test, "-n", str(ranks), "--size", "12,60000", "--seconds", "0.02")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    shared = 2 if ranks == 2 and test in ("alltoall", "allgather", "reduce_scatter") else 3  # of 12 bytes' elements
    assert [row["size"] for row in rows] == ([0] if test == "barrier" else [4 * shared, 60000])
    part = {"allreduce": 2 * (ranks - 1) / ranks, "bcast": 1}.get(test, (ranks - 1) / ranks)
    for row in rows:
        assert row["verified"] and row["latency_us"]["min"] > 0 and row["figures"]["ranks"] == ranks
        assert test == "barrier" or row["figures"]["bus_GB/s"] == pytest.approx(row["bandwidth_GBps"] * part, rel=1e-3)


@pytest.mark.parametrize("memory", [("emulated:0", "emulated:0"), ("host", "emulated:0"), ("pinned", "huge")])
def test_collectives_of_several_memories(memory):
    for test in ("allreduce", "allgather", "bcast"):
        done = perf(test, "-n", "2", "--size", "6004", "--seconds", "0.01", "--memory", memory[0], "--peer-memory", memory[1])
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)
        assert row["verified"] and row["memory"] == list(memory)


@pytest.mark.parametrize("test", COLLECTIVES)
@pytest.mark.parametrize("trigger", ["host", "queue", "graph", "plan"])
@pytest.mark.parametrize("memory", ["plain", "emulated:0"])
def test_collectives_by_what_starts_them(test, trigger, memory):
    done = perf(test, "-n", "2", "--size", "6000", "--seconds", "0.01", "--trigger", trigger, "--memory", memory)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["verified"] and row["trigger"] == trigger and not row["fresh"] and row["memory"] == [memory] * 2
    kernels = memory != "plain" and trigger in ("queue", "graph")
    assert (row["route"] in ("ll", "simple")) == kernels, row["route"]
    if test != "barrier":
        part = {"allreduce": 1, "bcast": 1}.get(test, 0.5)
        assert row["figures"]["bus_GB/s"] == pytest.approx(row["bandwidth_GBps"] * part, rel=1e-3)


def test_what_does_not_start_collectives_is_refused():
    for wrong in (["allreduce", "--trigger", "queue", "--nonblocking"], ["signal_lat", "--trigger", "plan"]):
        assert perf(*wrong).returncode == 2
    assert perf("allreduce", "--trigger", "queue", "--algorithm", "ring", "--size", "4000", "--seconds", "0.01").returncode == 0


def test_a_collective_without_blocking_and_by_name():
    done = perf("allreduce", "-n", "2", "--size", "65536", "--seconds", "0.02", "--nonblocking", "--algorithm", "ring")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["verified"] and 0 <= row["figures"]["hidden_percent"] <= 100 and row["route"] == "ring"
    for wrong in (["tag_lat", "--nonblocking"], ["bcast", "--trigger", "kernel"], ["bcast", "somewhere"]):
        assert perf(*wrong).returncode == 2
