# SPDX-License-Identifier: Apache-2.0
"""Runs one program."""

from __future__ import annotations

import asyncio

from .loop import Loop
from .plain import Plain
from .processes import run as run_processes
from .program import Program


async def _in_loop(program: Program) -> None:
    await Loop(program).whole()


def run(program: Program) -> None:
    """Runs it, and raises what must not happen."""
    if program.mode == "loop":
        asyncio.run(_in_loop(program))
    elif program.mode == "processes":
        run_processes(program)
    else:
        Plain(program).all()
