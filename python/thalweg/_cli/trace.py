# SPDX-License-Identifier: Apache-2.0
"""``thalweg trace``: where the time of a timeline went, and several timelines as one."""

from __future__ import annotations

import json as json_module
import os
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import timeline as timelines
from .live import printable
from .time_spent import Summary, summarize
from .top import amount, whole_lines

HELP = """Works on timelines that THALWEG_TRACE=file or tw_context_trace has recorded. They open in ui.perfetto.dev."""
SUMMARY_HELP = """Shows where the time went: threads by category, operations, devices' queues, peers, the longest waits."""
MERGE_HELP = """Joins the timelines of several processes into one file OUT, with arrows from sends to receives."""

Files = Annotated[list[pathlib.Path], typer.Argument(exists=True, dir_okay=False, readable=True, help="Timelines.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(help=HELP, no_args_is_help=True)
    group.command("summary", help=SUMMARY_HELP)(summary)
    group.command("merge", help=MERGE_HELP)(merge)
    app.add_typer(group, name="trace")


def summary(files: Files, json: Annotated[bool, typer.Option("--json", help="One JSON object; nanoseconds.")] = False) -> None:
    """Prints the sums of all files together."""
    try:
        found = summarize(timelines.read(files))
    except (timelines.TimelineError, OSError) as error:
        raise failed(error) from None
    if json:
        typer.echo(json_module.dumps(found, indent=2))
    else:
        show(found, whole_lines())


def merge(
    out: Annotated[pathlib.Path, typer.Argument(dir_okay=False, help="The file to be made.")],
    files: Files,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT where it exists.")] = False,
) -> None:
    """Writes OUT."""
    if os.path.lexists(out) and not force:
        raise failed(f"{out} exists: name another file, or add --force")
    if out.resolve() in {path.resolve() for path in files}:
        raise failed(f"{out} is one of the files to be joined: name another one")
    try:
        if timelines.merge(files, out, replace=force):
            typer.secho("A file breaks off: what is behind that is left out.", err=True, fg="yellow")
    except (timelines.TimelineError, OSError) as error:
        raise failed(error) from None


def failed(error: object) -> typer.Exit:
    """Says so."""
    typer.secho(printable(f"thalweg trace: {error}"), err=True, fg="red")
    return typer.Exit(1)


def time_text(ns: float) -> str:
    """ "1.50 ms"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.2f} {unit}"
    return f"{ns:.0f} ns"


def named(name: str) -> Text:
    """A name from a file: no markup, and nothing that steers the terminal."""
    return Text(printable(name))


def show(found: Summary, console: Console) -> None:
    """One table per part."""
    if found["lost"]:
        dropped = f"{found['lost']} events were dropped, because rings were full: what follows lacks them."
        console.print(Text(dropped, style="yellow"))
        for one in found["dropped"]:
            console.print(Text("  ") + named(one["line"]) + f": {one['events']}")
    if found["cut"]:
        console.print(Text("A file breaks off: its process was killed, or still runs.", style="yellow"))
    parts = list(tables(found))
    for part in parts:
        console.print(part)
    if not parts:
        console.print("Nothing was recorded.")


def tables(found: Summary) -> Iterator[Table | Text]:
    """The parts that there are."""
    if found["threads"]:
        yield thread_table(found["threads"])
    if found["operations"]:
        yield groups_table("Operations, from their posting to their end", found["operations"])
    for device in found["devices"]:
        yield groups_table(f"{device['queue']}: {time_text(device['running'])} in programs", device["steps"])
    if found["peers"]:
        yield peer_table(found["peers"])
    if found["messages"]["matched"]:
        took = found["messages"]
        yield Text(
            f"{took['matched']} messages from sent to handled: median {time_text(took['median'])}, 99 % within "
            f"{time_text(took['p99'])}, longest {time_text(took['longest'])}"
        )
    if found["longest_waits"]:
        yield waits_table(found["longest_waits"])


def plain(title: str, *columns: str) -> Table:
    """Numbers to the right, the first column to the left."""
    made = Table(title=named(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim")
    for index, column in enumerate(columns):
        made.add_column(named(column), justify="left" if index == 0 else "right", no_wrap=index > 0, overflow="fold")
    return made


def thread_table(rows: list[Summary]) -> Table:
    """A row per thread, a column per category."""
    categories = list(dict.fromkeys(category for row in rows for category in row["by"]))
    made = plain("Threads", "thread", "total", *categories)
    for row in rows:
        shares = [share(row["by"].get(category), row["total"]) for category in categories]
        made.add_row(named(row["thread"]), time_text(row["total"]), *shares)
    return made


def share(ns: int | None, total: int) -> str:
    """ "1.50 ms 12%"."""
    return "" if ns is None else f"{time_text(ns)} {100 * ns / max(total, 1):.0f}%"


def groups_table(title: str, rows: list[Summary]) -> Table:
    """Of operations, or of steps."""
    made = plain(title, "what", "count", "bytes", "total", "median", "longest", "failed")
    for row in rows:
        times: list[Any] = [time_text(row[name]) for name in ("total", "median", "longest")]
        made.add_row(named(row["name"]), str(row["count"]), amount(row["bytes"]), *times, str(row["failed"] or ""))
    return made


def peer_table(rows: list[Summary]) -> Table:
    """Of two processes."""
    made = plain("Messages by peer", "process", "peer", "sent", "bytes", "received", "bytes", "unexpected")
    for row in rows:
        numbers = [str(row["sent"]), amount(row["sent_bytes"]), str(row["received"]), amount(row["received_bytes"])]
        made.add_row(named(row["process"]), named(row["peer"]), *numbers, str(row["unexpected"] or ""))
    return made


def waits_table(rows: list[Summary]) -> Table:
    """The longest first."""
    made = plain("Longest waits", "thread", "at", "waited")
    for row in rows:
        made.add_row(named(row["thread"]), time_text(row["at"]), time_text(row["time"]))
    return made
