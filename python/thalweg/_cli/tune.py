# SPDX-License-Identifier: Apache-2.0
"""``thalweg tune``: measures what this machine's ways of moving bytes cost and keeps it for the library."""

from __future__ import annotations

from typing import Annotated

import typer

from . import perf

HELP = """Measures in a few seconds what a frame and a byte cost on this machine by each way (rings, mapped memory, the kernel's
copy, TCP), and keeps it in your cache directory. The library chooses routes and thresholds by it from then on.

[bold]thalweg info[/bold] says which costs are in force and where they are from, [bold]thalweg explain[/bold] what follows.
[bold]THALWEG_COSTS[/bold] names another file, or is "off": then the library's defaults hold."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tune", help=HELP)(tune)


def tune(
    seconds: Annotated[float, typer.Option(min=0.001, max=2, help="Time spent on each of 39 measurements.")] = 0.15,
) -> None:
    """Replaces this process by thalweg-perf tune."""
    perf.become(["tune", "--seconds", f"{seconds:g}"])
