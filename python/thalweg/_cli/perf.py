# SPDX-License-Identifier: Apache-2.0
"""``thalweg perf``: the native measuring program of the package, with the same arguments and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import typer

from . import native

HELP = """Measures two processes that talk through Thalweg: latency, bandwidth and rate of every operation.

Examples: [bold]thalweg perf tag_lat[/bold], [bold]thalweg perf put_bw --size 4K:16M --transport shm --json[/bold],
[bold]thalweg perf tag_lat --listen[/bold] here and [bold]thalweg perf tag_lat THIS_HOST[/bold] there,
[bold]thalweg perf daxpy --memory cuda:0 --peer-memory cuda:1[/bold] by kernels on GPUs.
[bold]thalweg perf --help[/bold] lists the tests and options."""


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
    sys.stdout.flush()
    os.execve(program, [program, *arguments], environment())


def environment() -> dict[str, str]:
    """The environment in which a packaged program finds the packaged library."""
    folders = [str(native.PACKAGE), str(native.PACKAGE / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(f for f in folders if f)}


def rows(arguments: list[str]) -> Iterator[dict[str, Any]]:
    """What thalweg-perf measures, row by row. NativeError with its own words when it fails."""
    command = [native.program("thalweg-perf"), *arguments, "--json"]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment())
        assert process.stdout
        try:
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()
            raise
        finally:
            process.stdout.close()
            code = process.wait()
        if code:
            errors.seek(0)
            raise native.NativeError(f"thalweg perf {' '.join(arguments)} ended with {code}: {errors.read().strip()}")
