# SPDX-License-Identifier: Apache-2.0
"""Worlds that the real torchrun starts, with PyTorch's collectives beside Thalweg's (scripts/setup.sh torch installs it)."""

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")
PROGRAM = str(pathlib.Path(__file__).with_name("torch_world.py"))


def torchrun(ranks, *arguments, options=()):
    """What the ranks say."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            *options,
            PROGRAM,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return sorted(re.findall(r"^rank (\d+) of (\d+): right in attempt (\d+)$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_world_of_torchrun_does_what_torch_does(ranks):
    assert torchrun(ranks) == [(str(rank), str(ranks), "0") for rank in range(ranks)]


def test_a_world_that_torchrun_starts_again():
    said = torchrun(2, "--fail-once", options=["--max-restarts=1"])
    assert said == [("0", "2", "1"), ("1", "2", "1")]
