#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Himeno with half as many processes as cores, as many, and twice as many: what busy waiting costs where cores are short.

The work is the same in every row. As many processes as cores should be no slower than half as many, and twice as many at most
twice as slow. Context switches tell how processes waited: voluntary ones slept or yielded, involuntary ones held a core until
it was taken from them.

    benchmarks/oversubscribed.py --build build/release --size M --iterations 200 --output result.json
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    cores = len(os.sched_getaffinity(0))
    counts = ",".join(str(n) for n in (max(1, cores // 2), cores, 2 * cores))
    parser.add_argument("--processes", default=counts, help=f"comma list; default: half of, all, twice the cores ({counts})")
    parser.add_argument("--size", default="M")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--trigger", default="host,queue", help="comma list: host, queue, kernel")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each row, in turns; the median is shown")
    parser.add_argument("--limit", type=float, default=300, help="seconds until a run is ended")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    return parser.parse_args()


def run(options: argparse.Namespace, processes: int, trigger: str) -> dict[str, Any]:
    program = options.build / "apps" / "himeno" / "thalweg-himeno"
    command = [str(program), "--processes", str(processes), "--size", options.size, "--trigger", trigger, "--json"]
    command += ["--iterations", str(options.iterations)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        error = done.stderr.strip()[-500:] if done.returncode != 0 or not rows else ""
    except subprocess.TimeoutExpired:
        rows, error = [], f"ended after {options.limit:g} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row: dict[str, Any] = {"processes": processes, "trigger": trigger, "wall_s": time.perf_counter() - start}
    row |= {
        "voluntary": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary": after.ru_nivcsw - before.ru_nivcsw,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }
    return row | {"result": rows[0] if rows else None, "error": error}


def median_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if row["result"]]
    if not good:
        return rows[0]
    seconds = [row["result"]["seconds"] / row["result"]["iterations"] for row in good]
    middle = sorted(range(len(good)), key=seconds.__getitem__)[len(good) // 2]
    return good[middle] | {"iteration_ms": statistics.median(seconds) * 1e3, "fastest_ms": min(seconds) * 1e3}


def main() -> int:
    options = arguments()
    counts = [int(word) for word in options.processes.split(",")]
    triggers = options.trigger.split(",")
    keys = [(trigger, count) for trigger in triggers for count in counts]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in keys}
    for _ in range(options.repeat):
        for trigger, count in keys:
            found[trigger, count].append(run(options, count, trigger))
    cores, table = len(os.sched_getaffinity(0)), [median_of(found[key]) for key in keys]
    print(f"Himeno {options.size}, {options.iterations} iterations, {cores} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'trigger':>8} {'processes':>9} {'ms/iteration':>12} {'against first':>13}", end="")
    print(f" {'voluntary':>10} {'involuntary':>11} {'cpu s':>7}")
    first: dict[str, float] = {}
    for row in table:
        head = f"{row['trigger']:>8} {row['processes']:>9}"
        if "iteration_ms" not in row:
            print(f"{head} {row['error']}")
            continue
        base = first.setdefault(row["trigger"], row["iteration_ms"])
        print(
            f"{head} {row['iteration_ms']:>12.3f} {row['iteration_ms'] / base:>13.2f} {row['voluntary']:>10}"
            f" {row['involuntary']:>11} {row['cpu_s']:>7.1f}"
        )
    if options.output:
        options.output.write_text(json.dumps({"cores": cores, "load": os.getloadavg(), "rows": table}, indent=1) + "\n")
    return 0 if all("iteration_ms" in row for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
