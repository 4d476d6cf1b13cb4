# SPDX-License-Identifier: Apache-2.0
"""What is measured, in which order, and how long each takes: a list of runs of thalweg-perf that fits into the time given."""

from __future__ import annotations

import dataclasses
import itertools

LATENCY = "8,64,512,4K,32K,256K,2M,16M"
LATENCY_QUICK = "8,512,8K,128K,2M"
BANDWIDTH = "4K,32K,256K,2M,16M"
BANDWIDTH_QUICK = "32K,2M"
COLLECTIVE = "8,1K,32K,1M,8M"
COLLECTIVE_QUICK = "8,32K,1M"
SHORTEST, LONGEST = 0.01, 0.5  # seconds of one size: below, medians of messages of 16 MiB are of three; above, nothing changes
WINDOW = "16"  # each message has a buffer of its own


FILL = {"16M": 0.08, "64M": 0.25}  # seconds to fill and verify a copy


@dataclasses.dataclass(frozen=True)
class Step:
    """One run of a program. `fixed`: its seconds beside those of its sizes; `sizes`: how often --seconds is spent."""

    name: str
    section: str
    arguments: tuple[str, ...]
    fixed: float = 0.6
    sizes: float = 1
    urgency: int = 2  # 1: without it its section would be empty; 3: first to be left out
    module: str = ""  # a module of this package instead of thalweg-perf

    def predicted(self, each: float) -> float:
        """Seconds that it takes with `each` for a size."""
        return self.fixed + self.sizes * each

    def command(self, each: float) -> list[str]:
        """Its arguments."""
        return [*self.arguments, *([] if self.module else ["--seconds", f"{each:.3g}"])]


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the plan depends on."""

    processors: int
    nodes: int  # of NUMA, with processors
    devices: tuple[str, ...]  # that work: cuda:0, emulated:0
    memories: int = 0  # further nodes, of memory alone

    @property
    def pairs(self) -> int:
        """Of processors' nodes and memories'."""
        return self.nodes * (self.nodes + self.memories)


def steps(machine: Machine, quick: bool) -> list[Step]:
    """All that there is to measure here, in order: first what gives each section something, so that nothing which takes longer
    than predicted costs a whole section. `quick`: few sizes, no second of anything."""
    latency, bandwidth = (LATENCY_QUICK, BANDWIDTH_QUICK) if quick else (LATENCY, BANDWIDTH)
    collective = COLLECTIVE_QUICK if quick else COLLECTIVE
    real = sum(device.startswith("cuda") for device in machine.devices)
    whole = [
        Step("floor", "paths", ("floor",), 0.8, 24, 1),
        *(_path(test, transport, latency) for test, transport in _latencies(quick)),
        *(_path(test, transport, bandwidth) for test, transport in _bandwidths(quick)),
        Step("routes", "paths", (), 3, 0, module="thalweg._report.routes"),
        Step("memory", "memory", ("memory",), 1 + 0.5 * machine.pairs, 4 * machine.pairs, 1),
        Step("tiers", "tiers", ("tiers",), 4, 26, 1),
        Step("sockets", "sockets", ("sockets",), 0.8, 14, 1),
        *_of_devices(machine.devices, quick),
        *_triggers(machine.devices, quick),
        Step("daxpy", "daxpy", ("daxpy", "--transport", "shm", "--peer-memory", "host"), 1, 3, 1),
        Step("atomic_lat", "atomics", ("atomic_lat", "--transport", "shm"), 0.6, 2),
        Step("atomics", "atomics", ("atomics",), 1.5 + 0.6 * real, 2 + 4 * len(machine.devices), 1),
        Step("pages", "pages", ("pages",), 3 + 0.7 * real, 11, 1),
        Step("overlap", "overlap", ("overlap", "--transport", "shm", "--size", "64K,1M" if quick else "64K,1M,8M"), 2, 24, 1),
        *_collectives(machine, collective, quick),
        Step("collaborate", "collaborate", ("collaborate",), 7, 6, 1),
    ]
    return sorted(whole, key=lambda step: step.urgency)


def _latencies(quick: bool) -> list[tuple[str, str]]:
    return [("tag_lat", "shm"), ("put_lat", "shm"), *([] if quick else [("get_lat", "shm")]), ("tag_lat", "tcp")]


def _bandwidths(quick: bool) -> list[tuple[str, str]]:
    return [("tag_bw", "shm"), *([] if quick else [("put_bw", "shm"), ("tag_bibw", "shm")]), ("tag_bw", "tcp")]


def _path(test: str, transport: str, sizes: str) -> Step:
    window = ("--window", WINDOW) if test.endswith("bw") else ()
    parts = sizes.count(",") + 1
    arguments = (test, "--transport", transport, "--size", sizes, *window)
    urgency = 1 if (test, transport) in (("tag_lat", "shm"), ("tag_bw", "shm")) else 2
    return Step(f"{test} {transport}", "paths", arguments, 0.8 + 0.1 * parts, 1.3 * parts, urgency)


def _of_devices(devices: tuple[str, ...], quick: bool) -> list[Step]:
    """Matrices of all of them, and messages of the library between host and the first, and the first and each other."""
    if not devices:
        return []
    count = len(devices)
    measured = 11 * count + 6 * count * (count - 1)  # each at two sizes; filling and verifying the large ones takes longest
    large = "16M" if quick or count > 2 else "64M"
    found = [Step("copies", "copies", ("copies", "--size", f"8,{large}"), 3 + FILL[large] * measured, 2 * measured, 1)]
    ends = [("pinned", devices[0]), (devices[0], "pinned"), *((devices[0], other) for other in devices[1:])]
    sizes = "8,64K,1M,64M" if not quick else "8,16M"
    for number, ((here, there), test) in enumerate(itertools.product(ends, ("tag_lat", "tag_bw"))):
        arguments: tuple[str, ...] = (test, "--memory", here, "--peer-memory", there, "--size", sizes)
        if test == "tag_bw":
            arguments = (*arguments, "--window", "4")
        urgency = 2 if number < 6 else 3  # of the pairs of GPUs the first; the others are mostly alike
        found.append(Step(f"{test} {here} {there}", "copies", arguments, 3, sizes.count(",") + 1, urgency))
    if devices[0].startswith("cuda"):
        found += [
            Step(f"daxpy {here} {there}", "daxpy", ("daxpy", "--memory", here, "--peer-memory", there), 8, 3)
            for here, there in [(devices[0], "pinned"), *((devices[0], other) for other in devices[1:2])]
        ]
    return found


def _triggers(devices: tuple[str, ...], quick: bool) -> list[Step]:
    """What starts an operation: the host, a queue, a captured graph, a kernel."""
    real = [device for device in devices if device.startswith("cuda")]
    ends = ("--memory", real[0], "--peer-memory", real[-1]) if real else ()
    found = [Step("flags", "triggers", ("flags",), 1 + 0.7 * len(real), 5 * max(1, len(real)), 1)]
    for trigger in ("host", "kernel") if quick else ("host", "queue", "graph", "kernel"):
        arguments = ("signal_lat", "--trigger", trigger, "--transport", "shm", *ends)
        found.append(Step(f"signal_lat {trigger}", "triggers", arguments, 2 if real else 0.8, 1))
    return found


def _collectives(machine: Machine, sizes: str, quick: bool) -> list[Step]:
    """Among as many processes as there are processors, at most eight; on queues of devices, where there are two."""
    ranks = str(max(2, min(8, machine.processors)))
    found = []
    for test in ("allreduce", "bcast") if quick else ("allreduce", "alltoall", "allgather", "reduce_scatter", "bcast"):
        arguments: tuple[str, ...] = (test, "-n", ranks, "--size", sizes)
        found.append(Step(test, "collectives", arguments, 1, sizes.count(",") + 1, 1 if test == "allreduce" else 2))
    found.append(Step("barrier", "collectives", ("barrier", "-n", ranks), 0.8, 1))
    kind = machine.devices[0].partition(":")[0] if machine.devices else ""
    alike = [device for device in machine.devices if device.startswith(f"{kind}:")]
    if kind == "cuda" and len(alike) > 1:
        arguments = ("allreduce", "-n", str(len(alike)), "--memory", kind, "--trigger", "graph", "--size", sizes)
        found.append(Step("allreduce of devices", "collectives", arguments, 5, sizes.count(",") + 1))
    return found


def fit(wanted: list[Step], seconds: float) -> tuple[list[Step], list[Step], float]:
    """What fits into so many seconds, what is left out (the least urgent, the last first), and the seconds of a size."""
    kept = list(wanted)
    while kept and sum(step.predicted(SHORTEST) for step in kept) > seconds:
        least = max(range(len(kept)), key=lambda index: (kept[index].urgency, index))
        del kept[least]
    sizes = sum(step.sizes for step in kept)
    spare = seconds - sum(step.fixed for step in kept)
    each = min(LONGEST, max(SHORTEST, spare / sizes)) if sizes else SHORTEST
    return kept, [step for step in wanted if step not in kept], each
