# SPDX-License-Identifier: Apache-2.0
"""The page's sections about GPUs and their links, and about host and GPU together."""

from __future__ import annotations

from collections.abc import Iterator

from . import figures, readings, units
from .content import Figure, Part, Table, matrix, table
from .document import Document
from .figures import Curve
from .readings import bandwidth_of, latency_of
from .shapes import KINDS, bare_rate, bare_time, curve_figure
from .topology import Graph, count_of, kind_of
from .units import human_size

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
        if found := matrix(title, "from ↓ to →", _ordered(chosen), bare_rate, compare_diagonal=False):
            yield found
    for by, name in (("engine", "the copy engine"), ("kernel_store", "a kernel's stores")):
        chosen = {(c.source, c.target): v for c, v in readings.copy_latencies(document).items() if c.by == by}
        if found := matrix(
            f"Latency of the smallest copy by {name}, µs", "from ↓ to →", _ordered(chosen), bare_time, less_is_better=True
        ):
            yield found
    ends = {
        tuple(row["memory"])
        for test in ("tag_bw", "tag_lat")
        for row in readings.rows(document, test)
        if len(readings.memories(row)) == 2
    }
    pairs = sorted(pair for pair in ends if any(map(readings.is_device, pair)))
    for kind, unit, form, value in KINDS:
        title = "Messages: latency, one way" if kind == "lat" else "Messages: bandwidth"
        drawn = [Curve(" → ".join(p), readings.curve(document, f"tag_{kind}", value, memory=list(p))) for p in pairs[:6]]
        yield from curve_figure(title, f"{title} against size", f"copies {kind}", unit, form, drawn, {})


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
    for link in (*graph.links, *graph.lost):
        if link.get("bandwidth"):
            ends = " – ".join(kind_of(link.get(end, "?")) for end in ("from", "to"))
            generation = f" {units.number(link['generation'])}" if link.get("generation") else ""
            lanes = f", x{units.number(link['lanes'])}" if link.get("lanes") else ""
            key = (ends, link["kind"] + generation + lanes, units.rate(link["bandwidth"]), str(link.get("state", "up")))
            kinds[key] = kinds.get(key, 0) + count_of(link)
    if kinds:
        yield table(
            "Links", ["kind", "each direction", "state", "how many"], [(k[0], [*k[1:], str(n)]) for k, n in kinds.items()]
        )


def triggers(document: Document) -> Iterator[Part]:
    """What starts an operation, until the peer sees it."""
    rows = [
        (f"{str(row.get('by', 'flag')).replace('_', ' ')}: {row.get('from', '')} → {row.get('to', '')}", [units.time(value)])
        for row in readings.rows(document, "flags")
        if (value := latency_of(row))
    ]
    rows += [
        (f"signal, by {row.get('trigger', 'call')}, {' → '.join(readings.memories(row))}", [units.time(value)])
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
            percent = numbers.get("of_get_percent")
            get = f"{units.number(numbers['get_GB/s'])} GB/s" if "get_GB/s" in numbers else "–"
            line = [human_size(readings.size_of(row)), units.rate(rate), get, f"{units.number(percent)} %" if percent else "–"]
            name = " reads ".join(readings.memories(row)) or "daxpy"
            best[name] = max(best.get(name, (0, [])), (readings.size_of(row), line))
    if best:
        yield table(
            "daxpy in place", ["size", "reached", "a get", "% of the get"], [(name, line) for name, (_, line) in best.items()]
        )


def collaborate(document: Document) -> Iterator[Part]:
    """Allocation, copy and kernel as a part of D's total: D, and U in each memory that both sides share."""
    patterns: dict[str, dict[str, dict[str, float]]] = {}
    for row in readings.rows(document, "collaborate"):
        times = {part: row.get(f"{part}_ns", 0.0) for part in ("allocation", "copy", "kernel")}
        form = row.get("form", "")
        bar = form if form == "D" else f"{form} {row.get('memory', '')}".strip()
        patterns.setdefault(row.get("pattern", ""), {})[bar] = times
    groups = []
    for pattern, forms in patterns.items():
        whole = sum(forms.get("D", {}).values())
        if whole:
            bars = [(form, {part: value / whole for part, value in times.items()}) for form, times in sorted(forms.items())]
            groups.append((pattern.replace("_", " "), bars))
    if drawing := figures.parts_of_one("collaborate", groups, "as a part of D's time"):
        yield Figure("D: explicit copies; U: one shared memory", drawing, "bars of allocation, copy and kernel times")
