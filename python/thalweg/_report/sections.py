# SPDX-License-Identifier: Apache-2.0
"""The parts of a report, in the order of the page: what each is called, and what its numbers mean."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Section:
    """One part."""

    name: str
    title: str
    meaning: str


SECTIONS = (
    Section("topology", "Topology", "What the machine is made of, and by which links its parts reach each other."),
    Section(
        "memory",
        "Host memory",
        "STREAM: what all processors of a NUMA node move from and to the memory of a node, beyond the last cache. "
        "Each row is a node of processors, each column a node of memory.",
    ),
    Section(
        "tiers",
        "Memory tiers",
        "Copies between DRAM, tmpfs and a mapped file on disk, and small writes that wait until they are kept.",
    ),
    Section(
        "paths",
        "Process to process",
        "Two processes of this machine, one way, medians, payload verified. Dashed and grey: what the machine allows, "
        "without the library. A dotted line: where the library changes its route.",
    ),
    Section("sockets", "Sockets", "Unix and loopback TCP sockets, without the library."),
    Section(
        "copies",
        "Host and GPUs",
        "Each row is where the bytes come from, each column where they go. One way, both ways at once, latency of the "
        "smallest copy; by the copy engine, by loads and stores of a kernel, and through the host instead of peer to peer.",
    ),
    Section("links", "Link capabilities and counters", "What the links could carry, and what they have counted."),
    Section(
        "triggers",
        "Flags and triggers",
        "How long a flag takes between host and kernel, and an operation from what triggers it until the peer sees it.",
    ),
    Section("daxpy", "Zero-copy daxpy", "y += a x with x in the other memory, read in place, beside what a get reaches."),
    Section("atomics", "Atomics", "System-wide atomic operations on one word, alone and from both sides at once."),
    Section("pages", "Page faults and prefetch", "What the first touch of a page costs, and what asking ahead saves."),
    Section("overlap", "Overlap", "How much of a transfer is hidden while its process computes; 100 %: all of it."),
    Section("collectives", "Collectives", "The slowest rank's time; bus bandwidth as NCCL's tests define it."),
    Section(
        "collaborate",
        "Explicit copies against shared memory",
        "Host and GPU work on one problem in two forms: D copies explicitly, U shares one memory. Times as a part of D's.",
    ),
)
BY_NAME = {section.name: section for section in SECTIONS}


def section(name: str) -> Section:
    """A part by name; of a report that a later version wrote, one that has its name as title."""
    return BY_NAME.get(name) or Section(name, name.replace("_", " ").capitalize(), "")
