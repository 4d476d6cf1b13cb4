# SPDX-License-Identifier: Apache-2.0
"""Ways by force: what each takes, what was predicted, and what the library chooses."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable
from typing import Any

from . import explain, perf
from .sizes import human_size

WAYS = {"shm": ("eager", "frames", "mapped", "kernel"), "tcp": ("eager", "frames"), "self": ("frames", "mapped")}
TESTS = {"send": "tag_lat", "am": "am_lat", "bytes": "bytes_lat", "put": "put_lat", "get": "get_lat"}
WORST, WITHIN, SHARE, ERROR = 1.25, 1.10, 0.95, 0.15  # of `tune --check`
_PREDICTED = re.compile(r"^\* .*?\s(\d+) ns", re.MULTILINE)


@dataclasses.dataclass
class Measured:
    """One way at one size."""

    way: str  # forced; "any": what the library chooses
    route: str  # that was taken
    microseconds: float


@dataclasses.dataclass
class Size:
    """All of one size."""

    transport: str
    size: int
    predicted: float | None  # microseconds, of the choice
    chosen: Measured
    forced: list[Measured]

    @property
    def best(self) -> Measured:
        return min([self.chosen, *self.forced], key=lambda one: one.microseconds)

    @property
    def behind(self) -> float:
        """What was chosen, in times of the best way."""
        return self.chosen.microseconds / self.best.microseconds

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of what was measured."""
        return None if self.predicted is None else abs(self.predicted / self.chosen.microseconds - 1)

    def record(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"best": self.best.way, "behind": self.behind, "error": self.error}


def measure(
    verb: str,
    transport: str,
    sizes: list[int],
    *,
    seconds: float,
    rounds: int = 1,
    told: Callable[[str], None] = lambda text: None,
) -> list[Size]:
    """Each way by force and the library's choice, in turns. Every row's route says which way it really took."""
    arguments = ["--transport", transport, "--size", ",".join(map(str, sizes)), "--seconds", f"{seconds:g}"]
    found: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for _ in range(rounds):
        for way in ("any", *WAYS[transport]):
            told(f"{transport} {way}")
            for row in perf.rows([TESTS[verb], *arguments, "--way", way]):
                found.setdefault((way, row["size"]), []).append((row["latency_us"]["p50"], row["route"]))
    predicted = predictions(verb, transport, sizes)
    return [Size(transport, size, predicted.get(size), *split(found, transport, size)) for size in sizes]


def split(found: dict[tuple[str, int], list[tuple[float, str]]], transport: str, size: int) -> tuple[Measured, list[Measured]]:
    """The choice, and each other route once. What took the same route is one measurement under several names (a way that is
    impossible falls back to one that is there already): its times count together, so that only another route can be better."""
    samples: dict[str, list[float]] = {}
    names: dict[str, str] = {}
    for way in ("any", *WAYS[transport]):
        for microseconds, route in found[way, size]:
            samples.setdefault(route, []).append(microseconds)
            names.setdefault(route, way)
    routes = [Measured(way, route, statistics.median(samples[route])) for route, way in names.items()]
    chosen = statistics.mode(route for _, route in found["any", size])
    return next(one for one in routes if one.route == chosen), [one for one in routes if one.route != chosen]


def predictions(verb: str, transport: str, sizes: Iterable[int]) -> dict[int, float]:
    """Microseconds by size, as explain says; nothing for operations whose table depends on the target."""
    if verb not in ("send", "am"):
        return {}
    texts = explain.ask_many(verb, list(sizes), None if transport == "auto" else transport)[1]
    found = {size: _PREDICTED.search(text) for size, text in texts.items()}
    return {size: int(match[1]) / 1e3 for size, match in found.items() if match}


def table(rows: list[Size]) -> str:
    """For people."""
    lines = [
        f"{'transport':9} {'size':>8}  {'chosen':32} {'us':>9} {'predicted':>9} {'best by force':32} {'us':>9} {'behind':>6}"
    ]
    for row in rows:
        predicted = "-" if row.predicted is None else f"{row.predicted:.2f}"
        lines.append(
            f"{row.transport:9} {human_size(row.size):>8}  {row.chosen.route:32} {row.chosen.microseconds:9.2f} {predicted:>9} "
            f"{row.best.route:32} {row.best.microseconds:9.2f} {row.behind:6.2f}"
        )
    return "\n".join(lines)


def verdict(rows: list[Size]) -> dict[str, Any]:
    """What `tune --check` says: is the choice within 10 % of the best at 95 % of the sizes, none beyond 25 %, and the median
    error of the predictions at most 15 %?"""
    errors = [row.error for row in rows if row.error is not None]
    near = sum(row.behind <= WITHIN for row in rows) / len(rows)
    worst = max(row.behind for row in rows)
    median = statistics.median(errors) if errors else None
    good = near >= SHARE and worst <= WORST and (median is None or median <= ERROR)
    return {"within_10_percent": near, "worst": worst, "median_error": median, "good": good}
