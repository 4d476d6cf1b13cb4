# SPDX-License-Identifier: Apache-2.0
"""``thalweg demo``: how fast this machine's processes talk, beside what the machine allows, as a table and a picture."""

from __future__ import annotations

import dataclasses
import json as json_module
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import native, perf
from .sizes import human_size

HELP = """Measures two processes over shared memory and TCP, beside the floors of this machine (cache line, memcpy, raw TCP),
in about half a minute. Prints a table and draws latency and bandwidth against size to thalweg-demo.png and .svg."""

LATENCY_SIZES = "8,64,512,4K,32K,256K,2M,16M"
BANDWIDTH_SIZES = "512,4K,32K,256K,2M,8M"
WINDOW = 16  # each message has a buffer of its own: 64 of 8 MiB would cost more time to fill than to send


@dataclasses.dataclass(frozen=True)
class Step:
    """One run of thalweg-perf."""

    test: str
    transport: str = ""
    sizes: str = ""

    def arguments(self, seconds: float) -> list[str]:
        """Its command line."""
        line = [self.test, "--seconds", f"{seconds:g}"]
        if self.test.endswith("_bw"):
            line += ["--window", str(WINDOW)]
        if self.transport:
            line += ["--transport", self.transport]
        return line + (["--size", self.sizes] if self.sizes else [])

    def rows(self) -> int:
        """How many rows to expect; only for the progress bar."""
        return self.sizes.count(",") + 1 if self.sizes else 16


STEPS = (
    Step("floor"),
    Step("tag_lat", "shm", LATENCY_SIZES),
    Step("put_lat", "shm", LATENCY_SIZES),
    Step("tag_lat", "tcp", LATENCY_SIZES),
    Step("tag_bw", "shm", BANDWIDTH_SIZES),
    Step("put_bw", "shm", BANDWIDTH_SIZES),
    Step("tag_bw", "tcp", BANDWIDTH_SIZES),
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo", help=HELP)(demo)


def demo(
    output: Annotated[pathlib.Path, typer.Option(help="Folder of the pictures.")] = pathlib.Path("."),
    seconds: Annotated[float, typer.Option(min=0.001, help="Time spent per size.")] = 0.25,
    json: Annotated[bool, typer.Option("--json", help="The rows and the file names as one JSON object.")] = False,
) -> None:
    """Measures, prints, draws."""
    console = Console(stderr=json)
    try:
        _check_folder(output)
        rows = list(measure(console, seconds))
    except (native.NativeError, OSError) as error:
        typer.secho(f"thalweg demo: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    if not json:
        console.print(table(rows))
        for row in rows:
            if "unavailable" in row:
                console.print(escape(f"{row['test']}: {row['unavailable']}"), soft_wrap=True, highlight=False)
    pictures, failed = [], ""
    try:
        pictures = draw(rows, output, console)
    except OSError as error:  # the disk is full, the folder went away
        failed = f"no picture: {error}"
    wrong = [row for row in rows if row.get("verified") is False]
    if json:
        typer.echo(json_module.dumps({"rows": rows, "pictures": [str(p) for p in pictures], "verified": not wrong}))
    for picture in [] if json else pictures:
        console.print(f"Picture: {picture}", soft_wrap=True)
    if failed:
        typer.secho(f"thalweg demo: {failed}", err=True, fg="red")
        raise typer.Exit(1)
    if wrong:
        typer.secho(f"thalweg demo: {len(wrong)} rows moved wrong data", err=True, fg="red")
        raise typer.Exit(1)


def _check_folder(folder: pathlib.Path) -> None:
    """Before half a minute of measuring. OSError when the pictures cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{folder}: {error.strerror}; --output names a folder that you may write to") from None


def measure(console: Console, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of all steps, as thalweg-perf prints them."""
    bar = Progress(
        TextColumn("{task.description:24}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("starting", total=sum(step.rows() for step in STEPS))
        done = 0
        for step in STEPS:
            bar.update(task, description=f"{step.test} {step.transport}".strip())
            for row in perf.rows(step.arguments(seconds)):
                yield {"step": step.test, "over": step.transport, **row}
                bar.advance(task)
            done += step.rows()
            bar.update(task, completed=done)


def table(rows: list[dict[str, Any]]) -> Table:
    """Everything measured, with units."""
    result = Table(
        title="Two processes on this machine, medians", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in ("what", "over", "size"):
        result.add_column(name, justify="right" if name == "size" else "left")
    for name in ("latency [µs]", "bandwidth [GB/s]", "rate [M/s]"):
        result.add_column(name, justify="right")
    previous = None
    for row in rows:
        if previous not in (None, (row["step"], row["over"])):
            result.add_section()
        previous = (row["step"], row["over"])
        if "unavailable" in row:
            result.add_row(row["test"], "", "", "unavailable", "", "", style="dim")  # its reason is told below
            continue
        result.add_row(
            row["test"], row["over"] or row.get("transport", ""), human_size(row["size"]),
            number((row.get("latency_us") or {}).get("p50")), number(row.get("bandwidth_GBps")), number(row.get("rate_Mps")),
            style="dim" if row["step"] == "floor" else None,
        )  # fmt: skip
    return result


def number(value: float | None) -> str:
    """Three significant digits; empty when not measured."""
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def draw(rows: list[dict[str, Any]], folder: pathlib.Path, console: Console) -> list[pathlib.Path]:
    """The picture as PNG and SVG; without matplotlib none, with a message."""
    try:
        from . import plot
    except ImportError as error:
        console.print(f"No picture: {error}. pip install 'thalweg[plots]' or matplotlib brings it.", style="yellow")
        return []
    return plot.draw(rows, folder / "thalweg-demo")
