# SPDX-License-Identifier: Apache-2.0
"""The saved reports of tests/fixtures/reports, for the tests of thalweg report, and what each of them has to give."""

import copy
import functools
import pathlib
import sys

from thalweg._report import document

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "reports"
sys.path.append(str(FOLDER))

# (rule, about what) of each machine's findings; the healthy ones have none.
EXPECTED = {
    "healthy_box": [],
    "healthy_hgx": [],
    "healthy_plain": [],
    "gpu_pcie_x8": [("gpu_link", "cuda:3")],
    "gpu_slow_slot": [("gpu_link", "cuda:1")],
    "nvlink_down": [("nvlink", "cuda:1-cuda:2")],
    "nvlink_of_one_gpu": [("nvlink", "cuda:2")],
    "no_peer_to_peer": [("peer_to_peer", "GPUs")],
    "no_peer_to_peer_by_option": [("peer_to_peer", "GPUs")],
    "memory_channel": [("numa_slow", "node 1")],
    "remote_memory": [("numa_remote", "nodes")],
    "ptrace": [("single_copy", "kernel")],
    "dev_shm": [("dev_shm", "/dev/shm")],
    "tmpfs": [("tmpfs_slow", "tmpfs")],
    "disk": [("disk_slow", "disk")],
    "loopback": [("loopback_slow", "loopback")],
    "far_from_nic": [("far_from_nic", "cuda:2, cuda:3")],
    "costs_of_another": [("costs_differ", "costs")],
    "busy": [("oversubscribed", "processors")],
    "overcommitted": [("stolen", "processors")],
    "hot": [("slowed", "cuda:0")],
    "jitter": [("spread", "processors")],
    "wrong_bytes": [("wrong_bytes", "tag_bw")],
    "failed_step": [("failed", "pages")],
    "pinned": [("pinned", "cuda:0, cuda:1, cuda:2, cuda:3")],
    "errors": [("link_errors", "cuda:2")],
    "errors_by_driver": [("link_errors", "cuda:1")],
    "lost_links": [("nvlink", "links")],
    "without_nvml": [("nvlink", "cuda:1-cuda:2")],
    "ended_early": [("incomplete", "report")],
}
HEALTHY = [name for name in EXPECTED if name.startswith("healthy")]


@functools.cache
def _loaded(name: str) -> document.Document:
    return document.load(FOLDER / f"{name}.json")


def report(name: str) -> document.Document:
    """One of them, read as the command reads it; the caller's own."""
    return copy.deepcopy(_loaded(name))
