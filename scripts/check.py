#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make check: format, types, lint, every row of the conformance, sanitizers, hostile peers, fuzzing, other compilers, pages.

usage: scripts/check.py [--resume] [PART ...]     all parts without arguments, except torch, and programs (make check-programs)
A part takes at most 1 h. Each runs even if one before it failed, and its result goes into tests/check.json at once: passed,
failed or skipped, seconds, processor seconds, revision, date, cores. --resume leaves out what passed at this revision already.
LINT=all lints every source file; otherwise those that differ from main's origin, or the last commit. FUZZ_SECONDS=20 each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from shown import ROOT, shown

PYTHON = str(ROOT / ".venv" / "bin" / "python")
RECORD = ROOT / "tests" / "check.json"
PART_SECONDS = 3600
JOBS = str(os.cpu_count() or 2)
TESTS_AT_ONCE = str(max(2, (os.cpu_count() or 2) // 2))  # most have two processes or threads that work

# intercept_tls_get_addr: the leak checker guesses where thread-local memory of a library opened later is (the fake driver),
# and breaks when the guess is wrong.
SANITIZERS = {
    "THALWEG_GPU_REPLAYS": "50",
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


class Failed(Exception):
    """A step of a part failed; the text says which."""


class Skipped(Exception):
    """The part needs what is absent; the text says what installs it."""


class Steps:
    """The steps of one part, which share its time."""

    def __init__(self) -> None:
        self.end = time.monotonic() + PART_SECONDS
        self.notes: list[str] = []

    def run(self, *command: str | pathlib.Path, limit: float = PART_SECONDS, must: bool = True, **environment: str) -> str:
        """Runs a command, showing its output as it comes, and returns it. Raises Failed, past the part's time also."""
        words = [str(word) for word in command]
        left = min(self.end - time.monotonic(), limit)
        if left < 1:
            raise Failed(f"no time left for: {' '.join(words)[:80]}")
        code, output = shown(words, left, environment)
        if must and code != 0:
            why = f"past its {int(left)} s" if code == 124 else f"exit {code}"
            raise Failed(f"{why}: {' '.join(words)[:80]}")
        return output

    def build(self, preset: str, *options: str, targets: tuple[str, ...] = ("all",)) -> None:
        self.run("cmake", "--preset", preset, *options)
        self.run("cmake", "--build", f"build/{preset}", "-j", JOBS, "--target", *targets)

    def ctest(self, preset: str, *options: str, seconds: int = 300, **environment: str) -> None:
        """Runs tests of a build; the note says how many, and which failed."""
        output = self.run(
            "ctest", "--test-dir", f"build/{preset}", "--output-on-failure", "-j", TESTS_AT_ONCE, "--no-tests=error",
            "--timeout", str(seconds), *options, must=False, **environment,
        )  # fmt: skip
        found = re.search(r"(\d+) tests? failed out of (\d+)", output)
        if not found:
            raise Failed("ctest did not come to its end")
        self.notes.append(f"{found[2]} tests")
        if found[1] != "0":
            names = re.findall(r"^\s*\d+ - (\S+) \(", output.split("The following tests FAILED")[-1], re.MULTILINE)
            raise Failed(f"{found[1]} of {found[2]} tests: {' '.join(names[:20])}")


def tool(*names: str, package: str) -> str:
    """The first of these programs that is there."""
    for name in names:
        if shutil.which(name):
            return name
    raise Skipped(f"no {names[0]} (scripts/setup.sh check, or apt-get install {package})")


def check_format(steps: Steps) -> None:
    steps.run("scripts/format.sh", "--check")


def check_types(steps: Steps) -> None:
    steps.run(".venv/bin/mypy")


def check_lint(steps: Steps) -> None:
    tidy = tool("clang-tidy", "clang-tidy-19", "clang-tidy-18", "clang-tidy-14", package="clang-tidy")
    steps.run("cmake", "--preset", "dev", "-DTHALWEG_PYTHON=OFF")
    base = git("merge-base", "HEAD", "origin/main") or git("rev-parse", "HEAD~1")
    if os.environ.get("LINT") == "all" or not base:
        files = git("ls-files", "src/*.cpp").split()
    else:
        files = git("diff", "--name-only", "--diff-filter=d", base, "--", "src/*.cpp").split()
    if not files:
        raise Skipped("no changed source file (LINT=all for all)")
    # The compiler's own warnings are the compiler's job, and gcc's options are unknown to clang.
    (ROOT / "build" / "lint.txt").write_text("\0".join(files))
    steps.run(
        "xargs",
        "-0",
        "-a",
        "build/lint.txt",
        "-P",
        JOBS,
        "-n",
        "4",
        tidy,
        "-p",
        "build/dev",
        "--quiet",
        "--extra-arg=-Wno-everything",
    )
    steps.notes.append(f"{len(files)} files")


# Instrumented code is several times slower: the conformance over one shared and one encrypted connection is enough there.
ASAN_WITHOUT = r"^(conformance\.(self|shm_one|tcp_one|tcp_two|persistent).*|stress|faults\..*|hosts)$"
# What another process orders is a race to the thread sanitizer, which sees one.
TSAN_WITHOUT = r"^(conformance\..*|faults\..*|device_faults\..*/(tcp_|shm_[^o]).*|hosts|(processes|apps|perf)\..*|example_.*)$"


def check_conformance(steps: Steps) -> None:
    """Every row of the conformance over every transport; make test draws some of them."""
    steps.build("release", targets=("conformance",))
    steps.ctest("release", "-L", "conformance", seconds=600, THALWEG_COSTS="off", THALWEG_CONFORMANCE_SHARE="1")


def check_asan(steps: Steps) -> None:
    steps.build("asan")
    steps.ctest("asan", "-L", "unit|device|gpu|examples", **SANITIZERS)


def check_asan_processes(steps: Steps) -> None:
    steps.build("asan")
    steps.ctest("asan", "-LE", "unit|device|gpu|examples", "-E", ASAN_WITHOUT, **SANITIZERS)


def check_tsan(steps: Steps) -> None:
    steps.build("tsan")
    steps.ctest("tsan", "-E", TSAN_WITHOUT, **SANITIZERS)


def install_package(steps: Steps, preset: str) -> pathlib.Path:
    """The Python package of a build, in a folder for PYTHONPATH."""
    site = ROOT / "build" / preset / "site"
    shutil.rmtree(site, ignore_errors=True)
    steps.build(
        preset, "-DTHALWEG_PYTHON=ON", f"-DPython_EXECUTABLE={PYTHON}", targets=("thalweg", "thalweg_python", "thalweg-perf")
    )
    steps.run(
        PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
        "--target", site, f"--config-settings=build-dir=build/{preset}/package",
        f"--config-settings=cmake.define.THALWEG_PREBUILT={ROOT / 'build' / preset}", ".",
    )  # fmt: skip
    return site


def check_hostile(steps: Steps) -> None:
    """tests/hostile against the library under the address sanitizer."""
    if not (ROOT / "tests" / "hostile").is_dir():
        raise Skipped("there is no tests/hostile")
    site = install_package(steps, "asan")
    preload = [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
               for name in ("libasan.so", "libstdc++.so.6")]  # fmt: skip
    options = SANITIZERS | {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "LD_PRELOAD": " ".join(preload)}
    output = steps.run(
        "env", f"PYTHONPATH={site}", *(f"{name}={value}" for name, value in options.items()),
        PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/hostile",
    )  # fmt: skip
    steps.notes.append(output.strip().splitlines()[-1])


def check_fuzz(steps: Steps) -> None:
    compiler = tool("clang++", "clang++-19", "clang++-18", "clang++-14", package="clang")
    steps.build(
        "fuzz", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_C_COMPILER={compiler.replace('++', '')}", targets=("fuzz",)
    )
    targets = sorted(p for p in (ROOT / "build" / "fuzz").rglob("*_fuzz") if p.is_file() and os.access(p, os.X_OK))
    failed = []
    for target in targets:
        corpus = ROOT / "build" / "fuzz" / "corpus" / target.name
        corpus.mkdir(parents=True, exist_ok=True)
        seconds = os.environ.get("FUZZ_SECONDS", "20")
        try:
            steps.run(
                target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=0",
                "-verbosity=0", "-artifact_prefix=build/fuzz/", corpus, limit=float(seconds) + 280,
            )  # fmt: skip
        except Failed as failure:
            failed.append(f"{target.name} ({failure})")
    if failed or not targets:
        raise Failed("; ".join(failed) or "no fuzz target was built")
    steps.notes.append(f"{len(targets)} targets, {seconds} s each")


def check_clang(steps: Steps) -> None:
    """Everything is built by clang, warnings are errors, and the tests of one process pass."""
    compiler = tool("clang++", "clang++-19", "clang++-18", "clang++-16", "clang++-14", package="clang")
    steps.build("clang", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_C_COMPILER={compiler.replace('++', '')}")
    steps.ctest("clang", "-L", "unit|device|gpu|examples")


# What qemu-user lacks: process_vm_readv (memory that may not be read, windows between contexts), starting the program again
# without binfmt_misc (death tests), MAP_POPULATE; and it keeps descriptors of a message that was cut off.
QEMU_LACKS = (
    r"^(Unreadable\.|Process\.PidfdTells|Of/Windows\.Of|Window\.Reports|WindowLoss\.EndsWaits|WindowRefusals\.DeviceMemory"
    r"|ShmFaults\.MemoryIsGivenBack|SetupChannel\.Unannounced|Segment\.PrivateOnesAreNotInherited|.*DeathTest\.|device_compile)"
)


def check_aarch64(steps: Steps) -> None:
    """Cross-compiled, under qemu-user: it computes as an aarch64 does, with this machine's stronger memory order."""
    tool("aarch64-linux-gnu-g++", package="g++-aarch64-linux-gnu")
    tool("qemu-aarch64-static", package="qemu-user-static")
    for needed in ("libssl.so", "libgmock.a"):
        if not pathlib.Path("/usr/lib/aarch64-linux-gnu", needed).exists():
            raise Skipped(f"no {needed} of aarch64 (scripts/setup.sh check)")
    folders = sorted(p.name for p in (ROOT / "tests" / "unit").iterdir() if p.is_dir())
    steps.build("aarch64", targets=(*(f"unit_{name}" for name in folders), "device_twins"))
    steps.ctest("aarch64", "-L", "unit|device", "-E", QEMU_LACKS)


def check_wheel(steps: Steps) -> None:
    """The wheel, compiled from source as pip does it; what is made of a finished build is in make test."""
    steps.run("scripts/wheel.sh")
    wheel = next((ROOT / "dist").glob("*.whl"))
    output = steps.run("env", f"THALWEG_WHEEL={wheel}", PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                       "tests/packaging/test_wheel.py")  # fmt: skip
    steps.notes.append(output.strip().splitlines()[-1])


def check_page(steps: Steps) -> None:
    """Pages of thalweg report in a browser; all else of it is in make test. Needs the package in .venv (make build)."""
    tool("chromium", "chromium-browser", "google-chrome", package="chromium")
    output = steps.run(PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/test_report_page.py")
    steps.notes.append(output.strip().splitlines()[-1])


def check_programs(steps: Steps) -> None:
    """What needs other people's programs: an MPI beside Thalweg, and MPIs, OpenSHMEM, UCXX and others on its libucp."""
    tool("mpirun", package="openmpi-bin libopenmpi-dev")
    steps.run("scripts/build.sh", "release", "all")
    steps.ctest("release", "-L", "programs")
    adapter = ROOT / "build" / "release" / "adapters" / "ucp" / "lib"
    if not adapter.exists():
        raise Skipped("the adapter adapters/ucp was not built: there are no headers of UCX (scripts/setup.sh programs)")
    output = steps.run(PYTHON, "tests/programs/run.py", "--library", adapter)
    steps.notes.append(f"{output.count(': passed: ')} programs on the adapter passed, {output.count(': absent: ')} are absent")


def check_torch(steps: Steps) -> None:
    """Worlds of the real torchrun, with PyTorch's collectives beside ours. Needs the package in .venv (make build)."""
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        raise Skipped("no PyTorch in .venv (scripts/setup.sh torch)")
    output = steps.run(PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python/test_torchrun.py")
    steps.notes.append(output.strip().splitlines()[-1])


PARTS: dict[str, Callable[[Steps], None]] = {
    "format": check_format,
    "types": check_types,
    "lint": check_lint,
    "conformance": check_conformance,
    "asan": check_asan,
    "asan_processes": check_asan_processes,
    "tsan": check_tsan,
    "hostile": check_hostile,
    "fuzz": check_fuzz,
    "clang": check_clang,
    "aarch64": check_aarch64,
    "wheel": check_wheel,
    "page": check_page,
    "torch": check_torch,
    "programs": check_programs,
}
APART = {"torch", "programs"}  # by name only


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def state() -> tuple[str, bool]:
    """The revision, and whether files differ from it (the record apart)."""
    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(str(RECORD.relative_to(ROOT)))]
    return git("rev-parse", "HEAD") or "unknown", bool(changed)


def records() -> dict[str, dict[str, object]]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def run_part(name: str) -> str:
    """Runs one part and records how it ended."""
    print(f"check: {name}", flush=True)
    revision, changed = state()
    steps, start, used = Steps(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result, note = "passed", ""
    try:
        PARTS[name](steps)
    except Skipped as reason:
        result, note = "skipped", str(reason)
    except Failed as failure:
        result, note = "failed", str(failure)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    all_records = records()
    all_records[name] = {
        "result": result,
        "note": "; ".join([*steps.notes, note] if note else steps.notes),
        "seconds": round(time.monotonic() - start),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime),
        "revision": revision,
        "changed": changed,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cores": os.cpu_count(),
    }
    ordered = {part: all_records[part] for part in PARTS if part in all_records}
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n")
    print(f"check: {name} {result.upper() if result == 'failed' else result}{': ' + note if note else ''}", flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        parser.error(f"no part is called {unknown[0]}; there are {', '.join(PARTS)}")
    chosen = arguments.parts or [part for part in PARTS if part not in APART]
    if arguments.resume:
        revision, changed = state()
        done = {
            part for part, last in records().items()
            if not changed and last["result"] == "passed" and last["revision"] == revision and not last["changed"]
        }  # fmt: skip
        chosen = [part for part in chosen if part not in done]
    results = [run_part(part) for part in chosen]
    counts = {word: results.count(word) for word in ("passed", "failed", "skipped")}
    print("check: " + ", ".join(f"{count} {word}" for word, count in counts.items()), flush=True)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
