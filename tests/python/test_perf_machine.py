# SPDX-License-Identifier: Apache-2.0
"""The tests of thalweg-perf that measure the machine: quick, verified, and with a reason where there is no number."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from test_perf import perf, rows_of
from thalweg._cli import native
from thalweg._cli.perf import environment as packaged

STREAM = {"copy", "scale", "add", "triad"}
PATTERNS = {"histogram_input", "histogram_output", "padding", "compaction", "tasks", "search"}


def measured(*arguments):
    """The rows that are not unavailable, all of them verified; and the others."""
    done = perf(*arguments, "--seconds", "0.005")
    assert done.returncode == 0, done.stderr
    rows = rows_of(done)
    assert rows and all(row["test"] == arguments[0] for row in rows)
    good = [row for row in rows if "unavailable" not in row]
    assert all(row["verified"] is True for row in good), good
    missing = [row for row in rows if "unavailable" in row]
    assert all(row["unavailable"] for row in missing)
    return good, missing


def test_memory_is_that_of_each_pair_of_nodes():
    rows, _ = measured("memory", "--size", "1M", "--threads", "2")
    pairs = {(row["cpu_node"], row["memory_node"]) for row in rows}
    assert pairs
    for pair in pairs:
        assert {row["operation"] for row in rows if (row["cpu_node"], row["memory_node"]) == pair} == STREAM
    for row in rows:
        assert row["threads"] == 2 and row["bytes"] == 1 << 20 and row["cache_bytes"] >= 0
        assert row["bytes_per_s"] >= row["median_bytes_per_s"] > 0


def test_memory_uses_the_processors_that_it_may():
    rows, _ = measured("memory", "--size", "64K")
    assert sum({row["cpu_node"]: row["threads"] for row in rows}.values()) == len(os.sched_getaffinity(0))


def test_tiers_are_a_matrix_with_small_writes(tmp_path):
    rows, missing = measured("tiers", "--size", "256K", "--disk", str(tmp_path))
    tiers = {row["tier"] for row in rows if row["operation"] == "read"}
    assert "dram" in tiers and tiers | {row.get("tier") for row in missing} >= {"dram", "tmpfs", "disk"}
    copies = {(row["from"], row["to"]) for row in rows if row["operation"] == "copy"}
    assert copies == {(a, b) for a in tiers for b in tiers}
    for tier in tiers - {"dram"}:
        for operation in ("pwrite_fdatasync", "store_msync"):
            writes = [row for row in rows if row["operation"] == operation and row["tier"] == tier]
            assert [row["bytes"] for row in writes] == [64, 512, 4096]
            assert all(0 < row["ns"] <= row["p99_ns"] for row in writes)
    assert not list(tmp_path.iterdir()), "files are left behind"


def test_little_room_in_tmpfs_shrinks_no_other_tier(tmp_path):
    """In a mount namespace of its own, with a tmpfs of 4 MiB."""
    inside = 'mount -t tmpfs -o size=4m none "$1" && shift && exec "$@"'
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c", inside, "sh", str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, timeout=30).returncode != 0:
        pytest.skip("no file system may be mounted here")
    program = [native.program("thalweg-perf"), "tiers", "--seconds", "0.005", "--json", "--size", "2M"]
    done = subprocess.run(
        [*unshare, *program, "--tmpfs", str(tmp_path)], env=packaged(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in rows_of(done) if "unavailable" not in row]
    assert rows and all(row["verified"] is True for row in rows)
    bytes_of = {row["tier"]: row["bytes"] for row in rows if row["operation"] == "triad"}
    assert bytes_of["dram"] == 2 << 20 and bytes_of["tmpfs"] <= (4 << 20) // 8
    copies = {(row["from"], row["to"]): row["bytes"] for row in rows if row["operation"] == "copy"}
    assert copies["dram", "dram"] == 2 << 20
    assert copies["dram", "tmpfs"] == copies["tmpfs", "dram"] == copies["tmpfs", "tmpfs"] == bytes_of["tmpfs"]


@pytest.mark.parametrize(("option", "folder", "words"), [("--disk", "/dev/shm", "on a disk"), ("--tmpfs", "/proc", "no tmpfs")])
def test_a_tier_that_is_none_is_told(option, folder, words):
    _, missing = measured("tiers", "--size", "64K", option, folder)
    assert any(words in row["unavailable"] for row in missing)


@pytest.mark.parametrize("more", [[], ["--sleep"]])
def test_sockets_have_latency_and_bandwidth(more):
    rows, missing = measured("sockets", "--size", "1,4K,100001", *more)
    transports = {row["transport"] for row in rows}
    assert "unix" in transports and transports | {row["transport"] for row in missing} == {"unix", "tcp"}
    for transport in transports:
        for operation, value in (("latency", "ns"), ("bandwidth", "bytes_per_s")):
            those = [row for row in rows if row["transport"] == transport and row["operation"] == operation]
            assert [row["bytes"] for row in those] == [1, 4096, 100001] and all(row[value] > 0 for row in those)


def test_a_page_faults_once_unless_it_was_asked_for(tmp_path):
    rows, missing = measured("pages", "--size", "1M", "--disk", str(tmp_path), "--tmpfs", str(tmp_path))
    by = {(row["memory"], row["by"], row["page_bytes"]): row for row in rows if row["processor"] == "cpu"}
    touch = by["anonymous", "touch", 4096]
    assert touch["faults_per_page"] >= 0.95 and touch["ns"] > 0
    populated = by.get(("anonymous", "touch_populated", 4096))
    assert populated is None or populated["faults_per_page"] <= 0.05
    assert any(row.get("processor", "").startswith("cuda") for row in rows + missing)


@pytest.mark.parametrize("size", ["4K", "100001"])
def test_host_and_device_solve_each_problem_in_both_forms(size):
    rows, _ = measured("collaborate", "--memory", "host", "--size", size, "--threads", "3")
    assert {(row["pattern"], row["form"]) for row in rows} == {(p, f) for p in PATTERNS for f in "DU"}
    for row in rows:
        parts = [row[part] for part in ("allocation_ns", "copy_ns", "kernel_ns")]
        assert all(part >= 0 for part in parts) and row["total_ns"] > 0
        assert row["threads"] == 2 and row["device_threads"] == 1
        assert row["compared"] == row["iterations"] + 1, "every solution is compared, the one that warms up too"
        if row["form"] == "D":
            assert row["copy_ns"] > 0


def test_copies_of_emulated_devices():
    rows, _ = measured("copies", "--size", "8,5001")
    mine = [row for row in rows if "emulated:0" in (row["from"], row["to"])]
    pairs = {(row["from"], row["to"]) for row in mine}
    assert pairs == {("host", "emulated:0"), ("emulated:0", "host"), ("emulated:0", "emulated:0")}
    assert all(row["by"] == "engine" and row["direction"] == "one" and row["ns"] > 0 for row in mine)


def test_atomic_adds_of_two_threads_are_all_counted():
    rows, _ = measured("atomics")
    who = {row["who"]: row for row in rows if row["device"] == "threads"}
    assert set(who) == {"host", "both"}
    assert who["host"]["host_adds_per_s"] > 0 and who["both"]["device_adds_per_s"] > 0


@pytest.mark.parametrize("test", ["copies", "flags", "atomics", "pages", "collaborate"])
def test_without_a_gpu_the_reason_is_told(test, tmp_path):
    """With a driver that has no devices for this process, or without one."""
    done = perf(test, "--seconds", "0.005", "--size", "4K", environment={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr
    told = [row for row in rows_of(done) if "unavailable" in row and "cuda:0" in row.values()]
    assert told and any(word in told[0]["unavailable"] for word in ("driver", "nvcc"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["memory", "somewhere"], "neither HOST nor --listen"),
        (["tiers", "--transport", "shm"], "not for tiers"),
        (["copies", "--trigger", "kernel"], "not for copies"),
        (["tag_lat", "--disk", "/tmp"], "folders of tiers"),
        (["memory", "--size", "1K,2K"], "one --size"),
        (["sockets", "--size", "0"], "from 1"),
        (["tiers", "--disk", ""], "wants a folder"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    done = perf(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["flags", "--memory", "host"], "--memory cuda[:N]"),
        (["collaborate", "--memory", "emulated:0"], "--memory host"),
        (["sockets", "--size", "2G"], "up to 1G"),
        (["copies", "--memory", "cuda:4000"], ""),
    ],
)
def test_what_cannot_be_is_an_error(arguments, words):
    done = perf(*arguments)
    assert done.returncode == 3
    assert words in done.stderr and done.stderr


def test_rows_are_a_table_with_units_and_csv():
    table = perf("memory", "--size", "64K", "--seconds", "0.005", form="")
    assert "[GB/s]" in table.stdout and "triad" in table.stdout and "{" not in table.stdout
    csv = perf("memory", "--size", "64K", "--seconds", "0.005", form="--csv")
    assert all(len(line.split(",")) == 4 for line in csv.stdout.splitlines()) and "bytes_per_s" in csv.stdout
