# SPDX-License-Identifier: Apache-2.0
"""Every number of a report with a name that is the same in another report: for the full tables, and for comparing two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from . import readings, units
from .document import Document, Row
from .units import human_size

_SHOW: dict[str, Callable[[float], str]] = {
    "bytes/s": units.rate,
    "ns": units.time,
    "%": lambda value: f"{units.number(value)} %",
    "/s": lambda value: f"{units.number(value / 1e6)} M/s",
    "": units.number,
}
_NOT_NAMES = {"test", "unavailable", "size", "bytes", "route", "verified", "fresh", "iterations", "threads", "filesystem"}
_NOT_MEASURED = {"size", "bytes", "cpu_node", "memory_node", "threads", "iterations", "rate_Mps"}


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One number. `name` and `section` together are its own in a report."""

    section: str
    name: str
    value: float
    unit: str  # bytes/s, ns, /s, %, or none
    less_is_better: bool

    def text(self) -> str:
        """The number with its unit."""
        return _SHOW[self.unit](self.value)


def of(document: Document) -> list[Quantity]:
    """All of them, in order; of rows that are called the same the last."""
    found: dict[tuple[str, str], Quantity] = {}
    for step in document["steps"]:
        for row in step["rows"]:
            if readings.is_measured(row):
                for quantity in _of_row(step["section"], row):
                    found[quantity.section, quantity.name] = quantity
    return list(found.values())


def _of_row(section: str, row: Row) -> Iterator[Quantity]:
    name = name_of(row)
    for what, value, unit, less in _measured(row):
        yield Quantity(section, f"{name}{': ' + what if what else ''}", float(value), unit, less)


def name_of(row: Row) -> str:
    """What a row is about: its test, its words, where it was, its size."""
    words = [row["test"]]
    for key, value in row.items():
        if key in ("from", "to"):
            words.append(f"{key} {value}")
        elif key in ("cpu_node", "memory_node"):
            words.append(f"{key.replace('_', ' ')} {value}")
        elif key == "page_bytes":
            words.append(f"pages of {human_size(int(value))}")
        elif isinstance(value, str) and key not in _NOT_NAMES:
            words.append(value)
        elif key == "memory" and value and set(value) - {"plain"}:
            words.append(" and ".join(map(str, value)))
    size = row.get("size", row.get("bytes"))
    return ", ".join(words) + (f", {human_size(int(size))}" if size else "")


def _measured(row: Row) -> Iterator[tuple[str, float, str, bool]]:
    """(what, value, unit, less is better) of a row. Of a latency's row the bandwidth is the same once more, and left out."""
    latency = row.get("latency_us") or {}
    if "p50" in latency:
        yield "", latency["p50"] * 1e3, "ns", True
        if "p99" in latency:
            yield "99th percentile", latency["p99"] * 1e3, "ns", True
    elif row.get("bandwidth_GBps"):
        yield "", row["bandwidth_GBps"] * 1e9, "bytes/s", False
    same = _the_same_once_more(row)
    for key, value in row.items():
        if key == same or isinstance(value, bool) or not isinstance(value, (int, float)) or key in _NOT_MEASURED:
            continue
        if key in ("ns", "p99_ns", "ns_99"):
            yield ("" if key == "ns" else "99th percentile"), value, "ns", True
        elif key.endswith("_ns"):
            yield key.removesuffix("_ns").replace("_", " "), value, "ns", True
        elif key.endswith("bytes_per_s"):
            yield key.removesuffix("bytes_per_s").strip("_"), value, "bytes/s", False
        elif key.endswith("_percent"):
            yield key.removesuffix("_percent").replace("_", " "), value, "%", False
        elif key.endswith("per_s"):
            yield key.removesuffix("per_s").strip("_").replace("_", " "), value, "/s", False
    for key, value in (row.get("figures") or {}).items():
        yield from _figure(key, value)


def _the_same_once_more(row: Row) -> str:
    """Of a row with a time and a bandwidth the one that says less: of something large its time."""
    if "ns" not in row or "bytes_per_s" not in row:
        return ""
    return "bytes_per_s" if "page_bytes" in row or (row.get("bytes") or 0) <= 4096 else "ns"


def _figure(key: str, value: float) -> Iterator[tuple[str, float, str, bool]]:
    for suffix, factor, unit, less in (
        ("_GB/s", 1e9, "bytes/s", False),
        ("_us", 1e3, "ns", True),
        ("_ns", 1, "ns", True),
        ("_percent", 1, "%", False),
    ):
        if key.endswith(suffix):
            yield key.removesuffix(suffix).replace("_", " "), value * factor, unit, less
            return
    if key != "ranks":
        yield key.replace("_", " "), value, "", False
