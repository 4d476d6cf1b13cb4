# SPDX-License-Identifier: Apache-2.0
"""The topology of a report: asked from `thalweg topo`, and what rules want to know of it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from .document import Document

SECONDS = 30
Node = dict[str, Any]
Link = dict[str, Any]


class NoTopology(Exception):
    """Why there is none."""


def ask() -> tuple[dict[str, Any], str]:
    """The graph, and a drawing of it (SVG; empty where there is none). NoTopology with the command's own words."""
    graph = json.loads(_topo("--json"))
    with tempfile.TemporaryDirectory() as folder:
        drawing = pathlib.Path(folder, "topology.svg")
        try:
            _topo("--svg", str(drawing))
            return graph, drawing.read_text()
        except (NoTopology, OSError):
            return graph, ""


def _topo(*arguments: str) -> str:
    command = [sys.executable, "-m", "thalweg._cli.main", "topo", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoTopology(f"thalweg topo: {error}") from None
    if "No such command" in done.stderr:
        raise NoTopology("not available in this build: there is no thalweg topo")
    if done.returncode != 0:
        raise NoTopology(done.stderr.strip()[-500:] or f"thalweg topo ended with {done.returncode}")
    return done.stdout


class Graph:
    """A report's graph by names. Where the report has none, all questions have no answer."""

    def __init__(self, document: Document) -> None:
        graph = document.get("topology") or {"nodes": [], "links": []}
        self.nodes: dict[Any, Node] = {node["id"]: node for node in graph["nodes"]}
        self.links: list[Link] = [link for link in graph["links"] if link["from"] in self.nodes and link["to"] in self.nodes]

    def of_kind(self, *kinds: str) -> list[Node]:
        """Nodes whose kind is one of these, as the machine lists them."""
        return [node for node in self.nodes.values() if node["kind"].lower() in kinds]

    def links_of(self, node: Node) -> Iterator[tuple[Link, Node]]:
        """Its links, with what is at their other ends."""
        for link in self.links:
            for here, there in (("from", "to"), ("to", "from")):
                if link[here] == node["id"]:
                    yield link, self.nodes[link[there]]

    def path(self, start: Node, end: Node) -> list[Link] | None:
        """The links of a shortest way without NVLinks, which NICs do not have; None: there is none."""
        ways: dict[Any, list[Link]] = {start["id"]: []}
        front = [start]
        while front and end["id"] not in ways:
            following = []
            for node in front:
                for link, other in self.links_of(node):
                    if other["id"] not in ways and "nvlink" not in link["kind"].lower():
                        ways[other["id"]] = [*ways[node["id"]], link]
                        following.append(other)
            front = following
        return ways.get(end["id"])

    def gpu(self, device: str) -> Node | None:
        """The node of a device's name, cuda:1: by its name, else by its number among all GPUs."""
        gpus = self.of_kind("gpu")
        for node in gpus:
            if device in (node.get("name"), node.get("device"), node["id"]):
                return node
        kind, _, number = device.partition(":")
        return gpus[int(number)] if kind == "cuda" and number.isdigit() and int(number) < len(gpus) else None

    def nvlinks(self, one: Node, other: Node) -> list[Link]:
        """The direct ones between two GPUs, whatever their state."""
        return [link for link, node in self.links_of(one) if node is other and "nvlink" in link["kind"].lower()]


def is_down(link: Link) -> bool:
    """A link that is there but does not work."""
    return str(link.get("state", "up")).lower() in ("down", "inactive", "broken", "absent")


def between_sockets(link: Link) -> bool:
    """A link that joins the processors of two sockets."""
    return link["kind"].lower().replace("-", "_") in ("inter_socket", "socket", "upi", "qpi", "xgmi", "xbus", "system")
