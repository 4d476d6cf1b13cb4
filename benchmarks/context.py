#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the socket for ``thalweg top`` costs at the creation of a context: contexts with THALWEG_LIVE=0 and 1 in turns, in one
process, and the medians of how long each takes to be made and to be closed. One of each kind comes ahead and is not counted.

    benchmarks/context.py [--contexts 200] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import time

import thalweg as tw


def once(live: str) -> tuple[float, float]:
    """Microseconds to make a context and to close it."""
    os.environ["THALWEG_LIVE"] = live
    begin = time.perf_counter_ns()
    context = tw.Context(job_key=b"k" * 32)
    made = time.perf_counter_ns()
    context.close()
    return (made - begin) / 1e3, (time.perf_counter_ns() - made) / 1e3


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=200, help="of each kind")
    parser.add_argument("--json", type=pathlib.Path, help="write medians and quartiles of all here, in microseconds")
    given = parser.parse_args()
    if given.contexts < 2:
        parser.error("at least two contexts of each kind")
    kinds = ("0", "1")
    for live in kinds:
        once(live)
    taken: dict[str, list[tuple[float, float]]] = {live: [] for live in kinds}
    for turn in range(given.contexts):
        for live in kinds if turn % 2 == 0 else kinds[::-1]:
            taken[live].append(once(live))
    found = {}
    for live in kinds:
        for name, values in zip(("create", "close"), zip(*taken[live], strict=True), strict=True):
            quartiles = [round(value, 1) for value in statistics.quantiles(values, n=4)]
            found[f"{name}, THALWEG_LIVE={live}"] = dict(zip(("quarter", "median", "three_quarters"), quartiles, strict=True))
            low, middle, high = quartiles
            print(f"{name}, THALWEG_LIVE={live}: median {middle} us, half of them within {low} to {high} us")
    if given.json is not None:
        given.json.write_text(json.dumps({"contexts": given.contexts, "us": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
