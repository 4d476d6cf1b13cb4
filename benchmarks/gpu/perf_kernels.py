# SPDX-License-Identifier: Apache-2.0
"""Rows of thalweg-perf, a JSON object a line, as a result file and a table: the last step of perf_kernels.sh and routes.sh."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # where it is not carried
import machine
import report

HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    """Writes, prints the table. Exit code 1: there are no rows, or a payload was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=pathlib.Path, help="what the script collected")
    parser.add_argument("--command", default="benchmarks/gpu/run.sh perf")
    parser.add_argument("--about", default="Kernels of `thalweg perf`", help="what the table shows")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="result file")
    options = parser.parse_args()
    result = machine.describe(HERE, HERE / "libthalweg.so.0")
    result["kind"] = "gpu-perf-kernels"
    result["command"] = options.command
    result["about"] = options.about
    result["rows"] = [json.loads(line) for line in options.rows.read_text().splitlines()]
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(report.kernels_table(result))
    return 0 if result["rows"] and all(row["verified"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
