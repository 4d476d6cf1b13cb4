# SPDX-License-Identifier: Apache-2.0
"""A command whose output is shown as it comes, and kept."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent


def shown(words: list[str], seconds: float, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs it in the repository's root. Exit code (124: past its seconds) and the output."""
    print("+", " ".join(words), flush=True)
    lines: list[str] = []
    with subprocess.Popen(
        ["timeout", "--kill-after=10", str(int(seconds)), *words],
        cwd=ROOT,
        env=os.environ | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                sys.stdout.write(line)
                sys.stdout.flush()
        except BaseException:  # timeout has made a group of its own, which the terminal's Ctrl-C does not reach
            process.terminate()
            raise
    return process.returncode, "".join(lines)
