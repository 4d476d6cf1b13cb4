# SPDX-License-Identifier: Apache-2.0
"""The topology of a report, drawn: by `thalweg topo --svg` when it was measured; else packages with what hangs off them."""

from __future__ import annotations

import base64
import collections
from collections.abc import Iterator
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib import patches, pyplot

from . import figures, units
from .content import Figure, Part
from .document import Document
from .topology import Graph, Node, is_down

COLOURS = {"gpu": figures.SERIES[1], "nic": figures.SERIES[2], "network": figures.SERIES[2]}
SHOWN = ("numa", "numa_node", "numanode", *COLOURS)
WIDTH, HEIGHT, COLUMN, ROW = 2.1, 0.44, 3.5, 0.66  # of a box, and from one to the next
Place = tuple[float, float]


def topology_figure(document: Document) -> Iterator[Part]:
    """One figure, or none without a topology."""
    if drawing := document.get("topology_svg"):
        # As an image it can neither run scripts nor load anything, whatever is in it.
        data = base64.b64encode(drawing.encode()).decode()
        picture = Markup('<img alt="the machine" src="data:image/svg+xml;base64,{}">').format(data)
        yield Figure("", picture, "packages, GPUs, NICs and their links")
    elif document.get("topology"):
        yield Figure("", _draw(Graph(document)), "packages, GPUs, NICs and their links")


def _packages(graph: Graph) -> list[Node]:
    return graph.of_kind("package", "socket") or graph.of_kind("machine")


def _columns(graph: Graph) -> list[tuple[Node, list[Node]]]:
    """Packages with the memory, GPUs and NICs that are nearest to each."""

    def distance(node: Node, to: Node) -> int:
        path = graph.path(node, to)
        return len(path) if path is not None else 1 << 30

    packages = _packages(graph)
    nearest = (
        {node["id"]: min(packages, key=lambda p: distance(node, p))["id"] for node in graph.of_kind(*SHOWN)} if packages else {}
    )
    return [(package, [n for n in graph.of_kind(*SHOWN) if nearest[n["id"]] == package["id"]]) for package in packages]


def _draw(graph: Graph) -> Markup:
    columns = _columns(graph)
    rows = max((len(children) for _, children in columns), default=0)
    right = COLUMN * max(len(columns) - 1, 0) + WIDTH + 1.2
    with matplotlib.rc_context({"text.parse_math": False, "font.size": 10}):
        figure, axes = pyplot.subplots(figsize=(1.25 * right, 1.25 * (ROW * rows + 1)), layout="constrained")
        axes.set_xlim(-0.1, right)
        axes.set_ylim(-ROW * rows - 0.35, 0.55)
        axes.axis("off")
        places: dict[Any, Place] = {}
        for number, (package, children) in enumerate(columns):
            left = COLUMN * number
            places[package["id"]] = (left, 0.0)
            _box(axes, (left, 0), str(package.get("name") or package["id"])[:30], figures.SERIES[0])
            for row, child in enumerate(children, 1):
                place = places[child["id"]] = (left + 0.35, -ROW * row)
                axes.plot(
                    [left + 0.15, left + 0.15, place[0]], [-HEIGHT / 2, place[1], place[1]], color=figures.GREY, linewidth=1
                )
                _box(axes, place, _label(graph, package, child), COLOURS.get(child["kind"].lower(), figures.GREY))
        _joints(axes, graph, places)
    return figures.svg(figure, "topology")


def _label(graph: Graph, package: Node, child: Node) -> str:
    """Its name, and what it hangs off the package by."""
    widths = [link["bandwidth"] for link in graph.path(child, package) or [] if link.get("bandwidth")]
    name = str(child.get("name") or child["id"])[:24]
    return f"{name}: {units.rate(min(widths))}" if widths else name


def _box(axes: Any, place: Place, text: str, colour: str) -> None:
    """A box whose left side's middle is there."""
    corner = (place[0], place[1] - HEIGHT / 2)
    axes.add_patch(
        patches.FancyBboxPatch(
            corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.08", facecolor="none", edgecolor=colour, linewidth=1.4
        )
    )
    axes.text(place[0] + WIDTH / 2, place[1], text, ha="center", va="center")


def _joints(axes: Any, graph: Graph, places: dict[Any, Place]) -> None:
    """Links between packages, and NVLinks between GPUs: one line for each pair, the wider the more of them."""
    pairs: collections.Counter[tuple] = collections.Counter()
    down: collections.Counter[tuple] = collections.Counter()
    packages = {package["id"] for package in _packages(graph)}
    for link in graph.links:
        ends = tuple(sorted((link["from"], link["to"]), key=lambda end: places.get(end, (0, 0))))
        if all(end in places for end in ends) and ("nvlink" in link["kind"].lower() or packages.issuperset(ends)):
            pairs[ends] += 1
            down[ends] += is_down(link)
    for (one, other), count in pairs.items():
        here, there = places[one], places[other]
        side = WIDTH if here[0] == there[0] else 0  # within a column around its right side, else from right to left
        broken = bool(down[one, other])
        axes.annotate(
            "",
            (there[0] + side, there[1]),
            (here[0] + WIDTH, here[1]),
            zorder=0,
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.7 + 0.25 * count,
                "linestyle": "--" if broken else "-",
                "shrinkA": 0,
                "shrinkB": 0,
                "color": figures.SERIES[1] if broken else figures.GREY if one in packages else figures.SERIES[4],
                "connectionstyle": f"arc3,rad={0.45 if side else 0}",
            },
        )
        if broken:
            middle = ((here[0] + WIDTH + there[0] + side) / 2 + (0.35 if side else 0), (here[1] + there[1]) / 2)
            text = f"{down[one, other]} of {count} down"
            axes.text(
                *middle,
                text,
                fontsize=8.5,
                ha="center",
                va="center",
                bbox={"facecolor": figures.PAPER, "edgecolor": "none", "pad": 1.5},
            )
