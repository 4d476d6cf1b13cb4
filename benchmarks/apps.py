#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The applications, by every trigger: Himeno on one process and more, halo exchanges between two; a result file.

In a build folder, or in the folder that gpu/stage.sh makes. Programs that hang are ended; what failed stands in the result.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import machine
import report

HERE = pathlib.Path(__file__).resolve().parent
# size: iterations, so that every number of processes and trigger ends with the same bits
ITERATIONS = {"host": {"XS": 2000, "S": 300, "M": 30}, "cuda": {"S": 4000, "M": 2000, "L": 600}}
EDGES = {"host": "32,64,128", "cuda": "64,128,192,256"}


def program(options: argparse.Namespace, name: str) -> str:
    """Beside this file, or in the build."""
    for path in (HERE / name, options.build / "apps" / name.split("-")[1] / name):
        if path.is_file():
            return str(path)
    raise SystemExit(f"apps.py: there is no {name} in {options.build}; build it, or name the folder with --build")


def jobs(options: argparse.Namespace) -> list[list[str]]:
    """Commands, in order of importance."""
    common = ["--memory", options.memory, "--json"]
    himeno = program(options, "thalweg-himeno")
    found = []
    sizes = ITERATIONS[options.memory]
    counts = ",".join(map(str, sizes.values()))
    for processes in options.processes.split(","):
        where = ["--processes", processes, "--size", ",".join(sizes), "--iterations", counts]
        found.append([himeno, *where, "--trigger", options.triggers, *common])
    start = [options.mpirun, "-n", "2", program(options, "thalweg-halo-mpi")] if options.mpirun else []
    start = start or [program(options, "thalweg-halo"), "--processes", "2"]
    for edge in EDGES[options.memory].split(
        ","
    ):  # a job each: every cell of the cube is verified, which takes a large one long
        halo = ["--n", edge, "--seconds", f"{options.seconds:g}", *common]
        found.append([*start, "--region", "jk,ik,ij", "--way", options.ways, *halo])
        found.append([*start, "--region", "26", "--way", options.ways, *halo])
    return found


def rows_of(words: list[str], seconds: float) -> tuple[list[dict[str, Any]], str]:
    """The rows that a program prints, and why it failed, or nothing."""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{HERE}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with subprocess.Popen(
        words, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            text, said = process.communicate(timeout=seconds)
            why = f"exit code {process.returncode}: {said.strip()[-600:]}" if process.returncode else ""
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            text, said = process.communicate()
            why = f"not done after {seconds:g} s: {said.strip()[-600:]}"
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")], why


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--memory", choices=sorted(ITERATIONS), default="host")
    parser.add_argument("--processes", default="1,2", help="of Himeno, comma list")
    parser.add_argument("--triggers", default="all", help="of Himeno, comma list")
    parser.add_argument("--ways", default="all", help="of halo exchanges, comma list")
    parser.add_argument("--mpirun", help="runs thalweg-halo-mpi instead of thalweg-halo")
    parser.add_argument("--seconds", type=float, default=0.1, help="of each number of thalweg-halo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which no job is begun")
    parser.add_argument("--job-seconds", type=float, default=120, help="a job that takes longer hangs")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "apps.json", help="result file")
    return parser.parse_args()


def main() -> int:
    """Measures, writes, prints the tables. Exit code 1: a job failed."""
    options = parse()
    library = HERE / "libthalweg.so.0"
    result = machine.describe(HERE, library if library.exists() else options.build / "libthalweg.so.0")
    result["kind"], result["rows"], result["failures"] = "apps", [], {}
    result["command"] = f"benchmarks/apps.py --memory {options.memory} --processes {options.processes}"
    begun = time.monotonic()
    for turn in range(options.rounds):
        for words in jobs(options) if turn % 2 == 0 else reversed(jobs(options)):
            name = " ".join(pathlib.Path(word).name if "/" in word else word for word in words)
            if name in result["failures"] or time.monotonic() - begun > options.limit:
                continue
            rows, why = rows_of(words, options.job_seconds)
            result["rows"] += rows
            if why:
                result["failures"][name] = why
                print(f"FAILED {name}: {why}")
            print(f"round {turn + 1}, {time.monotonic() - begun:.0f} s: {name}: {len(rows)} rows", flush=True)
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(report.apps_tables(result))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
