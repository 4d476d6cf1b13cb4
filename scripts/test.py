#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make test: builds, then runs ctest, pytest, the packaging tests and the Python examples; says the sum in its last line.

usage: scripts/test.py [--preset release] [--only build,ctest,python,hostile,packaging,examples]
A step that fails does not keep the others from running, except that nothing runs without a build.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import time

from shown import ROOT, shown

PYTHON = str(ROOT / ".venv" / "bin" / "python")
STEPS = ("build", "ctest", "python", "hostile", "packaging", "examples")
EXAMPLE_SECONDS = 120


class Sum:
    """Counts over all runners."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    def add(self, passed: int, failed: int, skipped: int = 0) -> None:
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def run(*command: str, limit: float = 1800) -> tuple[int, str]:
    """Runs a command, showing its output as it comes. Exit code (124: past the limit in seconds) and the output."""
    start = time.monotonic()
    code, output = shown(list(command), limit)
    print(f"  exit {code} after {time.monotonic() - start:.0f} s", flush=True)
    return code, output


def build(preset: str) -> bool:
    return run("scripts/build.sh", preset, "all")[0] == 0


def print_slowest(output: str, count: int = 30) -> None:
    """The tests of a ctest run that took longest."""
    found = re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) [.*]*.*? +([\d.]+) sec", output, re.MULTILINE)
    slowest = sorted(((float(seconds), name) for name, seconds in found), reverse=True)[:count]
    total = sum(float(seconds) for _, seconds in found)
    print(f"  the slowest of {len(found)} tests, {total:.0f} s together:")
    for seconds, name in slowest:
        print(f"  {seconds:8.1f} s  {name}")


def ctest(preset: str, total: Sum) -> None:
    """Two tests at a time; some with processes that poll are RUN_SERIAL. Not programs: make check-programs."""
    code, output = run(
        "ctest", "--preset", preset, "-LE", "programs", "-j", "2", "--timeout", "180", "--no-tests=error", limit=2400
    )
    print_slowest(output)
    found = re.search(r"tests passed, (\d+) tests? failed out of (\d+)", output)
    skipped = len(re.findall(r"\*\*\*Skipped", output))
    if found:
        failed, count = int(found[1]), int(found[2])
        total.add(count - failed - skipped, failed, skipped)
    elif code != 0:
        total.add(0, 1)


def pytest(folder: str, total: Sum, *options: str) -> None:
    code, output = run(PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=10", *options, folder, limit=1200)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", output[-2000:])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    total.add(counts.get("passed", 0), max(failed, 1) if code != 0 else failed, counts.get("skipped", 0))


def examples(total: Sum) -> None:
    for program in sorted((ROOT / "examples" / "python").glob("*.py")):
        code, _ = run(PYTHON, str(program.relative_to(ROOT)), limit=EXAMPLE_SECONDS)
        total.add(int(code == 0), int(code != 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="release")
    parser.add_argument("--only", default=",".join(STEPS))
    arguments = parser.parse_args()
    steps = arguments.only.split(",")
    os.environ.setdefault("THALWEG_COSTS", "off")  # the same routes on every machine; tests of costs measure their own
    os.environ.setdefault("THALWEG_CONFORMANCE_SHARE", "4")  # of the rows with layouts or devices; make check runs all
    total, start = Sum(), time.monotonic()
    if "build" in steps and not build(arguments.preset):
        print("test: the build failed")
        total.add(0, 1)
        steps = []
    if "ctest" in steps:
        ctest(arguments.preset, total)
    if "python" in steps:
        pytest("tests/python", total, "-n", "2", "--dist", "loadfile")  # two files at a time: most tests use one processor
    if "hostile" in steps:
        pytest("tests/hostile", total)
    if "packaging" in steps:
        pytest("tests/packaging", total)
    if "examples" in steps:
        examples(total)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"test: {time.monotonic() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
