# SPDX-License-Identifier: Apache-2.0
"""Drawings by matplotlib as SVG within the page: curves, bars. Their colours become variables of the page's style, so that one
drawing serves light and dark."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
from markupsafe import Markup
from matplotlib import pyplot

from thalweg._cli import plot

# plot.py's colours and those of its axes, as the page calls them.
_VARIABLES = {
    "#0072b2": "--blue",
    "#d55e00": "--orange",
    "#009e73": "--green",
    "#cc79a7": "--pink",
    "#e69f00": "--yellow",
    "#56b4e9": "--sky",
    "#555555": "--muted",
    "#dddddd": "--grid",
    "#eeeeee": "--grid-faint",
    "#000000": "--ink",
}
SERIES = list(_VARIABLES)[:6]
MARKERS = "os^Dv*"
GREY = plot.GREY
STYLES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
# Dollars and backslashes in a name are what they are: nothing is a formula.
_SETTINGS: Any = {
    "text.parse_math": False,
    "font.size": 11,
    "axes.titlesize": 11,
    "legend.fontsize": 9,
    "axes.edgecolor": "#555555",
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """Values against sizes. `floor`: of the machine, without the library: grey and dashed, level where it has one point."""

    label: str
    points: Sequence[tuple[int, float]]
    floor: bool = False


def svg(figure: Any, name: str) -> Markup:
    """The drawing, to be put into a page. `name`: of this figure alone, for its identifiers."""
    output = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(output, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = output.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: f"var({_VARIABLES[found[0]]})" if found[0] in _VARIABLES else found[0], text)
    return Markup(text)


def curves(name: str, title: str, unit: str, form: str, all_curves: Sequence[Curve], marks: Mapping[int, str]) -> Markup | None:
    """Logarithmic both ways. `marks`: sizes at which something changes, with what to. None of fewer points than two."""
    drawn = [curve for curve in all_curves if curve.points]
    if not any(len(curve.points) > 1 for curve in drawn if not curve.floor):
        return None
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = pyplot.subplots(figsize=(5.6, 4.3), layout="constrained")
        for number, curve in enumerate(curve for curve in drawn if not curve.floor):
            sizes, values = zip(*curve.points, strict=True)
            axes.plot(
                sizes,
                values,
                label=_short(curve.label),
                color=SERIES[number % len(SERIES)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=5,
                linewidth=1.8,
                zorder=3,
            )
        _floors(axes, [curve for curve in drawn if curve.floor])
        plot.axis(axes, title, unit, form)
        _marks(axes, marks)
    return svg(figure, name)


def _short(text: str) -> str:
    """What a drawing has room for."""
    return text if len(text) <= 44 else text[:43] + "…"


def _floors(axes: Any, floors: Sequence[Curve]) -> None:
    for number, curve in enumerate(floors):
        style = {
            "color": plot.GREY,
            "linestyle": STYLES[number % len(STYLES)],
            "linewidth": 1.1,
            "label": _short(curve.label),
            "zorder": 1,
        }
        if len(curve.points) == 1:
            axes.axhline(curve.points[0][1], **style)
        else:
            axes.plot(*zip(*curve.points, strict=True), **style)


def _marks(axes: Any, marks: Mapping[int, str]) -> None:
    low, high = axes.get_xlim()
    for size, text in marks.items():
        if low < size < high:
            axes.axvline(size, color=plot.GREY, linewidth=0.8, linestyle=":", zorder=0)
            axes.text(
                size,
                0.98,
                f" {_short(text)}",
                transform=axes.get_xaxis_transform(),
                rotation=90,
                va="top",
                ha="right",
                fontsize=8.5,
                color=plot.GREY,
            )


def parts_of_one(
    name: str, groups: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, float]]]]], unit: str
) -> Markup | None:
    """Stacked bars: for each group some bars, for each bar parts by name."""
    if not groups:
        return None
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = pyplot.subplots(figsize=(5.6, 0.62 * len(groups) + 1.5), layout="constrained")
        names = list(dict.fromkeys(part for _, bars in groups for _, parts in bars for part in parts))
        ticks, labels, place = [], [], 0.0
        for group, bars in groups:
            for bar, parts in bars:
                start = 0.0
                for part, value in parts.items():
                    axes.barh(place, value, left=start, height=0.8, color=SERIES[names.index(part)], label=part)
                    start += value
                ticks.append(place)
                labels.append(_short(f"{group}  {bar}"))
                place += 0.9
            place += 0.5
        axes.set_yticks(ticks, labels, fontsize=9)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        handles, texts = axes.get_legend_handles_labels()
        unique = dict(zip(texts, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncol=3, frameon=False)
    return svg(figure, name)
