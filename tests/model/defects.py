#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts defects back, one at a time, and counts the random programs that the model needs to find each.

    tests/model/defects.py [--only C3] [--programs 100000] [--seed 1] [--work DIR]

Each file of tests/model/defects/ is a patch; its first line says what the defect is. They are applied to a copy of this tree in
DIR (kept, so that a second run builds less), which is built with assertions. The table goes to tests/model/defects.md.

A patch whose second line is "Executable PATH." is searched for by that one, which takes the arguments of tests/model/model;
one with "Python's model, mode X." by tests/python/model, in at most --python-programs; one with "The model with threads." by
the model with three threads beside each program, under the thread sanitizer; one with "The model of ranks." by its programs of
ranks.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests/model/defects"
TABLE = ROOT / "tests/model/defects.md"


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done


def copy_tree(work: Path) -> None:
    """What git knows of, without touching files that are the same, so that little is built again."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout.splitlines()
    for name in listed:
        source, target = ROOT / name, work / name
        if not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        shutil.copyfile(source, target)


def build(work: Path, jobs: int, executable: str, preset: str = "dev") -> Path:
    tree = work / "build" / preset
    if not (tree / "build.ninja").exists():
        run("cmake", "--preset", preset, "-DTHALWEG_PYTHON=OFF", cwd=work)
    run("cmake", "--build", tree, f"-j{jobs}", "--target", Path(executable).name, cwd=work)
    return tree / executable


def search(model: Path, programs: int, seed: int, threads: int = 0, *flags: str) -> dict[str, object]:
    result = model.parent / "found.json"
    environment = dict(os.environ, THALWEG_LOG="off")
    beside = ["--threads", str(threads)] if threads else []
    subprocess.run(
        [model, "--programs", str(programs), "--seed", str(seed), "--json", result, *beside, *flags],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    found: dict[str, object] = json.loads(result.read_text())
    return found


def build_package(work: Path, jobs: int) -> None:
    """The Python package of the copy, in DIR/site."""
    tree, python = work / "build/dev", ROOT / ".venv/bin/python"
    run("cmake", "--preset", "dev", "-DTHALWEG_PYTHON=ON", f"-DPython_EXECUTABLE={python}", cwd=work)
    run("cmake", "--build", tree, f"-j{jobs}", "--target", "thalweg", "thalweg_python", "thalweg-perf", cwd=work)
    shutil.rmtree(work / "site", ignore_errors=True)
    run(
        python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target", "site",
        f"--config-settings=build-dir={tree / 'package'}", f"--config-settings=cmake.define.THALWEG_PREBUILT={tree}", ".",
        cwd=work,
    )  # fmt: skip


def search_python(work: Path, mode: str, programs: int, seed: int) -> dict[str, object]:
    result = work / "site/found.json"
    environment = dict(os.environ, PYTHONPATH=str(work / "site"), THALWEG_PYTHON_MODEL_LIMIT="10")
    command = [ROOT / ".venv/bin/python", "-m", "model", "--mode", mode, "--programs", str(programs), "--seed", str(seed)]
    subprocess.run(
        [*command, "--json", result], cwd=work / "tests/python", env=environment, stdout=subprocess.DEVNULL, check=False
    )
    found: dict[str, object] = json.loads(result.read_text())
    return found


def search_for(patch: Path, given: argparse.Namespace) -> dict[str, object]:
    second = patch.read_text().splitlines()[1]
    if second == "The model with threads.":
        return search(build(given.work, given.jobs, "tests/model/model", "tsan"), given.programs, given.seed, threads=3)
    if second == "The model of ranks.":
        return search(build(given.work, given.jobs, "tests/model/model"), given.programs, given.seed, 0, "--ranks")
    if not second.startswith("Python's model, mode "):
        executable = second.removeprefix("Executable ").rstrip(".") if second.startswith("Executable ") else "tests/model/model"
        return search(build(given.work, given.jobs, executable), given.programs, given.seed)
    build_package(given.work, given.jobs)
    return search_python(
        given.work, second.removeprefix("Python's model, mode ").rstrip("."), given.python_programs, given.seed
    )


def row(name: str, why: str, found: dict[str, object]) -> str:
    needed = found["programs"] if found["found"] else f"not in {found['programs']}"
    return f"| {name} | {why} | {needed} | {str(found['what']).replace('|', '/') or '-'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names of the patches")
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--python-programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=ROOT / "build/defects")
    given = parser.parse_args()

    given.work.mkdir(parents=True, exist_ok=True)
    copy_tree(given.work)
    rows = []
    for patch in sorted(PATCHES.glob("*.patch")):
        if given.only not in patch.name:
            continue
        why = patch.read_text().splitlines()[0]
        run("patch", "-p1", "-i", patch, cwd=given.work)
        try:
            found = search_for(patch, given)
        finally:
            run("patch", "-R", "-p1", "-i", patch, cwd=given.work)
        rows.append(row(patch.stem, why, found))
        print(rows[-1], flush=True)
    if given.only:
        return
    revision = run("git", "rev-parse", "--short", "HEAD", cwd=ROOT).stdout.strip()
    head = [
        "# Defects that were put back",
        "",
        f"`tests/model/defects.py --programs {given.programs} --seed {given.seed}` at {revision}:",
        "the programs that the model needed.",
        "",
        "| defect | what is wrong | programs | what the model said |",
        "|---|---|---|---|",
    ]
    TABLE.write_text("\n".join(head + rows) + "\n")


if __name__ == "__main__":
    main()
