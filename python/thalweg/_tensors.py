# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch in objects: their memory travels beside the pickle, from where it is to where the receiver wants it."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from ._on_device import TORCH, OnDevice


def _rebuild(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    if isinstance(buffer, torch.Tensor):
        tensor = buffer.view(dtype).reshape(shape)
    elif 0 in shape:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        writable = bytearray(buffer) if isinstance(buffer, bytes) else buffer
        tensor = torch.frombuffer(writable, dtype=dtype).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


def reduce(value: Any) -> Any:
    """Plain tensors on the host or a GPU to (buffer, dtype, shape); NotImplemented for all else."""
    if type(value) is not torch.Tensor or value.device.type not in ("cpu", "cuda") or value.layout is not torch.strided:
        return NotImplemented
    if value.is_quantized or value.is_conj() or value.is_neg():
        return NotImplemented
    buffer: Any = b""
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
    if value.device.type == "cuda":
        buffer = pickle.PickleBuffer(OnDevice(flat, TORCH, value.device.index, flat.numel()))
    elif value.numel() > 0:
        buffer = pickle.PickleBuffer(flat.numpy())
    return _rebuild, (buffer, value.dtype, tuple(value.shape), value.requires_grad)


def empty(nbytes: int, where: Any) -> torch.Tensor:
    """Bytes on the device of that number or name."""
    return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{where}" if isinstance(where, int) else where)
