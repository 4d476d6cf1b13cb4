# SPDX-License-Identifier: Apache-2.0
"""thalweg-perf itself: the memory of each side's buffers, and what it says of memory that is not there."""

from __future__ import annotations

import json
import subprocess

import pytest

pytest.importorskip("typer")

from thalweg._cli import native
from thalweg._cli.perf import environment


def perf(*arguments):
    """What thalweg-perf does, with an emulated device in both of its processes."""
    return subprocess.run(
        [native.program("thalweg-perf"), *arguments, "--json"],
        env={**environment(), "THALWEG_EMULATED": "devices=1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("test", "memory"),
    [
        ("tag_lat", ["plain", "pinned"]),
        ("tag_bw", ["pinned", "huge"]),
        ("put_lat", ["host", "pinned"]),
        ("am_lat", ["host"] * 2),
        ("blocks_bw", ["plain", "host"]),
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


@pytest.mark.parametrize("side", ["--memory", "--peer-memory"])
@pytest.mark.parametrize(("place", "words"), [("nowhere", "write host, pinned"), ("emulated:3", "sees 1")])
def test_memory_that_is_not_there_is_told(side, place, words):
    done = perf("tag_lat", "--size", "8", side, place)
    assert done.returncode == 3
    assert words in done.stderr
