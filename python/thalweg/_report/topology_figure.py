# SPDX-License-Identifier: Apache-2.0
"""The topology of a report, drawn: what `thalweg topo --svg` drew when it was measured; else packages with what hangs off them."""

from __future__ import annotations

import base64
import collections
from collections.abc import Iterator

import matplotlib
from markupsafe import Markup
from matplotlib import pyplot

from . import figures, units
from .content import Figure, Part
from .document import Document
from .topology import Graph, Node, is_down

_SHOWN = ("numa", "numa_node", "gpu", "nic", "network")


def topology_figure(document: Document) -> Iterator[Part]:
    """One figure, or none without a topology."""
    if drawing := document.get("topology_svg"):
        # As an image it can neither run scripts nor load anything, whatever is in it.
        data = base64.b64encode(drawing.encode()).decode()
        picture = Markup('<img alt="the machine" src="data:image/svg+xml;base64,{}">').format(data)
        yield Figure("", picture, "packages, GPUs, NICs and their links")
    elif document.get("topology"):
        yield Figure("", _draw(Graph(document)), "packages, GPUs, NICs and their links")


def _children(graph: Graph, package: Node) -> list[Node]:
    """Memory, GPUs and NICs that are nearer to this package than to another."""
    packages = graph.of_kind("package", "socket") or graph.of_kind("machine")

    def distance(node: Node, to: Node) -> int:
        path = graph.path(node, to)
        return len(path) if path is not None else 1 << 30

    return [node for node in graph.of_kind(*_SHOWN) if min(packages, key=lambda p: distance(node, p)) is package]


def _draw(graph: Graph) -> Markup:
    packages = graph.of_kind("package", "socket") or graph.of_kind("machine")
    columns = {package["id"]: _children(graph, package) for package in packages}
    most = max((len(children) for children in columns.values()), default=0)
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 10}):
        figure, axes = pyplot.subplots(figsize=(max(5.6, 3.4 * len(packages)), 1.2 + 0.62 * max(most, 1)), layout="constrained")
        places = {}
        for number, package in enumerate(packages):
            x = 3.4 * number
            _box(axes, x, 0, str(package.get("name") or package["id"]), figures.SERIES[0])
            places[package["id"]] = (x, 0.0)
            for row, child in enumerate(columns[package["id"]], 1):
                colour = figures.SERIES[1] if child["kind"] == "gpu" else figures.SERIES[2] if "n" == child["kind"][0] and child["kind"] != "numa" else figures.GREY
                place = (x + 0.4, -0.62 * row)
                places[child["id"]] = place
                axes.plot([x - 0.85, x - 0.85, place[0] - 0.95], [-0.2, place[1], place[1]], color=figures.GREY, linewidth=1)
                _box(axes, *place, _label(graph, package, child), colour)
        _joints(axes, graph, places)
        axes.set_xlim(-1.3, 3.4 * max(len(packages) - 1, 0) + 2.2)
        axes.set_ylim(-0.62 * max(most, 1) - 0.4, 0.6)
        axes.axis("off")
    return figures.svg(figure, "topology")


def _label(graph: Graph, package: Node, child: Node) -> str:
    """Its name, and what it hangs off the package by."""
    path = graph.path(child, package) or []
    widths = [link["bandwidth"] for link in path if link.get("bandwidth")]
    name = str(child.get("name") or child["id"])
    return f"{name}  {units.rate(min(widths))}" if widths else name


def _box(axes: object, x: float, y: float, text: str, colour: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=10, bbox={"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": colour, "linewidth": 1.4})  # type: ignore[attr-defined]


def _joints(axes: object, graph: Graph, places: dict) -> None:
    """Links between packages, and NVLinks between GPUs: one line for each pair, with how many there are."""
    pairs: collections.Counter[tuple] = collections.Counter()
    down: collections.Counter[tuple] = collections.Counter()
    for link in graph.links:
        kind = link["kind"].lower()
        ends = tuple(sorted((link["from"], link["to"]), key=str))
        shown = "nvlink" in kind or all(graph.nodes[end]["kind"].lower() in ("package", "socket") for end in ends)
        if shown and all(end in places for end in ends):
            pairs[ends] += 1
            down[ends] += is_down(link)
    for (one, other), count in pairs.items():
        broken = down[one, other]
        here, there = places[one], places[other]
        bend = 0.0 if here[1] == there[1] == 0 else -0.25 if here[0] == there[0] else 0.0
        start = (here[0] + 0.85, here[1])
        end = (there[0] + (0.85 if here[0] == there[0] else -0.85), there[1])
        arrow = {"arrowstyle": "-", "color": figures.SERIES[1] if broken else figures.SERIES[4] if count > 1 or graph.nodes[one]["kind"] == "gpu" else figures.GREY,
                 "linewidth": 0.8 + 0.25 * count, "linestyle": "--" if broken else "-", "connectionstyle": f"arc3,rad={-2.2 * bend}"}  # fmt: skip
        axes.annotate("", end, start, arrowprops=arrow)  # type: ignore[attr-defined]
