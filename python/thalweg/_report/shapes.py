# SPDX-License-Identifier: Apache-2.0
"""Shapes that several sections of the page have: curves of latency and bandwidth, tables by two names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import figures, readings, units
from .content import Figure, Part, Table, check_cells, table
from .document import Row
from .figures import Curve
from .readings import bandwidth_of, latency_of


def curve_figure(
    title: str, text: str, name: str, unit: str, form: str, curves: list[Curve], marks: dict[int, str]
) -> Iterator[Part]:
    """A figure of curves, or none where there is nothing to draw."""
    if drawing := figures.curves(name, title, unit, form, curves, marks):
        yield Figure(title, drawing, text)


def microseconds(row: Row) -> float | None:
    """Median latency."""
    ns = latency_of(row)
    return ns / 1e3 if ns else None


def gigabytes(row: Row) -> float | None:
    """Of a second; of small messages it is the latency once more, and left out."""
    rate = bandwidth_of(row)
    return rate / 1e9 if rate and readings.size_of(row) >= 512 else None


KINDS: tuple[tuple[str, str, str, Callable[[Row], float | None]], ...] = (
    ("lat", "microseconds", "{:g} µs", microseconds),
    ("bw", "GB/s", "{:g}", gigabytes),
)


def pivot(title: str, rows: dict[str, dict[str, str]]) -> Table:
    """Rows of cells by column name; columns in the order in which they first come."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    check_cells(title, len(rows), len(columns))
    return table(title, columns, [(name, [row.get(column, "–") for column in columns]) for name, row in rows.items()])


def bare_rate(value: float) -> str:
    """GB/s without the unit, for matrices whose title has it."""
    return units.number(value / 1e9)


def bare_time(value: float) -> str:
    """Microseconds without the unit."""
    return units.number(value / 1e3)
