# SPDX-License-Identifier: Apache-2.0
"""The topology of a report: asked from `thalweg topo`, drawn by it, and what rules want to know of it (docs/topology.md)."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from thalweg._cli.topology_graph import no_access

from . import commands
from .document import Document

SECONDS = 30
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")
Node = dict[str, Any]
Link = dict[str, Any]


class NoTopology(Exception):
    """Why there is none."""


def ask() -> dict[str, Any]:
    """The graph of this machine. NoTopology with the command's own words."""
    try:
        return json.loads(_topo(None, "--json"))
    except ValueError as error:
        raise NoTopology(f"thalweg topo --json printed no JSON: {error}") from None


def draw(graph: dict[str, Any], name: str) -> str:
    """SVG of a graph, by `thalweg topo`, which refuses what is none. NoTopology with its words. `name`: of the machine."""
    with tempfile.TemporaryDirectory() as folder:
        saved, drawing = pathlib.Path(folder, "report"), pathlib.Path(folder, "topology.svg")
        saved.write_text(json.dumps({**graph, "name": graph.get("name") or name}))
        _topo(folder, "--svg", drawing.name)
        return drawing.read_text()


def _topo(folder: str | None, *arguments: str) -> str:
    """What it prints; of the graph in a folder's file "report", else of this machine."""
    command = [*commands.module("thalweg._cli.main"), "topo", *arguments]
    environment = {**os.environ, "THALWEG_TOPOLOGY": "report"} if folder else None
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoTopology(f"thalweg topo: {error}") from None
    if "No such command" in done.stderr:
        raise NoTopology("not available in this build: there is no thalweg topo")
    if done.returncode != 0:
        raise NoTopology(done.stderr.strip()[-500:] or f"thalweg topo ended with {done.returncode}")
    return done.stdout


def kind_of(node: str) -> str:
    """gpu, of gpu:3."""
    return node.partition(":")[0]


class Graph:
    """A report's graph by names. Where the report has none, all questions have no answer."""

    def __init__(self, document: Document) -> None:
        graph = document.get("topology") or {"nodes": [], "links": []}
        self.nodes: dict[str, Node] = {node["id"]: node for node in graph["nodes"]}
        self.nvlinks_known = graph.get("nvlinks", "known") == "known" and bool(self.nodes)
        self.links: list[Link] = [
            link for link in graph["links"] if link["from"] in self.nodes and link.get("to") in self.nodes
        ]
        self.lost = [link for link in graph["links"] if link["kind"] == "nvlink" and "to" not in link]  # that say not where to
        joined = {frozenset((link["from"], link["to"])) for link in self.links}
        self._ways: dict[str, list[tuple[Link, str]]] = {}  # of everything but NVLinks, which host memory and NICs do not use
        for link in [*self.links, *self._contained(joined)]:
            if link["kind"] != "nvlink":
                self._ways.setdefault(link["from"], []).append((link, link["to"]))
                self._ways.setdefault(link["to"], []).append((link, link["from"]))
        self._peers = {frozenset((one["from"], one["to"])): one for one in graph.get("peers", [])}
        devices = document.get("info", {}).get("devices", [])
        self._uuids = {_digits(device.get("uuid", "")): device["name"] for device in devices}
        self._addresses = {_address(device.get("pci", "")): device["name"] for device in devices}

    def _contained(self, joined: set[frozenset[str]]) -> Iterator[Link]:
        """What only contains, as links without a width."""
        for name, node in self.nodes.items():
            parent = node.get("parent")
            if parent in self.nodes and frozenset((name, parent)) not in joined:
                yield {"kind": "contains", "from": name, "to": parent}

    def of_kind(self, *kinds: str) -> list[str]:
        """Names of nodes of these kinds, in their order; of network cards those that are up."""
        return [name for name, node in self.nodes.items() if kind_of(name) in kinds and node.get("state", "up") == "up"]

    def path(self, start: str, end: str) -> list[Link] | None:
        """The links of a shortest way; None: there is none."""
        return self.paths(start).get(end, lambda: None)()

    def paths(self, start: str) -> dict[str, Callable[[], list[Link]]]:
        """What makes the links of a shortest way from a node, of each that is reached."""
        before: dict[str, tuple[Link, str]] = {}
        front = [start]
        while front:
            following = []
            for name in front:
                for link, other in self._ways.get(name, []):
                    if other not in before and other != start:
                        before[other] = (link, name)
                        following.append(other)
            front = following

        def way(end: str) -> list[Link]:
            links = []
            while end != start:
                link, end = before[end]
                links.append(link)
            return links[::-1]

        return {end: functools.partial(way, end) for end in (start, *before)}

    def device(self, gpu: str) -> str:
        """The library's name of a GPU: by its UUID, else by its PCI address (MIG has UUIDs of its own), else by its number."""
        node = self.nodes[gpu]
        uuid, address = _digits(node.get("uuid", "")), _address(node.get("pci", ""))
        found = (self._uuids.get(uuid) if uuid else None) or (self._addresses.get(address) if address else None)
        return found or ("" if uuid else f"cuda:{gpu.partition(':')[2]}")

    def gpu(self, device: str) -> str | None:
        """The node of a device."""
        return next((name for name in self.of_kind("gpu") if self.device(name) == device), None)

    def nvlinks(self, one: str, other: str) -> list[Link]:
        """The direct ones between two nodes, whatever their state; one that stands for several is there as often."""
        ends = {one, other}
        found = [link for link in self.links if link["kind"] == "nvlink" and {link["from"], link["to"]} == ends]
        return [link for link in found for _ in range(count_of(link))]

    def nvlinks_of(self, gpu: str) -> int:
        """How many it has, wherever they go."""
        return sum(
            count_of(link)
            for link in (*self.links, *self.lost)
            if link["kind"] == "nvlink" and gpu in (link["from"], link.get("to"))
        )

    def no_access(self, one: str, other: str) -> str:
        """Why the driver gives two GPUs' nodes no access to each other's memory; "": it does, or does not say."""
        return no_access(self._peers.get(frozenset((one, other)), {}))

    def pcie(self, node: str) -> Link:
        """Its link to what is above it; empty: not known."""
        return next((link for link in self.links if link["kind"] == "pcie" and link["from"] == node), {})


def _digits(uuid: str) -> str:
    """Of a UUID in any of its forms."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").replace("-", "").lower()


def _address(text: str) -> str:
    """0000:1b:00.0, of the driver's 00000000:1B:00.0, too."""
    found = _PCI.fullmatch(text.lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def told_of(device: dict[str, Any], gpus: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What the driver tells of a device of the library: the GPU of its UUID, else the one at its PCI address."""
    uuid, address = _digits(device.get("uuid", "")), _address(device.get("pci", ""))
    by_uuid = next((gpu for gpu in gpus if uuid and _digits(gpu.get("uuid", "")) == uuid), None)
    return by_uuid or next((gpu for gpu in gpus if address and _address(gpu.get("pci", "")) == address), None)


def count_of(link: Link) -> int:
    """How many equal links it stands for."""
    count = link.get("count", 1)
    return int(count) if isinstance(count, (int, float)) and 1 <= count <= 64 else 1


def is_down(link: Link) -> bool:
    """A link that is there but does not work."""
    return link.get("state", "up") == "down"


def between_sockets(link: Link) -> bool:
    """A link that joins the processors of two sockets, or where that is not known the machine as a whole."""
    return link["kind"] == "socket" or (link["kind"] == "contains" and "machine" in (link["from"], link["to"]))
