# SPDX-License-Identifier: Apache-2.0
"""Samples to the table of targets: Thalweg, the best peer, the peer's default, the floor, ratios, reached or not.

Only samples of one core placement are compared with each other. A cell without samples stays None: nothing is guessed.
"""

from __future__ import annotations

import csv
import json
import pathlib
import re
import statistics
from typing import Any

PLACEMENTS = ("near", "far", "unknown")  # in this order: the first in which Thalweg has samples is compared
HIGHER_IS_BETTER = {"GB/s", "Mmsg/s", "Mblocks/s"}

# (peer|transport, test, size) -> {"unit": ..., "samples": {placement: [values]}}
Samples = dict[tuple[str, str, int], dict[str, Any]]


def read_csv(path: pathlib.Path) -> Samples:
    """raw.csv of run_peers.sh."""
    samples: Samples = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            add(samples, f"{row['peer']}|{row['transport']}", row["test"], int(row["size"]), float(row["value"]), row["unit"],
                row["placement"])  # fmt: skip
    return samples


def add(samples: Samples, name: str, test: str, size: int, value: float, unit: str, placement: str) -> None:
    """One sample more."""
    entry = samples.setdefault((name, test, size), {"unit": unit, "samples": {}})
    entry["samples"].setdefault(placement, []).append(value)


def to_records(samples: Samples) -> list[dict[str, Any]]:
    """For the result file: every series with its samples and the median per placement."""
    records = []
    for (name, test, size), entry in samples.items():
        peer, _, transport = name.partition("|")
        medians = {placement: statistics.median(values) for placement, values in entry["samples"].items()}
        records.append({"peer": peer, "transport": transport, "test": test, "size": size, **entry, "median": medians})
    return records


def from_records(records: list[dict[str, Any]]) -> Samples:
    """The opposite of to_records."""
    return {
        (f"{r['peer']}|{r['transport']}", r["test"], r["size"]): {"unit": r["unit"], "samples": r["samples"]} for r in records
    }


def load_targets(kind: str) -> list[dict[str, Any]]:
    """The rows that a result of this kind is measured by; of floors alone there are none."""
    name = {
        "cpu": "targets.json",
        "gpu": "targets-gpu.json",
        "blocks": "targets-blocks.json",
        "gpu-kernel": "targets-gpu-kernel.json",
    }.get(kind)
    return json.loads((pathlib.Path(__file__).parent / name).read_text())["rows"] if name else []


def compare(samples: Samples, targets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per target."""
    return [compare_row(samples, target) for target in targets]


def compare_row(samples: Samples, target: dict[str, Any]) -> dict[str, Any]:
    """One target: what was measured, and whether it is reached (None: cannot be said)."""
    placement = next((p for p in PLACEMENTS if select(samples, target, target["ours"], p)), PLACEMENTS[0])
    ours = best_of(select(samples, target, target["ours"], placement))
    row: dict[str, Any] = {"id": target["id"], "what": target["what"], "placement": placement, "thalweg": ours}
    for kind in ("best", "default", "floor"):
        selector = target.get("peers" if kind == "best" else kind)
        row[kind] = best_of(select(samples, target, selector, placement)) if selector else None
    row["reach"] = [judge(row, goal) for goal in target["reach"]]
    known = [goal["reached"] for goal in row["reach"]]
    row["reached"] = None if not known or None in known else all(known)
    return row


def select(samples: Samples, target: dict[str, Any], selector: Any, placement: str) -> list[dict[str, Any]]:
    """The series a selector names, as {name, median, samples, unit}."""
    if isinstance(selector, str):
        selector = {"names": selector}
    test, size, scale = selector.get("test", target["test"]), selector.get("size", target["size"]), selector.get("scale", 1)
    found = []
    for (name, its_test, its_size), entry in samples.items():
        values = entry["samples"].get(placement)
        if values and its_test == test and its_size == size and re.search(selector["names"], name):
            unit = entry["unit"] if scale == 1 else "us"
            found.append({"name": name, "median": statistics.median(values) * scale, "samples": len(values), "unit": unit})
    return found


def best_of(series: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The lowest time or the highest rate."""
    if not series:
        return None
    sign = -1 if series[0]["unit"] in HIGHER_IS_BETTER else 1
    return min(series, key=lambda one: sign * one["median"])


def judge(row: dict[str, Any], goal: dict[str, Any]) -> dict[str, Any]:
    """A goal with its ratio; against "limit" the bound is a number in the row's unit."""
    ours = row["thalweg"]
    other = {"median": 1} if goal["against"] == "limit" else row[goal["against"]]
    if ours is None or other is None:
        return {**goal, "ratio": None, "reached": None}
    ratio = ours["median"] / other["median"]
    if "at_most_more" in goal:
        return {**goal, "ratio": ratio, "reached": ours["median"] - other["median"] <= goal["at_most_more"]}
    return {**goal, "ratio": ratio, "reached": ratio <= goal["at_most"] if "at_most" in goal else ratio >= goal["at_least"]}
