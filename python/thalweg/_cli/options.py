# SPDX-License-Identifier: Apache-2.0
"""Options that mean nothing beside others: refused, because their user expects something of them."""

from __future__ import annotations

import typer


def refuse(why: str, **given: object) -> None:
    """BadParameter for the first option that was given."""
    for name, value in given.items():
        if value is not None and value is not False and value != "":
            raise typer.BadParameter(f"--{name.replace('_', '-')} {why}")
