# SPDX-License-Identifier: Apache-2.0
"""Thalweg's wire without Thalweg: handshake, set-up messages, store, worker addresses and tcp frames, in the standard library
and `cryptography` (workers' signatures).

Written from the formats (src/security/handshake_wire.hpp, src/security/worker_identity.hpp, src/core/setup_wire.hpp,
src/bootstrap/store_wire.hpp, src/transports/tcp/frame.hpp, src/protocols/wire.hpp), not from the library's code, so that an
attacker here can do what the library would never do, and so that a change of the wire is noticed. Sockets block; give them a
timeout.

    sock = connect(("127.0.0.1", port))
    session = dial(sock, key, worker_target(address))       # the handshake, as a holder of the key
    link = join(session, address, me=Peer())                # connect, accept, confirm: from here on `sock` carries frames
    frames = Frames(sock); frames.send(TAGGED, a=tag, body=b"hello")

An attacker without the key relays instead: Man(listening port, where to) copies both ways and may look, change and stop.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SECONDS = 10.0  # of every socket here
WORKER, LISTENER, STORE = 1, 2, 3  # purposes
TCP, UNIX = 1, 2  # carriers
ACCEPTED, WRONG_PROOF, NOT_HERE = 0, 1, 2  # answers of an authentication result
VERSION = 3

_HELLO = struct.Struct("<IHHQ32sHHI32s")
_CHALLENGE = struct.Struct("<IHHQ32s")
_AUTHENTICATION_RESULT = struct.Struct("<I32s")
_HEADER = struct.Struct("<IHHQ")  # length, type, descriptors, counter
_MAC = 32


class Refused(Exception):
    """The other side said no, or closed."""

    def __init__(self, answer: int | None) -> None:
        super().__init__(f"answer {answer}")
        self.answer = answer  # None: it closed


# -- bytes


def connect(where: tuple[str, int] | str) -> socket.socket:
    """A connected socket: (host, port), or the path of a unix socket."""
    sock = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    sock.settimeout(SECONDS)
    sock.connect(where)
    return sock


def read(sock: socket.socket, n: int) -> bytes:
    """Exactly n bytes; Refused when the other side closes first."""
    data = b""
    while len(data) < n:
        try:
            more = sock.recv(n - len(data))
        except ConnectionError:
            more = b""
        if not more:
            raise Refused(None)
        data += more
    return data


def closed(sock: socket.socket) -> bool:
    """Waits for the other side's close; False when bytes come instead."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


# -- keys


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def derive(job_key: bytes, purpose: str) -> bytes:
    """What the job key becomes for one purpose."""
    return mac(job_key, b"thalweg 1 " + purpose.encode())


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA256, 32 bytes."""
    return mac(mac(salt, secret), info + b"\x01")


# -- targets: (purpose, 32 bytes)

Target = tuple[int, bytes]


def worker_target(address: Address) -> Target:
    return WORKER, struct.pack("<QQ16x", address.worker, address.incarnation)


def door_target(purpose: int, where: tuple[str, int] | str) -> Target:
    """A listener or store at (host, port) or a path."""
    if isinstance(where, str):
        return purpose, hashlib.sha256(os.path.realpath(where).encode()).digest()
    ip = ipaddress.ip_address(where[0])
    packed = ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed
    return purpose, packed + struct.pack("<H14x", where[1])


# -- handshake


def _transcript(role: str, hello: bytes, challenge: bytes, client_proof: bytes = b"\0" * 32, answer: int = 0) -> bytes:
    return role.encode().ljust(8, b"\0") + hello + challenge + b"\0" * 32 + client_proof + struct.pack("<II", answer, 0)


def make_hello(target: Target, carrier: int = TCP, version: int = VERSION) -> bytes:
    return _HELLO.pack(0x31435754, version, version, 0, secrets.token_bytes(32), target[0], carrier, 0, target[1])


@dataclass
class Session:
    """An authenticated connection and its messages. Counters and keys may be changed by a test."""

    sock: socket.socket
    send_key: bytes
    receive_key: bytes
    binding: bytes = b"\0" * 32  # what workers sign beside their messages
    sent: int = 0
    received: int = 0

    def pack(self, kind: int, body: bytes = b"", fds: int = 0) -> bytes:
        """The bytes of the next message."""
        text = _HEADER.pack(len(body), kind, fds, self.sent) + body
        self.sent += 1
        return text + mac(self.send_key, text)

    def send(self, kind: int, body: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        message = self.pack(kind, body, len(fds))
        if fds:
            socket.send_fds(self.sock, [message], list(fds))
        else:
            self.sock.sendall(message)

    def receive(self) -> tuple[int, bytes, list[int]]:
        """(type, body, descriptors) of a message, which is checked."""
        if self.sock.family == socket.AF_UNIX:
            head, fds, _, _ = socket.recv_fds(self.sock, _HEADER.size, 8)
            if not head:
                raise Refused(None)
            head += read(self.sock, _HEADER.size - len(head))
        else:
            head, fds = read(self.sock, _HEADER.size), []
        length, kind, _, counter = _HEADER.unpack(head)
        body = read(self.sock, length)
        right = mac(self.receive_key, head + body)
        assert read(self.sock, _MAC) == right and counter == self.received, "not the peer's message"
        self.received += 1
        return kind, body, fds


def _session(sock: socket.socket, key: bytes, hello: bytes, challenge: bytes, proof: bytes, client: bool) -> Session:
    salt = _HELLO.unpack(hello)[4] + _CHALLENGE.unpack(challenge)[4]
    to_server, to_client, binding = (
        hkdf(derive(key, "session"), salt, _transcript(role, hello, challenge, proof))
        for role in ("to serve", "to dial", "binding")
    )
    return Session(sock, to_server, to_client, binding) if client else Session(sock, to_client, to_server, binding)


def dial(sock: socket.socket, key: bytes, target: Target, carrier: int | None = None) -> Session:
    """The client's side. Raises Refused."""
    if carrier is None:
        carrier = UNIX if sock.family == socket.AF_UNIX else TCP
    hello = make_hello(target, carrier)
    sock.sendall(hello)
    challenge = read(sock, _CHALLENGE.size)
    proof = mac(derive(key, "handshake"), _transcript("client", hello, challenge))
    sock.sendall(proof)
    answer, theirs = _AUTHENTICATION_RESULT.unpack(read(sock, _AUTHENTICATION_RESULT.size))
    if answer != WRONG_PROOF:
        right = mac(derive(key, "handshake"), _transcript("server", hello, challenge, proof, answer))
        assert theirs == right, "the server does not know the key"
    if answer != ACCEPTED:
        raise Refused(answer)
    return _session(sock, key, hello, challenge, proof, True)


def serve(sock: socket.socket, key: bytes) -> tuple[Session, Target]:
    """The server's side, for whatever target. Raises Refused when the client has another key."""
    hello = read(sock, _HELLO.size)
    fields = _HELLO.unpack(hello)
    challenge = _CHALLENGE.pack(0x31535754, VERSION, VERSION, 0, secrets.token_bytes(32))
    sock.sendall(challenge)
    proof = read(sock, _MAC)
    if proof != mac(derive(key, "handshake"), _transcript("client", hello, challenge)):
        raise Refused(WRONG_PROOF)
    sock.sendall(
        _AUTHENTICATION_RESULT.pack(ACCEPTED, mac(derive(key, "handshake"), _transcript("server", hello, challenge, proof)))
    )
    return _session(sock, key, hello, challenge, proof, False), (fields[5], fields[8])


# -- worker addresses


@dataclass
class Address:
    """What Worker.address holds."""

    worker: int
    incarnation: int
    host: int = 0
    token: int = 0  # names the unix socket; 0: none
    port: int = 0
    ips: list[str] = field(default_factory=lambda: ["127.0.0.1"])

    @staticmethod
    def parse(data: bytes) -> Address:
        worker, incarnation, host, token, port, count = struct.unpack_from("<QQQQHB", data, 8)
        ips, at = [], 44
        for _ in range(count):
            n = 4 if data[at] == 4 else 16
            ips.append(str(ipaddress.ip_address(data[at + 1 : at + 1 + n])))
            at += 1 + n
        return Address(worker, incarnation, host, token, port, ips)

    def pack(self) -> bytes:
        body = struct.pack("<QQQQHBB", self.worker, self.incarnation, self.host, self.token, self.port, len(self.ips), 0)
        for each in self.ips:
            ip = ipaddress.ip_address(each)
            body += bytes([ip.version]) + ip.packed
        checksum = 2166136261
        for byte in body:
            checksum = (checksum ^ byte) * 16777619 & 0xFFFFFFFF
        return struct.pack("<II", 0x01415754, checksum) + body


# -- set-up messages

CONNECT, ACCEPT, REJECT, CONFIRM = 1, 2, 3, 4
TCP_OFFER = struct.pack("<HHI", 1, 1, 1 << 20)  # framing's version, sockets, largest body


def _block(data: bytes) -> bytes:
    return struct.pack("<H", len(data)) + data


def _take(data: bytes, at: int) -> tuple[bytes, int]:
    (n,) = struct.unpack_from("<H", data, at)
    return data[at + 2 : at + 2 + n], at + 2 + n


@dataclass
class Peer:
    """An attacker's claimed identity. Its worker and public key are those of its secret, unless it lies."""

    worker: int = 0
    incarnation: int = field(default_factory=lambda: secrets.randbits(63) | 1)
    host: int = field(default_factory=lambda: secrets.randbits(63) | 1)
    secret: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    key: bytes = b""

    def __post_init__(self) -> None:
        self.key = self.key or self.secret.public_key().public_bytes_raw()
        self.worker = self.worker or worker_of(self.key)

    def sign(self, session: Session, role: str, to: int, message: bytes) -> bytes:
        """The message with public key and signature behind it. to: the worker spoken to, 0 for a listener's."""
        message += self.key
        return message + self.secret.sign(_statement(session, role, to, message))


def worker_of(key: bytes) -> int:
    """The id of the worker with this public key."""
    return int.from_bytes(hashlib.sha256(b"thalweg worker id 1\0" + key).digest()[:8], "little")


def _statement(session: Session, role: str, to: int, message: bytes) -> bytes:
    return b"thalweg statement 1\0" + role.encode().ljust(8, b"\0") + session.binding + struct.pack("<Q", to) + message


def signed(session: Session, role: str, to: int, worker: int, body: bytes) -> None:
    """Raises unless this worker said this."""
    message, key, signature = body[:-64], body[-96:-64], body[-64:]
    assert worker_of(key) == worker, "not that worker's key"
    Ed25519PublicKey.from_public_bytes(key).verify(signature, _statement(session, role, to, message))


def connect_message(
    session: Session,
    to: Address | None,
    me: Peer,
    offers: tuple[tuple[str, bytes, int], ...] = (("tcp", TCP_OFFER, 0),),
    data: bytes = b"",
) -> bytes:
    """offers: (transport, its bytes, how many descriptors). to: None for a listener."""
    target = (to.worker, to.incarnation) if to else (0, 0)
    body = struct.pack("<8Q", *target, me.worker, me.incarnation, me.host, secrets.randbits(63) | 1, 0, 0)
    body += struct.pack("<B", 0) + _block(data) + struct.pack("<B", len(offers))
    for name, text, fds in offers:
        body += _block(name.encode()) + _block(text) + struct.pack("<B", fds)
    return me.sign(session, "client", target[0], body)


def accept_message(session: Session, connect: bytes, me: Peer, ticket: int = 0, address: bytes = b"") -> bytes:
    """The answer to a connect message, over tcp; with a ticket and an address an invitation to its unix socket."""
    client = connected_worker(session, connect)
    body = struct.pack("<4Q", me.worker, me.incarnation, me.host, ticket) + _block(address) + _block(b"")
    body += _block(b"tcp") + _block(TCP_OFFER) + struct.pack("<B", 0)
    return me.sign(session, "server", client, body)


def connected_worker(session: Session, connect: bytes) -> int:
    """The worker that sent this connect message, which has proved it."""
    target, worker = struct.unpack_from("<Q8xQ", connect)
    signed(session, "client", target, worker, connect)
    return worker


@dataclass
class Link:
    """What accept said."""

    worker: int
    incarnation: int
    host: int
    data: bytes
    transport: str
    answer: bytes
    fds: list[int]
    key: bytes


def parse_accept(body: bytes, fds: list[int]) -> Link:
    worker, incarnation, host, _ = struct.unpack_from("<4Q", body)
    _, at = _take(body, 32)
    data, at = _take(body, at)
    name, at = _take(body, at)
    answer, at = _take(body, at)
    return Link(worker, incarnation, host, data, name.decode(), answer, fds, body[-96:-64])


def join(session: Session, to: Address | None, me: Peer | None = None, **options) -> Link:
    """Connects, by default over tcp, and confirms. Raises Refused with the reject's status."""
    fds = options.pop("fds", ())
    me = me or Peer()
    session.send(CONNECT, connect_message(session, to, me, **options), fds)
    kind, body, received = session.receive()
    if kind != ACCEPT:
        raise Refused(struct.unpack_from("<i", body)[0])
    link = parse_accept(body, received)
    signed(session, "server", me.worker, link.worker, body)
    session.send(CONFIRM)
    return link


# -- the store's messages

PUT, GET, WAIT, ERASE, ANSWER = 1, 2, 3, 4, 5


def store_request(session: Session, op: int, key: bytes, value: bytes = b"") -> tuple[int, bytes]:
    """(status, value) of one request."""
    session.send(op, struct.pack("<I", len(key)) + key + value)
    kind, body, _ = session.receive()
    assert kind == ANSWER
    return struct.unpack_from("<i", body)[0], body[4:]


# -- frames over tcp

AM_RTS, AM_ASK, AM_LONG, NOTICE = 6, 8, 17, 32
TAGGED, TAGGED_FIRST, TAGGED_RTS, AM, BYTES, MATCHED, CTS, DATA, FIN, CREDIT = 1, 2, 3, 4, 7, 9, 10, 11, 12, 13
PUT_FRAME, PUT_LAYOUT, GET_FRAME, ATOMIC, ATOMIC_REPLY, SIGNAL, FLUSH, PUT_BLOCKS, GET_BLOCKS = (
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
)
GOODBYE, ERROR = 40, 41
SYNC, ACK, LAST, MORE, FIRST, COVERS, COVERS_ALL, DEVICE = 1, 2, 4, 8, 16, 32, 64, 128
GROUP = 64  # of tagged frames
_PREFIX = struct.Struct("<IBBH")
_FRAME = struct.Struct("<IBBHQQ")
FRAME_HEAD = _PREFIX.size + _FRAME.size


@dataclass
class Frame:
    kind: int
    flags: int
    id: int
    a: int
    b: int
    body: bytes


class Frames:
    """The frames of an established tcp link. Fields of send() are what a test says, right or wrong."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sent = 0

    def send(
        self, kind: int, *, a: int = 0, b: int = 0, id: int = 0, flags: int = 0, body: bytes = b"", length: int | None = None
    ) -> None:
        prefix = _PREFIX.pack(self.sent, 0, 1, 0)
        self.sent += 1
        header = _FRAME.pack(len(body) if length is None else length, kind | 0x40, flags, id, a, b)
        self.sock.sendall(prefix + header + body)

    def receive(self) -> Frame:
        """The next frame; Refused when the link has ended."""
        head = read(self.sock, FRAME_HEAD)
        length, kind, flags, id, a, b = _FRAME.unpack_from(head, _PREFIX.size)
        return Frame(kind & 0x3F, flags, id, a, b, read(self.sock, length))

    def expect(self, kind: int) -> Frame:
        """The next frame of this kind; others are passed over."""
        while True:
            frame = self.receive()
            if frame.kind == kind:
                return frame


# -- between two others


class Man:
    """Listens, carries every connection to `to`, its bytes changed by `change(bytes, to_server)`, and keeps what it carried."""

    def __init__(self, to: tuple[str, int] | str | None, change: Callable[[bytes, bool], bytes] | None = None) -> None:
        self.to = to
        self.change = change
        self.carried: list[tuple[bool, bytes]] = []  # (to the server?, bytes)
        self.done = threading.Event()  # a connection that was carried has ended
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            assert self.to is not None
            try:
                far = connect(self.to)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._sockets += [near, far]
            for source, sink, to_server in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._carry, args=(source, sink, to_server), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, to_server: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                self.carried.append((to_server, data))
                sink.sendall(self.change(data, to_server) if self.change else data)
        except OSError:
            pass
        for end in (sink, source):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_WR if end is sink else socket.SHUT_RD)
        self.done.set()

    def bytes_to(self, server: bool) -> bytes:
        return b"".join(data for to_server, data in self.carried if to_server == server)

    def close(self) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Man:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
