#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks by index, in host memory of one machine: `thalweg-perf blocks_bw` and NIXL over UCX, in alternating rounds of one run.

usage: benchmarks/blocks.py BUILD NIXL_PYTHON OUTPUT.json    NIXL_PYTHON: an interpreter with the packages nixl and numpy
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (65536, 4096)
ROUNDS = 3
#: name|transport: what --memory says of both sides
OURS = {"thalweg|shm": "host", "thalweg|shm-plain": "plain"}


def ours(perf: str, memory: str) -> list[tuple[str, int, float, str]]:
    """Rows of one run of thalweg-perf: both sizes, and nanoseconds a block of 64 bytes, where the bytes cost little."""
    sizes = ",".join(map(str, (*SIZES, 64)))
    words = [perf, "blocks_bw", "--transport", "shm", "--seconds", "0.5", "--size", sizes, "--memory", memory, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    rows = []
    for line in map(json.loads, done.stdout.splitlines()):
        if not line["verified"]:
            sys.exit(f"wrong data: {line}")
        rate = line["bandwidth_GBps"] * 1e9 / line["size"]
        if line["size"] == 64:
            rows.append(("blocks_host", 64, 1e9 / rate, "ns"))
        else:
            rows += [
                ("blocks_bw", line["size"], line["bandwidth_GBps"], "GB/s"),
                ("blocks_rate", line["size"], rate / 1e6, "Mblocks/s"),
            ]
    return rows


def nixl(python: str) -> list[tuple[str, int, float, str]]:
    """Rows of one run of nixl_blocks.py, which verifies by itself."""
    words = [python, str(HERE / "python" / "nixl_blocks.py"), *map(str, SIZES)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    rows = []
    for line in done.stdout.splitlines():
        test, size, value, unit = line.split(",")
        if unit == "Mblocks/s":
            test = test.replace("_bw", "_rate").replace("_made", "_made_rate")
        rows.append((test, int(size), float(value), unit))
    if not rows:
        sys.exit(f"nixl said nothing: {done.stderr[-500:]}")
    return rows


def main() -> int:
    """Measures, and writes the file of results."""
    build, python, output = sys.argv[1:]
    library = next(pathlib.Path(build).rglob("libthalweg.so"))
    perf = str(next(pathlib.Path(build).rglob("thalweg-perf")))
    samples: dict[tuple[str, str, int, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name, memory in OURS.items():
            for test, size, value, unit in ours(perf, memory):
                samples.setdefault((name, test, size, unit), []).append(value)
        for test, size, value, unit in nixl(python):
            samples.setdefault(("nixl-1.5.1|ucx", test, size, unit), []).append(value)
    series = []
    for (name, test, size, unit), values in samples.items():
        peer, transport = name.split("|")
        series.append({"peer": peer, "transport": transport, "test": test, "size": size, "unit": unit})
        series[-1] |= {"samples": {"unknown": values}, "median": {"unknown": sorted(values)[len(values) // 2]}}
        print(f"{name:20} {test:16} {size:6} {series[-1]['median']['unknown']:10.4g} {unit}")
    result = machine.describe(HERE.parent, library) | {"kind": "blocks", "command": "benchmarks/blocks.py", "series": series}
    pathlib.Path(output).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
