# SPDX-License-Identifier: Apache-2.0
"""Collectives of thalweg.Group among real processes; what each rank does is in collective_ranks.py."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest
import thalweg

RUN = [sys.executable, "-m", "thalweg._cli.main", "run"]
RANKS = pathlib.Path(__file__).with_name("collective_ranks.py")
SIZES = [2, 3, 5]


def run(ranks: int, *checks: str, survivors: int | None = None) -> None:
    """All ranks, or the survivors, say that all is good."""
    command = [*RUN, "-n", str(ranks), str(RANKS), *checks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout.count("good") == (survivors or ranks), done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ranks", SIZES)
def test_reductions_of_all_types_and_operations(ranks):
    run(ranks, "reductions", "bool")


@pytest.mark.parametrize("ranks", SIZES)
def test_every_kind(ranks):
    run(ranks, "roots", "shares", "v")


@pytest.mark.parametrize("ranks", SIZES)
def test_averages_functions_and_repeatable_sums(ranks):
    run(ranks, "operations")


def test_functions_do_not_close_the_worker_that_calls_them():
    run(2, "closing_functions")


def test_a_group_of_one():
    run(1, "roots", "shares", "v", "operations", "requests", "errors", "coroutines")


@pytest.mark.skipif(importlib.util.find_spec("ml_dtypes") is None, reason="no ml_dtypes")
def test_short_floats():
    run(3, "short_floats")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_tensors():
    run(2, "torch")


def test_memory_of_devices():
    run(3, "devices")


@pytest.mark.parametrize("ranks", [1, 3])
def test_on_queues_and_in_plans(ranks):
    run(ranks, "queues", "plans")


def test_captured():
    run(2, "captured")


def test_buffers_in_windows():
    run(2, "windows")


def test_counts_that_only_devices_know():
    run(3, "counted")


def test_requests_and_coroutines():
    run(3, "requests", "coroutines")


def test_what_makes_no_sense_is_refused_and_the_group_goes_on():
    run(2, "errors")


def test_a_killed_rank_is_named_to_all():
    run(3, "loss", survivors=2)


def test_a_missing_rank_is_named_at_the_timeout():
    run(2, "timeout")


def test_ctrl_c_ends_a_collective_on_all_ranks():
    run(2, "interrupt")


def test_functions_of_python_need_a_worker_of_one_thread():
    with (
        thalweg.init(threads="multi") as world,
        pytest.raises(thalweg.Unsupported, match="one thread"),
    ):
        world.allreduce(bytearray(8), op=lambda a, b: a, dtype="int64")


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_example(ranks):
    example = RANKS.parents[2] / "examples" / "python" / "gradient.py"
    done = subprocess.run([*RUN, "-n", str(ranks), str(example)], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == f"[0] gradient: {ranks} ranks found y = 3.000 x -1.000\n", done.stderr
