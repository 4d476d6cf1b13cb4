# SPDX-License-Identifier: Apache-2.0
"""``thalweg report``: measures the machine within a stated time, and writes a page about it and the numbers as JSON."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import native
from .options import refuse

if TYPE_CHECKING:
    from .._report import plan
    from .._report.document import Document

HELP = """Measures what this machine moves and how fast: memory of NUMA nodes and tiers, processes, sockets, GPUs and their
links, triggers, overlap, collectives. Writes one page (HTML without scripts, which needs no network) with what was found to be
wrong first, and the numbers as JSON. It measures for at most --seconds, then draws for a few more; Ctrl-C ends it early and
keeps what there is.

[bold]thalweg report[/bold] writes thalweg-report-HOST-DATE.html and .json here; [bold]-o page.html[/bold] elsewhere;
[bold]--from report.json[/bold] makes the page again; [bold]--compare a.json b.json[/bold] puts two side by side."""

SECONDS, QUICK_SECONDS = 120.0, 20.0


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report", help=HELP)(report)


def report(
    others: Annotated[
        list[pathlib.Path] | None, typer.Argument(metavar="[B.json]", help="Of --compare: the second report.")
    ] = None,
    output: Annotated[pathlib.Path | None, typer.Option("--output", "-o", help="A folder, or the page's name (.html).")] = None,
    json: Annotated[pathlib.Path | None, typer.Option(help="Where the numbers go; else beside the page.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=5, max=86400, help="Measures at most so long (120; with --quick 20).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few sizes.")] = False,
    saved: Annotated[pathlib.Path | None, typer.Option("--from", help="Measures nothing: the page of this report.")] = None,
    compare: Annotated[pathlib.Path | None, typer.Option(help="Measures nothing: this report beside B.json.")] = None,
) -> None:
    """Measures, finds, writes; or shows what was measured before."""
    console = Console(stderr=True)
    try:
        _need_libraries()
        if compare or others:
            refuse("is of a measurement: --compare measures nothing", json=json, seconds=seconds, quick=quick)
            refuse("is of one report: --compare reads A.json and B.json", **{"from": saved})
            _compare(compare, others or [], output, console)
        elif saved:
            refuse("is of a measurement: --from measures nothing", json=json, seconds=seconds, quick=quick)
            _show(saved, output, console)
        else:
            _measure(output, json, seconds or (QUICK_SECONDS if quick else SECONDS), quick, console)
    except (native.NativeError, ValueError, OSError) as error:
        typer.secho(f"thalweg report: {error}", err=True, fg="red")
        raise typer.Exit(1) from None


def _need_libraries() -> None:
    """What the page is drawn with: before anything is measured for it."""
    try:
        import jinja2  # noqa: F401
        import jsonschema  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(f"{error}. pip install 'thalweg[report]' brings what the page is made with") from None


def _target(output: pathlib.Path | None, name: str) -> pathlib.Path:
    """Where a page goes. ValueError when it cannot be written there."""
    path = output or pathlib.Path(".")
    if path.suffix.lower() not in (".html", ".htm"):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is neither a folder nor a name that ends in .html")
        path = path / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_writable(path)
    return path


def _check_writable(path: pathlib.Path) -> None:
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: name a file in a folder that you may write to")


def _compare(first: pathlib.Path | None, others: list[pathlib.Path], output: pathlib.Path | None, console: Console) -> None:
    from .._report import compare, document

    if first is None or len(others) != 1:
        raise ValueError("two reports are compared: --compare A.json B.json")
    here, there = document.load(first), document.load(others[0])
    found, _, _ = compare.pairs(here, there)
    table = Table(title="What differs", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name, side in (("", "left"), ("A", "right"), ("B", "right"), ("B is", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    changed = compare.changed(found)
    for pair in changed[:20]:
        style = "green" if pair.outcome == "better" else "red"
        table.add_row(escape(pair.name), pair.first, pair.second, f"[{style}]{pair.ratio}[/{style}]")
    Console().print(f"A: {escape(compare.label(here))}\nB: {escape(compare.label(there))}", highlight=False)
    Console().print(table if changed else "Nothing differs by 15 % or more.")
    page = _target(output, f"thalweg-compare-{_word(here['machine']['host'])}-{_word(there['machine']['host'])}")
    document.write(page, compare.compare_page(here, there))
    console.print(f"{len(changed)} of {len(found)} numbers differ. Page: {page}", soft_wrap=True)


def _show(saved: pathlib.Path, output: pathlib.Path | None, console: Console) -> None:
    from .._report import document, page

    content = document.load(saved)
    target = _target(output, saved.stem)
    document.write(target, page.page(content))
    _say(content, console)
    console.print(f"Page: {target}", soft_wrap=True)


def _word(text: str) -> str:
    """A part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)[:60].lstrip(".") or "machine"


def _measure(output: pathlib.Path | None, json: pathlib.Path | None, seconds: float, quick: bool, console: Console) -> None:
    """The whole of it. Whatever ends it, what was measured is written."""
    from .._report import collect, document, page

    start = time.monotonic()
    target = _target(output, f"thalweg-report-{_word(platform.node())}-{time.strftime('%Y-%m-%d')}")
    numbers = json or target.with_suffix(".json")
    _check_writable(numbers)
    content = document.new(seconds)
    collector = collect.Collector(content)
    machine = collector.begin()  # what fails here leaves no report behind
    early = False
    with _ended_by_signals():
        try:
            _run(content, machine, start + seconds, quick, console)
            content["complete"] = True
        except KeyboardInterrupt:
            early = True
            console.print("Ended early: writing what there is.", style="yellow")
        finally:
            try:
                document.write(numbers, document.text_of(content))  # what comes next asks a driver, which may not answer
            finally:
                collector.finish()  # also where the numbers cannot be written: it ends what samples the driver
            document.write(numbers, document.text_of(content))
    document.write(target, page.page(document.parse(document.text_of(content), str(numbers))))
    _say(content, console)
    console.print(f"Page: {target}\nNumbers: {numbers}", soft_wrap=True)
    if early:
        raise typer.Exit(130)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A batch system's SIGTERM ends it as Ctrl-C does, and so does a terminal's end, but under nohup."""

    def end(number: int, _: object) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # the shell sends it again
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        del before[signal.SIGHUP]
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(content: Document, machine: plan.Machine, end: float, quick: bool, console: Console) -> None:
    from .._report import measure, plan

    wanted = plan.steps(machine, quick)
    left = max(0.0, end - time.monotonic())
    kept, left_out, each = plan.fit(wanted, left)
    predicted = sum(step.predicted(each) for step in kept)
    console.print(
        f"{len(kept)} measurements, about {predicted:.0f} s, at most {left:.0f} s, then the page"
        + (f"; {len(left_out)} do not fit (--seconds gives more)" if left_out else ""),
        highlight=False,
    )
    bar = Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=left)

        def begin(step: plan.Step, done: float) -> None:
            bar.update(task, description=escape(step.name[:28]), completed=done)

        measure.run(content, wanted, left, begin)


def _say(content: dict[str, Any], console: Console) -> None:
    """Findings on the terminal."""
    from .._report import findings

    found = findings.find(content)
    colours = {"fault": "bold red", "warning": "yellow", "note": "cyan"}
    for one in found:
        console.print(f"[{colours[one.severity]}]{one.severity}[/] {escape(one.what)}", soft_wrap=True, highlight=False)
        if one.numbers:
            console.print(f"  {escape('; '.join(one.numbers))}", style="dim", soft_wrap=True, highlight=False)
        console.print(f"  {escape(one.remedy)}", soft_wrap=True, highlight=False)
    if not found:
        console.print("No findings.", style="green")
