#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads timelines of two ranks that exchange by plans with Perfetto's own definitions, and says whether each step is where it
belongs: within its run, a receive not over before the other rank's send has begun, runs one after the other.

    THALWEG_TRACE=himeno.pftrace thalweg-himeno --processes 2 --memory cuda --trigger graph --size S --iterations 400
    benchmarks/timeline.py himeno-*.pftrace --json result.json --picture himeno.png
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

SLACK_US = 20.0  # of two GPUs' clocks, each compared with the host's


@dataclasses.dataclass
class Slice:
    """An interval of a line; ns."""

    name: str
    begin: int
    end: int
    within: list[Slice] = dataclasses.field(default_factory=list)


def lines_of(path: pathlib.Path) -> dict[str, list[Slice]]:
    """{name of a plan's line: its outermost intervals}."""
    trace = protos.Trace()
    trace.ParseFromString(path.read_bytes())
    names: dict[int, str] = {}
    events = []
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        elif packet.HasField("track_event"):
            events.append((packet.timestamp, packet.track_event))
    events.sort(key=lambda one: one[0])  # stable: the order of the file among equal times
    lines: dict[str, list[Slice]] = {}
    stacks: dict[int, list[Slice]] = {}
    for at, event in events:
        name = names.get(event.track_uuid, "")
        if ", plan " not in name:
            continue
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            made = Slice(event.name, at, at)
            (stack[-1].within if stack else lines.setdefault(name, [])).append(made)
            stack.append(made)
        elif event.type == protos.TrackEvent.TYPE_SLICE_END and stack:
            stack.pop().end = at
    return lines


def runs_of(lines: dict[str, list[Slice]]) -> list[Slice]:
    """Runs of all plans of a rank, in the order of time."""
    return sorted((one for line in lines.values() for one in line if one.name == "run"), key=lambda run: run.begin)


def step(run: Slice, name: str) -> Slice | None:
    """The run's first step of that kind."""
    return next((one for one in all_within(run) if one.name == name), None)


def all_within(run: Slice) -> list[Slice]:
    """Steps may be within each other: a credit is given while a receive waits."""
    return [one for inner in run.within for one in (inner, *all_within(inner))]


def check(ranks: list[list[Slice]], outside: int) -> dict[str, Any]:
    """What is right and wrong, and how long things take. Ranks' runs correspond by their numbers, from the last one on."""
    pairs = list(zip(*(reversed(runs) for runs in ranks), strict=False))
    early, overlap = 0, 0
    kinds: dict[str, list[float]] = {}
    for runs in ranks:
        overlap += sum(1 for a, b in zip(runs, runs[1:], strict=False) if b.begin < a.end)
        for run in runs:
            for one in all_within(run):
                kinds.setdefault(one.name, []).append((one.end - one.begin) / 1000)
    for pair in pairs:
        for here, there in (pair, pair[::-1]):
            sent, taken = step(here, "send"), step(there, "take")
            if sent is not None and taken is not None and taken.end + SLACK_US * 1000 < sent.begin:
                early += 1
    periods = [[(b.begin - a.begin) / 1000 for a, b in zip(runs, runs[1:], strict=False)] for runs in ranks]
    steps = {name: {"count": len(times), "median_us": middle_of(times)} for name, times in kinds.items()}
    return {
        "ranks": len(ranks),
        "runs": [len(runs) for runs in ranks],
        "runs_us": [middle_of([(run.end - run.begin) / 1000 for run in runs]) for runs in ranks],
        "period_us": [middle_of(one) for one in periods],
        "steps": steps,
        "steps_outside_a_run": outside,
        "runs_that_overlap": overlap,
        "received_before_it_was_sent": early,
    }


def middle_of(times: list[float]) -> float:
    """The median, in microseconds."""
    return round(statistics.median(times), 2) if times else 0.0


def draw(ranks: list[list[Slice]], out: pathlib.Path, shown: int) -> None:
    """Some runs of each rank, below each other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colours = {
        "run": "0.85",
        "send": "tab:blue",
        "post": "tab:gray",
        "take": "tab:orange",
        "copy": "tab:green",
        "wait": "tab:red",
    }
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 1.1 * len(ranks)))
    middle = ranks[0][len(ranks[0]) // 2].begin
    end = middle
    for number, runs in enumerate(ranks):
        near = [run for run in runs if run.begin >= middle - 1000][:shown]
        end = max([end, *(run.end for run in near)])
        for run in near:
            for one, height in ((run, 0.8), *((inner, 0.4) for inner in all_within(run))):
                at, length = (one.begin - middle) / 1000, max(0.15, (one.end - one.begin) / 1000)
                axes.barh(number, length, left=at, height=height, color=colours.get(one.name, "tab:purple"), edgecolor="none")
    axes.set_yticks(range(len(ranks)), [f"GPU {number}" for number in range(len(ranks))])
    axes.invert_yaxis()
    axes.set_xlim(-1, (end - middle) / 1000 + 1)
    axes.set_xlabel("µs")
    axes.set_title("Steps of plans by the GPUs' own clocks", loc="left")
    used = {one.name for runs in ranks for run in runs for one in (run, *all_within(run))}
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours.get(name, "tab:purple")) for name in sorted(used)]
    axes.legend(handles, sorted(used), ncols=len(used), loc="upper right", frameon=False, bbox_to_anchor=(1, 1.25))
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main() -> None:
    """Exit code 1: something is not where it belongs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="one for each rank")
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    parser.add_argument("--picture", type=pathlib.Path, help="draw some runs")
    parser.add_argument("--shown", type=int, default=4, help="runs in the picture (%(default)s)")
    asked = parser.parse_args()
    lines = [lines_of(path) for path in asked.files]
    lines = [one for one in lines if one]  # a launcher has no plans
    ranks = [runs_of(one) for one in lines]
    if len(ranks) < 2 or not all(ranks):
        parser.exit(1, "these are not timelines of two ranks with plans\n")
    outside = sum(1 for one in lines for line in one.values() for outer in line if outer.name != "run")
    found = check(ranks, outside)
    print(json.dumps(found, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    if asked.picture:
        draw(ranks, asked.picture, asked.shown)
    wrong = found["steps_outside_a_run"] + found["runs_that_overlap"] + found["received_before_it_was_sent"]
    parser.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
