# SPDX-License-Identifier: Apache-2.0
"""What a result must say to be worth something later: device, kernel, versions, revision, date."""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import pathlib
import platform
import subprocess
from typing import Any


def describe(root: pathlib.Path, library: pathlib.Path) -> dict[str, Any]:
    """The head of a result file. A folder that was carried to another machine says in built.json what it was built from."""
    told = root / "built.json"
    origin = json.loads(told.read_text()) if told.is_file() else built(root)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": {
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            **gpus(),
            "memory_GiB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
            "tcp_congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control"),
        },
        "versions": {
            "thalweg": library_version(library),
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()),
            "compiler": origin["compiler"],
        },
        "revision": origin["revision"],
    }


def built(root: pathlib.Path) -> dict[str, Any]:
    """From what, by what."""
    return {
        "revision": {
            "commit": first_line(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]),
            "dirty": bool(first_line(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])),
        },
        "compiler": first_line(["gcc", "--version"]),
    }


def gpus() -> dict[str, str]:
    """Count, name and driver; nothing where there is none."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True).stdout.splitlines()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return {}
    name, _, driver = said[0].partition(", ")
    return {"gpus": f"{len(said)} × {name}", "driver": driver}


def cpu_model() -> str:
    """As the kernel names it."""
    for line in (read("/proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def library_version(library: pathlib.Path) -> str:
    """tw_version_string."""
    function = ctypes.CDLL(str(library)).tw_version_string
    function.restype = ctypes.c_char_p
    return function().decode()


def read(path: str) -> str | None:
    """A small file's text."""
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def first_line(command: list[str]) -> str | None:
    """What a program says first; None without it."""
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None
