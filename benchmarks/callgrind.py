# SPDX-License-Identifier: Apache-2.0
"""Instructions of an 8-byte tagged send and receive, by valgrind's callgrind."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

TRANSPORTS = ("self", "shm")


def count(
    source: pathlib.Path, library: pathlib.Path, root: pathlib.Path, work: pathlib.Path
) -> dict[str, dict[str, float | None]]:
    """{transport: {"send": instructions, "receive": instructions}}; empty without valgrind."""
    if not shutil.which("valgrind"):
        print("valgrind is not installed: no instruction counts", file=sys.stderr)
        return {}
    program = work / "instructions"
    compile_it = ["gcc", "-O2", "-g", f"-I{root / 'include'}", "-o", str(program), str(source), str(library)]
    subprocess.run([*compile_it, f"-Wl,-rpath,{library.parent}"], check=True)
    return {t: {what: measure(program, t, what, work) for what in ("send", "receive")} for t in TRANSPORTS}


def measure(program: pathlib.Path, transport: str, what: str, work: pathlib.Path) -> float | None:
    """Instructions per call; None, said aloud, when the program fails."""
    command = [
        "valgrind", "--fair-sched=yes", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect=measured_{what}",
        f"--callgrind-out-file={work / f'callgrind.{transport}.{what}'}", str(program), transport,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        print(f"callgrind {transport} {what}: no end within 60 s", file=sys.stderr)
        return None
    collected = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode or not collected:
        print(f"callgrind {transport} {what}: {done.stderr.strip()[-400:]}", file=sys.stderr)
        return None
    return int(collected[1]) / int(done.stdout)
