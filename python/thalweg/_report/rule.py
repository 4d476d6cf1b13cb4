# SPDX-License-Identifier: Apache-2.0
"""What rules (rules_*.py) are made of: a finding, and the table of the thresholds that they decide by.

A rule compares parts of the machine with their siblings, or with what their link can carry; none knows a machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from thalweg._cli.topology_graph import FAR, FEW

from .document import Document

FAULT, WARNING, NOTE = "fault", "warning", "note"
ORDER = (FAULT, WARNING, NOTE)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One: which rule, about what, in words, by which numbers, and what helps."""

    rule: str
    severity: str
    about: str
    what: str
    remedy: str
    numbers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A number that a rule decides by, and what it is a part of."""

    value: float
    of: str


THRESHOLDS = {
    "gpu_link": Threshold(0.7, "of the median of the other GPUs' bandwidth to and from pinned host memory"),
    "gpu_pair": Threshold(0.6, "of the median bandwidth of pairs that are joined alike"),
    "link_errors": Threshold(
        FAR, f"times the errors of the other NVLinks in the median, which count as {FEW} at least; of GPUs {FEW} for each link"
    ),
    "numa_local": Threshold(0.75, "of the median bandwidth of the other NUMA nodes to their own memory"),
    "numa_remote": Threshold(0.3, "of the bandwidth of the same processors to their own memory"),
    "tmpfs": Threshold(0.6, "of the bandwidth of a copy within DRAM"),
    "sync_write_ns": Threshold(5e6, "ns, the median of a small write until the disk keeps it; what no solid state disk takes"),
    "loopback": Threshold(3.5, "times the latency of a unix socket"),
    "pinned": Threshold(0.8, "of the bandwidth of the same copy from ordinary memory"),
    "costs": Threshold(2.0, "times, either way, between a cost that routes are chosen by and what was measured"),
    "spread": Threshold(
        2.0, "times the median: the 90th percentile of latencies of messages of at most 4 KiB, in half of them"
    ),
    "others": Threshold(0.25, "of the processors used by other programs while something was measured"),
    "stolen": Threshold(0.05, "of a processor's time taken by a hypervisor while something was measured"),
}

Rule = Callable[[Document], Iterable[Finding]]


def threshold(name: str) -> float:
    """The value of a threshold."""
    return THRESHOLDS[name].value
