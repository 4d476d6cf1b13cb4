# SPDX-License-Identifier: Apache-2.0
"""Arrays on devices in objects: their memory travels beside the pickle, from device to device.

Pickle takes only host buffers out of band. So an array's place in the pickle is held by an OnDevice, a small host buffer that
knows the array; the message after the header is the array itself, and the header's word for it has its framework and
which device it lay. The receiver allocates on the device that it chooses before it unpickles.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

from . import _core
from ._on_device import CUPY, MEMORY, TORCH, OnDevice, length_of
from .errors import ProtocolError

_PLACES = ("cuda", "managed", "vmm", "pool", "emulated", "emulated-managed", "emulated-vmm", "emulated-pool")


class DeviceMemory(TypeError):
    """A Memory of a device was met by an ordinary pickler."""


def allocate(word: int, device: Any, context: _core.Context) -> Any:
    """Room for an array of that word. device: None (the sender's number), a number, a name such as "cuda:1" or "cpu", or a
    function from the sender's number to one of these."""
    family, index, nbytes = word >> 56 & 0x7F, word >> 48 & 0xFF, length_of(word)
    where = device(index) if callable(device) else device
    if where is None:
        where = index
    if family == TORCH:
        from . import _tensors

        return _tensors.empty(nbytes, where)
    if family == CUPY:
        return _empty_cupy(nbytes, where)
    if not 0 <= family - MEMORY < len(_PLACES):
        raise ProtocolError("the peer sent an array of a kind that this version does not know")
    place = _PLACES[family - MEMORY] + f":{where}" if isinstance(where, int) else str(where)
    return _core.Memory.allocate(context, nbytes, place="host" if place == "cpu" else place)


class Pickler(pickle.Pickler):
    """Reduces tensors and arrays to buffers beside the pickle; everything else pickles as usual."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is _core.Memory:
            return _reduce_memory(value)
        family = kind.__module__.partition(".")[0]
        if family == "torch":
            from . import _tensors

            return _tensors.reduce(value)
        if family == "cupy" and kind is sys.modules["cupy"].ndarray:
            return _reduce_cupy(value)
        return NotImplemented


# -- Memory


def _reduce_memory(memory: _core.Memory) -> Any:
    name, _, index = memory.place.partition(":")
    if name not in _PLACES:
        raise TypeError("a Memory on the host is not pickled: send a copy, numpy.array(memory)")
    held = OnDevice(memory, MEMORY + _PLACES.index(name), int(index), len(memory))
    return _same, (pickle.PickleBuffer(held),)


def _same(memory: Any) -> Any:
    return memory


def _refuse(memory: _core.Memory) -> Any:
    raise DeviceMemory("a Memory is pickled only by send_object and Pipe")


_core.Memory.__reduce__ = _refuse  # type: ignore[method-assign,assignment]


# -- CuPy


def _reduce_cupy(value: Any) -> Any:
    cupy = sys.modules["cupy"]
    if value.dtype.hasobject:
        return NotImplemented
    with value.device:
        flat = cupy.ascontiguousarray(value).reshape(-1).view(cupy.uint8)
    held = OnDevice(flat, CUPY, value.device.id, flat.nbytes)
    return _rebuild_cupy, (pickle.PickleBuffer(held), value.dtype.str, value.shape)


def _empty_cupy(nbytes: int, where: Any) -> Any:
    if where == "cpu":
        import numpy

        return numpy.empty(nbytes, numpy.uint8)
    import cupy

    with cupy.cuda.Device(int(str(where).rpartition(":")[2])):
        return cupy.empty(nbytes, cupy.uint8)


def _rebuild_cupy(flat: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    return flat.view(dtype).reshape(shape)
