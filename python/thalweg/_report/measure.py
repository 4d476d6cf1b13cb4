# SPDX-License-Identifier: Apache-2.0
"""Runs a plan within its time, and puts what comes into the document row by row, so that it is whole whenever it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from thalweg._cli import native, perf

from . import commands, plan
from . import document as document_module
from .document import Document
from .machine import Load

SHORTEST_LOAD = 0.3  # seconds: the system counts processor time in hundredths
PATIENCE, MARGIN = 3, 5.0  # a step is ended after so many times its prediction, and so many seconds more


def longest(step: plan.Step, each: float, left: float) -> float:
    """Seconds that a step may take, of those that are left: one that hangs must not cost all others."""
    return min(left, PATIENCE * step.predicted(each) + MARGIN)


def run(document: Document, wanted: list[plan.Step], seconds: float, begin: Callable[[plan.Step, float], None]) -> None:
    """Runs what fits. `begin` is called before each step, with the seconds that are over.

    What is left out and the time of a size are decided anew before each step, by what is left: what took less than predicted,
    or is not in this build, leaves its time to the rest. What did not fit is asked again at the end.
    KeyboardInterrupt passes through; the step under way and all after it are in the document as cut and left out.
    """
    start = time.monotonic()
    remaining, again = list(wanted), False
    postponed: list[plan.Step] = []
    why = f"did not fit into {seconds:.0f} s: --seconds gives more"
    try:
        while remaining or (postponed and not again):
            if not remaining:
                remaining, postponed, again = postponed, [], True
            step = remaining.pop(0)
            done = time.monotonic() - start
            fitting, _, each = plan.fit([step, *remaining], seconds - done)
            if step not in fitting:
                postponed.append(step)
                continue
            begin(step, done)
            _step(document, step, each, longest(step, each, seconds - done))
    except KeyboardInterrupt:
        why = "the report was ended before"
        raise
    finally:
        document["seconds"]["taken"] = round(time.monotonic() - start, 1)
        for step in [*postponed, *remaining]:
            left_out = {"name": step.name, "section": step.section, "state": "left out", "why": why, "rows": []}
            document["steps"].append(left_out)


def _step(document: Document, step: plan.Step, each: float, limit: float) -> None:
    """Runs one, for at most `limit` seconds."""
    record: dict[str, Any] = {"name": step.name, "section": step.section, "command": step.command(each), "state": "cut"}
    record["rows"] = []
    document["steps"].append(record)
    load, start = Load(), time.monotonic()
    try:
        _collect(record, step, each, limit)
        record["state"] = "done"
        if record["rows"] and all("unavailable" in row for row in record["rows"]):
            record["state"], record["why"] = "unavailable", record["rows"][0]["unavailable"]
    except TimeoutError:
        record["why"] = f"ended after {limit:.1f} s; it was to take {step.predicted(each):.1f} s"
    except native.NativeError as error:
        record["state"], record["why"] = _reason(str(error), step)
    except KeyboardInterrupt:
        record["why"] = "the report was ended here"
        raise
    finally:
        record["seconds"] = round(time.monotonic() - start, 2)
        # Of one that was killed, the processes that it had started are not counted as ours.
        if record["seconds"] >= SHORTEST_LOAD and record["state"] != "cut":
            record["others"], record["stolen"] = (round(value, 3) for value in load.others())


def _collect(record: dict[str, Any], step: plan.Step, each: float, limit: float) -> None:
    command = commands.module(step.module) if step.module else None
    for row in perf.rows(step.command(each), limit=limit, command=command):
        if wrong := document_module.check_row(row):
            raise native.NativeError(f"{step.name} printed a row that is none: {wrong}: {json.dumps(row)[:200]}")
        record["rows"].append(row)


def _reason(text: str, step: plan.Step) -> tuple[str, str]:
    """State and reason of a program that ended with an error: of an older one, that it does not know the test."""
    test = step.arguments[0] if step.arguments else step.name
    if f"no test {test}" in text:
        return "unavailable", f"not available in this build: thalweg perf has no test {test}"
    return "failed", text
