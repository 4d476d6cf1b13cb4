# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them: three significant digits and a unit."""

from __future__ import annotations

from thalweg._cli.sizes import human_size

__all__ = ["human_size", "number", "part_of", "rate", "share", "time", "times"]


def number(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.6f}".rstrip("0").rstrip(".") or "0"


def rate(bytes_per_s: float) -> str:
    """12.3 GB/s; of slow things MB/s."""
    return f"{number(bytes_per_s / 1e9)} GB/s" if bytes_per_s >= 1e8 else f"{number(bytes_per_s / 1e6)} MB/s"


def time(ns: float) -> str:
    """8.3 µs."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{number(ns / unit)} {name}"
    return f"{number(ns)} ns"


def share(part: float) -> str:
    """48 %."""
    return f"{number(100 * part)} %"


def part_of(part: float) -> str:
    """half the; a quarter of the; else 63 % of the. As people say what is nearly that."""
    for value, words in ((1 / 2, "half the"), (1 / 4, "a quarter of the")):
        if abs(part / value - 1) < 0.06:
            return words
    return f"{share(part)} of the"


def times(ratio: float) -> str:
    """2.4 times."""
    return f"{number(ratio)} times"
