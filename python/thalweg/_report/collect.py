# SPDX-License-Identifier: Apache-2.0
"""What a report says besides its measurements: machine, library, topology, GPUs; and the plan's view of the machine."""

from __future__ import annotations

import json
import os
import platform

from thalweg._cli import native

from . import machine, plan, topology
from .document import Document, parse, text_of
from .gpus import Sampler
from .readings import is_device


class Collector:
    """Of one report, from before its first measurement until after its last."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._sampler: Sampler | None = None

    def begin(self) -> plan.Machine:
        """Fills in what is known before anything is measured, and starts to watch the GPUs. NativeError without the library."""
        document = self._document
        document["machine"] = machine.facts()
        with native.Context() as context:
            document["info"] = json.loads(context.info())
        document["versions"] = {
            "thalweg": str(document["info"].get("version", "")),
            "python": platform.python_version(),
            "kernel": platform.release(),
        }
        self._add_topology()
        self._sampler = Sampler()
        devices = tuple(d["name"] for d in document["info"].get("devices", []) if d.get("usable") and is_device(d["name"]))
        nodes = [bool(node["processors"]) for node in document["machine"].get("numa", [])]
        return plan.Machine(len(os.sched_getaffinity(0)), max(1, sum(nodes)), devices, nodes.count(False))

    def _add_topology(self) -> None:
        try:
            graph = topology.ask()
            parse(text_of({**self._document, "topology": graph}), "thalweg topo")
        except (topology.NoTopology, ValueError) as error:
            self._document["topology_why"] = str(error)
            return
        self._document["topology"] = graph

    def finish(self) -> None:
        """What is known when all is measured, or as much of it as there was time for."""
        document = self._document
        if self._sampler:
            document["gpus"] = self._sampler.stop()
            self._sampler = None
            drivers = {gpu.pop("driver") for gpu in document["gpus"] if "driver" in gpu}
            if drivers:
                document["versions"]["driver"] = ", ".join(sorted(drivers))
