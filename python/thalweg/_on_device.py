# SPDX-License-Identifier: Apache-2.0
"""The place of an array on a device in a pickle, and the word that names it in a header."""

from __future__ import annotations

from typing import Any

from .errors import Unsupported

TORCH, CUPY, MEMORY = 1, 2, 16  # families of arrays; of Memory one for each place
_FLAG = 1 << 63
_MOST_BYTES = 1 << 48


class OnDevice(bytearray):
    """Holds an array's place in a pickle: its bytes as a contiguous array on its device, its family and its device's number."""

    def __init__(self, array: Any, family: int, index: int, nbytes: int) -> None:
        super().__init__(1)
        if nbytes >= _MOST_BYTES or not 0 <= index < 256:
            raise Unsupported("an array on a device in an object has less than 256 TiB and a device number below 256")
        self.array = array
        self.word = _FLAG | family << 56 | index << 48 | nbytes


def is_device(word: int) -> bool:
    """Does a buffer's word in a header name memory of a device? Otherwise it is a length."""
    return bool(word & _FLAG)


def length_of(word: int) -> int:
    """Bytes of what is_device."""
    return word & (_MOST_BYTES - 1)
