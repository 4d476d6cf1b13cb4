#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make bench: Thalweg, its peers and the machine's floors in one shuffled run; results/cpu-<date>.json; docs/performance.md.

The peers live in a folder of their own (run_peers.sh, bench_core.h and their programs), named by THALWEG_PEERS or --peers:
it installs and builds them, and this script gives it Thalweg's programs as further jobs of the same run. Without that folder
only Thalweg and the floors are measured, by thalweg-perf, and the peers' cells stay empty.

  benchmarks/run.py --build build/release --peers PATH            everything, about half an hour
  benchmarks/run.py --peers PATH --rounds 1 --topup 0 --only 'thalweg|ucp-1.22.0' --scale 0.05   a quick look
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import callgrind
import compare
import machine
import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
COMPILE = ["gcc", "-O2", "-march=native", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-sign-compare"]
SHM, TCP = "THALWEG_BENCH_TRANSPORT=shm", "THALWEG_BENCH_TRANSPORT=tcp THALWEG_INTERFACES=lo"

# name|transport: environment of thalweg_bench
NATIVE_JOBS = {
    "thalweg|shm": SHM,
    "thalweg|shm+thp": f"BENCH_THP=1 {SHM}",
    "thalweg|shm+library": f"THALWEG_BENCH_MEMORY=library {SHM}",
    "thalweg|shm+library+thp": f"BENCH_THP=1 THALWEG_BENCH_MEMORY=library {SHM}",
    "thalweg|shm+distinct": f"BENCH_TESTS=bw BENCH_DISTINCT=1 {SHM}",
    "thalweg|shm+library+distinct": f"BENCH_TESTS=bw BENCH_DISTINCT=1 THALWEG_BENCH_MEMORY=library {SHM}",
    "thalweg|put-shm": f"BENCH_TESTS=put {SHM}",
    "thalweg|tcp-lo": f"BENCH_SCALE=0.2 {TCP}",
    "thalweg|put-tcp-lo": f"BENCH_SCALE=0.1 BENCH_TESTS=put {TCP}",
}
# name|transport: arguments of a program in python/
PYTHON_JOBS = {
    "thalweg(py)|blocking": "latency.py blocking",
    "thalweg(py)|asyncio": "latency.py asyncio",
    "thalweg(py)|asyncio-sleep": "latency.py asyncio-sleep",
    "thalweg(py)|pipe": "pipes.py thalweg",
    f"python-{sys.version_info.major}.{sys.version_info.minor}|multiprocessing.Pipe": "pipes.py multiprocessing",
}
# Without the peers' loop: thalweg-perf's arguments, and what its tests are called in the table.
PERF_JOBS = {
    "thalweg|shm": ["tag_lat --transport shm", "tag_bw --transport shm", "tag_rate --transport shm --size 8"],
    "thalweg|shm+library": ["tag_lat --transport shm --memory host"],
    "thalweg|put-shm": ["put_lat --transport shm"],
    "thalweg|tcp-lo": ["tag_lat --transport tcp", "tag_bw --transport tcp"],
    "raw|limits": ["floor"],
}
# name|transport: arguments of thalweg-endpoints
ENDPOINT_JOBS = {"thalweg|endpoints-shm": "shm 1000 8", "thalweg|endpoints-tcp": "tcp 1000 8"}
# name|transport: arguments of thalweg-perf that no peer has a counterpart of
PLAN_JOBS = {"thalweg|plan-shm": "chain --transport shm --trigger host --window 64 --size 512 --csv"}
PERF_NAMES = {"tag_lat": "lat", "tag_bw": "bw", "tag_rate": "msgrate"}
PERF_SIZES = "8,64,1K,8K,64K,1M,16M"


def main() -> int:
    """Measures, writes, reports."""
    options = parse()
    library = find_library(options.build)
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="thalweg-bench-"))
    work.mkdir(parents=True, exist_ok=True)
    result = machine.describe(ROOT, library)
    result["kind"] = "cpu"
    result["command"] = " ".join(["benchmarks/run.py", *map(shlex.quote, without_paths(options))])
    samples = run_with_peers(options, library, work) if options.peers else run_alone(options, library)
    run_own(options, library, samples)
    result["series"] = compare.to_records(samples)
    result["placement"] = placements(samples)
    result["targets"] = compare.compare(samples, compare.load_targets("cpu"))
    result["instructions"] = (
        {} if options.no_callgrind else callgrind.count(HERE / "cpu" / "instructions.c", library, ROOT, work)
    )
    if not options.peers:
        result["notes"] = "Measured by thalweg-perf without the peers' folder (THALWEG_PEERS): placement unknown, peers empty."
    path = options.output or free_name(result["date"][:10])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {path}")
    return 0 if options.output else report.main()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers = os.environ.get("THALWEG_PEERS")
    parser.add_argument(
        "--peers", type=pathlib.Path, default=pathlib.Path(peers) if peers else None, help="folder of run_peers.sh"
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", help="build folder of the library")
    parser.add_argument("--python", default=sys.executable, help="a Python with the package thalweg and numpy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--topup", type=int, default=400, help="seconds spent on jobs with fewer than 3 near samples")
    parser.add_argument("--only", help="regular expression over name|transport")
    parser.add_argument("--skip", help="regular expression over name|transport")
    parser.add_argument("--scale", type=float, help="a fraction of the iterations: for a quick look, not for results")
    parser.add_argument("--install-peers", action="store_true", help="install and build the peers first")
    parser.add_argument("--no-callgrind", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, help="result file; with it docs/performance.md stays as it is")
    parser.add_argument("--work", help="folder of programs and raw data (default: a temporary one)")
    options = parser.parse_args()
    if options.peers and not (options.peers / "run_peers.sh").is_file():
        parser.error(f"{options.peers} has no run_peers.sh: THALWEG_PEERS names the folder of the peer programs")
    return options


def without_paths(options: argparse.Namespace) -> list[str]:
    """The options that matter to a reader of the results."""
    words = ["--peers", "…"] if options.peers else []
    for name, default in (("rounds", 3), ("topup", 400), ("only", None), ("skip", None), ("scale", None)):
        if (value := getattr(options, name)) != default:
            words += [f"--{name}", str(value)]
    return words


def find_library(build: pathlib.Path) -> pathlib.Path:
    """libthalweg.so of a build."""
    for path in sorted(build.rglob("libthalweg.so")) if build.is_dir() else []:
        return path
    sys.exit(
        f"no libthalweg.so under {build}: build it (cmake --preset release && cmake --build --preset release), or name --build"
    )


def run_with_peers(options: argparse.Namespace, library: pathlib.Path, work: pathlib.Path) -> compare.Samples:
    """Everything in run_peers.sh's shuffled rounds."""
    jobs = work / "thalweg.jobs"
    jobs.write_text("".join(f"{name}|{command}\n" for name, command in thalweg_jobs(options, library, work).items()))
    environment = {
        **os.environ,
        "EXTRA": str(jobs),
        "OUT": str(work),
        "ROUNDS": str(options.rounds),
        "TOPUP_S": str(options.topup),
    }
    for name, value in (("ONLY", options.only), ("SKIP", options.skip), ("BENCH_SCALE", options.scale)):
        if value is not None:
            environment[name] = str(value)
    script = str(options.peers.resolve() / "run_peers.sh")
    for step in ["install", "build"] if options.install_peers else []:
        subprocess.run([script, step], env=environment, check=True)
    subprocess.run([script, "run"], env=environment, check=True, stdout=sys.stderr)
    return compare.read_csv(work / "raw.csv")


def thalweg_jobs(options: argparse.Namespace, library: pathlib.Path, work: pathlib.Path) -> dict[str, str]:
    """name|transport to command line. Programs that cannot be built or run here are left out, said aloud."""
    program = work / "thalweg_bench"
    source = HERE / "cpu" / "thalweg_bench.c"
    link = [f"-I{ROOT / 'include'}", f"-I{options.peers}", str(source), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run([*COMPILE, "-o", str(program), *link], check=True)
    jobs = {name: f"{env} {program}" for name, env in NATIVE_JOBS.items()}
    if options.scale:  # the last assignment counts
        jobs = {name: command.replace(str(program), f"BENCH_SCALE={options.scale} {program}") for name, command in jobs.items()}
    scale = f"BENCH_SCALE={options.scale} " if options.scale else ""
    for name, arguments in PYTHON_JOBS.items():
        needs = "numpy" if "multiprocessing" in name else "numpy, thalweg"
        if subprocess.run([options.python, "-c", f"import {needs}"], capture_output=True).returncode:
            print(f"{name} is left out: {options.python} cannot import {needs}", file=sys.stderr)
        else:
            jobs[name] = f"{scale}{options.python} {HERE / 'python'}/{arguments}"
    return jobs


def run_own(options: argparse.Namespace, library: pathlib.Path, samples: compare.Samples) -> None:
    """Rounds of thalweg-endpoints, each with its lone endpoint, and of plans; there is no peer to run between them."""
    jobs = [(name, [built(options, "thalweg-endpoints"), *words.split()]) for name, words in ENDPOINT_JOBS.items()]
    jobs += [(name, [built(options, "thalweg-perf"), *words.split()]) for name, words in PLAN_JOBS.items()]
    for turn in range(options.rounds):
        for name, words in jobs:
            if wanted(options, name):
                print(f"round {turn + 1} of {options.rounds}: {name}", file=sys.stderr)
                take_csv(samples, name, output_of(words, library))


def wanted(options: argparse.Namespace, name: str) -> bool:
    """By --only and --skip."""
    return (not options.only or bool(re.search(options.only, name))) and not (options.skip and re.search(options.skip, name))


def built(options: argparse.Namespace, name: str) -> str:
    """A program of the build."""
    for path in sorted(options.build.rglob(name)):
        return str(path)
    sys.exit(f"no {name} under {options.build}: build the tools (THALWEG_TOOLS=ON)")


def output_of(words: list[str], library: pathlib.Path) -> str:
    """What a program prints; its failure is said aloud and leaves its cells empty."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        print(f"  failed: {done.stderr.strip()}", file=sys.stderr)
    return done.stdout


def run_alone(options: argparse.Namespace, library: pathlib.Path) -> compare.Samples:
    """Shuffled rounds of thalweg-perf."""
    program = built(options, "thalweg-perf")
    seconds = f"{0.5 * (options.scale or 1):g}"
    samples: compare.Samples = {}
    for turn in range(options.rounds):
        jobs = [(name, arguments) for name, lines in PERF_JOBS.items() if wanted(options, name) for arguments in lines]
        random.shuffle(jobs)
        for name, arguments in jobs:
            print(f"round {turn + 1} of {options.rounds}: {name} {arguments}", file=sys.stderr)
            words = [program, *arguments.split(), "--csv", "--seconds", seconds]
            if "--size" not in words and arguments != "floor":
                words += ["--size", PERF_SIZES]
            take_csv(samples, name, output_of(words, library))
    return samples


def take_csv(samples: compare.Samples, name: str, text: str) -> None:
    """Lines of thalweg-perf --csv and thalweg-endpoints, under the names the table uses."""
    for line in text.splitlines():
        test, size, value, unit = line.split(",")
        if test == "cache_line":
            compare.add(samples, name, "cacheline_1line", int(size), float(value) * 1e3, "ns", "unknown")
        elif test == "raw_tcp":
            compare.add(samples, "raw|tcp-poll", "lat", int(size), float(value), unit, "unknown")
        else:
            compare.add(samples, name, PERF_NAMES.get(test, test), int(size), float(value), unit, "unknown")


def placements(samples: compare.Samples) -> dict[str, int]:
    """How many samples were taken in which core placement."""
    counts: dict[str, int] = {}
    for entry in samples.values():
        for placement, values in entry["samples"].items():
            counts[placement] = counts.get(placement, 0) + len(values)
    return counts


def free_name(date: str) -> pathlib.Path:
    """results/cpu-<date>.json, numbered when that exists: results are kept."""
    for number in range(1, 1000):
        path = HERE / "results" / (f"cpu-{date}.json" if number == 1 else f"cpu-{date}-{number}.json")
        if not path.exists():
            return path
    sys.exit("a thousand results of one day are enough")


if __name__ == "__main__":
    sys.exit(main())
