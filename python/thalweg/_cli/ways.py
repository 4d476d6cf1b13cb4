# SPDX-License-Identifier: Apache-2.0
"""Ways by force: what each takes, and what the library chooses."""

from __future__ import annotations

import dataclasses
import statistics

from . import perf

WAYS = {"shm": ("eager", "frames", "mapped", "kernel"), "tcp": ("eager", "frames"), "self": ("frames", "mapped")}
TESTS = {"send": "tag_lat", "am": "am_lat", "bytes": "bytes_lat", "put": "put_lat", "get": "get_lat"}


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
    chosen: Measured
    forced: list[Measured]


def measure(verb: str, transport: str, sizes: list[int], *, seconds: float, rounds: int = 1) -> list[Size]:
    """Each way by force and the library's choice, in turns. Every row's route is the way that it really took."""
    arguments = ["--transport", transport, "--size", ",".join(map(str, sizes)), "--seconds", f"{seconds:g}"]
    found: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for _ in range(rounds):
        for way in ("any", *WAYS[transport]):
            for row in perf.rows([TESTS[verb], *arguments, "--way", way]):
                found.setdefault((way, row["size"]), []).append((row["latency_us"]["p50"], row["route"]))
    return [Size(transport, size, *split(found, transport, size)) for size in sizes]


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
