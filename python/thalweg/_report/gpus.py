# SPDX-License-Identifier: Apache-2.0
"""What the driver says of GPUs while they are measured: links, temperature, why clocks are lowered, link errors.

nvidia-smi comes with every driver, so that nothing has to be installed for it. A link's generation and a clock mean
nothing while a GPU idles, so it runs beside all measurements, and the report keeps the extremes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
from typing import Any

from thalweg._cli import launcher

_PLAIN = {
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "pci.bus_id": "pci",
    "driver_version": "driver",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.max": "pcie_generation_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "temperature.gpu": "celsius_max",
}
_REASONS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "temperature (hardware)",
    "sw_thermal_slowdown": "temperature (software)",
    "hw_power_brake_slowdown": "power brake",
}
_NAMES_OF_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")  # of new drivers, of old ones
_NUMBERS = {"index", "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "celsius_max"}
_SECONDS = 20  # a driver that takes longer to answer once is in trouble


class Sampler:
    """nvidia-smi, once a second, from its making until `stop`. Without nvidia-smi or GPUs it does nothing."""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._process: subprocess.Popen[str] | None = None
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by stop
        query = self._query() if self._program else None
        if query:
            parent, libc = os.getpid(), ctypes.CDLL(None)
            self._process = subprocess.Popen(
                [str(self._program), query, "--format=csv,noheader,nounits", "--loop-ms=1000"],
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                text=True,
                preexec_fn=lambda: launcher.die_with(libc, parent, signal.SIGKILL),  # however this process ends
            )

    def _query(self) -> str | None:
        """The question that this driver understands, or None."""
        for prefix in _NAMES_OF_REASONS:
            query = "--query-gpu=" + ",".join([*_PLAIN, *(f"{prefix}.{reason}" for reason in _REASONS)])
            if _ask(self._program, query, "--format=csv,noheader,nounits"):
                return query
        return None

    def stop(self) -> list[dict[str, Any]]:
        """Ends it; a record for each GPU, in the order of nvidia-smi."""
        if self._process is None:
            self._output.close()
            return []
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # of a driver that hangs: it cannot be killed
                self._process.wait(1)
        self._output.seek(0)
        found = summary(self._output.read())
        self._output.close()
        errors = link_errors(_ask(self._program, "nvlink", "--errorcounters"))
        for gpu in found:
            if gpu["index"] in errors:
                gpu["link_errors"] = errors[gpu["index"]]
        return found


def _ask(program: str | None, *arguments: str) -> str:
    """What nvidia-smi prints; empty when it refuses or does not come to an end."""
    try:
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def summary(text: str) -> list[dict[str, Any]]:
    """The extremes of all samples of each GPU. Lines that are cut or not understood are passed over."""
    gpus: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != len(_PLAIN) + len(_REASONS) or not words[0].isdigit():
            continue
        sample = dict(zip(_PLAIN.values(), words, strict=False))
        gpu = gpus.setdefault(int(words[0]), {"index": int(words[0]), "slowed_by": []})
        for field, word in sample.items():
            if field not in _NUMBERS:
                gpu[field] = word
            elif re.fullmatch(r"\d+(\.\d+)?", word):
                gpu[field] = max(gpu.get(field, 0), int(float(word)))
        for name, word in zip(_REASONS.values(), words[len(_PLAIN) :], strict=True):
            if word == "Active" and name not in gpu["slowed_by"]:
                gpu["slowed_by"].append(name)
    return [gpus[index] for index in sorted(gpus)]


def link_errors(text: str) -> dict[int, dict[str, int]]:
    """Of each GPU, the errors of its NVLinks since the driver was loaded, by kind; the sum of all links."""
    found: dict[int, dict[str, int]] = {}
    gpu: int | None = None
    for line in text.splitlines():
        if header := re.match(r"GPU (\d+):", line):
            gpu = int(header[1])
        elif gpu is not None and (counter := re.match(r"\s+Link \d+: ([A-Za-z ]+ Errors): (\d+)$", line.rstrip())):
            kinds = found.setdefault(gpu, {})
            kinds[counter[1]] = kinds.get(counter[1], 0) + int(counter[2])
    return found
