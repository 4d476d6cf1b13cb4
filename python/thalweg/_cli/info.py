# SPDX-License-Identifier: Apache-2.0
"""``thalweg info``: what was found on this machine, why the rest was not, and what to do about it."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import native

HELP = """Shows version, build, transports (and why others are missing) and limits with their remedies.

[bold]thalweg info --json[/bold] prints the same for programs; attach it to a bug report."""

# Values that say "present" or "absent" in the library's JSON.
FOUND = {"available", "found", "usable", "enabled", "ok"}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("info", help=HELP)(info)


def info(json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False) -> None:
    """Prints tw_context_info."""
    try:
        with native.Context() as context:
            found = json_module.loads(context.info())
    except (native.NativeError, ValueError) as error:
        if json:
            typer.echo(json_module.dumps({"error": str(error)}))
        else:
            typer.secho(f"thalweg info: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    if json:
        typer.echo(json_module.dumps(found, indent=2))
    else:
        show(found, Console())


def show(found: dict[str, Any], console: Console) -> None:
    """One table of plain facts, then one per section."""
    plain = {key: value for key, value in found.items() if not isinstance(value, (dict, list))}
    if plain:
        console.print(section("Thalweg", plain))
    for key, value in found.items():
        if key not in plain and value:
            console.print(section(key.replace("_", " ").capitalize(), without_costs(value)))
    for device in found.get("devices", []):
        if "costs" in device:
            console.print(section(f"Costs of {device['name']}", device["costs"]))


def without_costs(content: Any) -> Any:
    """Records of devices: what their copies cost gets a table of its own."""
    if not isinstance(content, list):
        return content
    return [{k: v for k, v in one.items() if k != "costs"} if isinstance(one, dict) else one for one in content]


def section(title: str, content: Any) -> Table:
    """A table of a section: a list of records has their fields as columns, a mapping has a row per name."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, header_style="dim")
    rows = as_rows(content)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if columns == ["name", "value"]:
        table.show_header = False
    for column in columns:
        table.add_column(column.replace("_", " "), no_wrap=column == "name", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in columns))
    return table


def as_rows(content: Any) -> list[dict[str, Any]]:
    """The records of a section, whatever its JSON shape."""
    if isinstance(content, dict):
        if content and all(isinstance(value, dict) for value in content.values()):
            return [{"name": name, **value} for name, value in content.items()]
        return [{"name": name, "value": value} for name, value in content.items()]
    return [entry if isinstance(entry, dict) else {"value": entry} for entry in content]


def cell(value: Any) -> Text:
    """A value as text: yes and no in colour, nested values as JSON."""
    if value is True or (isinstance(value, str) and value.lower() in FOUND):
        return Text("yes" if value is True else value, style="green")
    if value is False:
        return Text("no", style="red")
    if value is None:
        return Text("")
    if isinstance(value, (dict, list)):
        return Text(", ".join(map(str, value)) if isinstance(value, list) else json_module.dumps(value))
    return Text(str(value))
