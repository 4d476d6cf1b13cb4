# SPDX-License-Identifier: Apache-2.0
"""A topology in the terminal: the tree of what contains what, and the matrix of what lies between."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .topology_graph import (
    PCIE_KINDS,
    Graph,
    card_rate,
    far_more,
    is_up,
    kind_of,
    listed,
    no_access,
    number_of,
    pcie_text,
    rate,
    size,
)

STYLES = {"gpu": "bold green", "nic": "bold cyan", "nvswitch": "green", "numa": "bold", "package": "bold"}
KIND_STYLES = {
    "X": "dim",
    "PIX": "cyan",
    "PXB": "cyan",
    "PHB": "blue",
    "NODE": "yellow",
    "SYS": "red",
    "node": "yellow",
    "far": "red",
}
MEANING = {
    "X": "itself",
    "NV#": "as many NVLinks",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "a PCIe host bridge",
    "NODE": "a NUMA node",
    "SYS": "the links between NUMA nodes",
    "node": "the same NUMA node",
    "far": "another NUMA node",
}


def tree(graph: Graph) -> Tree:
    """Packages, NUMA nodes and what hangs on them."""
    root = Tree(Text(graph.name or "this machine", "bold") + Text(f"  (from {graph.source})", "dim"))
    grow(root, graph, "machine")
    return root


def grow(branch: Tree, graph: Graph, node: str) -> None:
    """The children of a node: cores as ranges, caches of one shape as one line."""
    for line in core_lines(graph, node):
        branch.add(line)
    for child in [*graph.inside(node), *graph.children(node, *PCIE_KINDS)]:
        grow(branch.add(label(graph, child)), graph, child)


def core_lines(graph: Graph, node: str) -> list[Text]:
    """One for all caches of equal size and number of cores, one for cores without a cache."""
    shapes: dict[tuple[int, int], list[str]] = {}
    for cache in graph.caches(node):
        shape = (graph.nodes[cache].get("memory", 0), len(graph.children(cache, "core")))
        shapes.setdefault(shape, []).append(cache)
    lines = []
    for (memory, count), caches in shapes.items():
        cores = [core for cache in caches for core in graph.children(cache, "core")]
        each = f"{len(caches)} caches of {size(memory)}, {count} cores each" if len(caches) > 1 else f"cache of {size(memory)}"
        lines.append(cores_text(graph, cores, each + ": "))
    if cores := graph.children(node, "core"):
        lines.append(cores_text(graph, cores, ""))
    return lines


def cores_text(graph: Graph, cores: list[str], before: str) -> Text:
    """``cache of 50 MiB: cores 0-19, processors 0-19,40-59``."""
    numbers = listed([number_of(core) for core in cores])
    text = Text(before) + Text(f"core{'s' if len(cores) > 1 else ''} {numbers}")
    return text + Text(f"  processors {listed(graph.processors(cores))}", "dim")


def label(graph: Graph, node: str) -> Text:
    """A node with what is known of it."""
    fields = graph.nodes[node]
    facts = [fields[name] for name in ("name", "pci") if fields.get(name)]
    if "memory" in fields:
        facts.insert(1 if fields.get("name") else 0, size(fields["memory"]))
    if "speed" in fields:
        facts.append(card_rate(fields["speed"]))
    if (link := graph.pcie(node)) is not None:
        facts.append(pcie_text(link))
    text = Text(node, STYLES.get(kind_of(node), "")) + Text("  " + "  ".join(facts) if facts else "")
    return text + Text("  down", "bold red") if fields.get("state") == "down" else text


def links(graph: Graph) -> Table | None:
    """NVLinks and the links between sockets; None: there are none."""
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", title="Links", title_justify="left", title_style="bold")
    for column in ("between", "what", "each direction"):
        table.add_column(column)
    groups: dict[tuple[int, int, int, float], list[tuple[str, str]]] = {}
    for ends, some in graph.nvlinks().items():
        carrying = [link for link in some if is_up(link)]
        speed = sum(link.get("bandwidth", 0) for link in carrying)
        key = (len(carrying), len(some) - len(carrying), some[0].get("version", 0), speed)
        groups.setdefault(key, []).append(ends)
    for (up, down, version, speed), pairs in sorted(groups.items(), reverse=True):
        name = f"NVLink {version}" if version else "NVLink"
        what = Text(f"{up} x {name}") if up else Text("")
        if down:
            what += Text(f"{', ' if up else ''}{down} x {name} down", "bold red")
        table.add_row(pairs_text(pairs), what, rate(speed) if speed else "")
    for link in graph.links:
        if link["kind"] in ("socket", "memory"):
            table.add_row(
                f"{link['from']}-{link['to']}", link["kind"], rate(link["bandwidth"]) if link.get("bandwidth") else ""
            )
    return table if table.row_count else None


def peer_notes(graph: Graph) -> list[str]:
    """GPUs that do not reach each other's memory, by the driver's reasons."""
    why: dict[str, list[tuple[str, str]]] = {}
    for peers in graph.peers:
        if reason := no_access(peers):
            why.setdefault(reason, []).append((peers["from"], peers["to"]))
    count = len(graph.all("gpu"))
    said = []
    for reason, pairs in why.items():
        between = "any two GPUs" if 2 * len(pairs) == count * (count - 1) and count > 2 else pairs_text(pairs)
        said.append(f"no peer access between {between}: {reason}, says the driver")
    return said


def notes(graph: Graph) -> list[str]:
    """Of NVLinks: that nobody told of them, those that are down somewhere, those with far more errors than others. Of GPUs: why
    they do not reach each other."""
    said = [] if graph.nvlinks_known else ["NVLinks are not known: there was no NVML to tell of them"]
    said += peer_notes(graph)
    for (one, other), some in graph.nvlinks().items():
        count = sum(not is_up(link) for link in some)
        if count and not other:  # in the words of tw_distance.note
            said.append(
                f"1 NVLink of {one} is down and does not say where it leads"
                if count == 1
                else f"{count} NVLinks of {one} are down and do not say where they lead"
            )
    links = [link for link in graph.links if link["kind"] == "nvlink"]
    far, median = far_more({number: link.get("errors", 0) for number, link in enumerate(links)})
    for number, errors in far.items():
        end = f" to {links[number]['to']}" if "to" in links[number] else ""
        said.append(
            f"NVLink {links[number].get('port', 0)} from {links[number]['from']}{end} has counted {errors:.0f} errors, "
            f"in the median they have {median:g}"
        )
    return said


def pairs_text(pairs: list[tuple[str, str]]) -> str:
    """``gpu 0-1, 0-2`` of GPUs; ``gpu:0-7 - nvswitch:1-2`` of others that all have the same ones."""
    lost = [f"{one} - ?" for one, other in pairs if not other]
    pairs = [pair for pair in pairs if pair[1]]
    words = [f"{number_of(one)}-{number_of(other)}" for one, other in pairs if kind_of(one) == kind_of(other) == "gpu"]
    text = ["gpu " + ", ".join(words)] if words else []
    ends: dict[str, list[int]] = {}
    for one, other in pairs:
        if not kind_of(one) == kind_of(other) == "gpu":
            ends.setdefault(other, []).append(number_of(one))
    same: dict[tuple[str, str], list[int]] = {}
    for end, gpus in ends.items():
        same.setdefault((listed(gpus), kind_of(end)), []).append(number_of(end))
    return ", ".join(text + lost + [f"gpu:{gpus} - {kind}:{listed(numbers)}" for (gpus, kind), numbers in same.items()])


def matrix(graph: Graph, between: Any) -> tuple[Table, list[str]]:
    """GPUs (where there are none NUMA nodes) by GPUs, cards and NUMA nodes, as ``nvidia-smi topo -m`` has it; and what is not
    as it could be. `between` gives tw_topology_distance of two names."""
    rows = graph.all("gpu") or graph.all("numa")
    columns = [*graph.all("gpu"), *graph.all("nic"), *graph.all("numa")]
    table = Table(
        box=box.SIMPLE_HEAD, header_style="bold", title="Distances", title_justify="left", title_style="bold", padding=(0, 1)
    )
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="center")
    used: set[str] = set()
    notes: dict[str, None] = {}
    for row in rows:
        cells = []
        for column in columns:
            found = between(row, column)
            kind = found["kind"]
            used.add("NV#" if kind.startswith("NV") else kind)
            cells.append(Text(kind, "bold green" if kind.startswith("NV") else KIND_STYLES.get(kind, "")))
            if number_of(row) <= number_of(column):
                notes.update(dict.fromkeys(filter(None, found["note"].split("; "))))
        table.add_row(Text(row, "bold"), *cells)
    table.caption = "   ".join(f"{kind} {text}" for kind, text in MEANING.items() if kind in used)
    table.caption_justify = "left"
    return table, list(notes)


def placements(places: list[dict[str, Any]]) -> Table:
    """A row for each rank."""
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", title="Ranks", title_justify="left", title_style="bold")
    for column in ("rank", "gpu", "device", "numa", "nic", "processors"):
        table.add_column(column, justify="left" if column in ("nic", "processors", "device") else "right")
    for rank, place in enumerate(places):
        gpu = (
            ""
            if place["gpu"] is None
            else str(place["gpu"]) + (f" (of {place['shared']} ranks)" if place["shared"] > 1 else "")
        )
        numa = "" if place["numa"] is None else str(place["numa"])
        device = "" if place["place"] == "host" else place["place"]
        table.add_row(str(rank), gpu, device, numa, Text(place["nic"]), listed(place["processors"]))
    return table
