# SPDX-License-Identifier: Apache-2.0
"""A topology as an SVG picture: sockets side by side with their NUMA nodes, caches and cores; PCIe below them as a tree; GPUs
and cards in one row; NVLinks as curves below that row, or as lines to NVSwitches."""

from __future__ import annotations

from html import escape
from typing import Any

from .topology_graph import Graph, card_rate, is_up, kind_of, listed, pcie_text, rate, size

MARGIN, GAP, APART, DEVICE, HEIGHT, CORE = 28, 14, 64, 112, 66, 12
COLOURS = {"pcie": "#3b6fb6", "nvlink": "#4f9a1f", "socket": "#b3541e", "memory": "#7a5195", "down": "#d03030"}
STYLE = """
text { font-family: 'Inter', 'Helvetica Neue', Arial, sans-serif; fill: #1d2733; font-size: 12px }
.title { font-size: 20px; font-weight: 600 } .dim { fill: #66727f; font-size: 11px } .small { font-size: 10px; fill: #66727f }
.head { font-weight: 600 } .package { fill: #f3f5f8; stroke: #aab4c0 } .numa { fill: #ffffff; stroke: #c4ccd6 }
.cache { fill: #fbf3e4; stroke: #e0c890 } .core { fill: #e9b949; stroke: #c99a2e } .bridge { fill: #e3ecf8; stroke: #3b6fb6 }
.gpu { fill: #e4f3d6; stroke: #4f9a1f } .nic { fill: #dff2f4; stroke: #2a8c99 } .nvswitch { fill: #cfe8b8; stroke: #4f9a1f }
.off { opacity: .45 } .badge { fill: #1d2733 } .badge-text { fill: #ffffff; font-size: 10px; font-weight: 600 }
.label { font-size: 10px; font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round }
"""


def draw(graph: Graph, places: list[dict[str, Any]]) -> str:
    """The picture as text; `places` are the ranks to show on their GPUs."""
    return Drawing(graph, places).text()


class Box:
    """Where a node is."""

    def __init__(self, x: float, y: float, width: float, height: float) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height

    @property
    def middle(self) -> float:
        """Across."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height


def element(name: str, inside: str = "", **attributes: Any) -> str:
    """An element: numbers to a tenth, "_" in names of attributes as "-", "class_" as "class"."""
    words = []
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))
            words.append(f' {key.rstrip("_").replace("_", "-")}="{text}"')
    return f"<{name}{''.join(words)}>{inside}</{name}>" if inside else f"<{name}{''.join(words)}/>"


def words_at(x: float, y: float, look: str, text: str, **attributes: Any) -> str:
    """A text."""
    return element("text", escape(text), class_=look, x=float(x), y=float(y), **attributes)


def title_of(text: str) -> str:
    """What is shown under the pointer."""
    return element("title", escape(text)) if text else ""


def stroke(points: tuple[float, float, float, float], kind: str, width: float, title: str = "", dashed: bool = False) -> str:
    """A straight line of a link."""
    x1, y1, x2, y2 = map(float, points)
    look = {"stroke": COLOURS[kind], "stroke_width": float(width), "stroke_dasharray": "5 4" if dashed else None}
    return element("line", title_of(title), x1=x1, y1=y1, x2=x2, y2=y2, **look)


class Drawing:
    """Measured from the leaves up, then placed from the top down."""

    def __init__(self, graph: Graph, places: list[dict[str, Any]]) -> None:
        self.graph = graph
        self.ranks: dict[str, list[int]] = {}
        for rank, place in enumerate(places):
            if place["gpu"] is not None:
                self.ranks.setdefault(f"gpu:{place['gpu']}", []).append(rank)
        self.boxes: dict[str, Box] = {}
        self.lines: list[str] = []  # below the boxes
        self.shapes: list[str] = []
        self.depth = max((self.switch_depth(node) for node in graph.all("bridge")), default=0)

    def text(self) -> str:
        """Places everything."""
        graph, top = self.graph, 74.0
        heads = graph.inside("machine") or ["machine"]
        cpu = max(self.cpu_height(head) for head in heads)
        self.pcie_top = top + cpu + 34
        self.device_top = self.pcie_top + (self.depth + 1) * 52 + 8
        x = float(MARGIN)
        for head in heads:
            self.container(head, x, top, cpu)
            x += self.width(head) + APART
        if heads != ["machine"]:
            for node in graph.children("machine", "bridge", "switch", "gpu", "nic"):
                self.pcie(node, x, 0, None)
                x += self.width(node) + GAP
        width = max(x - APART + MARGIN, 760.0)
        bottom = self.nvlinks(width)
        self.sockets()
        self.legend(bottom + 34)
        height = bottom + 62
        head = words_at(MARGIN, 36, "title", graph.name or "this machine")
        head += words_at(MARGIN, 56, "dim", f"from {graph.source}")
        back = element("rect", width="100%", height="100%", fill="#ffffff")
        inside = element("style", STYLE) + back + head + "".join(self.lines) + "".join(self.shapes)
        view, space = f"0 0 {width:.0f} {height:.0f}", "http://www.w3.org/2000/svg"
        return element("svg", inside, xmlns=space, viewBox=view, width=round(width), height=round(height)) + "\n"

    # ---- sizes

    def switch_depth(self, node: str) -> int:
        """Levels of switches below a node."""
        return max((1 + self.switch_depth(child) for child in self.graph.children(node, "switch")), default=0)

    def width(self, node: str) -> float:
        """What a node needs across, with all that hangs on it."""
        kind = kind_of(node)
        if kind in ("gpu", "nic"):
            return DEVICE
        below = self.graph.children(node, "bridge", "switch", "gpu", "nic")
        hanging = sum(self.width(child) for child in below) + GAP * max(0, len(below) - 1)
        if kind in ("bridge", "switch"):
            return max(hanging, DEVICE)
        inside = self.graph.inside(node)
        nested = sum(self.width(child) for child in inside) + GAP * (len(inside) + 1)
        return max(hanging + (nested if inside else 0), 2 * GAP + self.cores_width(node), 190.0)

    def groups(self, node: str) -> list[tuple[str, list[str]]]:
        """Caches with their cores, and cores without one."""
        found = [(cache, self.graph.children(cache, "core")) for cache in self.graph.caches(node)]
        loose = self.graph.children(node, "core")
        return [*found, ("", loose)] if loose else found

    def columns(self, cores: int) -> int:
        """Of a cache's cores: wide rather than high."""
        return max(4, min(28, -(-cores // 2))) if cores > 8 else min(max(cores, 1), 4)

    def cache_width(self, cores: int) -> float:
        """With room for its size."""
        return max(self.columns(cores) * CORE + 14, 54)

    def cores_width(self, node: str) -> float:
        """Of its caches, four beside each other at most."""
        widths = [self.cache_width(len(cores)) for _, cores in self.groups(node)]
        return max((sum(widths[i : i + 4]) + 6 * (len(widths[i : i + 4]) - 1) for i in range(0, len(widths), 4)), default=0)

    def cores_height(self, node: str) -> float:
        """Of its rows of caches."""
        heights = [-(-len(cores) // self.columns(len(cores))) * CORE + 26 for _, cores in self.groups(node)]
        return sum(max(heights[i : i + 4]) + 6 for i in range(0, len(heights), 4))

    def cpu_height(self, node: str) -> float:
        """Of a package or NUMA node without what hangs on it."""
        inside = [self.cpu_height(child) for child in self.graph.inside(node)]
        return 44 + self.cores_height(node) + max(inside, default=0) + (GAP if inside else 0)

    # ---- boxes

    def shape(self, node: str, box: Box, kind: str, lines: list[tuple[str, str]], title: str = "") -> None:
        """A box with lines of (class, text)."""
        self.boxes[node] = box
        off = " off" if self.graph.nodes[node].get("state") == "down" else ""
        parts = [title_of(title), element("rect", class_=kind, x=box.x, y=box.y, width=box.width, height=box.height, rx=6)]
        for row, (style, text) in enumerate(lines):
            room = int((box.width - 12) / (5.6 if style == "small" else 6.6))
            text = text if len(text) <= room else text[: room - 1] + "…"
            parts.append(words_at(box.x + 8, box.y + 17 + row * 14, style, text) if text else "")
        self.shapes.append(element("g", "".join(parts), class_=f"node{off}"))

    def container(self, node: str, x: float, y: float, height: float) -> None:
        """A package or NUMA node, what it contains, and what hangs on it below."""
        inside = self.graph.inside(node)
        kind = "numa" if kind_of(node) == "numa" else "package"
        memory = self.graph.nodes[node].get("memory")
        of = "cache" if kind_of(node) == "cache" else "memory"
        lines = [("head", node)] + ([("small", f"{size(memory)} of {of}")] if memory else [])
        self.shape(node, Box(x, y, self.width(node), height), kind, lines)
        self.cores(node, x + GAP, y + 36)
        across = x + GAP
        for child in inside:
            self.container(child, across, y + 30 + self.cores_height(node), height - 30 - GAP - self.cores_height(node))
            across += self.width(child) + GAP
        hanging = self.graph.children(node, "bridge", "switch", "gpu", "nic")
        wide = sum(self.width(child) for child in hanging) + GAP * max(0, len(hanging) - 1)
        across = across if inside else x + (self.width(node) - wide) / 2
        for child in hanging:
            self.pcie(child, across, 0, node)
            across += self.width(child) + GAP

    def cores(self, node: str, x: float, y: float) -> None:
        """Caches in rows of four, cores as small squares."""
        across, lowest, edge = x, y, float(CORE - 2)
        for index, (cache, cores) in enumerate(self.groups(node)):
            if index and index % 4 == 0:
                across, y = x, lowest + 6
            columns = self.columns(len(cores))
            width, height = self.cache_width(len(cores)), -(-len(cores) // columns) * CORE + 26
            if cache:
                memory = size(self.graph.nodes[cache].get("memory", 0))
                self.shape(cache, Box(across, y, width, height), "cache", [("small", memory)])
            for place, core in enumerate(cores):
                left, top = across + 8.0 + place % columns * CORE, y + 21.0 + place // columns * CORE
                title = title_of(f"{core}: processors {listed(self.graph.processors([core]))}")
                self.shapes.append(element("rect", title, class_="core", x=left, y=top, width=edge, height=edge, rx=2))
            across += width + 6
            lowest = max(lowest, y + height)

    def pcie(self, node: str, x: float, level: int, above: str | None) -> None:
        """A bridge, switch or device, and what is behind it."""
        kind, fields, width = kind_of(node), self.graph.nodes[node], self.width(node)
        link = self.graph.pcie(node)
        if kind in ("gpu", "nic"):
            fact = size(fields["memory"]) if "memory" in fields else card_rate(fields["speed"]) if "speed" in fields else ""
            fact += " down" if fields.get("state") == "down" else ""
            lines = [("head", node), ("small", fields.get("name", "")), ("small", fact)]
            facts = [node, fields.get("name"), fields.get("pci"), fact, pcie_text(link) if link else ""]
            self.shape(node, Box(x, self.device_top, DEVICE, HEIGHT), kind, lines, "\n".join(filter(None, facts)))
            self.badges(node)
        else:
            title = f"{node}: a PCIe {'host bridge' if kind == 'bridge' else 'switch'}"
            self.shape(node, Box(x + 4, self.pcie_top + level * 52, width - 8, 28), "bridge", [("head", node)], title)
            across = x + (width - sum(self.width(child) + GAP for child in self.hanging(node)) + GAP) / 2
            for child in self.hanging(node):
                self.pcie(child, across, level + 1, node)
                across += self.width(child) + GAP
        if above is not None and (link is not None or kind == "bridge"):
            self.down_line(node, above, link)

    def hanging(self, node: str) -> list[str]:
        """What is behind a bridge or switch."""
        return self.graph.children(node, "bridge", "switch", "gpu", "nic")

    def badges(self, gpu: str) -> None:
        """Ranks that have this GPU."""
        ranks = self.ranks.get(gpu)
        if not ranks:
            return
        box = self.boxes[gpu]
        text = f"rank {listed(ranks)}" if len(ranks) == 1 else f"ranks {listed(ranks)}"
        width = 10.0 + 6 * len(text)
        left = box.x + box.width - width - 5
        self.shapes.append(element("rect", class_="badge", x=left, y=box.bottom - 20, width=width, height=16, rx=8))
        self.shapes.append(words_at(left + 5, box.bottom - 8.5, "badge-text", text))

    # ---- links

    def down_line(self, node: str, above: str, link: dict[str, Any] | None) -> None:
        """PCIe from what is before a node to it, as wide as its bandwidth."""
        box, before = self.boxes[node], self.boxes[above]
        x = min(max(box.middle, before.x + 6), before.x + before.width - 6)
        width = 1.5 if link is None else min(6.0, 1 + link.get("bandwidth", 0) / 12e9)
        title = pcie_text(link) if link is not None else ""
        self.lines.append(stroke((x, before.bottom, box.middle, box.y), "pcie", width, title))
        if link is not None and link.get("generation"):
            text = f"{link['generation']}.0 x{link.get('lanes', 0)}"
            self.shapes.append(words_at(box.middle + 6, box.y - 5, "small", text))

    def nvlinks(self, width: float) -> float:
        """Switches in a row of their own; curves between GPUs that are as deep as they are wide. Returns the lowest point."""
        groups = self.graph.nvlinks()
        switches = self.graph.all("nvswitch")
        lowest = self.device_top + HEIGHT
        if switches:
            top, each = lowest + 130, min(150.0, width / (len(switches) + 1) - 10)
            for index, node in enumerate(switches):
                left = width * (index + 1) / (len(switches) + 1) - each / 2
                self.shape(node, Box(left, top, each, 26), "nvswitch", [("head", node)], node)
            lowest = top + 26
        for (one, other), links in groups.items():
            if one in self.boxes and other in self.boxes:
                lowest = max(lowest, self.nvlink(one, other, links))
        return lowest

    def nvlink(self, one: str, other: str, links: list[dict[str, Any]]) -> float:
        """Links side by side as one line; what is down is dashed on it. Returns its lowest point."""
        up, down = sum(map(is_up, links)), sum(not is_up(link) for link in links)
        kinds = {kind_of(one), kind_of(other)}
        path, at, lowest = self.curve(one, other) if kinds == {"gpu"} else self.straight(one, other)
        speed = sum(link.get("bandwidth", 0) for link in links if is_up(link))
        title = title_of(f"{one} - {other}: {up} NVLinks up, {down} down, {rate(speed)}")
        for count, colour, dash in ((up, "nvlink", None), (down, "down", "5 4")):
            if count:
                look = {"stroke": COLOURS[colour], "stroke_opacity": "0.55" if "nvswitch" in kinds else "0.8", "fill": "none"}
                self.lines.append(element("path", title, d=path, stroke_width=1 + 0.8 * count, stroke_dasharray=dash, **look))
        text = f"{up} up, {down} down" if up and down else f"{down} down" if down else str(up)
        if "nvswitch" not in kinds or down:
            style = f"fill:{COLOURS['down']}" if down else None
            self.shapes.append(words_at(at[0], at[1] + 4, "label", text, text_anchor="middle", style=style))
        return lowest

    def curve(self, one: str, other: str) -> tuple[str, tuple[float, float], float]:
        """Between two GPUs, below them: its path, where its label is, its lowest point."""
        a, b = sorted((self.boxes[one], self.boxes[other]), key=lambda box: box.x)
        depth = 26 + (b.middle - a.middle) * 0.17
        left, right, low = a.middle + 10, b.middle - 10, a.bottom + depth * 1.33
        path = f"M{left:.1f},{a.bottom:.1f} C{left:.1f},{low:.1f} {right:.1f},{low:.1f} {right:.1f},{b.bottom:.1f}"
        return path, ((left + right) / 2, a.bottom + depth), a.bottom + depth + 8

    def straight(self, one: str, other: str) -> tuple[str, tuple[float, float], float]:
        """The same between a GPU and a switch, or a NUMA node."""
        upper, lower = sorted((self.boxes[one], self.boxes[other]), key=lambda box: box.y)
        path = f"M{upper.middle:.1f},{upper.bottom:.1f} L{lower.middle:.1f},{lower.y:.1f}"
        at = ((upper.middle * 3 + lower.middle) / 4, (upper.bottom * 3 + lower.y) / 4)
        return path, at, lower.bottom

    def sockets(self) -> None:
        """Links between packages or NUMA nodes, and what they carry."""
        for link in self.graph.links:
            if link["kind"] != "socket" or link["from"] not in self.boxes or link["to"] not in self.boxes:
                continue
            a, b = sorted((self.boxes[link["from"]], self.boxes[link["to"]]), key=lambda box: box.x)
            left, right, y = a.x + a.width, b.x, a.y + 16
            self.shapes.append(stroke((left, y, right, y), "socket", 5))
            if link.get("bandwidth"):
                text = rate(link["bandwidth"])
                self.shapes.append(words_at((left + right) / 2, y - 8, "label", text, text_anchor="middle"))

    def legend(self, y: float) -> None:
        """What colours mean."""
        x = float(MARGIN)
        words = {
            "pcie": "PCIe (generation, lanes)",
            "nvlink": "NVLinks (how many)",
            "socket": "between sockets",
            "down": "down",
        }
        for kind, text in words.items():
            self.shapes.append(stroke((x, y, x + 26, y), kind, 4, dashed=kind == "down"))
            self.shapes.append(words_at(x + 32, y + 4, "dim", text))
            x += 60 + 6.2 * len(text)
