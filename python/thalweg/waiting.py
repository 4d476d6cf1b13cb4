# SPDX-License-Identifier: Apache-2.0
"""Waiting for several requests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ._core import RecvInfo, Request
from .errors import ThalwegError, TimedOut


def wait_all(requests: Sequence[Request], timeout: float | None = None) -> list[RecvInfo | int | None]:
    """Waits for all requests, at most timeout seconds; their values in order. Every request is waited for before the first
    error is raised, so that all buffers are the caller's again (but for those that TimedOut leaves under way)."""
    deadline = None if timeout is None else time.monotonic() + timeout
    values: list[RecvInfo | int | None] = []
    error: ThalwegError | None = None
    for request in requests:
        try:
            values.append(request.wait(None if deadline is None else max(0.0, deadline - time.monotonic())))
        except ThalwegError as caught:
            error = error or caught
            values.append(None)
    if error is not None:
        raise error
    return values


def wait_any(requests: Sequence[Request], timeout: float | None = None) -> int:
    """The index of a request that has ended, waiting at most timeout seconds. Raises TimedOut, but not how a request ended."""
    if not requests:
        raise ValueError("there is no request to wait for")
    deadline = time.monotonic() + (1e9 if timeout is None else timeout)
    workers = {id(request.worker): request.worker for request in requests}
    alone = len(workers) == 1 and not requests[0].worker._shared
    nap = 0.05 if alone else 0.0005  # an event may come to another worker, or be taken by another thread
    while True:
        for _ in range(50):
            for index, request in enumerate(requests):
                if request.done():
                    return index
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut("no request has ended in time")
        for worker in workers.values():
            worker.wait(min(nap, left))
