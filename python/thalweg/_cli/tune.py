# SPDX-License-Identifier: Apache-2.0
"""``thalweg tune``: measures what this machine's ways of moving bytes cost and keeps it for the library."""

from __future__ import annotations

from typing import Annotated

import typer

from . import perf
from .options import refuse

HELP = """Measures in a few seconds what a frame and a byte cost on this machine by each way (rings, mapped memory, the kernel's
copy, TCP), and keeps it in your cache directory. The library chooses routes and thresholds by it from then on. It measures what
it needs by itself, in some 40 ms, when its first context on a machine is made; this is the thorough form.

[bold]thalweg info[/bold] says which costs are in force and where they are from, [bold]thalweg explain[/bold] what follows.
[bold]thalweg tune --check[/bold] measures nothing for good: it compares what the library chooses with every other way by force,
and what it predicts with what it takes, over shm and tcp, and with memory of GPUs where there are some. A line PASS or FAIL for
each path; exit code 1: not all pass.
[bold]THALWEG_COSTS[/bold] names another file, or is "off": then the library's defaults hold."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tune", help=HELP)(tune)


def tune(
    seconds: Annotated[float | None, typer.Option(min=0.001, max=2, help="Time spent on each measurement (0.15).")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare choices and predictions with what every way takes.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, max=99, help="Of --check: how often all ways take turns (3).")] = None,
    paths: Annotated[str, typer.Option(help="Of --check: those alone, as shm,tcp,device-device.")] = "",
    size: Annotated[str, typer.Option(help="Of --check: as thalweg perf takes sizes (1 B to 64 MiB).")] = "",
    json: Annotated[bool, typer.Option("--json", help="Of --check: one JSON object.")] = False,
) -> None:
    """Replaces this process by thalweg-perf tune."""
    if not check:
        refuse("is of --check: add that", rounds=rounds, paths=paths, size=size, json=json)
        perf.become(["tune", "--seconds", f"{seconds or 0.15:g}"])
    arguments = ["tune", "--check", "--seconds", f"{seconds or 0.1:g}", "--rounds", f"{rounds or 3}"]
    for name, value in (("--paths", paths), ("--size", size)):
        arguments += [name, value] if value else []
    perf.become([*arguments, "--json"] if json else arguments)
