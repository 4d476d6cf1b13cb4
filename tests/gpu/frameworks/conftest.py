# SPDX-License-Identifier: Apache-2.0
"""Thalweg with the arrays, streams and graphs of PyTorch, CuPy and Numba, on real GPUs; skipped where one of them is missing.

Two processes each: this one has GPU 0, the other the last GPU. `pytest tests/gpu/frameworks` where the package is installed.
"""

import os
import pathlib
import sys

os.environ.pop("THALWEG_EMULATED", None)
sys.path.insert(
    0, os.environ.get("THALWEG_PEERS", str(pathlib.Path(__file__).resolve().parents[2] / "python"))
)  # peers.py, fixtures.py

from fixtures import context, me, worker  # noqa: F401
