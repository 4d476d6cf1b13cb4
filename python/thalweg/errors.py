# SPDX-License-Identifier: Apache-2.0
"""Named exceptions, one per error status of the C interface. All derive from ThalwegError and carry .status and .name."""

from __future__ import annotations


class ThalwegError(Exception):
    """Base of every error of the library. .status is the number of thalweg.h; the text has the remedy."""

    status: int = 0
    name: str = "error"

    def __init__(self, text: str = "", status: int | None = None) -> None:
        super().__init__(text or self.name)
        if status is not None:
            self.status = status


class Again(ThalwegError):
    """Nothing was queued: try again after progress."""

    status, name = 2, "again"


class InvalidError(ThalwegError, ValueError):
    """An argument makes no sense."""

    status, name = -101, "invalid"


class HandleError(ThalwegError):
    """An object that is not alive any more."""

    status, name = -102, "handle"


class Unsupported(ThalwegError, NotImplementedError):
    """This combination of operation, layout and memory is not in the support table."""

    status, name = -103, "unsupported"


class OutOfBounds(ThalwegError, IndexError):
    """Outside the buffer or the registered region."""

    status, name = -104, "out_of_bounds"


class Misaligned(ThalwegError, ValueError):
    """Atomics and signals need natural alignment."""

    status, name = -105, "misaligned"


class ThreadError(ThalwegError, RuntimeError):
    """A single-thread worker used by two threads."""

    status, name = -106, "thread"


class ForkedError(ThalwegError, RuntimeError):
    """An object of the parent process used after fork()."""

    status, name = -107, "forked"


class BusyError(ThalwegError, RuntimeError):
    """In use."""

    status, name = -108, "busy"


class PermissionDenied(ThalwegError, PermissionError):
    """The key does not allow this access."""

    status, name = -109, "permission"


class OutOfMemory(ThalwegError, MemoryError):
    """No memory left."""

    status, name = -201, "no_memory"


class NoDescriptors(ThalwegError, OSError):
    """RLIMIT_NOFILE reached."""

    status, name = -202, "no_descriptors"


class NoSharedMemory(ThalwegError, OSError):
    """/dev/shm or the memory cgroup is full."""

    status, name = -203, "no_shared_memory"


class LimitReached(ThalwegError):
    """A documented limit of this library."""

    status, name = -204, "limit"


class SystemCallError(ThalwegError, OSError):
    """A system call failed; the text says which."""

    status, name = -205, "io"


class PeerLost(ThalwegError, ConnectionError):
    """The peer died, or the network to it; a peer that closed in good order is ClosedError."""

    status, name = -301, "peer_lost"


class Unreachable(ThalwegError, ConnectionError):
    """No transport reaches the peer."""

    status, name = -302, "unreachable"


class Rejected(ThalwegError, ConnectionRefusedError):
    """The listener's user rejected it; the text has the reason."""

    status, name = -303, "rejected"


class TimedOut(ThalwegError, TimeoutError):
    """Not in time."""

    status, name = -304, "timed_out"


class ClosedError(ThalwegError, ConnectionError):
    """It was closed: by this side, or gracefully by the peer. The text says which."""

    status, name = -305, "closed"


class Stale(ThalwegError):
    """A key or address of an earlier incarnation, or a revoked one."""

    status, name = -306, "stale"


class AddressInUse(ThalwegError, OSError):
    """Another listener has that address."""

    status, name = -307, "address_in_use"


class AuthenticationError(ThalwegError, ConnectionError):
    """The two sides do not share a job key."""

    status, name = -401, "authentication"


class VersionError(ThalwegError, ConnectionError):
    """The peer speaks another version."""

    status, name = -402, "version"


class ProtocolError(ThalwegError, ConnectionError):
    """The peer sent what no peer may send."""

    status, name = -403, "protocol"


class KeyFileError(ThalwegError, OSError):
    """The job key's file cannot be used; the text names it."""

    status, name = -404, "key_file"


class Truncated(ThalwegError):
    """The receive buffer was too short. .length is the message's true length in bytes."""

    status, name = -501, "truncated"
    length: int | None = None


class Canceled(ThalwegError):
    """The request was cancelled."""

    status, name = -502, "canceled"


class NoMatch(ThalwegError, KeyError):
    """Nothing of that name or tag."""

    status, name = -503, "no_match"

    def __str__(self) -> str:
        return Exception.__str__(self)


class DeviceError(ThalwegError):
    """A device or queue failed."""

    status, name = -601, "device"


def _all_errors() -> list[type[ThalwegError]]:
    return [value for value in globals().values() if isinstance(value, type) and issubclass(value, ThalwegError)]


BY_STATUS: dict[int, type[ThalwegError]] = {error.status: error for error in _all_errors()}
__all__ = [*(error.__name__ for error in BY_STATUS.values()), "BY_STATUS"]


def from_status(status: int, text: str, length: int | None = None) -> ThalwegError:
    """The exception of a status number; used by the bindings."""
    error = BY_STATUS.get(status, ThalwegError)(text, status)
    if isinstance(error, Truncated):
        error.length = length
    return error
