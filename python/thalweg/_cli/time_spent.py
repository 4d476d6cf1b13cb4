# SPDX-License-Identifier: Apache-2.0
"""Where the time of a timeline went: sums that add up to the time that each thread was seen."""

from __future__ import annotations

import statistics
from typing import Any

from .timeline import Slice, Timeline, Track

ELSEWHERE = "outside of the library"
MOST_WAITS = 10
SENT, ARRIVED = ("sent", "announced"), ("arrived", "unexpected")

Summary = dict[str, Any]


def summarize(timeline: Timeline) -> Summary:
    """Plain data: times in nanoseconds."""
    return {
        "cut": timeline.cut,
        "lost": sum(one.number("events") for one in timeline.instants if one.name == "dropped"),
        "dropped": dropped(timeline),
        "threads": threads(timeline),
        "operations": operations(timeline),
        "devices": devices(timeline),
        "peers": peers(timeline),
        "messages": messages(timeline),
        "longest_waits": longest_waits(timeline),
    }


def process_of(timeline: Timeline, track: Track) -> str:
    """ "program 4711"."""
    process = timeline.tracks.get(track.process, track)
    return f"{process.name or 'process'} {process.pid}"


def line_of(timeline: Timeline, uuid: int) -> str:
    """A thread or a device's queue, with its process."""
    track = timeline.tracks[uuid]
    return f"{process_of(timeline, track)}: {track.name or track.thread}"


def is_lane(track: Track) -> bool:
    """Operations under way, which overlap what threads do."""
    return not track.thread and track.uuid != track.process and track.name.startswith("operations ")


def dropped(timeline: Timeline) -> list[Summary]:
    """Events that are missing, by the thread whose ring was full; of plans, and of threads without one, by the process."""
    found: dict[int, int] = {}
    for one in timeline.instants:
        if one.name == "dropped":
            found[one.track] = found.get(one.track, 0) + one.number("events")
    rows = []
    for uuid, events in found.items():
        others = f"{process_of(timeline, timeline.tracks[uuid])}: plans, threads without a ring"
        rows.append({"line": line_of(timeline, uuid) if timeline.tracks[uuid].thread else others, "events": events})
    return sorted(rows, key=lambda one: -one["events"])


def spans(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """From each process's first to its last event."""
    found: dict[int, tuple[int, int]] = {}
    for one in [*timeline.slices, *timeline.instants]:
        process = timeline.tracks[one.track].process
        begin, end = found.get(process, (one.begin, one.end))
        found[process] = (min(begin, one.begin), max(end, one.end))
    return found


def threads(timeline: Timeline) -> list[Summary]:
    """Of each thread its process's whole time, by category: what is in a slice and in none within it counts for that one."""
    whole = spans(timeline)
    by_track: dict[int, dict[str, int]] = {}
    for one in timeline.slices:
        if timeline.tracks[one.track].thread:
            spent = by_track.setdefault(one.track, {})
            spent[one.category] = spent.get(one.category, 0) + one.end - one.begin - one.inside
    found = []
    for uuid, spent in by_track.items():
        begin, end = whole[timeline.tracks[uuid].process]
        spent[ELSEWHERE] = end - begin - sum(spent.values())
        found.append({"thread": line_of(timeline, uuid), "total": end - begin, "by": spent})
    return sorted(found, key=lambda one: one["thread"])


def grouped(slices: list[Slice]) -> list[Summary]:
    """By name: how many, their bytes, and how long they lasted."""
    by_name: dict[str, list[Slice]] = {}
    for one in slices:
        by_name.setdefault(one.name, []).append(one)
    found = []
    for name, all_of in by_name.items():
        lasted = [one.end - one.begin for one in all_of]
        found.append(
            {
                "name": name,
                "count": len(all_of),
                "bytes": sum(one.number("bytes") for one in all_of),
                "failed": sum(1 for one in all_of if one.number("status") < 0),
                "total": sum(lasted),
                "median": int(statistics.median(lasted)),
                "longest": max(lasted),
            }
        )
    return sorted(found, key=lambda one: -one["total"])


def operations(timeline: Timeline) -> list[Summary]:
    """From their posting to their end; they overlap."""
    return grouped([one for one in timeline.slices if is_lane(timeline.tracks[one.track])])


def devices(timeline: Timeline) -> list[Summary]:
    """Of each line of a device: how long it ran programs, and what in them; or kernels of collectives, which have no steps."""
    by_track: dict[int, list[Slice]] = {}
    for one in timeline.slices:
        track = timeline.tracks[one.track]
        if not track.thread and not is_lane(track):
            by_track.setdefault(one.track, []).append(one)
    found = []
    for uuid, all_of in by_track.items():
        runs = sum(one.end - one.begin for one in all_of if one.depth == 0)
        steps = grouped([one for one in all_of if one.depth > 0 or one.name != "run"])
        found.append({"queue": line_of(timeline, uuid), "running": runs, "steps": steps})
    return sorted(found, key=lambda one: one["queue"])


def peers(timeline: Timeline) -> list[Summary]:
    """Messages between two processes, as their first frames show them."""
    names = peer_names(timeline)
    found: dict[tuple[str, str], Summary] = {}
    for one in timeline.instants:
        if one.name not in (*SENT, *ARRIVED):
            continue
        here = process_of(timeline, timeline.tracks[one.track])
        there = names.get(str(one.arguments.get("peer", "")), f"worker {one.arguments.get('peer', '?')}")
        row = found.setdefault(
            (here, there),
            {"process": here, "peer": there, "sent": 0, "sent_bytes": 0, "received": 0, "received_bytes": 0, "unexpected": 0},
        )
        way = "sent" if one.name in SENT else "received"
        row[way] += 1
        row[way + "_bytes"] += one.number("bytes")
        row["unexpected"] += one.name == "unexpected"
    return sorted(found.values(), key=lambda row: -(row["sent_bytes"] + row["received_bytes"]))


def arrows(timeline: Timeline) -> list[tuple[Slice, Slice]]:
    """Both ends of each message of which both were recorded."""
    begins = {one.flow: one for one in timeline.instants if one.flow}
    return [(begins[one.flow_ends], one) for one in timeline.instants if one.flow_ends in begins]


def peer_names(timeline: Timeline) -> dict[str, str]:
    """Workers, as peers name them, by the processes that arrows lead to."""
    names = {}
    for begin, end in arrows(timeline):
        names[str(begin.arguments.get("peer", ""))] = process_of(timeline, timeline.tracks[end.track])
        names[str(end.arguments.get("peer", ""))] = process_of(timeline, timeline.tracks[begin.track])
    return names


def messages(timeline: Timeline) -> Summary:
    """From the sending of a message's first frame until the other side handled it. Of one machine: others have other clocks."""
    took = sorted(end.begin - begin.begin for begin, end in arrows(timeline))
    if not took:
        return {"matched": 0}
    return {"matched": len(took), "median": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "longest": took[-1]}


def longest_waits(timeline: Timeline) -> list[Summary]:
    """Blocking calls that waited longest: a sleep counts where it is not within a wait (tw_worker_wait is only that)."""

    def is_wait(one: Slice) -> bool:
        return one.name == "wait" or (one.name == "sleep" and one.depth == 0)

    waits = [one for one in timeline.slices if is_wait(one) and timeline.tracks[one.track].thread]
    waits.sort(key=lambda one: one.begin - one.end)
    start = min((begin for begin, _ in spans(timeline).values()), default=0)
    return [
        {"thread": line_of(timeline, one.track), "at": one.begin - start, "time": one.end - one.begin}
        for one in waits[:MOST_WAITS]
    ]
