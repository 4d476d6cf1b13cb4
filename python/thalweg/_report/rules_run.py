# SPDX-License-Identifier: Apache-2.0
"""Rules about the run itself: wrong bytes, measurements that failed, other load, costs of another machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from . import readings
from .document import Document
from .rule import FAULT, NOTE, WARNING, Finding, Rule, threshold
from .units import number, share, time


def wrong_bytes(document: Document) -> Iterator[Finding]:
    """Payload that did not arrive as it was sent."""
    wrong: dict[str, int] = {}
    for row in readings.wrong_rows(document):
        wrong[row["test"]] = wrong.get(row["test"], 0) + 1
    for test, count in wrong.items():
        yield Finding(
            "wrong_bytes",
            FAULT,
            test,
            f"{test} moved wrong bytes.",
            "Do not use this path: report it with this file. Memory errors and broken links show in dmesg and in the counters.",
            (f"{count} rows not verified",),
        )


def failed(document: Document) -> Iterator[Finding]:
    """Measurements that ended with an error."""
    for step in document["steps"]:
        if step["state"] == "failed":
            yield Finding(
                "failed",
                WARNING,
                step["name"],
                f"{step['name']} could not be measured.",
                "Run the command below by hand, after what its message says.",
                (step.get("why", "no reason given"), "thalweg perf " + " ".join(step.get("command", []))),
            )


def _disturbed(document: Document) -> list[tuple[float, str]]:
    """(processors that other programs used, step) of steps with too many."""
    limit = threshold("others") * document["machine"]["processors"]
    return [(step["others"], step["name"]) for step in document["steps"] if step.get("others", 0) > limit]


def is_disturbed(document: Document) -> bool:
    """Whether times say little, because others worked on the same processors during a part of the run."""
    return bool(_disturbed(document) or _stolen(document))


def oversubscribed(document: Document) -> Iterator[Finding]:
    """Others on the same processors."""
    if steps := _disturbed(document):
        most, name = max(steps)
        processors = document["machine"]["processors"]
        yield Finding(
            "oversubscribed",
            WARNING,
            "processors",
            f"Other programs ran on these processors during {len(steps)} of the measurements: times are too high.",
            "Measure on an idle machine, or in an allocation of its own (srun --exclusive, taskset).",
            (f"{number(most)} of {processors} processors used by others during {name}",),
        )


def _stolen(document: Document) -> list[tuple[float, str]]:
    return [(s["stolen"], s["name"]) for s in document["steps"] if s.get("stolen", 0) > threshold("stolen")]


def stolen(document: Document) -> Iterator[Finding]:
    """A hypervisor that gives the processors to others."""
    if steps := _stolen(document):
        most, name = max(steps)
        yield Finding(
            "stolen",
            WARNING,
            "processors",
            f"The hypervisor took processor time during {len(steps)} of the measurements.",
            "Give the virtual machine processors of its own (pinned, not overcommitted).",
            (f"{share(most)} of a processor taken during {name}",),
        )


def spread(document: Document) -> Iterator[Finding]:
    """Latencies that vary on an idle machine: frequency, SMT, interrupts."""
    if is_disturbed(document):
        return
    ratios = []
    for row in readings.all_rows(document):
        found = row.get("latency_us") or {}
        if found.get("p50") and found.get("p90") and readings.size_of(row) <= 4096 and row.get("transport") == "shm":
            ratios.append(found["p90"] / found["p50"])
    middle = readings.median(ratios)
    if middle and middle > threshold("spread"):
        governor = document["machine"].get("governor")
        yield Finding(
            "spread",
            WARNING,
            "processors",
            "Latencies of small messages vary much although nobody else used the processors.",
            "Let the frequency stay (cpupower frequency-set -g performance), keep interrupts and SMT siblings off these cores.",
            (
                f"90th percentile at {number(middle)} times the median, in the middle of {len(ratios)} rows",
                *([f"frequency governor: {governor}"] if governor else []),
            ),
        )


def _cost(document: Document, name: str) -> float | None:
    """A cost in ns that routes are chosen by."""
    found = re.match(r"([\d.e+-]+) ns", document.get("info", {}).get("costs", {}).get(name, ""))
    return float(found[1]) if found else None


def costs_differ(document: Document) -> Iterator[Finding]:
    """Routes that are chosen by what another machine, or this one in another state, took."""
    costs = document.get("info", {}).get("costs", {})
    if is_disturbed(document) or costs.get("source", "") in ("", "defaults", "default", "off"):
        return
    off = []
    for transport in ("shm", "tcp"):
        known = _cost(document, f"{transport}.frame")
        measured = readings.message_latency(document, "tag_lat", transport, 8)
        if known and measured and not 1 / threshold("costs") < measured / known < threshold("costs"):
            off.append(f"{transport}: 8 bytes take {time(measured)}, by the costs {time(known)}")
    if off:
        yield Finding(
            "costs_differ",
            WARNING,
            "costs",
            "The costs that routes are chosen by are not those of this machine as it is.",
            "thalweg tune measures them anew" + (f" (they are in {costs['file']})." if costs.get("file") else "."),
            tuple(off),
        )


def incomplete(document: Document) -> Iterator[Finding]:
    """A report that was ended before its time."""
    if not document["complete"]:
        missing = [step["name"] for step in document["steps"] if step["state"] in ("left out", "cut")]
        yield Finding(
            "incomplete",
            NOTE,
            "report",
            "This report was ended before all was measured.",
            "Run thalweg report again, and let it come to its end.",
            (f"not measured: {', '.join(missing) or 'nothing'}",),
        )


RULES: tuple[Rule, ...] = (wrong_bytes, failed, oversubscribed, stolen, spread, costs_differ, incomplete)
