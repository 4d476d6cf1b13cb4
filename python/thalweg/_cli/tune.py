# SPDX-License-Identifier: Apache-2.0
"""``thalweg tune``: measures what this machine's ways of moving bytes cost and keeps it for the library."""

from __future__ import annotations

import json as json_module
import sys
from typing import Annotated

import typer
from rich.console import Console

from . import native, perf, ways

HELP = """Measures in a few seconds what a frame and a byte cost on this machine by each way (rings, mapped memory, the kernel's
copy, TCP), and keeps it in your cache directory. The library chooses routes and thresholds by it from then on. It measures what
it needs by itself, in some 30 ms, when its first context on a machine is made; this is the thorough form.

[bold]thalweg info[/bold] says which costs are in force and where they are from, [bold]thalweg explain[/bold] what follows.
[bold]thalweg tune --check[/bold] measures nothing for good: it compares what the library chooses with every other way by force,
and what it predicts with what it takes. Exit code 1: it is not good enough.
[bold]THALWEG_COSTS[/bold] names another file, or is "off": then the library's defaults hold."""

SIZES = [1 << power for power in range(0, 27, 2)]  # 1 B to 64 MiB


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tune", help=HELP)(tune)


def tune(
    seconds: Annotated[float | None, typer.Option(min=0.001, max=2, help="Time spent on each measurement (0.15).")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare choices and predictions with what every way takes.")] = False,
    rounds: Annotated[int, typer.Option(min=1, max=99, help="Of --check: how often all ways take turns.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Of --check: one JSON object.")] = False,
) -> None:
    """Replaces this process by thalweg-perf tune, or checks."""
    if check:
        return compare(seconds or 0.1, rounds, json)
    perf.become(["tune", "--seconds", f"{seconds or 0.15:g}"])


def compare(seconds: float, rounds: int, json: bool) -> None:
    """Every way by force beside the choice, over shm and tcp."""
    console = Console(stderr=True)
    try:
        with console.status("") as status:
            rows = [
                row
                for transport in ("shm", "tcp")
                for row in ways.measure("send", transport, SIZES, seconds=seconds, rounds=rounds, told=status.update)
            ]
    except native.NativeError as error:
        typer.secho(f"thalweg tune: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    found = ways.verdict(rows)
    if json:
        typer.echo(json_module.dumps({"rows": [row.record() for row in rows], **found}))
    else:
        typer.echo(ways.table(rows))
        median = "-" if found["median_error"] is None else f"{found['median_error']:.0%}"
        typer.echo(
            f"within 10 % of the best: {found['within_10_percent']:.0%} of the sizes (95 %); worst {found['worst']:.2f} (1.25);"
            f" median error of predictions {median} (15 %)"
        )
    sys.stdout.flush()
    if not found["good"]:
        raise typer.Exit(1)
