# SPDX-License-Identifier: Apache-2.0
"""The demo's picture: latency and bandwidth against size, what the machine allows as thin grey lines."""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from .sizes import human_size

# (test, transport): label, colour, marker. Colours that colour-blind readers can distinguish; markers for print.
SERIES = {
    ("put", "shm"): ("put, shared memory", "#0072b2", "o"),
    ("tag", "shm"): ("tagged message, shared memory", "#d55e00", "s"),
    ("tag", "tcp"): ("tagged message, TCP", "#009e73", "^"),
}
LATENCY_FLOORS = {
    "cache_line": ("cache line from core to core", ":"),
    "memcpy_other": ("one copy from the other core", "--"),
    "raw_tcp": ("plain TCP socket, polled", "-."),
}
BANDWIDTH_FLOORS = {
    "memcpy": ("memcpy on one core", "-"),
    "memcpy_other": ("one copy from the other core", "--"),
    "readv": ("process_vm_readv", ":"),
    "raw_tcp": ("plain TCP socket, ping-pong", "-."),
}
GREY = "#555555"


def draw(rows: list[dict[str, Any]], stem: pathlib.Path) -> list[pathlib.Path]:
    """Writes stem.png and stem.svg and returns their names."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 6.2), constrained_layout=True)
    series(left, rows, "_lat", latency)
    floors(left, rows, LATENCY_FLOORS, latency)
    series(right, rows, "_bw", bandwidth)
    floors(right, rows, BANDWIDTH_FLOORS, bandwidth)
    axis(left, "Latency, one way", "microseconds", "{:g} µs")
    axis(right, "Bandwidth, one direction", "GB/s", "{:g}")
    figure.suptitle("Thalweg: two processes on one machine, medians; grey: what the machine allows", fontsize=12)
    files = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    pyplot.close(figure)
    return files


def latency(row: dict[str, Any]) -> float | None:
    """Median microseconds."""
    return (row.get("latency_us") or {}).get("p50")


def bandwidth(row: dict[str, Any]) -> float | None:
    """GB/s; of small messages it is the latency once more."""
    return row.get("bandwidth_GBps") if row["size"] >= 512 else None


def points(rows: list[dict[str, Any]], value) -> tuple[list[int], list[float]]:
    """Sizes and values, in order of size, without what was not measured."""
    found = sorted((row["size"], value(row)) for row in rows if row.get("verified") is not False and value(row))
    return [size for size, _ in found], [v for _, v in found]


def series(axes, rows: list[dict[str, Any]], kind: str, value) -> None:
    """What the library reached."""
    for (operation, transport), (label, colour, marker) in SERIES.items():
        sizes, values = points([r for r in rows if r["step"] == operation + kind and r["over"] == transport], value)
        if sizes:
            axes.plot(sizes, values, color=colour, marker=marker, markersize=5, linewidth=1.8, label=label, zorder=3)


def floors(axes, rows: list[dict[str, Any]], wanted: dict[str, tuple[str, str]], value) -> None:
    """What the machine allows. One size only: a level line."""
    for test, (label, style) in wanted.items():
        sizes, values = points([r for r in rows if r["step"] == "floor" and r["test"] == test], value)
        if len(sizes) == 1:
            axes.axhline(values[0], color=GREY, linestyle=style, linewidth=1.1, label=label, zorder=1)
        elif sizes:
            axes.plot(sizes, values, color=GREY, linestyle=style, linewidth=1.1, label=label, zorder=1)


def axis(axes, title: str, unit: str, form: str) -> None:
    """Logarithmic both ways, labelled with sizes and plain numbers people read."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_xlim()
    sizes = [size for size in (8 << (3 * i) for i in range(10)) if low <= size <= high]
    axes.xaxis.set_major_locator(FixedLocator(sizes if len(sizes) <= 8 else sizes[::2]))  # more have no room
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: human_size(int(x))))
    bottom, top = axes.get_ylim()
    if top / bottom < 50:  # few powers of ten, or none: numbers between them, too
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: form.format(y)))
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("message size")
    axes.set_ylabel(unit)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.grid(True, which="minor", color="#eeeeee", linewidth=0.4)
    axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, frameon=False)
