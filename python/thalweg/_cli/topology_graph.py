# SPDX-License-Identifier: Apache-2.0
"""A topology's JSON as the drawings need it: children, links of two nodes, and the words of numbers."""

from __future__ import annotations

import bisect
import json
import statistics
from collections import defaultdict
from typing import Any

PCIE_KINDS = ("bridge", "switch", "gpu", "nic", "nvswitch")


def kind_of(node: str) -> str:
    """``gpu`` of ``gpu:3``."""
    return node.partition(":")[0]


def number_of(node: str) -> int:
    """3 of ``gpu:3``."""
    return int(node.partition(":")[2] or 0)


class Graph:
    """Nodes by their ids, in the order of the text."""

    def __init__(self, text: str) -> None:
        whole = json.loads(text)
        self.name, self.source = whole["name"], whole["source"]
        self.nvlinks_known: bool = whole.get("nvlinks", "known") == "known"
        self.nodes: dict[str, dict[str, Any]] = {node["id"]: node for node in whole["nodes"]}
        self.links: list[dict[str, Any]] = whole["links"]
        self.peers: list[dict[str, str]] = whole.get("peers", [])
        self._children: dict[str, list[str]] = defaultdict(list)
        for node in whole["nodes"]:
            if "parent" in node:
                self._children[node["parent"]].append(node["id"])
        self._up = {link["from"]: link for link in self.links if link["kind"] == "pcie"}

    def children(self, node: str, *kinds: str) -> list[str]:
        """What a node contains, of these kinds if any are named."""
        return [child for child in self._children[node] if not kinds or kind_of(child) in kinds]

    def inside(self, node: str) -> list[str]:
        """What is drawn as a box of its own: packages, NUMA nodes, and caches that several NUMA nodes share."""
        return [child for child in self.children(node, "package", "numa", "cache") if not self._is_leaf(child)]

    def caches(self, node: str) -> list[str]:
        """Those of cores."""
        return [cache for cache in self.children(node, "cache") if self._is_leaf(cache)]

    def _is_leaf(self, node: str) -> bool:
        return kind_of(node) == "cache" and not self.children(node, "numa")

    def all(self, kind: str) -> list[str]:
        """The nodes of a kind."""
        return [node for node in self.nodes if kind_of(node) == kind]

    def pcie(self, node: str) -> dict[str, Any] | None:
        """Its PCIe link to what is before it."""
        return self._up.get(node)

    def nvlinks(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """NVLinks side by side, by their two ends; of those that do not say where they lead the second is empty."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for link in self.links:
            if link["kind"] == "nvlink":
                ends = (link["from"], link.get("to", ""))
                found[ends if ends[::-1] not in found else ends[::-1]].append(link)
        return found

    def processors(self, cores: list[str]) -> list[int]:
        """The processors of cores, ascending."""
        return sorted(number for core in cores for number in numbers(self.nodes[core]["processors"]))


def no_access(peers: dict[str, str]) -> str:
    """Why the driver lets two GPUs not read or write each other's memory; "": it does, or says nothing."""
    return next((peers[use] for use in ("read", "write") if peers.get(use, "ok") != "ok"), "")


FAR, FEW = (
    20,
    5,
)  # times the others' errors, which count as so many at least: every link has counted some since its driver was loaded


def far_more(counts: dict[Any, float], each: float = 1) -> tuple[dict[Any, float], float]:
    """Those of some links' errors that are far beyond the others' median; the median of all. `each`: links of a count."""
    if len(counts) < 2:
        return {}, 0
    order = sorted(counts.values())
    middle, even = divmod(len(order) - 1, 2)  # of the others

    def others(count: float) -> float:
        """Their median: `order` without this one."""
        place = bisect.bisect_left(order, count)
        first, second = (order[n if n < place else n + 1] for n in (middle - 1 + even, middle))
        return (first + second) / 2

    far = {name: count for name, count in counts.items() if count >= FAR * max(others(count), FEW * each)}
    return far, statistics.median(order)


def is_up(link: dict[str, Any]) -> bool:
    """Does it carry anything?"""
    return link.get("state", "up") == "up"


def numbers(text: str) -> list[int]:
    """The numbers of ``0-3,8``."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def listed(of: list[int]) -> str:
    """``0-3,8`` of numbers."""
    runs: list[list[int]] = []
    for number in sorted(of):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def rate(bytes_per_second: float) -> str:
    """``25 GB/s``."""
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def card_rate(bytes_per_second: float) -> str:
    """``100 Gb/s``: of network cards bits are the custom."""
    return f"{bytes_per_second * 8 / 1e9:.4g} Gb/s"


def size(count: int) -> str:
    """``256 GiB``, rounded."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 1000 * unit else f"{count / unit:.0f} {name}"
    return f"{count >> 10} KiB"


def pcie_text(link: dict[str, Any]) -> str:
    """``PCIe 4 x8 of x16, 15.8 GB/s``."""
    most = link.get("most_lanes", 0)
    lanes = f"x{link['lanes']}" if link.get("lanes") else ""
    narrow = f" of x{most}" if link.get("lanes") and most > link["lanes"] else ""
    speed = f", {rate(link['bandwidth'])}" if link.get("bandwidth") else ""
    return f"PCIe {link.get('generation', '')} {lanes}{narrow}{speed}".replace("  ", " ")
