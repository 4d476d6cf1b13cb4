# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command ``thalweg``: joins the subcommands into one application."""

from __future__ import annotations

import contextlib
import os
import sys

import typer

from . import demo, explain, info, launcher, perf, report, run, top, topo, trace, tune, ucx

app = typer.Typer(
    name="thalweg",
    help="Moves data between any two memories: in this process, the next one, or on another machine.",
    epilog="Start with [bold]thalweg info[/bold] (what this machine offers), then [bold]thalweg demo[/bold] (how fast it is).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

app.callback()(launcher.hear_of_children)
info.register(app)
topo.register(app)
top.register(app)
perf.register(app)
explain.register(app)
run.register(app)
trace.register(app)
demo.register(app)
tune.register(app)
report.register(app)
ucx.register(app)


def main() -> None:
    """The application. Where its output cannot be written it says so in one line."""
    try:
        try:
            app()
        finally:
            if sys.stdout:  # None where it is closed
                sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # of a reader who left (| head) there is nothing to say
            with contextlib.suppress(OSError):
                typer.secho(f"thalweg: {error}", err=True, fg="red")
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)  # for what Python still has to write
        sys.exit(1)


if __name__ == "__main__":
    main()
