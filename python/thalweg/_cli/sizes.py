# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes, read and written as people do: 8, 64K, 1M."""

from __future__ import annotations

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Bytes of ``64K``; ValueError with the remedy when it is no size."""
    bare = text.strip().upper().removesuffix("IB").removesuffix("B")
    factor = _UNITS.get(bare[-1:], 1)
    number = bare[:-1] if factor > 1 else bare
    try:
        value = float(number) * factor
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 63 or value != int(value):
        raise ValueError(f"{text!r} is not a size: write bytes, or a number with K, M or G, such as 64K")
    return int(value)


def human_size(size: int) -> str:
    """``64 KiB`` of 65536."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
