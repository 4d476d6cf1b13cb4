#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans that the host runs beside the same messages by hand: thalweg-plans, over each transport.

    benchmarks/plans.py [--program build/release/benchmarks/thalweg-plans] [--rounds 5] [--output FILE]

A round trip of one message by hand is two calls at each end and a wait; by a plan it is one call. Target: 1.1 times the
messages' time and 30 ns for each of the two steps of a message. The program binds its two processes to processors 0 and 1 and
takes the ways in turns.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
from typing import Any

import machine

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / "build/release"
MOST, STEP_US = 1.1, 0.03
STEPS = {"one_way": 2, "halo": 4}  # of a plan's, for what a row measures


def measure(program: pathlib.Path, rounds: int, transports: list[str]) -> list[dict[str, Any]]:
    """A row for each test, memory and size of each transport."""
    found: dict[tuple[str, str, str, int], dict[str, list[float]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for number in range(rounds):
        for transport in transports:
            if sys.stderr.isatty():
                print(f"\rround {number + 1} of {rounds}: {transport}".ljust(40), end="", file=sys.stderr)
            done = subprocess.run([program, transport], capture_output=True, text=True, check=True, timeout=120)
            for line in done.stdout.splitlines():
                test, memory, size, way, value = line.split(",")
                found[transport, test, memory, int(size)][way].append(float(value))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    rows = []
    for (transport, test, memory, size), ways in found.items():
        hand, plan = (statistics.median(ways[way]) for way in ("by hand", "plan"))
        target = MOST * hand + STEP_US * STEPS[test]
        row = {"transport": transport, "test": test, "memory": memory, "size": size, "by_hand_us": hand, "plan_us": plan}
        rows.append(row | {"target_us": round(target, 4), "met": plan <= target, "samples": ways})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=BUILD / "benchmarks/thalweg-plans")
    parser.add_argument("--library", type=pathlib.Path, default=BUILD / "libthalweg.so.0", help="to say its version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transports", default="shm,tcp")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    options = parser.parse_args()
    rows = measure(options.program, options.rounds, options.transports.split(","))
    print(
        f"{'transport':10}{'test':9}{'memory':10}{'bytes':>8} {'by hand, us':>12} {'plan, us':>9} {'ratio':>6} "
        f"{'target, us':>11}"
    )
    for row in rows:
        print(
            f"{row['transport']:10}{row['test']:9}{row['memory']:10}{row['size']:>8} {row['by_hand_us']:>12.4g} "
            f"{row['plan_us']:>9.4g} {row['plan_us'] / row['by_hand_us']:>6.2f} {row['target_us']:>11.4g}"
            f"{'' if row['met'] else '  missed'}"
        )
    if options.output:
        head = machine.describe(HERE.parent, options.library)
        head |= {
            "kind": "plans",
            "command": shlex.join(["benchmarks/plans.py", *sys.argv[1:]]),
            "rounds": options.rounds,
            "rows": rows,
        }
        options.output.write_text(json.dumps(head, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
