# SPDX-License-Identifier: Apache-2.0
"""Store: how processes find each other before they are connected. A shared file or a small TCP server with the job key."""

from __future__ import annotations

from typing import Any

from . import _core


class Store:
    """Keys and values shared by the processes of a job.

    address: "file:/path" (a shared file), "tcp:host:port" (a server must run), "serve:host:port" (serves and uses it; port 0
    picks one, see .address); None: THALWEG_STORE. timeout: seconds of blocking calls (60). rank, count: this process's place,
    for exchange and barrier (None: THALWEG_RANK and THALWEG_SIZE, else 0 of 1). tls: TLS 1.3 with the job key between client
    and server, on both or neither (False: what THALWEG_TLS says). Any thread may use it. The GIL is released while waiting.
    Raises TimedOut, AuthenticationError.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        job_key: bytes | None = None,
        timeout: float | None = None,
        rank: int | None = None,
        count: int | None = None,
        tls: bool = False,
    ) -> None:
        self._store = _core._Store(address, job_key, timeout, rank, count, tls)
        self.rank: int = self._store.rank
        self.count: int = self._store.count

    @property
    def address(self) -> str:
        """Where other processes reach this store."""
        return self._store.address

    def put(self, key: str, value: Any) -> None:
        """Stores value, bytes or another contiguous buffer, under key, over an earlier one."""
        self._store.put(key, value)

    def get(self, key: str, default: bytes | None = None) -> bytes | None:
        """The value of key now, or default."""
        return self._store.get(key, default)

    def wait(self, key: str) -> bytes:
        """The value of key, as soon as it is there. Raises TimedOut."""
        return self._store.wait(key)

    def exchange(self, mine: bytes) -> list[bytes]:
        """Everyone's bytes (of one length) to everyone, by rank. Called by all ranks in the same order."""
        return self._store.exchange(mine, self.count)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._store.barrier()

    def close(self) -> None:
        """Ends this process's use; a serving store ends for all."""
        self._store.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
