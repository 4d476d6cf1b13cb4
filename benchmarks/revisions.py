#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds side by side: is AFTER slower than BEFORE? Each case runs with both in turn, in random order, round after round.

    benchmarks/revisions.py BEFORE AFTER [--rounds 15] [--case 'tag_lat --transport shm --size 8,1K'] [--output FILE]

BEFORE and AFTER are build folders, or folders with thalweg-perf and libthalweg.so.0. The table has, per case and size, both
medians and the median of the paired ratios with its 95 % interval (bootstrap over rounds). "slower" is an interval that lies
above 1 as a whole and reaches beyond 1.03 (for rates: below 1 and 0.97). Exit code 1: a case is slower, or did not run.
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
HOST_CASES = [
    "tag_lat --transport shm --size 8,1K",
    "tag_lat --transport tcp --size 8,1K",
    "put_lat --transport shm --size 8",
    "tag_rate --transport shm --size 8",
    "am_lat --transport shm --size 8",
    "atomic_lat --transport shm",
    "tag_lat --transport shm --size 64K,1M",
]
RATES = {"GB/s", "Mmsg/s", "Mblocks/s"}
TOLERANCE = 0.03
RESAMPLES = 2000


def program(folder: pathlib.Path) -> tuple[str, str]:
    """The program and the folder of its library."""
    for path in (folder / "thalweg-perf", folder / "tools" / "perf" / "thalweg-perf"):
        if path.is_file():
            return str(path), str(folder)
    raise SystemExit(f"revisions.py: no thalweg-perf in {folder}; build it there, or name another folder")


def measure(side: tuple[str, str], case: str, seconds: float) -> dict[str, tuple[float, str]]:
    """One run: test and size -> (value, unit)."""
    command = [side[0], *shlex.split(case), "--seconds", f"{seconds:g}", "--csv"]
    environment = {**os.environ, "LD_LIBRARY_PATH": side[1]}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60 + 20 * seconds)
    except subprocess.TimeoutExpired:
        print(f"  not done in time: {shlex.join(command)}", file=sys.stderr)
        return {}
    if done.returncode != 0:
        print(f"  exit code {done.returncode}: {shlex.join(command)}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return {}
    found = {}
    for line in done.stdout.splitlines():
        test, size, value, unit = line.split(",")
        found[f"{test} {size}"] = (float(value), unit)
    return found


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of resampled rounds."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def judge(case: str, size: str, unit: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """A row of the table."""
    ratios = [after / before for before, after in pairs]
    low, high = interval(ratios)
    slower = (high < 1 and low < 1 - TOLERANCE) if unit in RATES else (low > 1 and high > 1 + TOLERANCE)
    return {
        "case": case,
        "size": size,
        "unit": unit,
        "rounds": len(pairs),
        "before": statistics.median(before for before, _ in pairs),
        "after": statistics.median(after for _, after in pairs),
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "slower": slower,
        "samples": pairs,
    }


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds; rows in the order of the cases."""
    sides = [program(options.before), program(options.after)]
    pairs: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for number in range(options.rounds):
        for case in options.case or HOST_CASES:
            order = random.sample((0, 1), 2)
            values = {side: measure(sides[side], case, options.seconds) for side in order}
            for size in values[0].keys() & values[1].keys():
                unit = values[0][size][1]
                pairs.setdefault((case, size, unit), []).append((values[0][size][0], values[1][size][0]))
        print(f"  round {number + 1} of {options.rounds}", file=sys.stderr, end="\r", flush=True)
    print(file=sys.stderr)
    return [judge(*key, samples) for key, samples in sorted(pairs.items())]


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    print(f"{'case':44} {'size':>16} {'before':>9} {'after':>9} unit    ratio  95 % interval")
    for row in rows:
        low, high = row["interval"]
        case = row["case"].split(" --size")[0]
        print(f"{case:44} {row['size']:>16} {row['before']:9.4g} {row['after']:9.4g} {row['unit']:6} "
              f"{row['ratio']:6.3f}  {low:.3f} .. {high:.3f}{'  SLOWER' if row['slower'] else ''}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.2, help="per size and run (0.2)")
    parser.add_argument("--case", action="append", help="a test of thalweg-perf with its options; may be repeated")
    parser.add_argument("--before-revision", default="", help="what BEFORE was built from, for the record")
    parser.add_argument("--output", type=pathlib.Path, help="a result file")
    options = parser.parse_args()
    rows = run(options)
    show(rows)
    if options.output:
        library = next(options.after.glob("libthalweg.so.0*"))
        root = HERE if (HERE / "built.json").is_file() else HERE.parent
        head = {**machine.describe(root, library), "before": options.before_revision, "command": shlex.join(sys.argv)}
        options.output.write_text(json.dumps({**head, "kind": "revisions", "rows": rows}, indent=1) + "\n")
    ran = {row["case"] for row in rows}
    return int(any(row["slower"] for row in rows) or any(case not in ran for case in options.case or HOST_CASES))


if __name__ == "__main__":
    sys.exit(main())
