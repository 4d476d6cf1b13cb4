# SPDX-License-Identifier: Apache-2.0
"""What the packaging tests share: the library installed under a prefix of its own."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("THALWEG_BUILD", ROOT / "build" / "release"))


def run(*command, **options):
    """Runs a command, with its output in the failure's text."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """cmake --install of build/release."""
    if not (BUILD / "cmake_install.cmake").exists():
        pytest.skip("build/release is not there: make build")
    where = tmp_path_factory.mktemp("prefix") / "thalweg"
    for component in ("library", "development"):
        run("cmake", "--install", BUILD, "--prefix", where, "--component", component)
    return where


@pytest.fixture(scope="session")
def consumer():
    """The sources of the outside project."""
    return pathlib.Path(__file__).resolve().parent / "consumer"


def need(program):
    """Skips the test on a machine without a program that only it needs."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
