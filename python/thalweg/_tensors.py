# SPDX-License-Identifier: Apache-2.0
"""CPU tensors of PyTorch in objects: their memory travels beside the pickle, as that of NumPy arrays does."""

from __future__ import annotations

import pickle
from typing import Any

import torch


def _rebuild(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool) -> torch.Tensor:
    if 0 in shape:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        writable = bytearray(buffer) if isinstance(buffer, bytes) else buffer
        tensor = torch.frombuffer(writable, dtype=dtype).reshape(shape)
    return tensor.requires_grad_() if requires_grad else tensor


class Pickler(pickle.Pickler):
    """Reduces plain CPU tensors to (buffer, dtype, shape); everything else pickles as usual."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.device.type != "cpu" or value.layout is not torch.strided:
            return NotImplemented
        if value.is_quantized or value.is_conj():
            return NotImplemented
        buffer: Any = b""
        if value.numel() > 0:
            flat = value.detach().contiguous().reshape(-1).view(torch.uint8)
            buffer = pickle.PickleBuffer(flat.numpy())
        return _rebuild, (buffer, value.dtype, tuple(value.shape), value.requires_grad)
