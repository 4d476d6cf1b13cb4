# SPDX-License-Identifier: Apache-2.0
"""The page of a report: one file without scripts that needs no network. Jinja escapes everything that a report says."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import jinja2
from markupsafe import Markup

from . import findings, parts, quantities, rule, units
from .document import Document
from .sections import BY_NAME, SECTIONS, Section, section
from .topology import Graph, NoTopology

FEW = 60  # rows of numbers that a section without drawings shows at once
SEVERITIES = {rule.FAULT: "Fault", rule.WARNING: "Warning", rule.NOTE: "Note"}


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["anchor"] = lambda text: "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
    made.globals.update(style=Markup(pathlib.Path(__file__).with_name("page.css").read_text()), severities=SEVERITIES)
    return made


def render(template: str, **values: Any) -> str:
    """A template of this package."""
    return _environment().get_template(template).render(**values)


def facts(document: Document) -> list[tuple[str, str]]:
    """The machine, the date and the versions, as lines of a table."""
    machine, versions = document["machine"], document["versions"]
    nodes = len(machine.get("numa", []))
    memory = machine.get("memory_bytes")
    gpus: dict[str, int] = {}
    for gpu in document.get("gpus", []):
        gpus[gpu.get("name", "GPU")] = gpus.get(gpu.get("name", "GPU"), 0) + 1
    seconds = document["seconds"]
    lines = {
        "Machine": machine["host"],
        "Processor": machine.get("processor"),
        "Processors": f"{machine['processors']}{f' in {nodes} NUMA nodes' if nodes > 1 else ''}",
        "Memory": f"{units.number(memory / (1 << 30))} GiB" if memory else None,
        "GPUs": ", ".join(f"{count} × {name}" for name, count in gpus.items()),
        "System": ", ".join(
            filter(None, [machine.get("system"), versions.get("kernel"), "a virtual machine" if machine.get("virtual") else ""])
        ),
        "Measured": f"{document['created'].replace('T', ' ').removesuffix('Z')} UTC, in {units.number(seconds['taken'])} of "
        f"{units.number(seconds['asked'])} s",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items() if name != "kernel"),
    }
    return [(name, str(value)) for name, value in lines.items() if value]


def _sections(document: Document) -> list[dict[str, Any]]:
    """Those of the plan, then what else is in the document; parts, what is missing and why, and all numbers."""
    measured = quantities.of(document)
    steps: dict[str, list[dict]] = {}
    for step in document["steps"]:
        steps.setdefault(step["section"], []).append(step)
    names = [*SECTIONS, *(section(name) for name in steps if name not in BY_NAME)]
    return [_section(document, one, steps.get(one.name, []), measured) for one in names]


def _section(document: Document, one: Section, steps: list[dict], measured: list[quantities.Quantity]) -> dict[str, Any]:
    builder = parts.BUILDERS.get(one.name)
    why_not = document.get("topology_why", "not in this report")
    try:
        shown = list(builder(document)) if builder else []
    except NoTopology as error:
        shown, why_not = [], str(error)
    numbers = parts.all_numbers(measured, one.name)
    if numbers and not shown and len(numbers.rows) <= FEW:
        shown, numbers = [numbers], None
    missing = [(step["name"], step.get("why", "no reason given")) for step in steps if step["state"] != "done"]
    missing += _unavailable([row for step in steps if step["state"] == "done" for row in step["rows"] if "unavailable" in row])
    if one.name == "topology" and not shown:
        missing.append(("topology", why_not))
    if one.name == "links" and not Graph(document).nvlinks_known and document.get("topology"):
        missing.append(("NVLinks", "not known: there was no NVML to tell of them"))
    nothing = "" if shown or numbers or missing else "Nothing here to measure: the machine has no GPU that could be used."
    return {"one": one, "parts": shown, "numbers": numbers, "missing": list(dict.fromkeys(missing)), "nothing": nothing}


def _unavailable(rows: list[dict]) -> list[tuple[str, str]]:
    """What was not measured, once for each reason: the first of them, and how many there are."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["unavailable"], []).append(quantities.name_of(row))
    return [(those[0] + (f", and {len(those) - 1} more" if those[1:] else ""), why) for why, those in names.items()]


def page(document: Document) -> str:
    """The whole page as HTML."""
    return render(
        "report.html.j2",
        title=f"{document['machine']['host']}: thalweg report, {document['created'][:10]}",
        document=document,
        facts=facts(document),
        findings=findings.find(document),
        sections=_sections(document),
        thresholds=rule.THRESHOLDS,
    )
