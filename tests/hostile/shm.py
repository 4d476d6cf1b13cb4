# SPDX-License-Identifier: Apache-2.0
"""A shm link without Thalweg: its shared memory and its doorbell, by hand (src/transports/shm/layout.hpp). Its maker
may store to every byte of it, at any time."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct

import wire

SLOTS, SLOT, INLINE = 64, 128, 104
COPY_MAX = 16 * 1024 + 512
BULK, DEEP, WIDE = 50 * 1024, 274 * 1024, 4 << 20
TURN = (1 << 32) - 1  # the length of a frame that turns to the other bulk ring
RING, RING_TAKEN = 8, 9  # of the control channel
UNIT = 64
PARITY = 1 << 39
# Bytes from a direction's start.
WAITING, CONSUMED_SLOTS, CONSUMED_BULK, MODE, COPYING = 0, 128, 136, 256, 384
SLOTS_AT = 512
BULK_AT = SLOTS_AT + SLOTS * SLOT
DIRECTION = BULK_AT + BULK
OFFERS = 1280  # what a side tells of its receives, behind both directions
CONNECTION = 2 * (DIRECTION + OFFERS)
DOORBELL = 4096
SLEEPING = 128  # of the doorbell's bytes
_ADD_SEALS, _SHRINK, _GROW = 1033, 2, 4
_SETUP = struct.Struct("<IHHIIQ")  # magic, version, membarrier, segment size, doorbell bit, address of the doorbell


def segment(length: int) -> int:
    """Sealed, allocated memory, as peers demand it."""
    fd = os.memfd_create("by hand", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(fd, 0, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE)
    fcntl.fcntl(fd, _ADD_SEALS, _SHRINK | _GROW)
    return fd


class Ring:
    """A link to a worker, made by us. `mine` is the direction that we write, `theirs` the other one: words of 64 bits."""

    def __init__(self, key: bytes, to: wire.Address, socket_dir: str) -> None:
        self.sock = wire.connect(f"{socket_dir}/thalweg-{os.geteuid()}/{to.token:016x}.sock")
        self.session = session = wire.dial(self.sock, key, wire.worker_target(to))
        doorbell, rings = segment(DOORBELL), segment(CONNECTION)
        self._sleeper, ringer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        offer = _SETUP.pack(0x6D687374, 7, 0, CONNECTION, 0, 0)
        link = wire.join(session, to, offers=(("shm", offer, 3),), fds=(doorbell, ringer.fileno(), rings))
        assert link.transport == "shm"
        self._map = mmap.mmap(rings, CONNECTION)
        words = memoryview(self._map).cast("Q")
        self.halves = memoryview(self._map).cast("I")  # the same, by 32 bits
        self.mine, self.theirs = words[: DIRECTION // 8], words[DIRECTION // 8 : 2 * DIRECTION // 8]
        self._bit = _SETUP.unpack(link.answer)[4]
        self._doorbell = memoryview(mmap.mmap(link.fds[0], DOORBELL)).cast("Q")
        self._ringer = socket.socket(fileno=link.fds[1])
        self.wakes = True  # rings whether the worker sleeps or not; False: as the library does
        self.head = 0
        self._bulk = 0  # where the next body goes
        self._bulk_head = 0  # bytes with padding
        for fd in (doorbell, rings, link.fds[0]):
            os.close(fd)
        ringer.close()

    def ring(self) -> None:
        """Says that the ring has something, and wakes the worker."""
        word = self._bit // 64
        self._doorbell[32 + word] |= 1 << self._bit % 64
        self._doorbell[0] |= 1 << word
        if not self.wakes and self._doorbell[SLEEPING // 8] & 0xFFFFFFFF == 0:
            return
        with contextlib.suppress(OSError):
            self._ringer.send(b"\1", socket.MSG_DONTWAIT)

    def deny_sleep(self) -> None:
        """Tells every peer of the worker that it is awake."""
        self._doorbell[SLEEPING // 8] = 0

    def send(
        self, kind: int, *, a: int = 0, b: int = 0, id: int = 0, flags: int = 0, body: bytes = b"", length: int | None = None
    ) -> None:
        """A frame as a producer writes it; `length` is what it says, right or wrong. Never waits for room."""
        at = SLOTS_AT + self.head % SLOTS * SLOT
        place = at + 24
        if len(body) > INLINE:
            size = -(-len(body) // UNIT) * UNIT
            if self._bulk + size > BULK:
                self._bulk_head += BULK - self._bulk
                self._bulk = 0
            place = BULK_AT + self._bulk
            self._bulk += size
            self._bulk_head += size
        self._map[place : place + len(body)] = body
        self.mine[at // 8 + 1], self.mine[at // 8 + 2] = a, b
        word = (len(body) if length is None else length) | (kind | 0x40) << 32 | flags << 40 | id << 48
        self.mine[at // 8] = word & ~PARITY | (0 if self.head & SLOTS else PARITY)
        self.head += 1
        self.ring()

    def offer_ring(self, length: int = DEEP, with_memory: bool = True, said: int | None = None) -> None:
        """Over the control channel. `said`: its length in the message, if another one."""
        fd = segment(length)
        self.session.send(RING, struct.pack("<Q", length if said is None else said), (fd,) if with_memory else ())
        os.close(fd)

    def room(self) -> int:
        """Slots that the peer has not given back."""
        return SLOTS - (self.head - self.mine[CONSUMED_SLOTS // 8])

    def bulk_room(self) -> int:
        return BULK - (self._bulk_head - self.mine[CONSUMED_BULK // 8])

    def ended(self) -> bool:
        """Has the peer ended the link? (No test here has it send anything over the control channel.)"""
        return bool(select.select([self.sock], [], [], 0)[0])

    def close(self) -> None:
        self.sock.close()
        self._ringer.close()
        self._sleeper.close()
