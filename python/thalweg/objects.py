# SPDX-License-Identifier: Apache-2.0
"""Python objects as messages: pickle protocol 5, large buffers and all arrays on devices beside the pickle without a copy.

An object is one header message of at most HEADER_BYTES (magic, number of buffers, length of the pickle, the buffers' lengths
or words of _devices.py, and the pickle itself where it fits), then the pickle where it did not fit, then one message per
buffer. All have the caller's tag and are matched in order per endpoint; so two receivers of objects on one endpoint and tag
must not run at the same time.
Unpickling runs code that the peer chose: every peer of a context has proved the job key, and only such peers are trusted. So
objects are sent only where no third party can inject bytes: shared memory, unix sockets and TLS, not over plain tcp, loopback
included.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections.abc import Generator
from typing import Any

from . import _core
from ._devices import DeviceMemory, Pickler, allocate
from ._on_device import OnDevice, is_device, length_of
from .errors import ProtocolError, Unsupported

HEADER_BYTES = 16384
_FIXED = struct.Struct("<IIQ")
_MAGIC = 0x31504F54  # "TOP1"
_MOST_BUFFERS = 1000
_OUT_OF_BAND = 8192  # bytes from which a buffer travels by itself
_spare: list[bytearray] = []  # header buffers for the next receive


def encode(value: Any) -> tuple[bytes, list[Any]]:
    """The header message and what follows it: bytes, memoryviews, and arrays on devices."""
    words: list[int] = []
    buffers: list[Any] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        holder: Any = raw.obj
        full = len(buffers) == _MOST_BUFFERS
        if type(holder) is OnDevice:
            if full:
                raise Unsupported(f"an object has at most {_MOST_BUFFERS} arrays on devices: send them in several")
            words.append(holder.word)
            buffers.append(holder.array)
            return False
        if raw.nbytes < _OUT_OF_BAND or full:
            return True  # stays in the pickle
        words.append(raw.nbytes)
        buffers.append(raw)
        return False

    def dump() -> bytes:
        words.clear()
        buffers.clear()
        stream = io.BytesIO()
        Pickler(stream, protocol=5, buffer_callback=take).dump(value)
        return stream.getvalue()

    if "torch" in sys.modules or "cupy" in sys.modules:
        data = dump()
    else:
        try:  # the faster one, which knows no devices
            data = pickle.dumps(value, protocol=5, buffer_callback=take)
        except DeviceMemory:
            data = dump()
    header = _FIXED.pack(_MAGIC, len(buffers), len(data))
    if buffers:
        header += struct.pack(f"<{len(words)}Q", *words)
    if len(header) + len(data) <= HEADER_BYTES:
        return header + data, buffers
    return header, [data, *buffers]


def decode(header: bytearray, length: int, context: _core.Context, device: Any = None) -> Generator[Any, None, Any]:
    """Yields the buffers to receive into, one after the other; returns the object once they are filled. device: where arrays
    go that lay on devices (_devices.allocate)."""
    if length < _FIXED.size:
        raise ProtocolError("this message is no object: was it sent by send_object?")
    magic, count, size = _FIXED.unpack_from(header)
    start = _FIXED.size + 8 * count
    if magic != _MAGIC or count > _MOST_BUFFERS or start > length or length not in (start, start + size):
        raise ProtocolError("this message is no object: was it sent by send_object?")
    sizes = struct.unpack_from(f"<{count}Q", header, _FIXED.size) if count else ()
    if length == start + size:
        data: Any = memoryview(header)[start:length]
    else:
        data = _core.Block(size)
        yield data
    buffers: list[Any] = []
    refused: Exception | None = None
    for each in sizes:
        block: Any
        try:
            block = allocate(each, device, context) if is_device(each) else _core.Block(each)
        except Exception as error:  # what was sent has to be taken all the same
            refused = refused or error
            block = _core.Block(length_of(each))
        yield block
        buffers.append(block)
    if refused is not None:
        raise refused
    return pickle.loads(data, buffers=buffers)


def take_header() -> bytearray:
    """A buffer for a header message; give_header takes it back once the object is made."""
    return _spare.pop() if _spare else bytearray(HEADER_BYTES)


def give_header(header: bytearray) -> None:
    """Keeps a few header buffers for later."""
    if len(_spare) < 64:
        _spare.append(header)


def unsafe(endpoint: _core.Endpoint) -> Exception | None:
    """Why objects may not travel over a connected endpoint, or None."""
    if endpoint.protected or not endpoint.transport:  # the latter: it never was connected, and nothing came
        return None
    return Unsupported(
        "objects do not travel over plain tcp, also not on loopback: who can change packets could run code here. Make both "
        "contexts with tls=True or set THALWEG_TLS=1; or use shm, or a unix socket"
    )


def _demand_safe(endpoint: _core.Endpoint, timeout: float | None = None) -> None:
    if endpoint.protected:
        return
    if endpoint.state == "in_progress":
        endpoint.wait(timeout)
    if error := unsafe(endpoint):
        raise error


def send_object(endpoint: _core.Endpoint, value: Any, tag: int = 0) -> None:
    """Sends any picklable object to the peer's recv_object of the same tag. Large buffers (NumPy arrays, tensors, arrays and
    Memory on devices) are not copied; they may be changed again when this returns. The GIL is released while waiting. Raises
    PeerLost, and Unsupported over plain tcp."""
    _demand_safe(endpoint)
    header, rest = encode(value)
    if not rest:
        endpoint.send(header, tag)
        return
    requests = [endpoint.isend(header, tag)]
    requests += [endpoint.isend(part, tag) for part in rest]
    for request in requests:
        request.wait()


def recv_object(endpoint: _core.Endpoint, tag: int = 0, *, timeout: float | None = None, device: Any = None) -> Any:
    """Receives an object from this endpoint's peer; shapes and types travel, this side allocates. timeout: seconds until it
    begins to arrive. device: where arrays go that lay on devices: None (the same number here), a number, "cuda:1", "cpu", or a
    function from the sender's number to one of these. Raises TimedOut, PeerLost, ProtocolError, Unsupported over
    plain tcp, and what unpickling raises."""
    _demand_safe(endpoint, timeout)
    header = take_header()
    length = endpoint.recv(header, tag, timeout=timeout).length
    parts = decode(header, length, endpoint.worker.context, device)
    try:
        while True:
            endpoint.recv(next(parts), tag)
    except StopIteration as end:
        give_header(header)
        return end.value


_core.Endpoint.send_object = send_object  # type: ignore[assignment]
_core.Endpoint.recv_object = recv_object  # type: ignore[assignment]
