# SPDX-License-Identifier: Apache-2.0
"""What a report says of the machine, and who else worked on its processors while something was measured."""

from __future__ import annotations

import os
import pathlib
import platform
import time
from typing import Any

NODES = pathlib.Path("/sys/devices/system/node")
CPUS = pathlib.Path("/sys/devices/system/cpu")
PROC = pathlib.Path("/proc")


def facts() -> dict[str, Any]:
    """Processor, memory, NUMA nodes, kernel; what is not known here is left out."""
    allowed = sorted(os.sched_getaffinity(0))
    system = platform.freedesktop_os_release() if pathlib.Path("/etc/os-release").exists() else {}
    found: dict[str, Any] = {
        "host": platform.node(),
        "processor": _processor(),
        "architecture": platform.machine(),
        "processors": len(allowed),
        "processors_of_the_machine": os.cpu_count(),
        "threads_per_core": len(_numbers(_text(CPUS / f"cpu{allowed[0]}/topology/thread_siblings_list"))) or None,
        "governor": _text(CPUS / f"cpu{allowed[0]}/cpufreq/scaling_governor"),
        "memory_bytes": _memory(PROC / "meminfo", "MemTotal:"),
        "dev_shm_bytes": _size_of_file_system("/dev/shm"),
        "system": system.get("PRETTY_NAME"),
        "kernel": platform.release(),
        "virtual": "hypervisor" in _text(PROC / "cpuinfo").partition("flags")[2].partition("\n")[0].split(),
        "numa": _nodes(),
    }
    return {key: value for key, value in found.items() if value not in (None, "")}


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _processor() -> str:
    for line in _text(PROC / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu", "CPU implementer"):
            return value.strip()
    return platform.processor()


def _memory(path: pathlib.Path, field: str) -> int | None:
    for line in _text(path).splitlines():
        words = line.split()
        if field in words and words[-1] == "kB":
            return int(words[-2]) << 10
    return None


def _numbers(text: str) -> list[int]:
    """Of a list as the kernel writes it: 0-3,8."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _nodes() -> list[dict[str, Any]]:
    nodes = []
    for folder in sorted(NODES.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        node: dict[str, Any] = {"node": int(folder.name[4:]), "processors": _numbers(_text(folder / "cpulist"))}
        if memory := _memory(folder / "meminfo", "MemTotal:"):
            node["memory_bytes"] = memory
        nodes.append(node)
    return nodes


def _size_of_file_system(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize


class Load:
    """Processor time of this machine's processors (those that we may use) since it was made."""

    def __init__(self) -> None:
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        """Seconds: the clock's, all busy, stolen by a hypervisor, ours with the processes that have ended."""
        hertz = os.sysconf("SC_CLK_TCK")
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        busy = stolen = 0
        for line in _text(PROC / "stat").splitlines():
            name, *words = line.split()
            if name in allowed:
                user, nice, system, _idle, _wait, interrupts, soft, steal = (int(word) for word in words[:8])
                busy += user + nice + system + interrupts + soft
                stolen += steal
        times = os.times()
        ours = times.user + times.system + times.children_user + times.children_system
        return time.monotonic(), busy / hertz, stolen / hertz, ours

    def others(self) -> tuple[float, float]:
        """Processors' worth of time that other programs used, and that a hypervisor took, on average since the start."""
        then, now = self._start, self._now()
        seconds, busy, stolen, ours = (b - a for a, b in zip(then, now, strict=True))
        if seconds <= 0:
            return 0.0, 0.0
        return max(0.0, (busy - ours) / seconds), max(0.0, stolen / seconds)
