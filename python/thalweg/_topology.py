# SPDX-License-Identifier: Apache-2.0
"""``thalweg.topology()``: what is in this machine, what lies between two parts of it, and where its ranks belong."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from . import _core


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a rank belongs: a suggestion, which binds nothing and hides no device."""

    gpu: int | None  # its number in the topology; None: there is none
    device: int | None  # that GPU's ordinal in this process; None: not visible here
    place: str  # of the device, as Memory.allocate takes it: "cuda:3"; "host" without one
    numa: int | None  # the number of the NUMA node; None: not known, or several
    nic: str  # the nearest network card that is up: "mlx5_0"; "": none
    processors: list[int]  # to run on, for os.sched_setaffinity; empty: not known
    shared: int  # ranks that have this GPU, with this one


@dataclasses.dataclass(frozen=True)
class Distance:
    """What lies between two nodes."""

    kind: str  # X, NV6, PIX, PXB, PHB, NODE, SYS; between processors core, cache, node, far
    hops: int  # links that are passed, NVLinks side by side counting as one
    links: int  # NVLinks side by side that are up
    links_down: int  # and those that are down
    bandwidth: float  # bytes per second in each direction, of the narrowest link; 0: not known
    path: str  # "gpu:0 - switch:0 - gpu:1"
    note: str  # what is down or narrower than it could be


class Topology:
    """What is in a machine: a graph of nodes and typed links (docs/topology.md).

    nodes and links are lists of dictionaries as in the JSON text; bandwidths are bytes per second in each direction. It does
    not change. Any thread may use it. peers has for each two GPUs what the driver says of access between them ("read", "write",
    "nvlink", "atomics": "ok" or why not); where NVML does not say it, it is empty.
    """

    def __init__(self, text: str) -> None:
        whole = json.loads(text)
        self._text = text
        self.name: str = whole["name"]
        self.source: str = whole["source"]
        self.nodes: list[dict[str, Any]] = whole["nodes"]
        self.links: list[dict[str, Any]] = whole["links"]
        self.peers: list[dict[str, str]] = whole.get("peers", [])

    def json(self) -> str:
        """The text that THALWEG_TOPOLOGY reads, one node or link a line."""
        return self._text

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The nodes of a kind: package, numa, cache, core, bridge, switch, gpu, nic, nvswitch."""
        return [node for node in self.nodes if node["id"].partition(":")[0] == kind]

    def place(self, rank: int, ranks: int) -> Placement:
        """Where rank `rank` of `ranks` processes of this machine belongs.

        All ranks that ask with the same `ranks`, environment and affinity get answers that fit together. Device libraries that
        are present are initialised. Raises InvalidError when rank is not below ranks.
        """
        return Placement(**_core.topology_place(rank, ranks))

    def distance(self, source: str, to: str) -> Distance:
        """What lies between the nodes of these names, such as "gpu:0", "nic:1", "numa:0", "processor:7".

        Raises InvalidError when there is no such node.
        """
        return Distance(**_core.topology_distance(source, to))

    def __repr__(self) -> str:
        counts = [f"{len(self.all(kind))} {kind}" for kind in ("package", "numa", "core", "gpu", "nic") if self.all(kind)]
        return f"<thalweg.Topology {self.name!r}: {', '.join(counts)}>"


def topology() -> Topology:
    """The topology of this machine, or the one that THALWEG_TOPOLOGY names.

    It is found at the first call, which may take a second where there are GPUs; no device is initialised. The GIL is released
    meanwhile. Raises InvalidError where the file is not right; the text names the place in it.
    """
    return Topology(_core.topology_json())
