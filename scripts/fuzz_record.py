#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one fuzz target and records what it covered, as JSON: executions, seconds, edges, and functions per source folder.

usage: scripts/fuzz_record.py [--runs N] [--seconds N] [--max-length BYTES] [--corpus FOLDER] [--revision HASH] [--out FILE]
                              TARGET
TARGET is an executable of the preset fuzz, e.g. build/fuzz/tests/fuzz/engine_fuzz; it needs nothing but itself. The record of a
run that found something has its exit status, and no coverage.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

FUNCTION = re.compile(r"^(UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .*?(?:/(src|tests)/([\w/]+)/[^/]+:\d+)?$")


def coverage(text: str) -> dict[str, object]:
    """Edges and functions of the library, from what -print_coverage=1 says."""
    edges = [0, 0]
    folders: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for line in text.splitlines():
        found = FUNCTION.match(line)
        if found is None:
            continue
        edges[0] += int(found[2])
        edges[1] += int(found[3])
        folder = found[5] if found[4] == "src" else found[4] or "other"
        folders[folder][0] += found[1] is None
        folders[folder][1] += 1
    return {"edges": edges, "functions": dict(sorted(folders.items()))}


def checked_out() -> str:
    """Empty outside of a repository."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=0, help="at most; 0: as long as the runs take")
    parser.add_argument("--max-length", type=int, default=4096, help="of an input")
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--revision", help="of the sources that TARGET was built from; default: what is checked out here")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    command = [str(arguments.target.resolve()), f"-runs={arguments.runs}", "-print_coverage=1", "-print_final_stats=1"]
    command += ["-timeout=20", "-rss_limit_mb=4096", f"-max_len={arguments.max_length}", f"-max_total_time={arguments.seconds}"]
    if arguments.corpus is not None:
        arguments.corpus.mkdir(parents=True, exist_ok=True)
        command.append(str(arguments.corpus))
    # What an input freed is still held when it ends; more than that only makes the caches miss.
    environment = {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=8", **os.environ}
    begin = time.monotonic()
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    record: dict[str, object] = {
        "target": arguments.target.name,
        "revision": arguments.revision or checked_out(),
        "date": datetime.date.today().isoformat(),
        "max_length": arguments.max_length,
        "executions": int(executed[1]) if executed else 0,
        "seconds": round(time.monotonic() - begin, 1),
        "status": done.returncode,
    }
    if done.returncode == 0:
        record.update(coverage(done.stdout))
    else:
        sys.stderr.write(done.stdout[-8000:])
    text = json.dumps(record, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
