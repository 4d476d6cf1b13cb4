# SPDX-License-Identifier: Apache-2.0
"""Rules about processors, host memory, tiers and the system's limits."""

from __future__ import annotations

from collections.abc import Iterator

from . import readings
from .document import Document
from .rule import FAULT, WARNING, Finding, Rule, threshold
from .rules_run import is_disturbed
from .units import human_size, part_of, rate, time, times


def _slow_nodes(document: Document) -> dict[int, tuple[float, float]]:
    """Nodes whose own memory is slower than others' is to them: (its, the others' median)."""
    local = {cpu: value for (cpu, memory), value in readings.numa(document).items() if cpu == memory}
    slow = {}
    for node, value in local.items():
        siblings = readings.median(other for one, other in local.items() if one != node)
        if siblings and value < threshold("numa_local") * siblings:
            slow[node] = (value, siblings)
    return slow


def numa_slow(document: Document) -> Iterator[Finding]:
    """A node whose memory is slower than its siblings': a channel without a module."""
    for node, (value, siblings) in _slow_nodes(document).items():
        yield Finding(
            "numa_slow",
            FAULT,
            f"node {node}",
            f"NUMA node {node} reaches {part_of(value / siblings)} memory bandwidth of its siblings: "
            "a memory channel is empty, disabled or slower.",
            "Compare the modules of both sockets (dmidecode -t memory): equal ones in every channel; look for memory errors "
            "(ras-mc-ctl --summary).",
            (f"node {node}: triad {rate(value)}", f"the others: {rate(siblings)}"),
        )


def numa_remote(document: Document) -> Iterator[Finding]:
    """Memory of another node that is worse than the link between sockets explains."""
    matrix = readings.numa(document)
    slow = _slow_nodes(document)
    alone = {node["node"] for node in document["machine"].get("numa", []) if not node["processors"]}  # CXL: no link of sockets
    pairs = []
    for (cpu, memory), value in matrix.items():
        own = matrix.get((cpu, cpu))
        if cpu != memory and memory not in slow and memory not in alone and own and value < threshold("numa_remote") * own:
            pairs.append(((cpu, memory), value, own))
    if pairs:
        yield Finding(
            "numa_remote",
            WARNING,
            "nodes",
            "Memory of other NUMA nodes is slower than a link between sockets has to be: "
            + ", ".join(f"from node {cpu} to node {memory}" for (cpu, memory), _, _ in pairs)
            + ".",
            "Look at the width and speed of the links between the sockets in the firmware's settings (UPI, xGMI), and bind "
            "ranks to the node of their memory (thalweg run --bind, numactl --membind).",
            tuple(f"node {c} to node {m}: triad {rate(value)}, to its own {rate(own)}" for (c, m), value, own in pairs),
        )


def _limit(document: Document, name: str) -> dict | None:
    """A limit of `thalweg info` that is not good."""
    found = document.get("info", {}).get("limits", {}).get(name)
    return found if found and not found["good"] else None


def single_copy(document: Document) -> Iterator[Finding]:
    """The kernel forbids copies straight from another process's memory."""
    limit = _limit(document, "ptrace") or _limit(document, "ptrace_scope")
    if limit:
        name = "ptrace" if _limit(document, "ptrace") else "kernel.yama.ptrace_scope"
        yield Finding(
            "single_copy",
            WARNING,
            "kernel",
            "Processes may not copy straight from each other's memory: large messages of ordinary memory are copied twice.",
            limit.get("remedy", "sysctl kernel.yama.ptrace_scope=0, or the capability SYS_PTRACE") + ".",
            (f"{name}: {limit['value']}",),
        )


def shared_memory_small(document: Document) -> Iterator[Finding]:
    """Little room in /dev/shm."""
    if limit := _limit(document, "dev_shm_free"):
        free = int(limit["value"]) if limit["value"].isdecimal() else 0
        yield Finding(
            "dev_shm",
            WARNING,
            "/dev/shm",
            "There is little room in /dev/shm: shared memory of other libraries fails there.",
            limit.get("remedy", "remove files from /dev/shm") + ".",
            (f"{human_size(free)} free",),
        )


def _tier(document: Document, word: str) -> str | None:
    """The name that a tier has in this report."""
    names = [name for pair in readings.tier_copies(document) for name in pair]
    return next((name for name in names if word in name.lower()), None)


def tmpfs_slow(document: Document) -> Iterator[Finding]:
    """tmpfs is DRAM; it may not be much slower."""
    table, dram, tmpfs = readings.tier_copies(document), _tier(document, "dram"), _tier(document, "tmpfs")
    if dram is None or tmpfs is None:
        return
    plain = table.get((dram, dram))
    both = [table[pair] for pair in ((dram, tmpfs), (tmpfs, dram)) if pair in table]
    if plain and both and min(both) < threshold("tmpfs") * plain:
        yield Finding(
            "tmpfs_slow",
            WARNING,
            "tmpfs",
            f"Copies to and from tmpfs reach {part_of(min(both) / plain)} bandwidth of those within DRAM.",
            "Let shared memory have huge pages (echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled), and look "
            "whether it is swapped out (free, vmstat).",
            (f"tmpfs: {rate(min(both))}", f"DRAM: {rate(plain)}"),
        )


def disk_slow(document: Document) -> Iterator[Finding]:
    """Small writes that wait for a disk longer than a solid state one takes."""
    slow = (
        []
        if is_disturbed(document)
        else [
            (ns, tier, operation, size)
            for tier, operation, size, ns, _ in readings.small_writes(document)
            if ns > threshold("sync_write_ns")
        ]
    )
    if slow:
        ns, tier, operation, size = max(slow)
        yield Finding(
            "disk_slow",
            WARNING,
            tier,
            f"Small writes to {tier} wait long until they are kept.",
            "Put what is synchronised on a local solid state disk (--disk of thalweg perf tiers names another folder); a "
            "network file system or a rotating disk takes as long as this.",
            (f"{operation} of {human_size(size)}: median {time(ns)}",),
        )


def loopback_slow(document: Document) -> Iterator[Finding]:
    """TCP on one machine that is far slower than a unix socket: rules of a firewall."""
    if is_disturbed(document):
        return
    tcp, unix = readings.socket_latency(document, "tcp"), readings.socket_latency(document, "unix")
    if tcp and unix and tcp > threshold("loopback") * unix:
        yield Finding(
            "loopback_slow",
            WARNING,
            "loopback",
            f"TCP within this machine takes {times(tcp / unix)} as long as a unix socket: something looks at every packet.",
            "Look for firewall rules, connection tracking or traffic control on lo (nft list ruleset, tc qdisc show dev lo).",
            (f"TCP: {time(tcp)}", f"unix: {time(unix)}"),
        )


RULES: tuple[Rule, ...] = (
    numa_slow,
    numa_remote,
    single_copy,
    shared_memory_small,
    tmpfs_slow,
    disk_slow,
    loopback_slow,
)
