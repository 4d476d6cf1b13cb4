# SPDX-License-Identifier: Apache-2.0
"""Lies of a holder of the key about who it is, over tcp and over shm, and descriptors that are not what they should be."""

import fcntl
import os
import socket
import struct

import pytest
import wire

VICTIM = """
context = tw.Context()
worker = tw.Worker(context)
listener = worker.listen(hear()["at"])
say(address=worker.address.hex(), port=listener.port)
"""
TAKES = """
hear()
def take():
    return listener.accept(timeout=20).transport
say(**attempt(take))
hear()
"""
SENDS = """
import ctypes
endpoint = listener.accept(timeout=20)
kept = bytearray(b"k" * 8192)
say(where=ctypes.addressof(ctypes.c_char.from_buffer(kept)))
request = endpoint.isend(b"s" * (1 << 20), tag=7)
serve(worker)
say(kept=kept == b"k" * 8192)
"""
UNSUPPORTED = -103
CTS = struct.Struct("<6Q")
SHM_RINGS, SHM_BELL = 2 * 55808, 4096
SEALS = 0x0002 | 0x0004  # shrink, grow
F_ADD_SEALS = 1033


def start(victim, code, at):
    a = victim(VICTIM + code)
    a.say(at=at)
    said = a.hear()
    return a, wire.Address.parse(bytes.fromhex(said["address"])), said["port"]


@pytest.mark.parametrize("lie", ["nothing", "its process", "its worker too"])
def test_over_tcp_no_address_of_the_victims_is_touched(victim, key, lie):
    """The peer says that it is the victim's own process, and asks for the payload to be stored at an address."""
    a, address, port = start(victim, SENDS, "127.0.0.1:0")
    me = wire.Peer()
    if lie != "nothing":
        me.host, me.incarnation = address.host, address.incarnation
    if lie == "its worker too":
        me.worker = address.worker
    where = ("127.0.0.1", port)
    sock = wire.connect(where)
    wire.join(wire.dial(sock, key, wire.door_target(wire.LISTENER, where)), None, me)
    frames = wire.Frames(sock)
    kept = a.hear()["where"]
    announced = frames.expect(wire.TAGGED_RTS)
    op, length, source = struct.unpack_from("<3Q", announced.body)
    assert length == 1 << 20
    assert source == 0, "an address of the victim's went over tcp"
    frames.send(wire.CTS, a=op, body=CTS.pack(4711, 0, 4096, kept, 0, 0))
    answer = frames.expect(wire.FIN)
    assert (answer.a, answer.b) == (4711, UNSUPPORTED & 0xFFFFFFFFFFFFFFFF)
    a.say()
    assert a.hear()["kept"]
    a.end()


def memory(size: int, pages: bool = True) -> int:
    fd = os.memfd_create("attack", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if pages:
        os.posix_fallocate(fd, 0, size)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


def shm_offer(bell_address: int = 0) -> bytes:
    return struct.pack("<IHHIIQ", 0x6D687374, 3, 1, SHM_RINGS, 0, bell_address)


def come_by_shm(victim, key, tmp_path, me=None, bad=(None, None)):
    """What the victim's accept says. bad: the place of a descriptor and what is given instead."""
    at = str(tmp_path / "door")
    a, address, _ = start(victim, TAKES, f"unix:{at}")
    liar = wire.Peer(host=address.host)
    if me == "its process":
        liar.incarnation = address.incarnation
    mine, ringer = socket.socketpair()
    fds = [memory(SHM_BELL), ringer.fileno(), memory(-(-SHM_RINGS // 4096) * 4096)]
    place, other = bad
    if place is not None:
        fds[place] = other()
    sock = wire.connect(at)
    session = wire.dial(sock, key, wire.door_target(wire.LISTENER, at))
    a.say()
    wire.join(session, None, liar, offers=(("shm", shm_offer(), 3),), fds=tuple(fds))
    said = a.hear()
    a.say()
    a.end()
    mine.close()
    return said


def test_by_shm_an_honest_set_up_is_taken(victim, key, tmp_path):
    assert come_by_shm(victim, key, tmp_path) == {"result": "shm"}


def test_by_shm_another_process_is_not_taken_for_the_victims(victim, key, tmp_path):
    said = come_by_shm(victim, key, tmp_path, me="its process")
    assert said["error"] == "AuthenticationError", said
    assert f"process {os.getpid()}" in said["text"]


def a_file():
    return os.open("/etc/hostname", os.O_RDONLY | os.O_CLOEXEC)


def a_pipe():
    return os.pipe()[1]


def a_full_eventfd():
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    os.eventfd_write(fd, 2**64 - 2)
    return fd


@pytest.mark.parametrize("place", [0, 1, 2], ids=["bell", "doorbell", "rings"])
@pytest.mark.parametrize("other", [a_file, a_pipe, a_full_eventfd], ids=lambda f: f.__name__)
def test_by_shm_foreign_descriptors_are_refused(victim, key, tmp_path, place, other):
    assert come_by_shm(victim, key, tmp_path, bad=(place, other))["error"] == "ProtocolError"


@pytest.mark.parametrize(("place", "size"), [(0, SHM_BELL), (2, 112 * 1024)], ids=["bell", "rings"])
def test_by_shm_sparse_memory_is_refused(victim, key, tmp_path, place, size):
    said = come_by_shm(victim, key, tmp_path, bad=(place, lambda: memory(size, pages=False)))
    assert said["error"] == "ProtocolError"
    assert "sparse" in said["text"]
