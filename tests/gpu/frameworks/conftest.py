# SPDX-License-Identifier: Apache-2.0
"""Thalweg with the arrays, streams and graphs of PyTorch, CuPy and Numba, on real GPUs; skipped where one of them is missing.

Two processes each: this one has GPU 0, the other the last GPU. `pytest tests/gpu/frameworks` where the package is installed.
"""

import os
import pathlib
import secrets
import sys

import pytest

os.environ.pop("THALWEG_EMULATED", None)
sys.path.insert(0, os.environ.get("THALWEG_PEERS", str(pathlib.Path(__file__).resolve().parents[2] / "python")))  # peers.py

import thalweg as tw


@pytest.fixture(scope="session")
def context():
    """A context of the session's own key."""
    return tw.Context(job_key=secrets.token_bytes(32))


@pytest.fixture
def worker(context):
    """A worker that ends with its test."""
    with tw.Worker(context) as made:
        yield made


@pytest.fixture
def me(worker):
    """The worker's connection to itself."""
    return worker.connect(worker.address)
