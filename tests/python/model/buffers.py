# SPDX-License-Identifier: Apache-2.0
"""Buffers of the programs: of every kind that a user may give, between guard bytes, poisoned when their operation has ended."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import thalweg as tw

GUARD = 16  # bytes on each side
STRIDED_MOST = 5000  # bytes: each is a piece of its own
COLUMN, PITCH = 8, 24  # bytes


def payload(seed: int, number: int, size: int) -> bytes:
    """The bytes of one operation of one program."""
    return random.Random(f"{seed}/{number}").randbytes(size)


class Buffer:
    """One operation's memory. The object that the library gets is made by give() and has no other reference."""

    def __init__(self, kind: str, size: int, filler: int, context: tw.Context | None) -> None:
        if (kind == "strided" and size > STRIDED_MOST) or (kind == "columns" and (size == 0 or size % COLUMN != 0)):
            kind = "memoryview"
        if kind == "bytearray" and size == 0:
            kind = "memoryview"
        self.kind, self.size = kind, size
        self.memory: Any = None
        self.base: Any
        self.index: Any = slice(GUARD, GUARD + size)
        span = size
        if kind == "library":
            self.memory = self.base = self.library(size, context)
            self.index = slice(0, size)
        else:
            if kind == "strided":
                span = 2 * size
                self.index = slice(GUARD, GUARD + span, 2)
            elif kind == "columns":
                span = size // COLUMN * PITCH
                rows = np.arange(size // COLUMN)[:, None] * PITCH
                self.index = (GUARD + rows + np.arange(COLUMN)[None, :]).ravel()
            elif kind == "bytearray":
                self.index = slice(0, size)
                span -= 2 * GUARD
            self.base = bytearray(2 * GUARD + span)
        self._set(filler)

    def library(self, size: int, context: Any) -> Any:
        """The library's memory."""
        return tw.Memory.allocate(context, max(size, 1))

    def _set(self, filler: int) -> None:
        self._bytes()[:] = filler
        self.wanted: bytes = bytes(self.base)

    def _bytes(self) -> np.ndarray:
        return np.frombuffer(self.base, np.uint8)

    def give(self) -> Any:
        """What the library gets."""
        if self.kind == "bytearray":
            return self.base
        if self.kind == "library":
            return memoryview(self.base)[: self.size]
        if self.kind == "strided":
            return memoryview(self.base)[self.index]
        if self.kind == "columns":
            rows = self.size // COLUMN
            return self._bytes()[GUARD : GUARD + rows * PITCH].reshape(rows, PITCH)[:, :COLUMN]
        if self.kind == "numpy":
            if self.size > 0 and self.size % 8 == 0:
                return np.frombuffer(self.base, np.float64, self.size // 8, GUARD)
            return self._bytes()[self.index]
        return memoryview(self.base)[self.index]

    def write(self, data: bytes) -> None:
        """The user's bytes; nothing else may change any of them."""
        self._bytes()[self.index] = np.frombuffer(data, np.uint8)
        self.wanted = bytes(self.base)

    def read(self) -> bytes:
        """The user's bytes."""
        return self._bytes()[self.index].tobytes()

    def untouched(self) -> bool:
        """Is every byte what it was, guards included?"""
        return bytes(self.base) == self.wanted

    def has(self, data: bytes) -> bool:
        """Did these bytes come to its beginning, and nothing else?"""
        wanted = np.frombuffer(bytearray(self.wanted), np.uint8)
        places = np.arange(wanted.size)[self.index][: len(data)]
        wanted[places] = np.frombuffer(data, np.uint8)
        return bool(np.array_equal(wanted, self._bytes()))

    def guarded(self) -> bool:
        """Is what does not belong to the user's bytes as it was?"""
        before, now = np.frombuffer(self.wanted, np.uint8).copy(), self._bytes().copy()
        before[self.index] = now[self.index] = 0
        return bool(np.array_equal(before, now))

    def poison(self, filler: int) -> None:
        """It is the user's again: untouched() finds later writes."""
        self._set(filler)

    def look(self) -> None:
        """Brings what is in it to `base`, where that is elsewhere."""

    def held(self) -> bool:
        """Has the library a view of it? (Not known of its own memory, but by a release.)"""
        if self.memory is not None or not self.base:
            return False
        try:
            self.base.append(self.base.pop())  # as long as before: nothing moves
        except BufferError:
            return True
        return False


class DeviceBuffer(Buffer):
    """Memory of a device, all of it; `base` is what this processor knows of it."""

    def __init__(self, place: str, size: int, filler: int, context: tw.Context | None) -> None:
        assert context is not None
        self.context, self.device = context, tw.Memory.allocate(context, max(size, 1), place=place)
        super().__init__("library", size, filler, context)
        self.memory = self.device

    def library(self, size: int, context: Any) -> Any:
        return bytearray(max(size, 1))

    def _set(self, filler: int) -> None:
        super()._set(filler)
        tw.copy(self.context, self.device, self.base)

    def write(self, data: bytes) -> None:
        super().write(data)
        tw.copy(self.context, self.device, self.base)

    def give(self) -> Any:
        return self.device

    def look(self) -> None:
        tw.copy(self.context, self.base, self.device)
