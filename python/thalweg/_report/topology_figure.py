# SPDX-License-Identifier: Apache-2.0
"""The topology of a report, as `thalweg topo` draws it."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from markupsafe import Markup

from . import topology
from .content import Figure, Part
from .document import Document


def topology_figure(document: Document) -> Iterator[Part]:
    """One figure, or none without a topology. NoTopology without a program that draws it."""
    if document.get("topology"):
        # As an image it can neither run scripts nor load anything, whatever is in it.
        data = base64.b64encode(topology.draw(document["topology"], document["machine"]["host"]).encode()).decode()
        picture = Markup('<img alt="the machine" src="data:image/svg+xml;base64,{}">').format(data)
        yield Figure("", picture, "packages, NUMA nodes, GPUs, network cards and their links")
