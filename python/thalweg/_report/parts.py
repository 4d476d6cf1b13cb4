# SPDX-License-Identifier: Apache-2.0
"""What each section of the page shows of a report, beside the table of all its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import figures, quantities, readings, units
from .content import Figure, Part, Table, matrix, table
from .document import Document
from .figures import Curve
from .peaks import peak_table
from .readings import bandwidth_of, latency_of
from .topology import Graph
from .topology_figure import topology_figure
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


def _figure(
    title: str, text: str, name: str, unit: str, form: str, curves: list[Curve], marks: dict[int, str]
) -> Iterator[Part]:
    if drawing := figures.curves(name, title, unit, form, curves, marks):
        yield Figure(title, drawing, text)


def _microseconds(row: dict) -> float | None:
    ns = latency_of(row)
    return ns / 1e3 if ns else None


def _gigabytes(row: dict) -> float | None:
    rate = bandwidth_of(row)
    return rate / 1e9 if rate and readings.size_of(row) >= 512 else None


KINDS: tuple[tuple[str, str, str, Callable[[dict], float | None]], ...] = (
    ("lat", "microseconds", "{:g} µs", _microseconds),
    ("bw", "GB/s", "{:g}", _gigabytes),
)


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
            yield from _figure(title, f"{title}, against message size", f"paths {transport} {kind}", unit, form, drawn, marks)
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
    if len(triad) > 1 and (found := matrix("Triad, GB/s", "processors of ↓, memory of →", triad, _bare_rate)):
        yield found
    rows: dict[str, dict[str, str]] = {}
    for operation in ("copy", "scale", "add", "triad"):
        for (cpu, node), value in sorted(readings.numa(document, operation).items()):
            if cpu == node:
                rows.setdefault(f"node {node}", {})[operation] = units.rate(value)
    if rows:
        yield _pivot("STREAM within a node", rows)


def _bare_rate(value: float) -> str:
    return units.number(value / 1e9)


def _bare_time(value: float) -> str:
    return units.number(value / 1e3)


def tiers(document: Document) -> Iterator[Part]:
    """Copies as a matrix, small writes as a table."""
    if found := matrix("Copies, GB/s", "from ↓ to →", readings.tier_copies(document), _bare_rate):
        yield found
    rows: dict[str, dict[str, str]] = {}
    for tier, operation, size, ns, worst in readings.small_writes(document):
        text = f"{units.time(ns)} ({units.time(worst)})" if worst else units.time(ns)
        rows.setdefault(f"{tier}: {operation}", {})[human_size(size)] = text
    if rows:
        yield _pivot("Small synchronous writes: median (99th percentile)", rows)


def _pivot(title: str, rows: dict[str, dict[str, str]]) -> Table:
    """Rows of cells by column name; columns in the order in which they first come."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    return table(title, columns, [(name, [row.get(column, "–") for column in columns]) for name, row in rows.items()])


def sockets(document: Document) -> Iterator[Part]:
    """Latency of each kind."""
    kinds: dict[str, list[tuple[int, float]]] = {}
    for row in readings.rows(document, "sockets"):
        if value := _microseconds(row):
            kinds.setdefault(str(row.get("kind") or row.get("transport") or row.get("operation", "")), []).append(
                (readings.size_of(row), value)
            )
    drawn = [Curve(kind, sorted(points)) for kind, points in kinds.items()]
    yield from _figure(
        "Sockets: latency, one way", "latency of sockets against size", "sockets", "microseconds", "{:g} µs", drawn, {}
    )


MATRICES = (
    ("engine", "one", "Copy engine, one way, GB/s"),
    ("engine", "both", "Copy engine, both ways at once, GB/s"),
    ("kernel_load", "one", "A kernel's loads, GB/s"),
    ("kernel_store", "one", "A kernel's stores, GB/s"),
    ("host", "one", "Through the host instead of peer to peer, GB/s"),
)


def copies(document: Document) -> Iterator[Part]:
    """Connectivity, matrices by what copies, latency, and the library's messages between these memories."""
    if found := _connectivity(document):
        yield found
    rates = readings.copies(document)
    for by, direction, title in MATRICES:
        chosen = {(c.source, c.target): v for c, v in rates.items() if c.by == by and c.direction == direction}
        if found := matrix(title, "from ↓ to →", _ordered(chosen), _bare_rate):
            yield found
    for by, name in (("engine", "the copy engine"), ("kernel_store", "a kernel's stores")):
        chosen = {(c.source, c.target): v for c, v in readings.copy_latencies(document).items() if c.by == by}
        if found := matrix(
            f"Latency of the smallest copy by {name}, µs", "from ↓ to →", _ordered(chosen), _bare_time, less_is_better=True
        ):
            yield found
    ends = {
        tuple(row["memory"])
        for test in ("tag_bw", "tag_lat")
        for row in readings.rows(document, test)
        if len(row.get("memory", [])) == 2
    }
    pairs = sorted(pair for pair in ends if any(map(readings.is_device, pair)))
    for kind, unit, form, value in KINDS:
        title = "Messages: latency, one way" if kind == "lat" else "Messages: bandwidth"
        drawn = [Curve(" → ".join(p), readings.curve(document, f"tag_{kind}", value, memory=list(p))) for p in pairs[:6]]
        yield from _figure(title, f"{title} against size", f"copies {kind}", unit, form, drawn, {})


def _ordered(values: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Host memories first, then devices by number."""

    def key(pair: tuple[str, str]) -> tuple:
        return tuple(
            (readings.is_device(n), n.partition(":")[0], int(n.partition(":")[2]) if readings.is_device(n) else 0) for n in pair
        )

    names = sorted({name for pair in values for name in pair}, key=lambda name: key((name, name)))
    return {(row, column): values[row, column] for row in names for column in names if (row, column) in values}


def _connectivity(document: Document) -> Table | None:
    """By what each device reaches each other's memory."""
    devices = [d for d in document.get("info", {}).get("devices", []) if d["usable"] and d.get("reaches")]
    if not devices:
        return None
    names = [device["name"] for device in devices]
    rows = []
    for device in devices:
        reaches = {text.partition(" ")[0]: text.partition(" ")[2] for text in device["reaches"]}
        rows.append(
            (device["name"], ["" if name == device["name"] else reaches.get(name, "–").partition(":")[0] for name in names])
        )
    return table("Connectivity", names, rows)


def links(document: Document) -> Iterator[Part]:
    """What the driver says of GPUs, and the links of the topology."""
    rows = []
    for gpu in document.get("gpus", []):
        known = {name: gpu.get(f"pcie_{name}", "?") for name in ("generation", "generation_max", "width", "width_max")}
        width = "generation {generation} of {generation_max}, x{width} of x{width_max}".format(**known)
        errors = ", ".join(f"{kind}: {count}" for kind, count in gpu.get("link_errors", {}).items()) or "–"
        celsius = f"{gpu['celsius_max']} °C" if "celsius_max" in gpu else "–"
        rows.append(
            (
                f"GPU {gpu['index']}",
                [gpu.get("name", ""), gpu.get("pci", ""), width, celsius, ", ".join(gpu.get("slowed_by", [])) or "no", errors],
            )
        )
    if rows:
        yield table("GPUs under load", ["name", "bus", "PCIe", "warmest", "clocks lowered", "NVLink errors"], rows)
    graph = Graph(document)
    kinds: dict[tuple[str, str, str, str], int] = {}
    for link in graph.links:
        if link.get("bandwidth"):
            ends = " – ".join(graph.nodes[link[end]]["kind"] for end in ("from", "to"))
            lanes = f", x{link['lanes']}" if link.get("lanes") else ""
            key = (ends, link["kind"] + lanes, units.rate(link["bandwidth"]), str(link.get("state", "up")))
            kinds[key] = kinds.get(key, 0) + 1
    if kinds:
        yield table(
            "Links", ["kind", "each direction", "state", "how many"], [(k[0], [*k[1:], str(n)]) for k, n in kinds.items()]
        )


def triggers(document: Document) -> Iterator[Part]:
    """What starts an operation, until the peer sees it."""
    rows = [
        (f"{row.get('operation', 'flag')}: {row.get('from', '')} → {row.get('to', '')}", [units.time(value)])
        for row in readings.rows(document, "flags")
        if (value := latency_of(row))
    ]
    rows += [
        (f"signal, by {row.get('trigger', 'call')}, {' → '.join(row.get('memory', []))}", [units.time(value)])
        for row in readings.rows(document, "signal_lat")
        if (value := latency_of(row))
    ]
    if rows:
        yield table("Latency, one way", ["median"], rows)


def daxpy(document: Document) -> Iterator[Part]:
    """Of the largest size of each pair of memories."""
    best: dict[str, tuple[int, list[str]]] = {}
    for row in readings.rows(document, "daxpy"):
        rate, numbers = bandwidth_of(row), row.get("figures", {})
        if rate:
            percent = numbers.get("of_get_percent", numbers.get("of_copy_percent"))
            get = f"{units.number(numbers['get_GB/s'])} GB/s" if "get_GB/s" in numbers else "–"
            line = [human_size(readings.size_of(row)), units.rate(rate), get, f"{units.number(percent)} %" if percent else "–"]
            name = " reads ".join(row.get("memory", [])) or "daxpy"
            best[name] = max(best.get(name, (0, [])), (readings.size_of(row), line))
    if best:
        yield table(
            "daxpy in place", ["size", "reached", "a get", "% of the get"], [(name, line) for name, (_, line) in best.items()]
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
        yield _pivot("Hidden behind computation", rows)


def collectives(document: Document) -> Iterator[Part]:
    """Latency of each against size."""
    drawn = [
        Curve(test.replace("_", "-"), [(s, v) for s, v in readings.curve(document, test, _microseconds) if s])
        for test in ("allreduce", "reduce_scatter", "allgather", "alltoall", "bcast")
    ]
    yield from _figure(
        "Collectives: the slowest rank", "time of collectives against size", "collectives", "microseconds", "{:g} µs", drawn, {}
    )


def collaborate(document: Document) -> Iterator[Part]:
    """Allocation, copy and kernel as a part of D's total."""
    patterns: dict[str, dict[str, dict[str, float]]] = {}
    for row in readings.rows(document, "collaborate"):
        times = {part: row.get(f"{part}_ns", 0.0) for part in ("allocation", "copy", "kernel")}
        patterns.setdefault(row.get("pattern", ""), {})[row.get("form", "")] = times
    groups = []
    for pattern, forms in patterns.items():
        whole = sum(forms.get("D", {}).values())
        if whole:
            bars = [(form, {part: value / whole for part, value in times.items()}) for form, times in sorted(forms.items())]
            groups.append((pattern.replace("_", " "), bars))
    if drawing := figures.parts_of_one("collaborate", groups, "as a part of D's time"):
        yield Figure("D: explicit copies; U: one shared memory", drawing, "bars of allocation, copy and kernel times")


BUILDERS: dict[str, Callable[[Document], Iterator[Part]]] = {
    "topology": topology_figure,
    "memory": memory,
    "tiers": tiers,
    "paths": paths,
    "sockets": sockets,
    "copies": copies,
    "links": links,
    "triggers": triggers,
    "daxpy": daxpy,
    "overlap": overlap,
    "collectives": collectives,
    "collaborate": collaborate,
}


def all_numbers(found: list[quantities.Quantity], name: str) -> Table | None:
    """Everything that was measured in a section."""
    rows = [(quantity.name, [quantity.text()]) for quantity in found if quantity.section == name]
    return table("", ["value"], rows) if rows else None
