# SPDX-License-Identifier: Apache-2.0
"""The library's log as the logger "thalweg". Its own level is THALWEG_LOG's; logging's levels and handlers come on top."""

from __future__ import annotations

import atexit
import os

from . import _core


def start() -> None:
    """Sends the library's log to logging.getLogger("thalweg") from now on, also in a forked child."""

    _core._log_to_python(True)
    atexit.register(_stop)
    os.register_at_fork(after_in_child=_restart)


def _restart() -> None:
    _core._log_to_python(True)


def _stop() -> None:
    _core._flush_log()
    _core._log_to_python(False)
