# SPDX-License-Identifier: Apache-2.0
"""The document "thalweg report 1": made, written, read. What is read is checked by schema.json before anything uses it."""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import tempfile
from typing import Any

import jsonschema

FORMAT = "thalweg report 1"
LARGEST = 64 << 20  # bytes of a file; a report of eight GPUs has about one MiB

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
        content = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{name} is no JSON that can be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise BadReport(
            f"{name} is no report: its format is {str(found)[:60]!r}, not {FORMAT!r}; thalweg report --json FILE writes one"
        )
    if wrong := _wrong(_validator(), content):
        raise BadReport(f"{name}: {wrong}")
    return content


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
