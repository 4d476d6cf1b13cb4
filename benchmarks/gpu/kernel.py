#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages between kernels of two GPUs: the device headers, the floors and NVSHMEM in one run; targets and a result file.

Runs in the folder that stage.sh makes: run.sh kernel. NVSHMEM: a program named nvshmem-peer there, which prints lines of
"nvshmem_device_put_signal_oneway,BYTES,MICROSECONDS us".
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # where it is not carried
import compare
import machine
import report

HERE = pathlib.Path(__file__).resolve().parent


def lines_of(words: list[str], seconds: float) -> list[str]:
    """What a program prints. It ends, or is ended."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        print(f"{words[0]}: exit code {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout.splitlines()


def measure(rounds: int) -> compare.Samples:
    """Ours and the floors in turn within each round, NVSHMEM between rounds."""
    samples: compare.Samples = {}
    for _ in range(rounds):
        for line in lines_of([str(HERE / "thalweg-gpu-kernel"), "--rounds=2"], 60):
            if found := re.fullmatch(r"([^,|]+\|.+),(kernel_\w+),(\d+),([\d.]+)", line):
                compare.add(samples, found[1], found[2], int(found[3]), float(found[4]), "us", "unknown")
            else:
                print(line)
        peer = HERE / "nvshmem-peer"
        for line in lines_of([str(peer)], 30) if peer.exists() else []:
            if found := re.fullmatch(r"nvshmem_device_put_signal_oneway,(\d+),([\d.]+) us", line):
                name = "nvshmem|device put and signal, block of 512"
                compare.add(samples, name, "kernel_direct", int(found[1]), float(found[2]), "us", "unknown")
    return samples


def main() -> int:
    """Measures, writes, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "gpu-kernel.json", help="result file")
    parser.add_argument("--nvshmem", default="unknown", help="its version, for the result file")
    options = parser.parse_args()
    result = machine.describe(HERE, HERE / "libthalweg.so.0")
    result["kind"] = "gpu-kernel"
    result["versions"]["nvshmem"] = options.nvshmem
    result["command"] = "benchmarks/gpu/run.sh kernel"
    samples = measure(options.rounds)
    result["series"] = compare.to_records(samples)
    result["targets"] = compare.compare(samples, compare.load_targets(result["kind"]))
    result["notes"] = "Both GPUs in one process, except NVSHMEM's, which are in two."
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(report.targets_table(result["targets"]))
    print(report.all_series(samples))
    return 0 if samples else 1


if __name__ == "__main__":
    sys.exit(main())
