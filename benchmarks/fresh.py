#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thalweg beside peers between two processes, with data that is new for each message and with buffers that are sent again.

    benchmarks/fresh.py --ours 'thalweg=thalweg_bench' --peer 'ucx default=ucp_bench' \\
        --peer 'ucx posix=UCX_TLS=posix,self ucp_bench' [--rounds 5] [--tests lat,bw] [--output FILE]

Every program has the measuring loop of the peers' folder (`bench_core.h`; ours is benchmarks/cpu/thalweg_bench.c) and prints
lines "test,size,value,unit". Each round runs all of them once in random order. Whoever reads the sender's memory directly finds
the lines of a buffer that is sent again in its own cache, which no program's data are: "fresh" writes one word in each cache
line before each send (BENCH_DIRTY), "reused" does not. Bandwidth has 64 messages under way, each in a buffer of its own.

The first of several `--ours` is compared; "best" is the best peer of the same round, "default" the first `--peer`. Ratios are
ours divided by the peer's, medians over rounds: of times below 1, of rates above 1 is better.

Hypervisors move virtual processors, near to each other and far. With --probe (the peers' folder has one: nanoseconds a hop of a
cache line) each run says where it was, runs that were moved do not count, and each place has its own rows: ratios of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
from typing import Any

import machine

HERE = pathlib.Path(__file__).resolve().parent
RATES = {"GB/s", "Mmsg/s"}
MODES = {"fresh": {"BENCH_DIRTY": "1"}, "reused": {}}
NEAR_NS = 80  # a hop within one last-level cache takes less
Key = tuple[str, str, int]  # mode, test, bytes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--peer", action="append", required=True, metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tests", default="lat", help="of lat, bw, msgrate; default: lat")
    parser.add_argument("--modes", default="fresh,reused")
    parser.add_argument("--probe", help="a program that prints nanoseconds a hop of a cache line between the two processors")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    parser.add_argument("--library", type=pathlib.Path, help="libthalweg.so that is measured, to say its version")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    return parser.parse_args()


def measure(command: str, mode: str, test: str, limit: float) -> dict[int, tuple[float, str]]:
    """One run: bytes -> value and unit."""
    program, extra = shlex.split(command), dict[str, str]()
    while "=" in program[0]:  # VARIABLE=VALUE before the program, as in a shell
        variable, value = program.pop(0).split("=", 1)
        extra[variable] = value
    environment = {**os.environ, **MODES[mode], **extra, "BENCH_TESTS": test, "BENCH_DISTINCT": "1"}
    try:
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        print(f"  not done in {limit:g} s: {command}", file=sys.stderr)
        return {}
    if done.returncode != 0:
        print(f"  exit code {done.returncode}: {command}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return {}
    rows = [line.split(",") for line in done.stdout.splitlines() if line.count(",") == 3]
    return {int(size): (float(value), unit) for what, size, value, unit in rows if what == test}


def placement(probe: str) -> str:
    """Of the two processors now."""
    hop = float(subprocess.run(shlex.split(probe), capture_output=True, text=True, check=True, timeout=20).stdout)
    return "near" if hop < NEAR_NS else "far"


def table(
    rounds: list[dict[str, dict[Key, tuple[float, str]]]], ours: list[str], peers: list[str], placed: bool
) -> list[dict[str, Any]]:
    """A row for each mode, test and size."""
    rows = []
    for key in sorted({key for one in rounds for series in one.values() for key in series}):
        values = {name: [one[name][key][0] for one in rounds if key in one.get(name, {})] for name in ours + peers}
        unit = next(series[key][1] for one in rounds for series in one.values() if key in series)
        row: dict[str, Any] = {"mode": key[0], "test": key[1], "size": key[2], "unit": unit}
        row["median"] = {name: statistics.median(found) for name, found in values.items() if found}
        row["samples"] = values
        best = max if unit in RATES else min
        for against in ("best", "default"):
            ratios = []
            for one in rounds:
                theirs = [one[name][key][0] for name in (peers if against == "best" else peers[:1]) if key in one.get(name, {})]
                if theirs and key in one.get(ours[0], {}):
                    ratios.append(one[ours[0]][key][0] / best(theirs))
            if placed:
                middle = row["median"]
                theirs = [middle[name] for name in (peers if against == "best" else peers[:1]) if name in middle]
                ratios = [middle[ours[0]] / best(theirs)] if theirs and ours[0] in middle else []
            row[against] = statistics.median(ratios) if ratios else None
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]], names: list[str]) -> None:
    width = max(10, *(len(name) for name in names))
    print(
        f"{'mode':11}{'test':>8}{'bytes':>10} {'unit':5}",
        *(f"{name:>{width}}" for name in names),
        f"{'/best':>6} {'/default':>8}",
    )
    for row in rows:
        medians = (row["median"].get(name) for name in names)
        cells = " ".join(f"{'-' if value is None else f'{value:.4g}':>{width}}" for value in medians)
        ratios = [f"{'-' if row[key] is None else f'{row[key]:.2f}'}" for key in ("best", "default")]
        print(f"{row['mode']:11}{row['test']:>8}{row['size']:>10} {row['unit']:5} {cells} {ratios[0]:>6} {ratios[1]:>8}")


def main() -> int:
    options = arguments()
    series = dict(word.split("=", 1) for word in options.ours + options.peer)
    ours, peers = ([word.split("=", 1)[0] for word in words] for words in (options.ours, options.peer))
    runs = [(name, mode, test) for name in series for mode in options.modes.split(",") for test in options.tests.split(",")]
    rounds: list[dict[str, dict[Key, tuple[float, str]]]] = []
    for number in range(options.rounds):
        one: dict[str, dict[Key, tuple[float, str]]] = {}
        for name, mode, test in random.sample(runs, len(runs)):
            if sys.stderr.isatty():
                print(f"\rround {number + 1} of {options.rounds}: {name}, {mode} {test}".ljust(70), end="", file=sys.stderr)
            before = placement(options.probe) if options.probe else ""
            found = measure(series[name], mode, test, options.limit)
            if options.probe:
                if placement(options.probe) != before:
                    continue
                mode = f"{mode} {before}"
            one.setdefault(name, {}).update({(mode, test, size): value for size, value in found.items()})
        rounds.append(one)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    rows = table(rounds, ours, peers, bool(options.probe))
    show(rows, list(series))
    if options.output:
        head = machine.describe(HERE.parent, options.library or HERE.parent / "build/release/libthalweg.so.0")
        head |= {
            "kind": "fresh",
            "command": shlex.join(["benchmarks/fresh.py", *sys.argv[1:]]),
            "load": os.getloadavg(),
            "rounds": options.rounds,
            "rows": rows,
        }
        options.output.write_text(json.dumps(head, indent=1) + "\n")
    return 0 if all(row["best"] is not None for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
