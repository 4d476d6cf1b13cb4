# SPDX-License-Identifier: Apache-2.0
"""Percent of peak: for each path what its link could carry, what the machine gives without the library, and what the library
reaches of that. The form is that of published tables of such machines."""

from __future__ import annotations

import dataclasses

from . import readings, units
from .content import Table, table
from .document import Document
from .readings import Copy
from .topology import Graph, is_down


@dataclasses.dataclass(frozen=True)
class Peak:
    """Bytes a second of one path; None: not known."""

    path: str
    theoretical: float | None
    available: float | None
    reached: float | None


def _best(document: Document, test: str, **fields: object) -> float | None:
    """The most that a test reached with at least 64 KiB."""
    return max(
        (v for size, v in readings.curve(document, test, readings.bandwidth_of, **fields) if size >= 1 << 16), default=None
    )


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value), default=None)


def _theoretical(graph: Graph, here: str, there: str) -> float | None:
    """Of the link that two memories are joined by: their NVLinks, else the narrowest link on the way to the host's memory."""
    ends = [graph.gpu(name) if readings.is_device(name) else None for name in (here, there)]
    if ends[0] and ends[1]:
        links = [link for link in graph.nvlinks(ends[0], ends[1]) if not is_down(link)]
        if links:
            return sum(link.get("bandwidth", 0) for link in links) or None
        path = graph.path(ends[0], ends[1]) if graph.nvlinks_known else None
    else:
        gpu, hosts = ends[0] or ends[1], graph.of_kind("package", "numa", "machine")
        path = min((p for host in hosts if gpu and (p := graph.path(gpu, host))), key=len, default=None)
    widths = [link["bandwidth"] for link in path or [] if link.get("bandwidth")]
    return min(widths, default=None)


def peaks(document: Document) -> list[Peak]:
    """Of all paths that the library was measured on."""
    shared = [_best(document, test, transport="shm") for test in ("tag_bw", "put_bw", "tag_lat", "put_lat")]
    copied = [_best(document, test) for test in ("memcpy", "memcpy_other", "readv")]
    tcp = [_best(document, "raw_tcp"), _best(document, "sockets", transport="tcp")]
    found = [
        Peak("shared memory, one core", None, _most(*copied), _most(*shared)),
        Peak("TCP within the machine", None, _most(*tcp), _best(document, "tag_bw", transport="tcp")),
    ]
    graph, raw = Graph(document), readings.copies(document)
    reached: dict[tuple[str, str], float] = {}
    for row in readings.rows(document, "tag_bw"):
        ends = tuple(readings.memories(row))
        value = readings.bandwidth_of(row)
        if value and len(ends) == 2 and any(map(readings.is_device, ends)):
            reached[ends[0], ends[1]] = max(reached.get((ends[0], ends[1]), 0.0), value)
    for (here, there), value in reached.items():
        one, other = (end if readings.is_device(end) else _pinned(raw, end) for end in (here, there))
        found.append(Peak(f"{here} → {there}", _theoretical(graph, here, there), raw.get(Copy(one, other)), value))
    return [peak for peak in found if peak.reached]


def _pinned(raw: dict[Copy, float], name: str) -> str:
    """What pinned host memory is called in the matrices."""
    names = [end for copy in raw for end in (copy.source, copy.target)]
    return name if name in names else next((end for end in names if readings.is_pinned(end)), name)


def peak_table(document: Document) -> Table | None:
    """The table; None without a path."""
    found = peaks(document)
    if not found:
        return None

    def shown(value: float | None) -> str:
        return units.rate(value) if value else "–"

    rows = [
        ("Theoretical peak", [shown(peak.theoretical) for peak in found]),
        ("Available peak", [shown(peak.available) for peak in found]),
        ("Thalweg peak", [shown(peak.reached) for peak in found]),
        ("% of available", [units.share(p.reached / p.available) if p.available and p.reached else "–" for p in found]),
    ]
    note = (
        "Theoretical: what the topology says of the narrowest link. Available: the best that was measured without the library "
        "(memcpy and process_vm_readv on one core, plain TCP, the copy engine). Several messages in flight can exceed one copy."
    )
    return table("Percent of peak", [peak.path for peak in found], rows, note)
