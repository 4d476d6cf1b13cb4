# SPDX-License-Identifier: Apache-2.0
"""What a part of the page is made of: tables, matrices with a colour for each cell, figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib
from markupsafe import Markup

from .document import BadReport

COLOURS = "cividis"  # even in brightness, and the same to colour-blind readers


MOST_CELLS = 10_000  # of one table: a matrix of 100 NUMA nodes


def check_cells(title: str, rows: int, columns: int) -> None:
    """BadReport: a table that no page can show."""
    if rows * columns > MOST_CELLS:
        raise BadReport(
            f"{title or 'a table'}: {rows} rows of {columns} columns are more than a page can show ({MOST_CELLS} cells)"
        )


@dataclasses.dataclass(frozen=True)
class Cell:
    """Of a matrix: its text and colours; of a plain table the text alone."""

    text: str
    background: str = ""
    ink: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a title; with `corner` what rows and columns of a matrix are."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    corner: str = ""
    note: str = ""
    words: bool = False  # cells are text to be read, not numbers
    kind = "table"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing; `text` says what it shows to who cannot see it."""

    title: str
    drawing: Markup
    text: str
    kind = "figure"


Part = Table | Figure


def table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], note: str = "", *, words: bool = False
) -> Table:
    """Of texts."""
    return Table(title, columns, [(name, [Cell(text) for text in cells]) for name, cells in rows], note=note, words=words)


def matrix(
    title: str,
    corner: str,
    values: Mapping[tuple[str, str], float],
    show: Callable[[float], str],
    *,
    less_is_better: bool = False,
    compare_diagonal: bool = True,
) -> Table | None:
    """A heat map with its numbers; None without any. Keys are (row, column); rows come in their order, columns in that of
    rows as far as they are those. `compare_diagonal`: whether what is from a place to itself has a colour, too."""
    if not values:
        return None
    rows, columns = (list(dict.fromkeys(key[part] for key in values)) for part in (0, 1))
    check_cells(title, len(rows), len(columns))
    places = {name: place for place, name in enumerate(rows)}
    columns.sort(key=lambda name: places.get(name, len(rows)))
    compared = [value for key, value in values.items() if compare_diagonal or key[0] != key[1]]
    low, high = min(compared, default=0.0), max(compared, default=0.0)

    def cell(key: tuple[str, str]) -> Cell:
        if key not in values:
            return Cell("–" if key[0] != key[1] else "")
        value = values[key]
        if key[0] == key[1] and not compare_diagonal:
            return Cell(show(value))
        return Cell(show(value), *_colours(_place(value, low, high, less_is_better)))

    return Table(title, columns, [(row, [cell((row, column)) for column in columns]) for row in rows], corner)


def _place(value: float, low: float, high: float, less_is_better: bool) -> float:
    """From 0 (worst) to 1 (best) by ratio: half of the best is as far from it as a quarter from half. At most a tenth is shown,
    and what differs by less than 15 % is all alike."""
    if low <= 0 or high <= 0:
        return 1.0
    part = low / value if less_is_better else value / high
    if low / high > 0.85:
        part = max(part, 0.95)
    return max(0.0, 1 + math.log10(part))


def _colours(place: float) -> tuple[str, str]:
    """Background, and whichever of black and white differs more from it in luminance (WCAG: at least 4.5 to 1)."""
    colour = matplotlib.colormaps[COLOURS](0.08 + 0.87 * place)[:3]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return matplotlib.colors.to_hex(colour), "#000000" if luminance > 0.179 else "#ffffff"
