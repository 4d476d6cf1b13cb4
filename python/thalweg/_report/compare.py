# SPDX-License-Identifier: Apache-2.0
"""Two reports side by side: two machines, or one on two dates."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import figures, findings, page, parts_host, quantities, readings, shapes, units
from .content import Figure, Part
from .document import Document
from .figures import Curve
from .sections import section

CHANGED = 0.15  # by which a number has to differ to be marked: a median of a quiet machine varies less


@dataclasses.dataclass(frozen=True)
class Pair:
    """One number in both."""

    section: str
    name: str
    first: str
    second: str
    gain: float  # how many times the second is better; below 1 it is worse

    @property
    def outcome(self) -> str:
        """better, worse, or nothing."""
        if self.gain >= 1 + CHANGED:
            return "better"
        return "worse" if self.gain <= 1 / (1 + CHANGED) else ""

    @property
    def ratio(self) -> str:
        """2.1 × better."""
        if abs(self.gain - 1) < 0.005:
            return "the same"
        if self.gain >= 1:
            return f"{units.number(self.gain)} × better" if self.outcome else f"+{units.number(100 * (self.gain - 1))} %"
        return f"{units.number(1 / self.gain)} × worse" if self.outcome else f"−{units.number(100 * (1 - self.gain))} %"


def pairs(first: Document, second: Document) -> tuple[list[Pair], int, int]:
    """Numbers that both have, and how many only the first and only the second has."""
    here = {(q.section, q.name): q for q in quantities.of(first)}
    there = {(q.section, q.name): q for q in quantities.of(second)}
    found = []
    for key, one in here.items():
        other = there.get(key)
        if other is None or one.unit != other.unit:
            continue
        gain = 1.0
        if one.value > 0 and other.value > 0:
            gain = one.value / other.value if one.less_is_better else other.value / one.value
        found.append(Pair(one.section, one.name, one.text(), other.text(), gain))
    return found, len(here) - len(found), len(there) - len(found)


def label(document: Document) -> str:
    """box17, 2026-11-26 09:30."""
    return f"{document['machine']['host']}, {document['created'][:16].replace('T', ' ')}"


def _curves(first: Document, second: Document) -> list[Part]:
    """Messages of both, over each transport."""
    found: list[Part] = []
    names = (label(first), label(second))
    for transport, name in parts_host.TRANSPORTS.items():
        for kind, unit, form, value in shapes.KINDS:
            drawn = [
                Curve(f"{'AB'[number]}: {one}", readings.curve(document, f"tag_{kind}", value, transport=transport))
                for number, (one, document) in enumerate(zip(names, (first, second), strict=True))
            ]
            title = f"{name}: {'latency' if kind == 'lat' else 'bandwidth'} of messages"
            if drawing := figures.curves(f"compare {transport} {kind}", title, unit, form, drawn, {}):
                found.append(Figure(title, drawing, f"{title} of both reports against size"))
    return found


def _by_section(found: list[Pair]) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(pair.section for pair in found))
    return [{"one": section(name), "pairs": [pair for pair in found if pair.section == name]} for name in names]


def compare_page(first: Document, second: Document) -> str:
    """The page of both as HTML. A better B is marked as such."""
    found, only_first, only_second = pairs(first, second)
    facts = [dict(page.facts(document)) for document in (first, second)]
    return page.render(
        "compare.html.j2",
        title=f"{label(first)} and {label(second)}: thalweg report",
        labels=(label(first), label(second)),
        facts=[(name, facts[0].get(name, "–"), facts[1].get(name, "–")) for name in dict.fromkeys([*facts[0], *facts[1]])],
        findings=[findings.find(first), findings.find(second)],
        changed=changed(found),
        sections=_by_section(found),
        drawings=_curves(first, second),
        only=(only_first, only_second),
        threshold=units.share(CHANGED),
    )


def changed(found: list[Pair]) -> list[Pair]:
    """Those that are marked, the farthest from equal first."""
    return sorted((pair for pair in found if pair.outcome), key=lambda pair: -max(pair.gain, 1 / pair.gain))
