# SPDX-License-Identifier: Apache-2.0
"""``thalweg run``: the ranks of a program on this machine."""

from __future__ import annotations

import json as json_module
import os
import pathlib
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Annotated, Any

import typer

from . import native
from .launcher import CannotStart, Job
from .output import Output

HELP = """Starts N processes of a program on this machine and looks after them.

Each process finds THALWEG_RANK, THALWEG_SIZE, THALWEG_STORE and THALWEG_JOB_KEY in its environment, so that
thalweg.init() makes them a group. Output lines are tagged with their rank. When one process fails the others are
ended (SIGTERM, SIGKILL after 5 s) and its exit code, or 128 + signal, is returned. Rank 0 reads standard input unless that is
a terminal.

With --bind each rank runs on cores of its own, near the GPU that it is given (shared where there are too few); THALWEG_DEVICE
names that GPU, such as cuda:3, and all GPUs stay visible.

Examples: [bold]thalweg run -n 2 ./ping[/bold], [bold]thalweg run -n 4 --bind train.py --epochs 3[/bold].
It starts no other machines: use srun, mpirun or torchrun for that."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "run",
        help=HELP,
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False, "allow_extra_args": True},
    )(run)


def run(
    context: typer.Context,
    program: Annotated[str, typer.Argument(help="A program, or a Python script (*.py).")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=4096, help="How many processes.")] = 1,
    bind: Annotated[
        bool,
        typer.Option("--bind", help="Bind every rank to its share of the cores near its GPU (thalweg topo --ranks N)."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON summary; the ranks' output goes to standard error.")
    ] = False,
) -> None:
    """Runs a job and exits with its code."""
    output = Output(json)
    try:
        command = command_for(program, context.args)
        store, address, close = open_store(key := secrets.token_bytes(32))
    except (native.NativeError, OSError) as error:
        output.say(str(error))
        output.finish()
        raise typer.Exit(127 if isinstance(error, FileNotFoundError) else 1) from None
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        "THALWEG_SIZE": str(count),
        "THALWEG_STORE": address,
        "THALWEG_JOB_KEY": key.hex(),
    }
    if bind or "THALWEG_RANK" in os.environ:  # in a rank of another run it is that rank's, not these ranks'
        environment.pop("THALWEG_DEVICE", None)
    try:
        job = Job(command, count, environment, output, bind)
        code = job.run()
    except (native.NativeError, CannotStart) as error:
        output.say(str(error))
        output.finish()
        raise typer.Exit(126 if isinstance(error, CannotStart) else 1) from None
    finally:
        close()
    if json:
        output.tell(json_module.dumps({"command": command, "size": count, "store": store, **summary(job)}))
    if not job.unread:
        output.finish()
    raise typer.Exit(code)


def summary(job: Job) -> dict[str, Any]:
    """What --json tells of a job that has ended."""
    ranks = [
        {
            "rank": r.rank,
            "pid": r.process.pid,
            "place": r.place,
            "exit_code": r.exit_code,
            "seconds": round(r.seconds or 0, 6),
        }
        for r in job.ranks
    ]
    return {"exit_code": job.exit_code, "failed_rank": job.failed_rank, "ranks": ranks}


def command_for(program: str, arguments: list[str]) -> list[str]:
    """The command line of a rank: scripts run under this Python."""
    if program.endswith(".py") and pathlib.Path(program).is_file():
        return [sys.executable, program, *arguments]
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program}: no such program (give a path, such as ./{program}, or a *.py file)")
    return [found, *arguments]


def open_store(key: bytes) -> tuple[str, str, Callable[[], None]]:
    """(kind, address, close): served by this process, or a file in a private folder where the library cannot serve."""
    try:
        store = native.Store("serve:127.0.0.1:0", key)
        return "tcp", store.address, store.close
    except native.NativeError:
        folder = tempfile.TemporaryDirectory(prefix="thalweg-")  # mode 0700
        return "file", f"file:{folder.name}/store", folder.cleanup
