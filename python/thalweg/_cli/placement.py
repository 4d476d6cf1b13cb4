# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of ``thalweg run --bind`` go: the library's placement, as far as this process may follow it."""

from __future__ import annotations

import os
from typing import Any

from . import native
from .topology_graph import listed


def assign(count: int, allowed: set[int] | None = None) -> list[dict[str, Any]]:
    """A placement per rank, as of tw_topology_place. NativeError: the topology is another machine's, or not right."""
    mine = os.sched_getaffinity(0) if allowed is None else allowed
    places = [native.topology_place(rank, count) for rank in range(count)]
    for rank, place in enumerate(places):
        if beyond := set(place["processors"]) - mine:
            raise native.NativeError(
                f"rank {rank} belongs on processors {listed(list(beyond))}, which this process may not use (it has "
                f"{listed(list(mine))}): is THALWEG_TOPOLOGY another machine's? Unset it, or run without --bind"
            )
    return places


def environment_of(place: dict[str, Any]) -> dict[str, str]:
    """What a rank is told: THALWEG_DEVICE, a place as in tw_memory_options.place ("cuda:3"), where it has a device."""
    return {} if place["device"] is None else {"THALWEG_DEVICE": place["place"]}
