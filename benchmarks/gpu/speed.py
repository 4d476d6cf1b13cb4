#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes, two GPUs: Thalweg, UCX and the floors in turn, round after round; a table of targets and a result file.

Runs in the folder that stage.sh makes, with nothing but Python: run.sh speed. --device emulated takes emulated devices
instead of GPUs: the same jobs on a machine without one, to try this program, not to measure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # where it is not carried
import compare
import machine
import report

HERE = pathlib.Path(__file__).resolve().parent

# transport, memory here and there, thalweg-perf's test and further arguments. What comes last is left out first.
OURS = [
    ("shm", "gpu", "gpu", "tag_lat", "--size 8,64K,1M,16M"),
    ("shm", "gpu", "gpu", "tag_bw", "--size 1M --window 16"),
    ("shm", "gpu", "gpu", "tag_bw", "--size 256M --window 4"),
    ("shm", "gpu", "gpu", "tag_bibw", "--size 256M --window 2"),
    ("shm", "gpu", "pinned", "tag_bw", "--size 64M --window 4"),
    ("shm", "pinned", "gpu", "tag_bw", "--size 64M --window 4"),
    ("tcp", "gpu", "gpu", "tag_bw", "--size 64M --window 2"),
    ("tcp", "host", "host", "tag_bw", "--size 64M --window 2"),
    ("shm", "gpu", "gpu", "put_lat", "--size 8,64K,1M"),
    ("shm", "gpu", "gpu", "put_bw", "--size 1M --window 16"),
    ("shm", "gpu", "gpu", "get_lat", "--size 8,64K,1M"),
    ("shm", "gpu", "gpu", "get_bw", "--size 1M --window 16"),
    ("shm", "vmm", "vmm", "tag_lat", "--size 1M"),
    ("shm", "pool", "pool", "tag_lat", "--size 1M"),
    ("shm", "managed", "managed", "tag_lat", "--size 1M"),
    ("shm", "gpu", "gpu", "tag_lat", "--size 512K --layout strided:65536,8,2048"),
]
# what it is called, test, ucx_perftest's arguments (the client sends). Its window is its own choice.
UCX = [
    ("gpu>gpu", "lat", 8, "-t tag_lat -m cuda -s 8 -n 3000 -w 300"),
    ("gpu>gpu", "lat", 65536, "-t tag_lat -m cuda -s 65536 -n 3000 -w 300"),
    ("gpu>gpu", "lat", 1 << 20, "-t tag_lat -m cuda -s 1048576 -n 2000 -w 200"),
    ("gpu>gpu", "bw", 1 << 20, "-t tag_bw -m cuda -s 1048576 -n 3000 -w 300"),
    ("gpu>gpu", "bw", 256 << 20, "-t tag_bw -m cuda -s 268435456 -n 60 -w 6"),
    ("gpu>pinned", "bw", 64 << 20, "-t tag_bw -m cuda,host -s 67108864 -n 20 -w 4"),
    ("tcp gpu>gpu", "bw", 64 << 20, "-t tag_bw -m cuda -s 67108864 -n 10 -w 2"),
    ("gpu>gpu", "put_bw", 1 << 20, "-t ucp_put_bw -m cuda -s 1048576 -n 3000 -w 300"),
    ("gpu>gpu", "get_lat", 1 << 20, "-t ucp_get -m cuda -s 1048576 -n 1000 -w 100"),
]
FLOOR_SECTIONS = ["one_way", "windows", "both_ways", "host"]
TEST_NAMES = {"tag_lat": "lat", "tag_bw": "bw", "tag_bibw": "bibw"}
PLACES = {
    "cuda": {"gpu": "cuda", "vmm": "vmm", "pool": "pool", "managed": "managed"},
    "emulated": {"gpu": "emulated", "vmm": "emulated-vmm", "pool": "emulated-pool", "managed": "emulated-managed"},
}
JOB_SECONDS = 12  # longer: it hangs
PORT = 13999


class Failed(Exception):
    """A program failed; its text says why."""


class Run:
    """What all jobs share, and what they bring."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.samples: compare.Samples = {}
        self.routes: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.notes: list[str] = []  # of the floors
        key = {"THALWEG_JOB_KEY": secrets.token_hex(32), "LD_LIBRARY_PATH": str(HERE)}
        self.environment = {**os.environ, **key, "THALWEG_INTERFACES": "lo"}
        if options.device == "emulated":
            self.environment["THALWEG_EMULATED"] = "devices=2"
        libraries = ":".join(str(HERE / "ucx" / folder) for folder in ("lib", "libs", "lib/ucx"))
        modules = {"LD_LIBRARY_PATH": libraries, "UCX_MODULE_DIR": str(HERE / "ucx" / "lib" / "ucx")}
        self.ucx_environment = {**os.environ, **modules, "UCX_WARN_UNUSED_ENV_VARS": "n"}

    def ours(self, transport: str, mine: str, theirs: str, test: str, arguments: str) -> None:
        """thalweg-perf once."""
        places = PLACES[self.options.device]
        memory = [f"{places[kind]}:{ordinal}" if kind in places else kind for ordinal, kind in enumerate((mine, theirs))]
        words = [str(HERE / "thalweg-perf"), test, "--transport", transport, *arguments.split()]
        words += [
            "--memory",
            memory[0],
            "--peer-memory",
            memory[1],
            "--seconds",
            f"{self.options.seconds:g}",
            "--reuse",
            "--json",
        ]
        if self.options.device == "emulated":  # a thread's memcpy takes too long for large ones
            words = ["4M" if word in ("64M", "256M") else word for word in words]
        name = f"thalweg|{transport} {mine}>{theirs}" + (" strided" if "--layout" in arguments else "")
        for line in output_of(words, self.environment).splitlines():
            row = json.loads(line)
            if not row["verified"]:
                raise Failed(f"{row['size']} bytes: the payload is wrong")
            latency = "latency_us" in row
            value = row["latency_us"]["p50"] if latency else row["bandwidth_GBps"]
            its_test = TEST_NAMES.get(test, test)
            compare.add(self.samples, name, its_test, row["size"], value, "us" if latency else "GB/s", "unknown")
            self.routes[f"{name[8:]}, {its_test}, {report.size_text(row['size'])}"] = row["route"]

    def ucx(self, what: str, test: str, size: int, arguments: str) -> None:
        """ucx_perftest once: server and client, a GPU each."""
        if self.options.device == "emulated":
            arguments = re.sub(r"-n \d+ -w \d+", "-n 20 -w 2", re.sub(r"-m \S+", "-m host", arguments))
        environment = {**self.ucx_environment, **({"UCX_TLS": "tcp,cuda_copy"} if what.startswith("tcp") else {})}
        words = [str(HERE / "ucx" / "bin" / "ucx_perftest"), "-p", str(PORT)]
        server = start(words, {**environment, "CUDA_VISIBLE_DEVICES": "1"})
        try:
            wait_for_listener(server)
            client = [*words, "127.0.0.1", *arguments.split(), "-f"]
            text = output_of(client, {**environment, "CUDA_VISIBLE_DEVICES": "0"})
        finally:
            end(server)
        found = re.findall(r"^[^|+\[\n]*?\d+((?:\s+[\d.]+){7})\s*$", text, re.MULTILINE)
        if not found:
            raise Failed(f"ucx_perftest says nothing: {text[-200:]}")
        median, _, _, _, mebibytes, _, _ = map(float, found[-1].split())
        latency = test.endswith("lat")
        value = median if latency else mebibytes * (1 << 20) / 1e9
        name = f"ucx-{self.options.ucx_version}|{what}"
        compare.add(self.samples, name, test, size, value, "us" if latency else "GB/s", "unknown")

    def floor(self, words: list[str], seconds: float) -> None:
        """thalweg-gpu-floor once. What was measured counts even when a later section failed."""
        path = self.options.output.with_suffix(".floor")
        try:
            output_of([str(HERE / "thalweg-gpu-floor"), f"--json={path}", *words], self.environment, seconds)
        finally:
            found = json.loads(path.read_text()) if path.exists() else {"series": [], "notes": []}
            path.unlink(missing_ok=True)
            self.notes += found["notes"]
            for record in found["series"]:
                for value in record["samples"]["unknown"]:
                    name = f"floor|{record['transport']}"
                    compare.add(self.samples, name, record["test"], record["size"], value, record["unit"], "unknown")

    def jobs(self) -> dict[str, Any]:
        """By name, in order of importance; what is to be compared side by side."""
        if self.options.floors:
            return {"floor": lambda: self.floor([], 60)}
        jobs: dict[str, Any] = {}
        if self.options.device == "cuda":
            jobs["floor"] = lambda: self.floor(["--quick", *FLOOR_SECTIONS], JOB_SECONDS)
        ucx = [(" ".join(map(str, one[:3])), one) for one in UCX] if (HERE / "ucx").is_dir() else []
        for number, one in enumerate(OURS):
            jobs[" ".join(one)] = lambda one=one: self.ours(*one)
            if number < len(ucx):
                jobs[f"ucx {ucx[number][0]}"] = lambda other=ucx[number][1]: self.ucx(*other)
        return jobs

    def measure(self) -> None:
        """Rounds, there and back, until the time is up. What failed is not asked again."""
        start_time = time.monotonic()
        for turn in range(self.options.rounds):
            jobs = list(self.jobs().items())
            for name, job in jobs if turn % 2 == 0 else reversed(jobs):
                if name in self.failures or (self.options.only and not re.search(self.options.only, name)):
                    continue
                begun = time.monotonic()
                if begun - start_time > self.options.limit:
                    print(f"round {turn + 1}: the {self.options.limit:g} s are over before {name}")
                    return
                try:
                    job()
                except Failed as failure:
                    self.failures[name] = str(failure)
                    print(f"FAILED {name}: {failure}")
                print(f"round {turn + 1}: {name}: {time.monotonic() - begun:.1f} s", flush=True)


def start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """In a process group of its own, so that all of it can be ended."""
    return subprocess.Popen(words, env=environment, text=True, start_new_session=True, stdout=subprocess.DEVNULL)


def wait_for_listener(server: subprocess.Popen[str]) -> None:
    """Until somebody listens at PORT."""
    for _ in range(250):
        lines = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if any(line[1].endswith(f":{PORT:04X}") and line[3] == "0A" for line in lines):
            return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    raise Failed("ucx_perftest does not listen")


def end(process: subprocess.Popen[str]) -> None:
    """The whole group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def output_of(words: list[str], environment: dict[str, str], seconds: float = JOB_SECONDS) -> str:
    """What a program prints; Failed with the end of what it said."""
    with subprocess.Popen(
        words, env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            text, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            text, said = process.communicate()
            raise Failed(f"not done after {seconds:g} s: {(text + said).strip()[-600:]}") from None
    if said:
        print(said.strip()[-1500:])
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {(text + said).strip()[-600:]}")
    return text


def ucx_version(environment: dict[str, str]) -> str:
    """As ucx_info says."""
    try:
        found = re.search(r"Library version: (\S+)", output_of([str(HERE / "ucx" / "bin" / "ucx_info"), "-v"], environment))
    except (OSError, Failed):
        return "none"
    return found[1] if found else "unknown"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(PLACES), default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=95, help="seconds after which no job is begun")
    parser.add_argument("--seconds", type=float, default=0.15, help="of each size of thalweg-perf")
    parser.add_argument("--floors", action="store_true", help="all floors, once, and nothing else")
    parser.add_argument("--only", help="regular expression over jobs")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "gpu.json", help="result file")
    options = parser.parse_args()
    options.rounds = 1 if options.floors else options.rounds
    return options


def main() -> int:
    """Measures, writes, prints the table. Exit code 1: a job failed."""
    options = parse()
    options.ucx_version = "none"
    run = Run(options)
    options.ucx_version = ucx_version(run.ucx_environment)
    result = machine.describe(HERE, HERE / "libthalweg.so.0")
    result["kind"] = "gpu-floor" if options.floors else "gpu"
    result["versions"]["ucx"] = options.ucx_version
    result["command"] = f"benchmarks/gpu/run.sh {'floor' if options.floors else 'speed'}"
    run.measure()
    result["series"] = compare.to_records(run.samples)
    result["targets"] = compare.compare(run.samples, compare.load_targets(result["kind"]))
    result["routes"], result["failures"] = run.routes, run.failures
    if options.device == "emulated":
        result["notes"] = "Emulated devices: not a measurement."
    elif options.floors:
        result["notes"] = "; ".join(run.notes)
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(report.targets_table(result["targets"]))
    print(report.routes_table(result))
    print(f"wrote {options.output.name}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
