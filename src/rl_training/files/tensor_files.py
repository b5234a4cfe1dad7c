"""Safetensors files, byte for byte as `safetensors` writes them, without its copies of every tensor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tensors = Mapping[str, Tensor]
# In the order of a file: the widest types first, so that every tensor is aligned.
TYPE_NAMES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ORDER = {dtype: position for position, dtype in enumerate(TYPE_NAMES)}


def tensor_parts(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> list[memoryview]:
    """The parts of a file: the header, then each tensor's own memory where it is contiguous and on the host."""
    names = sorted(tensors, key=lambda name: (ORDER[tensors[name].dtype], name.encode()))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    parts, end = [], 0
    for name in names:
        array = np.asarray(tensors[name].detach().cpu().numpy(), order="C")
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": TYPE_NAMES[tensors[name].dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        parts.append(_bytes_of(array))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [memoryview(len(text).to_bytes(8, "little") + text), *parts]


def pack_tensors(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file."""
    return b"".join(tensor_parts(tensors, metadata))


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
