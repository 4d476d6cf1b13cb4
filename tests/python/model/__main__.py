# SPDX-License-Identifier: Apache-2.0
"""Many programs, in a child process, so that a crash or a hang is a finding as well.

    cd tests/python && ../../.venv/bin/python -m model --mode threads --programs 20000 --seed 1 [--shrink] [--json FILE]

Stops at the first finding, and prints its program as a test. --shrink makes it as small as it gets (not a crash or a hang).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hypothesis

from .program import MODES, Program, programs
from .run import run
from .state import LIMIT

HANGS = 6 * LIMIT  # seconds for one program, whatever waits in it


def child(mode: str, count: int, seed: int, shrink: bool, notes: Path) -> None:
    """Runs them; what ran last, and how many did, stands in a file."""
    phases = [hypothesis.Phase.generate] + ([hypothesis.Phase.shrink] if shrink else [])
    ran = 0
    failed = False

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(program=programs(mode))
    def check(program: Program) -> None:
        nonlocal ran, failed
        ran += not failed
        notes.write_text(f"{ran}\n{program.text()}\n")
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            run(program)
        except BaseException:
            failed = True
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()

    check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="plain")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        return child(given.mode, given.programs, given.seed, given.shrink, given.child)
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "last"
        began = time.monotonic()
        command = [sys.executable, "-X", "faulthandler", "-m", "model", *sys.argv[1:], "--child", str(notes)]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        ran, _, program = notes.read_text().partition("\n") if notes.exists() else ("0", "", "")
    found = result.returncode != 0
    lines = result.stdout.splitlines()
    wrong = [line for line in lines if "Error: " in line or "Wrong: " in line or line.startswith(("Fatal", "Timeout ("))]
    what = wrong[-1].strip() if wrong else f"it ended with {result.returncode}" if found else ""
    if found:
        print(result.stdout)
        print(program)
    print(f"{given.mode}: {ran} programs, seed {given.seed}, {time.monotonic() - began:.0f} s; {what or 'no finding'}")
    if given.json is not None:
        given.json.write_text(json.dumps({"programs": int(ran), "found": found, "what": what}))
    sys.exit(found)


if __name__ == "__main__":
    main()
