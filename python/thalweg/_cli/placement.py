# SPDX-License-Identifier: Apache-2.0
"""Which cores ranks get when they are bound: one hardware thread of every core first, then the siblings."""

from __future__ import annotations

import os
import pathlib


def assign(count: int, allowed: set[int] | None = None) -> list[list[int]]:
    """A core list per rank; ranks share cores round-robin when there are more ranks than cores."""
    ordered = order(sorted(allowed if allowed is not None else os.sched_getaffinity(0)))
    return [[ordered[rank % len(ordered)]] for rank in range(count)]


def order(cores: list[int]) -> list[int]:
    """The cores, first hardware threads before their siblings."""
    first: list[int] = []
    later: list[int] = []
    seen = set()
    for core in cores:
        siblings = _siblings(core)
        (later if siblings in seen else first).append(core)
        seen.add(siblings)
    return first + later


def _siblings(core: int) -> str:
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(core)
