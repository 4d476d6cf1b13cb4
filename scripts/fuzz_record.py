#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one fuzz target and records what it covered, as JSON: executions, seconds, edges, and functions per source folder.

usage: scripts/fuzz_record.py [--runs N] [--seconds N] [--processes N] [--max-length BYTES] [--corpus FOLDER] [--revision HASH]
                              [--out FILE] TARGET
TARGET is an executable of the preset fuzz, e.g. build/fuzz/tests/fuzz/engine_fuzz; it needs nothing but itself. The record of a
run that found something has its exit status, and no coverage. Several processes share the runs, not what they find: each has a
corpus of its own (in FOLDER/0, FOLDER/1, ...), and the coverage is that of the process that covered most.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

FUNCTION = re.compile(r"^(UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .*?(?:/(src|tests)/([\w/]+)/[^/]+:\d+)?$")


def coverage(text: str) -> dict[str, Any]:
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


def edges_of(covered: dict[str, Any]) -> int:
    return int(covered["edges"][0])


def checked_out() -> str:
    """Empty outside of a repository."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def start(arguments: argparse.Namespace, index: int, said: IO[str]) -> subprocess.Popen[str]:
    """One of the processes, with its share of the runs; `said` is a file, because a full pipe would hold it up."""
    runs = -(-arguments.runs // arguments.processes)
    command = [str(arguments.target.resolve()), f"-runs={runs}", "-print_coverage=1", "-print_final_stats=1"]
    command += ["-timeout=20", "-rss_limit_mb=4096", f"-max_len={arguments.max_length}", f"-max_total_time={arguments.seconds}"]
    if arguments.corpus is not None:
        corpus = arguments.corpus / str(index) if arguments.processes > 1 else arguments.corpus
        corpus.mkdir(parents=True, exist_ok=True)
        command.append(str(corpus))
    # What an input freed is still held when it ends; more than that only makes the caches miss.
    environment = {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=8", **os.environ}
    return subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT, text=True)


def executions(output: str) -> int:
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    return int(found[1]) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=0, help="at most; 0: as long as the runs take")
    parser.add_argument("--processes", type=int, default=1, help="how many run at the same time")
    parser.add_argument("--max-length", type=int, default=4096, help="of an input")
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--revision", help="of the sources that TARGET was built from; default: what is checked out here")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    begin = time.monotonic()
    outputs = []
    with contextlib.ExitStack() as files:
        said = [files.enter_context(tempfile.TemporaryFile("w+", errors="replace")) for _ in range(arguments.processes)]
        running = [start(arguments, index, file) for index, file in enumerate(said)]
        for process, file in zip(running, said, strict=True):
            process.wait()
            file.seek(0)
            outputs.append(file.read())
    record: dict[str, object] = {
        "target": arguments.target.name,
        "revision": arguments.revision or checked_out(),
        "date": datetime.date.today().isoformat(),
        "max_length": arguments.max_length,
        "processes": arguments.processes,
        "executions": sum(executions(output) for output in outputs),
        "seconds": round(time.monotonic() - begin, 1),
        "status": max((abs(process.returncode) for process in running), default=0),
    }
    if record["status"] == 0:
        most = max((coverage(output) for output in outputs), key=edges_of)
        record.update(most)
    for process, output in zip(running, outputs, strict=True):
        if process.returncode != 0:
            sys.stderr.write(output[-8000:])
    text = json.dumps(record, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text)
    return int(record["status"] != 0)


if __name__ == "__main__":
    sys.exit(main())
