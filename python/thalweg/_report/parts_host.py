# SPDX-License-Identifier: Apache-2.0
"""The page's sections about the host: processes, memory, tiers, sockets, pages, and what processes do together."""

from __future__ import annotations

from collections.abc import Iterator

from . import readings, units
from .content import Part, matrix, table
from .document import Document
from .figures import Curve
from .peaks import peak_table
from .readings import latency_of
from .shapes import KINDS, bare_rate, curve_figure, microseconds, pivot
from .units import human_size

FLOORS = {
    "shm": (
        ("cache_line", "cache line, core to core"),
        ("memcpy_other", "a copy from the other core"),
        ("readv", "process_vm_readv"),
    ),
    "tcp": (("raw_tcp", "plain TCP, ping-pong"),),
}
OPERATIONS = {"tag": "message", "put": "put", "get": "get"}
TRANSPORTS = {"shm": "Shared memory", "tcp": "TCP"}


def paths(document: Document) -> Iterator[Part]:
    """Latency and bandwidth over each transport, percent of peak, routes."""
    if peak := peak_table(document):
        yield peak
    for transport, name in TRANSPORTS.items():
        changes = readings.switches(document, "send", transport)
        marks = {size: route.removeprefix("rendezvous, ") for size, route in list(changes.items())[1:]}
        for kind, unit, form, value in KINDS:
            drawn = [
                Curve(label, readings.curve(document, f"{operation}_{kind}", value, transport=transport))
                for operation, label in OPERATIONS.items()
            ]
            drawn += [Curve(label, readings.curve(document, test, value), floor=True) for test, label in FLOORS[transport]]
            title = f"{name}: {'latency, one way' if kind == 'lat' else 'bandwidth, one direction'}"
            yield from curve_figure(
                title, f"{title}, against message size", f"paths {transport} {kind}", unit, form, drawn, marks
            )
    rows = []
    for transport in TRANSPORTS:
        for verb in ("send", "put", "get"):
            changes = readings.switches(document, verb, transport)
            if changes:
                rows.append(
                    (f"{verb}, {transport}", [", ".join(f"from {human_size(s)}: {route}" for s, route in changes.items())])
                )
    if rows:
        yield table("Routes by size", ["route"], rows, words=True)


def memory(document: Document) -> Iterator[Part]:
    """A matrix of nodes for triad, and the four operations within each node."""
    triad = {(f"node {cpu}", f"node {node}"): value for (cpu, node), value in sorted(readings.numa(document).items())}
    if len(triad) > 1 and (found := matrix("Triad, GB/s", "processors of ↓, memory of →", triad, bare_rate)):
        yield found
    rows: dict[str, dict[str, str]] = {}
    for operation in ("copy", "scale", "add", "triad"):
        for (cpu, node), value in sorted(readings.numa(document, operation).items()):
            if cpu == node:
                rows.setdefault(f"node {node}", {})[operation] = units.rate(value)
    if rows:
        yield pivot("STREAM within a node", rows)


def tiers(document: Document) -> Iterator[Part]:
    """Copies as a matrix, what each tier reaches by itself, small writes."""
    if found := matrix("Copies, GB/s", "from ↓ to →", readings.tier_copies(document), bare_rate):
        yield found
    streams: dict[str, dict[str, str]] = {}
    for (tier, operation), value in readings.tier_streams(document).items():
        streams.setdefault(tier, {})[operation.replace("_", " ")] = units.rate(value)
    if streams:
        yield pivot("STREAM per tier", streams)
    rows: dict[str, dict[str, str]] = {}
    for tier, operation, size, ns, worst in readings.small_writes(document):
        text = f"{units.time(ns)} ({units.time(worst)})" if worst else units.time(ns)
        rows.setdefault(f"{tier}: {operation.replace('_', ' + ')}", {})[human_size(size)] = text
    if rows:
        yield pivot("Small synchronous writes: median (99th percentile)", rows)


def sockets(document: Document) -> Iterator[Part]:
    """Latency of each kind."""
    kinds: dict[str, list[tuple[int, float]]] = {}
    for row in readings.rows(document, "sockets"):
        if value := microseconds(row):
            kinds.setdefault(row.get("transport", "sockets"), []).append((readings.size_of(row), value))
    drawn = [Curve(kind, sorted(points)) for kind, points in kinds.items()]
    yield from curve_figure(
        "Sockets: latency, one way", "latency of sockets against size", "sockets", "microseconds", "{:g} µs", drawn, {}
    )


def overlap(document: Document) -> Iterator[Part]:
    """Percent hidden by size."""
    rows: dict[str, dict[str, str]] = {}
    for row in readings.rows(document, "overlap"):
        for name, value in row.get("figures", {}).items():
            if name.endswith("_percent"):
                rows.setdefault(name.removesuffix("_percent").replace("_", " "), {})[human_size(readings.size_of(row))] = (
                    f"{units.number(value)} %"
                )
    if rows:
        yield pivot("Hidden behind computation", rows)


def collectives(document: Document) -> Iterator[Part]:
    """Latency of each against size."""
    drawn = [
        Curve(test.replace("_", "-"), [(s, v) for s, v in readings.curve(document, test, microseconds) if s])
        for test in ("allreduce", "reduce_scatter", "allgather", "alltoall", "bcast")
    ]
    yield from curve_figure(
        "Collectives: the slowest rank", "time of collectives against size", "collectives", "microseconds", "{:g} µs", drawn, {}
    )


def pages(document: Document) -> Iterator[Part]:
    """What a page costs, by what brings it."""
    rows: dict[str, dict[str, str]] = {}
    for row in readings.rows(document, "pages"):
        value = latency_of(row)
        if value and "page_bytes" in row:
            memory_name, by = (str(row.get(name, "")).replace("_", ", ") for name in ("memory", "by"))
            name = f"{row.get('processor', 'cpu')}: {memory_name}, {human_size(row['page_bytes'])}"
            rows.setdefault(name, {})[by] = units.time(value)
    if rows:
        yield pivot("Time of a page, by what brings it", rows)


def atomics(document: Document) -> Iterator[Part]:
    """Additions a second of each side, alone and while the other adds to the same word."""
    rows: dict[str, dict[str, str]] = {}
    for row in readings.rows(document, "atomics"):
        for side in ("host", "device"):
            if rate := row.get(f"{side}_adds_per_s"):
                who = "together" if row.get("who") == "both" else "alone"
                name = f"{row.get('memory', '')}, {row.get('device', '')}"
                rows.setdefault(name, {})[f"{side} {who}"] = f"{units.number(rate / 1e6)} M/s"
    if rows:
        yield pivot("Additions to one word", rows)
    if taken := [(human_size(size), [units.time(ns)]) for size, ns in readings.curve(document, "atomic_lat", latency_of)]:
        yield table("Fetch-and-add in the other process's memory", ["median"], taken)
