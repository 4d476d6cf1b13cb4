# SPDX-License-Identifier: Apache-2.0
"""How a module of this package is run as a program of its own."""

from __future__ import annotations

import sys

# As `python -m`, without the current folder in front of what is imported: it may be another user's.
_START = """import runpy, sys
sys.path[:] = [folder for folder in sys.path if folder]
name = sys.argv.pop(1)
runpy.run_module(name, run_name="__main__")
"""


def module(name: str) -> list[str]:
    """Arguments of a process that runs it; more may follow."""
    return [sys.executable, "-c", _START, name]
