# SPDX-License-Identifier: Apache-2.0
"""Victims: processes that use the Python package, steered through a pipe. The attacker is the test's own process, which never
loads the library."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time

import pytest

SECONDS = 30.0
os.environ.setdefault("THALWEG_COSTS", "off")  # victims take the same routes on every machine

_PRELUDE = """
import json, sys
import thalweg as tw

def say(**what):
    print(json.dumps(what), flush=True)

def hear():
    return json.loads(sys.stdin.readline())

def told():
    import select
    return bool(select.select([sys.stdin], [], [], 0)[0])

def serve(worker):
    "Progresses until the test says something; returns that."
    while not told():
        worker.wait(0.01)
    return hear()

def counted(context, cause, number):
    "The counters once this one has come so far: a peer may hear of its refusal before that is counted. Bounded."
    import time
    deadline = time.monotonic() + 10
    while (counters := context.counters())[cause] < number and time.monotonic() < deadline:
        time.sleep(0.001)
    return counters

def attempt(function, *args, **options):
    "The name and text of what is raised, or the result."
    try:
        return {"result": function(*args, **options)}
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}
"""


class Victim:
    """A process that runs `code` behind the prelude above."""

    def __init__(self, code: str, key: bytes, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "THALWEG_JOB_KEY": key.hex(), **environment},
        )
        self._rest = b""

    def hear(self) -> dict:
        """What it said next."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS
        while b"\n" not in self._rest:
            assert select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0], "it says nothing"
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, f"it ended with {self.process.wait(SECONDS)}"
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def say(self, **what: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Waits for its end, which must be a good one."""
        assert self.process.wait(SECONDS) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def key() -> bytes:
    """The job's key, which only an attacker that holds it gets."""
    return secrets.token_bytes(32)


@pytest.fixture
def victim(key):
    """Starts victims of one job: victim(code, **environment)."""
    started: list[Victim] = []

    def start(code: str, **environment: str) -> Victim:
        started.append(Victim(code, key, environment))
        return started[-1]

    yield start
    for each in started:
        each.kill()
