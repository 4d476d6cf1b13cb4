# SPDX-License-Identifier: Apache-2.0
"""``thalweg top``: what the processes of this user move, while they do."""

from __future__ import annotations

import contextlib
import json as json_module
import os
import time
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from . import metrics as openmetrics
from .live import Processes, Snapshot, printable, processes, title

HELP = """Shows what each endpoint of this user's processes moves, as rates per second.

Processes need no preparation (THALWEG_LIVE=0 hides one). [bold]--once[/bold] prints one table, [bold]--json[/bold] one list of
snapshots for programs, [bold]--metrics[/bold] OpenMetrics text, [bold]--serve PORT[/bold] serves that at
127.0.0.1:PORT/metrics, which every user of this machine can read."""
OPEN_TO_ALL = "Every user of this machine can read these counters while they are served: process ids, programs' names, peers."

MOST_ROWS = 200
WIDEST = 1000  # columns
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
Counts = dict[str, int]
Key = tuple[Any, ...]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("top", help=HELP)(top)


def top(
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One table, of one interval.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON list of snapshots: counters, no rates.")] = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="OpenMetrics text, once.")] = False,
    serve: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve OpenMetrics at this port of 127.0.0.1, to every local user; 0 picks one."),
    ] = None,
) -> None:
    """Shows, prints or serves the counters of this user's processes."""
    if sum((once, json, metrics, serve is not None)) > 1:
        raise typer.BadParameter("--once, --json, --metrics and --serve exclude each other: give one")
    with processes() as found, contextlib.suppress(KeyboardInterrupt):
        if json:
            typer.echo(json_module.dumps(found.ask(), indent=2))
        elif metrics:
            typer.echo(openmetrics.text(found.ask()), nl=False)
        elif serve is not None:
            run_server(serve, found)
        else:
            show(found, interval, once)


def run_server(port: int, found: Processes) -> None:
    """Until it is interrupted."""
    try:
        server = openmetrics.server(port, found.ask)
    except OSError as error:
        typer.secho(f"thalweg top: port {port} of {openmetrics.LOOPBACK}: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    with server:
        typer.secho(OPEN_TO_ALL, err=True, fg="yellow")
        typer.echo(f"http://{openmetrics.LOOPBACK}:{server.server_address[1]}/metrics")
        server.serve_forever()


def whole_lines() -> Console:
    """The console; where it is no terminal, as wide as any table, because nothing has to fit there."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDEST
    return console


def show(found: Processes, interval: float, once: bool) -> None:
    """The table, once or until it is interrupted."""
    console = whole_lines()
    before = Look(found.ask())
    time.sleep(interval)
    now = Look(found.ask())
    if once:
        console.print(table(before, now))
        return
    with Live(table(before, now), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            before, now = now, Look(found.ask())
            live.update(table(before, now), refresh=True)


class Look:
    """All snapshots of one moment, and each endpoint's counts by a key that stays the same."""

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self.snapshots = snapshots
        self.counts: dict[Key, tuple[int, Counts]] = {}
        for snapshot in snapshots:
            for worker in snapshot["counters"]["workers"]:
                for endpoint in worker["listed"]:
                    key = (snapshot["pid"], snapshot["context"], endpoint["id"])
                    self.counts[key] = (snapshot["time_ns"], flat(endpoint))


def flat(endpoint: dict[str, Any]) -> Counts:
    """What is shown as a rate."""
    return {
        "sent bytes": endpoint["sent"]["bytes"],
        "sent": endpoint["sent"]["messages"],
        "received bytes": endpoint["received"]["bytes"],
        "received": endpoint["received"]["messages"],
        "access bytes": endpoint["accesses"]["bytes"],
        "accesses": endpoint["accesses"]["operations"],
        "retries": endpoint["retries"],
    }


def rates(before: Look, now: Look, key: Key) -> dict[str, float]:
    """Of an endpoint per second, since the last look; one that is new has none yet."""
    at, counts = now.counts[key]
    was_at, was = before.counts.get(key, (at, counts))
    seconds = max(at - was_at, 1) / 1e9
    return {name: max(0, value - was.get(name, 0)) / seconds if at != was_at else 0.0 for name, value in counts.items()}


def bytes_in(rate: dict[str, float]) -> float:
    """By which rows are sorted."""
    return rate["sent bytes"] + rate["received bytes"] + rate["access bytes"]


def table(before: Look, now: Look) -> Table:
    """A section per process, the busiest first; in it a row per endpoint."""
    made = Table(box=box.SIMPLE_HEAD, header_style="dim", title=headline(now), title_justify="left", title_style="bold")
    for name in ("process", "peer", "by", "state"):
        made.add_column(name, overflow="fold")
    for name in ("sent/s", "messages/s", "received/s", "messages/s", "accesses/s", "operations/s", "retries/s"):
        made.add_column(name, justify="right", no_wrap=True)
    sections = [section(before, now, snapshot) for snapshot in now.snapshots]
    rows = 0
    for _, lines in sorted(sections, key=lambda one: -one[0]):
        for line in lines:
            rows += 1
            if rows <= MOST_ROWS:
                made.add_row(*line)
        made.add_section()
    if rows > MOST_ROWS:
        made.caption = f"{rows - MOST_ROWS} more endpoints are not shown"
    return made


def headline(now: Look) -> str:
    """How many there are."""
    if not now.snapshots:
        return "No process of this user has a context (THALWEG_LIVE=0 hides one; another THALWEG_SOCKET_DIR, too)"
    return f"{len(now.snapshots)} context{'s' if len(now.snapshots) != 1 else ''}, {len(now.counts)} endpoints"


def section(before: Look, now: Look, snapshot: Snapshot) -> tuple[float, list[list[Text | str]]]:
    """(bytes per second, rows) of one context."""
    found = []
    for worker in snapshot["counters"]["workers"]:
        for endpoint in worker["listed"]:
            rate = rates(before, now, (snapshot["pid"], snapshot["context"], endpoint["id"]))
            found.append((bytes_in(rate), endpoint, rate))
    found.sort(key=lambda one: -one[0])
    posted = sum(worker["posted"] for worker in snapshot["counters"]["workers"])
    unexpected = sum(worker["unexpected"] for worker in snapshot["counters"]["workers"])
    head: list[Text | str] = [Text(title(snapshot), style="bold"), f"{posted} posted, {unexpected} unexpected"]
    return sum(one[0] for one in found), [head, *(row(endpoint, rate) for _, endpoint, rate in found)]


def row(endpoint: dict[str, Any], rate: dict[str, float]) -> list[Text | str]:
    """An endpoint."""
    peer = f"pid {endpoint['pid']}" if endpoint["pid"] else endpoint["peer"][:8]
    state = endpoint["state"]
    return [
        "",
        Text(printable(peer)),
        Text(printable(endpoint["transport"])),
        Text(printable(state), style="" if state == "connected" else "yellow"),
        amount(rate["sent bytes"]),
        number(rate["sent"]),
        amount(rate["received bytes"]),
        number(rate["received"]),
        amount(rate["access bytes"]),
        number(rate["accesses"]),
        number(rate["retries"]),
    ]


def amount(value: float) -> str:
    """Bytes: "1.50 GiB"."""
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return "" if value == 0 else f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"


def number(value: float) -> str:
    """ "1.2 M"."""
    for unit in ("", " k", " M", " G"):
        if value < 1000 or unit == " G":
            break
        value /= 1000
    return "" if value == 0 else f"{value:.1f}{unit}" if unit else f"{value:.0f}"
