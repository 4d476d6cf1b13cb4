# SPDX-License-Identifier: Apache-2.0
"""Python objects as messages: pickle protocol 5, large buffers and all arrays on devices beside the pickle without a copy.

An object is one header message of at most HEADER_BYTES (magic, number of buffers, length of the pickle, the buffers' lengths
or words of _devices.py, and the pickle itself where it fits), then the pickle where it did not fit, then one message per
buffer. All have the caller's tag and are matched in order per endpoint; so two receivers of objects on one endpoint and tag
must not run at the same time. An object is taken to its end, whatever happens, or is the last one of its endpoint and tag.
Unpickling runs code that the peer chose: every peer of a context has proved the job key, and only such peers are trusted. So
objects are sent only where no third party can inject bytes: shared memory, unix sockets and TLS, not over plain tcp, loopback
included.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import sys
from collections.abc import Iterator
from typing import Any

from . import _core
from ._devices import DeviceMemory, Pickler, allocate
from ._on_device import OnDevice, is_device, length_of
from .errors import ClosedError, PeerLost, ProtocolError, TimedOut, Unsupported
from .waiting import wait_all

HEADER_BYTES = 16384
_FIXED = struct.Struct("<IIQ")
_MAGIC = 0x31504F54  # "TOP1"
_MOST_BUFFERS = 1000
_OUT_OF_BAND = 8192  # bytes from which a buffer travels by itself
_NO_OBJECT = "this message is no object: was it sent by send_object?"
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


class Incoming:
    """An object whose header has come. Its parts have to be received one after the other, all of them; then load() makes it.

    Raises ProtocolError when the message of `length` bytes in `header`, which is used until load(), is no object's. device:
    where arrays go that lay on devices (_devices.allocate).
    """

    def __init__(self, header: bytearray, length: int, context: _core.Context, device: Any = None) -> None:
        if length < _FIXED.size:
            raise ProtocolError(_NO_OBJECT)
        magic, count, self._size = _FIXED.unpack_from(header)
        start = _FIXED.size + 8 * count
        if magic != _MAGIC or count > _MOST_BUFFERS or start > length or length not in (start, start + self._size):
            raise ProtocolError(_NO_OBJECT)
        self.header = header
        self._words: tuple[int, ...] = struct.unpack_from(f"<{count}Q", header, _FIXED.size) if count else ()
        self._data: Any = memoryview(header)[start:length] if length == start + self._size else None
        self._context = context
        self._device = device
        self._buffers: list[Any] = []
        self._refused: Exception | None = None

    def parts(self) -> Iterator[tuple[Any, int]]:
        """Each part's buffer to receive into, and its bytes."""
        if self._data is None:
            self._data = _core.Block(self._size)
            yield self._data, self._size
        for word in self._words:
            length = length_of(word) if is_device(word) else word
            block: Any
            try:
                block = allocate(word, self._device, self._context) if is_device(word) else _core.Block(word)
            except Exception as error:  # what was sent has to be taken all the same
                self._refused = self._refused or error
                block = _core.Block(length)
            yield block, length
            self._buffers.append(block)

    def load(self) -> Any:
        """The object, once its parts are filled. Raises what unpickling raises, and why an array had no room."""
        if self._refused is not None:
            raise self._refused
        return pickle.loads(self._data, buffers=self._buffers)


SENT, RECEIVED = "sent", "received"


class Kept:
    """What is known of the objects on a connection, for as long as it lasts: its endpoint may be several Python objects, one
    after the other."""

    __slots__ = ("arrived", "broken")

    def __init__(self) -> None:
        self.broken: set[tuple[str, int]] = set()  # ways and tags with an object that is in its middle, or ended there
        self.arrived: dict[int, Incoming | BaseException] = {}  # by tag: an object whose receiver had gone, or how it ended


def kept_of(endpoint: _core.Endpoint) -> Kept:
    """That of the endpoint's connection."""
    kept: Kept | None = endpoint._kept
    if kept is None:
        kept = endpoint._kept = Kept()
    return kept


def demand_whole(endpoint: _core.Endpoint, way: str, tag: int) -> None:
    """Raises ProtocolError where an object of that way and tag ended in its middle: what follows belongs to it, and may look
    like an object's beginning, which no peer has vouched for."""
    kept = endpoint._kept
    if kept is not None and (way, tag) in kept.broken:
        raise ProtocolError(
            f"an object of tag {tag} ended in its middle when it was {way}: no more are {way} with this tag on this endpoint. "
            "Connect anew, or use another tag"
        )


@contextlib.contextmanager
def whole(endpoint: _core.Endpoint, way: str, tag: int) -> Iterator[None]:
    """The middle of an object: what is raised in it leaves the rest of the object to be taken for the next one."""
    broken = kept_of(endpoint).broken
    broken.add((way, tag))  # first: the endpoint's Python object may be closed in it, and the connection go on
    try:
        yield
    except (PeerLost, ClosedError):
        if not endpoint.closed:  # the connection has ended: nothing follows
            broken.discard((way, tag))
        raise
    broken.discard((way, tag))


def demand_length(length: int, announced: int) -> None:
    """Raises ProtocolError where a part of an object has another length than its header says."""
    if length != announced:
        raise ProtocolError(f"a part of an object has {length} bytes, and {announced} were announced")


def post_object(endpoint: _core.Endpoint, header: bytes, rest: list[Any], tag: int) -> list[_core.Request]:
    """Starts to send all messages of an object."""
    demand_whole(endpoint, SENT, tag)
    requests = [endpoint.isend(header, tag)]
    if rest:
        with whole(endpoint, SENT, tag):
            requests += [endpoint.isend(part, tag) for part in rest]
    return requests


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
    PeerLost, Unsupported over plain tcp, and ProtocolError after an object of which only a part could be sent."""
    _demand_safe(endpoint)
    header, rest = encode(value)
    wait_all(post_object(endpoint, header, rest, tag))


def recv_object(endpoint: _core.Endpoint, tag: int = 0, *, timeout: float | None = None, device: Any = None) -> Any:
    """Receives an object from this endpoint's peer; shapes and types travel, this side allocates. timeout: seconds until it
    begins to arrive. device: where arrays go that lay on devices: None (the same number here), a number, "cuda:1", "cpu", or a
    function from the sender's number to one of these. Raises TimedOut, PeerLost, ProtocolError, Unsupported over
    plain tcp, and what unpickling raises. One that ends in its middle (Ctrl-C, a handler that raises) is the last of its
    tag: the next ones raise ProtocolError."""
    _demand_safe(endpoint, timeout)
    demand_whole(endpoint, RECEIVED, tag)
    header = take_header()
    incoming = Incoming(header, _recv_header(endpoint, header, tag, timeout), endpoint.worker.context, device)
    with whole(endpoint, RECEIVED, tag):
        for part, length in incoming.parts():
            demand_length(endpoint.recv(part, tag).length, length)
    value = incoming.load()
    give_header(header)
    return value


def _recv_header(endpoint: _core.Endpoint, header: bytearray, tag: int, timeout: float | None) -> int:
    """The header's length. Where its receive ends early it has not come, or is the last."""
    request = endpoint.irecv(header, tag)
    try:
        return _length(request.wait(timeout))
    except BaseException as error:
        if request.ended or request.worker.closed or request.cancel():
            raise
        with whole(endpoint, RECEIVED, tag):
            if isinstance(error, TimedOut):  # it has begun to arrive
                return _length(request.wait())
            raise


def _length(info: Any) -> int:
    """What a receive has learned, of that."""
    return int(info.length)


_core.Endpoint.send_object = send_object  # type: ignore[assignment]
_core.Endpoint.recv_object = recv_object  # type: ignore[assignment]
