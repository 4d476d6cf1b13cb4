# SPDX-License-Identifier: Apache-2.0
"""What each section of the page shows of a report, beside the table of all its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import parts_gpu, parts_host, quantities
from .content import Part, Table, table
from .document import Document
from .topology_figure import topology_figure

BUILDERS: dict[str, Callable[[Document], Iterator[Part]]] = {
    "topology": topology_figure,
    "memory": parts_host.memory,
    "tiers": parts_host.tiers,
    "paths": parts_host.paths,
    "sockets": parts_host.sockets,
    "copies": parts_gpu.copies,
    "links": parts_gpu.links,
    "triggers": parts_gpu.triggers,
    "daxpy": parts_gpu.daxpy,
    "atomics": parts_host.atomics,
    "pages": parts_host.pages,
    "overlap": parts_host.overlap,
    "collectives": parts_host.collectives,
    "collaborate": parts_gpu.collaborate,
}


def all_numbers(found: list[quantities.Quantity], name: str) -> Table | None:
    """Everything that was measured in a section."""
    rows = [(quantity.name, [quantity.text()]) for quantity in found if quantity.section == name]
    return table("", ["value"], rows) if rows else None
