# SPDX-License-Identifier: Apache-2.0
"""What the command needs of the C library, by ctypes: no extension module has to be loaded to ask what is wrong with it.

Every function raises :class:`NativeError` with the library's own text and remedy.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
OK, IN_PROGRESS = 0, 1
CLOSE_FORCE = 1


class NativeError(RuntimeError):
    """The library is missing or refused; the text says why and what helps."""


class EndpointOptions(ctypes.Structure):
    """tw_endpoint_options."""

    _fields_ = [
        ("size", c_size_t),
        ("private_data", c_void_p),
        ("private_length", c_size_t),
        ("timeout_ns", c_uint64),
        ("on_lost", c_void_p),
        ("arg", c_void_p),
        ("transport", c_char_p),
        ("tls", c_uint32),
    ]


class StoreOptions(ctypes.Structure):
    """tw_store_options."""

    _fields_ = [
        ("size", c_size_t),
        ("job_key", c_void_p),
        ("job_key_length", c_size_t),
        ("timeout_ns", c_uint64),
        ("rank", c_uint32),
        ("count", c_uint32),
    ]


class Placement(ctypes.Structure):
    """tw_placement."""

    _fields_ = [
        ("size", c_size_t),
        ("gpu", c_int32),
        ("device", c_int32),
        ("numa", c_int32),
        ("shared", c_uint32),
        ("place", c_char * 32),
        ("nic", c_char * 64),
        ("processors", c_uint64 * 16),
    ]


class Distance(ctypes.Structure):
    """tw_distance."""

    _fields_ = [
        ("size", c_size_t),
        ("kind", c_char * 16),
        ("hops", c_uint32),
        ("links", c_uint32),
        ("links_down", c_uint32),
        ("bandwidth", c_double),
        ("path", c_char * 512),
        ("note", c_char * 256),
    ]


_SIGNATURES = {
    "tw_version_string": (c_char_p, []),
    "tw_status_name": (c_char_p, [c_int32]),
    "tw_last_error": (c_char_p, []),
    "tw_context_create": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "tw_context_destroy": (None, [c_void_p]),
    "tw_context_info": (c_int32, [c_void_p, c_char_p, POINTER(c_size_t)]),
    "tw_worker_create": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "tw_worker_destroy": (None, [c_void_p]),
    "tw_worker_address": (c_int32, [c_void_p, c_char_p, POINTER(c_size_t)]),
    "tw_worker_wait": (c_int32, [c_void_p, c_uint64]),
    "tw_worker_progress": (ctypes.c_uint, [c_void_p]),
    "tw_connect": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(EndpointOptions), POINTER(c_void_p)]),
    "tw_endpoint_wait": (c_int32, [c_void_p, c_uint64]),
    "tw_endpoint_transport": (c_char_p, [c_void_p]),
    "tw_endpoint_explain": (c_int32, [c_void_p, c_char_p, c_size_t, c_char_p, POINTER(c_size_t)]),
    "tw_endpoint_close": (c_int32, [c_void_p, c_uint32, POINTER(c_uint64)]),
    "tw_store_open": (c_int32, [c_char_p, POINTER(StoreOptions), POINTER(c_void_p)]),
    "tw_store_close": (None, [c_void_p]),
    "tw_store_address": (c_char_p, [c_void_p]),
    "tw_topology_json": (c_int32, [c_char_p, POINTER(c_size_t)]),
    "tw_topology_place": (c_int32, [c_uint32, c_uint32, POINTER(Placement)]),
    "tw_topology_distance": (c_int32, [c_char_p, c_char_p, POINTER(Distance)]),
}

_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The packaged libthalweg, else the one the loader finds."""
    global _library
    if _library is None:
        packaged = sorted(PACKAGE.glob("libthalweg.so*")) + sorted((PACKAGE / "lib").glob("libthalweg.so*"))
        for name in [*map(str, packaged), "libthalweg.so.0", "libthalweg.so"]:
            try:
                loaded = ctypes.CDLL(name, use_errno=True)
                break
            except OSError as error:
                why = error
        else:
            raise NativeError(
                f"libthalweg.so was not found: {why}. Install the package (pip install thalweg), or set LD_LIBRARY_PATH "
                "to the folder of a build."
            )
        for function, (result, arguments) in _SIGNATURES.items():
            entry = getattr(loaded, function)
            entry.restype, entry.argtypes = result, arguments
        _library = loaded
    return _library


def program(name: str) -> str:
    """A native program shipped in the package (bin/), else one on PATH."""
    packaged = PACKAGE / "bin" / name
    found = str(packaged) if os.access(packaged, os.X_OK) else shutil.which(name)
    if not found:
        raise NativeError(
            f"{name} is neither in {packaged.parent} nor on PATH: install the package, or add a build's tools folder."
        )
    return found


def check(status: int) -> int:
    """Raises on errors, else returns the status."""
    if status < 0:
        text = library().tw_last_error().decode(errors="replace")
        raise NativeError(text or library().tw_status_name(status).decode())
    return status


def _text(function, *arguments) -> str:
    """Calls a function that fills (buffer, &length), growing the buffer as it asks."""
    length = c_size_t(0)
    check(function(*arguments, None, byref(length)))
    for _ in range(8):
        buffer = ctypes.create_string_buffer(max(length.value, 256) + 256)
        length = c_size_t(len(buffer))
        status = function(*arguments, buffer, byref(length))
        if status >= 0:
            return buffer.value.decode()
        if length.value <= len(buffer):
            check(status)
    raise NativeError("the library's text kept growing")


class Context:
    """tw_context with one worker, for questions only."""

    def __init__(self) -> None:
        self._context, self._worker = c_void_p(), c_void_p()
        check(library().tw_context_create(None, byref(self._context)))

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker:
            library().tw_worker_destroy(self._worker)
        if self._context:
            library().tw_context_destroy(self._context)
        self._context, self._worker = c_void_p(), c_void_p()

    def info(self) -> str:
        """tw_context_info: JSON."""
        return _text(library().tw_context_info, self._context)

    def worker(self) -> c_void_p:
        """The worker, made on first use."""
        if not self._worker:
            check(library().tw_worker_create(self._context, None, byref(self._worker)))
        return self._worker

    def address(self) -> bytes:
        """tw_worker_address."""
        size = c_size_t()
        check(library().tw_worker_address(self.worker(), None, byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        check(library().tw_worker_address(self.worker(), buffer, byref(size)))
        return buffer.raw[: size.value]

    def connect(self, address: bytes, transport: str | None, timeout_s: float = 10) -> c_void_p:
        """An endpoint, connected."""
        options = EndpointOptions(size=ctypes.sizeof(EndpointOptions))
        options.transport = transport.encode() if transport else None
        endpoint = c_void_p()
        check(library().tw_connect(self.worker(), address, len(address), byref(options), byref(endpoint)))
        check(library().tw_endpoint_wait(endpoint, int(timeout_s * 1e9)))
        return endpoint

    def progress(self) -> int:
        """tw_worker_progress."""
        return library().tw_worker_progress(self.worker())


def explain(endpoint: c_void_p, verb: str, size: int) -> str:
    """tw_endpoint_explain."""
    return _text(library().tw_endpoint_explain, endpoint, verb.encode(), size)


class Store:
    """tw_store, served by this process."""

    def __init__(self, address: str, job_key: bytes) -> None:
        self._key = ctypes.create_string_buffer(job_key, len(job_key))
        options = StoreOptions(size=ctypes.sizeof(StoreOptions), rank=0, count=1)
        options.job_key, options.job_key_length = ctypes.cast(self._key, c_void_p), len(job_key)
        self._store = c_void_p()
        check(library().tw_store_open(address.encode(), byref(options), byref(self._store)))

    @property
    def address(self) -> str:
        """What others open: tcp:host:port."""
        text = library().tw_store_address(self._store).decode()
        return text.replace("serve:", "tcp:", 1)

    def close(self) -> None:
        """Ends the service."""
        if self._store:
            library().tw_store_close(self._store)
            self._store = c_void_p()


def topology_json() -> str:
    """tw_topology_json."""
    return _text(library().tw_topology_json)


def topology_place(rank: int, ranks: int) -> dict[str, Any]:
    """tw_topology_place; a number that is not known is None."""
    found = Placement(size=ctypes.sizeof(Placement))
    check(library().tw_topology_place(rank, ranks, byref(found)))
    numbers = {name: None if getattr(found, name) < 0 else getattr(found, name) for name in ("gpu", "device", "numa")}
    processors = [64 * word + bit for word, bits in enumerate(found.processors) for bit in range(64) if bits >> bit & 1]
    texts = {"place": found.place.decode(), "nic": found.nic.decode()}
    return {**numbers, **texts, "processors": processors, "shared": found.shared}


def topology_distance(one: str, other: str) -> dict[str, Any]:
    """tw_topology_distance."""
    found = Distance(size=ctypes.sizeof(Distance))
    check(library().tw_topology_distance(one.encode(), other.encode(), byref(found)))
    texts = {name: getattr(found, name).decode() for name in ("kind", "path", "note")}
    return {**texts, **{name: getattr(found, name) for name in ("hops", "links", "links_down", "bandwidth")}}
