# SPDX-License-Identifier: Apache-2.0
"""``thalweg perf``: the native measuring program of the package, with the same arguments and exit code."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import typer

from . import launcher, native

HELP = """Measures two processes that talk through Thalweg: latency, bandwidth and rate of every operation.

Examples: [bold]thalweg perf tag_lat[/bold], [bold]thalweg perf put_bw --size 4K:16M --transport shm --json[/bold],
[bold]thalweg perf tag_lat --listen[/bold] here and [bold]thalweg perf tag_lat THIS_HOST[/bold] there,
[bold]thalweg perf daxpy --memory cuda:0 --peer-memory cuda:1[/bold] by kernels on GPUs.
[bold]thalweg perf --help[/bold] lists the tests and options."""


WRONG_DATA = 1  # its exit code


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "perf",
        help=HELP,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )(perf)


def perf(context: typer.Context) -> None:
    """thalweg-perf with these arguments."""
    become(context.args or ["--help"])


def become(arguments: list[str]) -> None:
    """Replaces this process by thalweg-perf."""
    try:
        program = native.program("thalweg-perf")
    except native.NativeError as error:
        typer.secho(f"thalweg perf: {error}", err=True, fg="red")
        raise typer.Exit(1) from None
    if sys.stdout:  # None where it is closed
        sys.stdout.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a new program would, too
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, [program, *arguments], environment())


def environment() -> dict[str, str]:
    """The environment in which a packaged program finds the packaged library."""
    folders = [str(native.PACKAGE), str(native.PACKAGE / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(f for f in folders if f)}


def rows(arguments: list[str], limit: float | None = None, command: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """What thalweg-perf measures, row by row. NativeError with its own words when it fails; of wrong data its row tells.

    `limit`: seconds after which it is ended, and TimeoutError raised. `command`: another program that prints such rows.
    """
    line = [*(command or [native.program("thalweg-perf")]), *arguments, *([] if command else ["--json"])]
    parent, libc = os.getpid(), ctypes.CDLL(None)
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(),
            start_new_session=True,
            preexec_fn=lambda: launcher.die_with(libc, parent, signal.SIGKILL),  # however this process ends
        )
        late = threading.Event()
        timer = threading.Timer(limit or 0, _end, (process, late))
        if limit is not None:
            timer.start()
        assert process.stdout
        wrong = False
        try:
            for text in process.stdout:
                row = _row(text, line)
                wrong = wrong or row.get("verified") is False
                yield row
        except BaseException:
            _end(process)
            raise
        finally:
            timer.cancel()
            process.stdout.close()
            code = process.wait()
        if late.is_set():
            raise TimeoutError(f"{' '.join(line)} was ended after {limit:.1f} s")
        if code and not (wrong and code == WRONG_DATA):
            errors.seek(0)
            raise native.NativeError(f"thalweg perf {' '.join(arguments)} ended with {code}: {errors.read().strip()}")


def _end(process: subprocess.Popen[str], said: threading.Event | None = None) -> None:
    """Ends a program with the processes that it started: one of them could keep its output open."""
    if process.poll() is None:
        if said:
            said.set()
        os.killpg(process.pid, signal.SIGKILL)


def _row(text: str, line: list[str]) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError:
        raise native.NativeError(f"{' '.join(line)} printed what is no JSON: {text.strip()[:200]}") from None
