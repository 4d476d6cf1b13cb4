# SPDX-License-Identifier: Apache-2.0
"""Waiting for several requests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ._core import RecvInfo, Request
from .errors import BusyError, ForkedError, ThreadError, TimedOut


def wait_all(requests: Sequence[Request], timeout: float | None = None) -> list[RecvInfo | int | None]:
    """Waits for all requests, at most timeout seconds; their values in order. Every request is waited for before the first
    error is raised, that of a handler of active messages among them, so that all buffers are the caller's again (but for those
    that TimedOut leaves under way)."""
    deadline = None if timeout is None else time.monotonic() + timeout
    values: list[RecvInfo | int | None] = []
    errors: list[Exception] = []
    for request in requests:
        values.append(None)
        while True:
            try:
                values[-1] = request.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except Exception as caught:  # a handler's, which runs in the middle of the wait, is of any kind
                errors.append(caught)
                if not _goes_on(request, caught, deadline):
                    break
            else:
                break
    try:
        if errors:
            raise errors[0]
        return values
    finally:
        errors.clear()  # else they, their frames and the buffers would stay until the collector comes


def _goes_on(request: Request, caught: Exception, deadline: float | None) -> bool:
    """Is it to be waited for further? Not where no wait for it can succeed."""
    if request.ended or request.worker.closed or isinstance(caught, (BusyError, ForkedError, ThreadError)):
        return False
    return not (isinstance(caught, TimedOut) and deadline is not None and time.monotonic() >= deadline)


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
