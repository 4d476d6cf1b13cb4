# SPDX-License-Identifier: Apache-2.0
"""The document "thalweg report 1": made, written, read. What is read is checked by schema.json before anything uses it."""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import pathlib
import tempfile
from typing import Any

import jsonschema

FORMAT = "thalweg report 1"
LARGEST = 8 << 20  # bytes of a file; a report of eight GPUs has about one MiB
# More than any machine has: tables and rules take the square of some of these.
MOST_STEPS, MOST_ROWS, MOST_GPUS, MOST_DEVICES, MOST_NODES, MOST_LINKS = 1000, 20_000, 64, 64, 8192, 32768
SMALLEST = 1e-30  # nothing that is measured is nearer to nothing

Document = dict[str, Any]
Row = dict[str, Any]


class BadReport(ValueError):
    """What was read is no report; the text names the file, the place in it and what is wrong there."""


def new(asked: float) -> Document:
    """A report that has measured nothing yet. `asked`: seconds that it may take."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "format": FORMAT,
        "created": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "complete": False,
        "seconds": {"asked": asked, "taken": 0},
        "versions": {},
        "machine": {},
        "gpus": [],
        "steps": [],
    }


@functools.cache
def _schema() -> dict[str, Any]:
    return json.loads(pathlib.Path(__file__).with_name("schema.json").read_text())


@functools.cache
def _validator(part: str = "") -> Any:
    whole = _schema()
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{part}", "$defs": whole["$defs"]} if part else whole)


def _wrong(validator: Any, content: Any) -> str:
    """The first thing that is wrong, with its place; empty: nothing is."""
    error = jsonschema.exceptions.best_match(validator.iter_errors(content))
    if error is None:
        return ""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path).lstrip(".")
    message = error.message if len(error.message) < 300 else error.message[:140] + " ... " + error.message[-140:]
    return f"{place or 'the whole'}: {message}"


def check_row(row: Any) -> str:
    """What is wrong with a row that a measurement printed; empty: nothing."""
    return _wrong(_validator("row"), row)


def parse(text: str | bytes, name: str) -> Document:
    """The report in a text. BadReport names the place. `name`: of the file, for the error."""
    try:
        content = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name} is no JSON that can be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise BadReport(
            f"{name} is no report: its format is {str(found)[:60]!r}, not {FORMAT!r}; thalweg report --json FILE writes one"
        )
    if wrong := _too_much(content) or _wrong(_validator(), content) or _too_many_devices(content):
        raise BadReport(f"{name}: {wrong}")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value if abs(value) > SMALLEST else 0.0


def _too_much(content: dict[str, Any]) -> str:
    """What there is more of than any machine has, before anything looks at all of it; empty: nothing. Texts are, too."""
    topology = content.get("topology")
    parts = {
        "steps": (content.get("steps"), MOST_STEPS),
        "gpus": (content.get("gpus"), MOST_GPUS),
        "topology.nodes": (topology.get("nodes") if isinstance(topology, dict) else None, MOST_NODES),
        "topology.links": (topology.get("links") if isinstance(topology, dict) else None, MOST_LINKS),
    }
    for name, (found, most) in parts.items():
        if isinstance(found, list) and len(found) > most:
            return f"{name}: {len(found)} are more than the {most} that a report may have"
    steps = content["steps"] if isinstance(content.get("steps"), list) else []
    rows = sum(len(step["rows"]) for step in steps if isinstance(step, dict) and isinstance(step.get("rows"), list))
    if rows > MOST_ROWS:
        return f"steps: {rows} rows are more than the {MOST_ROWS} that a report may have"
    return _no_text(content)


def _no_text(content: Any) -> str:
    """Half of a surrogate pair, which no file can be written with; empty: there is none."""
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            return f"{ascii(value)[:60]}: half of a surrogate pair is no text"
    return ""


def _too_many_devices(content: Document) -> str:
    """Of what is compared with each other, once the form is right."""
    names = {device["name"] for device in content.get("info", {}).get("devices", [])}
    for step in content["steps"]:
        names |= {row[end] for row in step["rows"] for end in ("from", "to") if end in row}
    if len(names) > MOST_DEVICES:
        return f"{len(names)} different devices and memories are more than the {MOST_DEVICES} that a report may have"
    return ""


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def load(path: pathlib.Path) -> Document:
    """The report in a file. BadReport, also when the file cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise BadReport(f"{path}: {error.strerror}") from None
    if len(text) > LARGEST:
        raise BadReport(f"{path} has more than {LARGEST >> 20} MiB: no report is so large")
    return parse(text, str(path))


def text_of(document: Document) -> str:
    """JSON with a line for each row, so that two reports can be compared by diff."""
    head = {key: value for key, value in document.items() if key != "steps"}
    lines = json.dumps(head, indent=1, ensure_ascii=False, allow_nan=False).removesuffix("\n}")
    steps = []
    for step in document["steps"]:
        facts = json.dumps({k: v for k, v in step.items() if k != "rows"}, ensure_ascii=False, allow_nan=False)
        rows = ",\n    ".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in step["rows"])
        steps.append(f'  {facts[:-1]}, "rows": [' + (f"\n    {rows}" if rows else "") + "]}")
    return f'{lines},\n "steps": [\n' + ",\n".join(steps) + "\n ]\n}\n"


def write(path: pathlib.Path, text: str) -> None:
    """The whole text or nothing: a reader never sees half a file. OSError when the folder does not take it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent or ".", prefix=path.name + ".", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
