"""Mutations of bytes, JSON, YAML and safetensors for the fuzzer, determined by a random generator."""

from __future__ import annotations

import json
import math
import pickle
import random
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import yaml

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320,
    math.nan, math.inf, -math.inf, "", "x", "0", "-1", "NaN", "null", "../../x", "/etc/passwd", "os:system",
    "\x00", "\ud800", "a\nb", "\x1b[31m", "é" * 300, [], {}, [[]], [None], [1, "a"], [1e9] * 3, {"a": 1},
    {"": {}}, [0] * 5000,
]  # fmt: skip
DTYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    kind, at = rng.randrange(9), rng.randrange(len(data) + 1)
    to = min(len(data), at + rng.choice((1, 2, 8, 100, 4096)))
    if kind <= 3 and data:  # a flipped bit, as on a bad disk
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 4:
        return data[:at]
    if kind == 5:
        return data[:at] + rng.randbytes(to - at) + data[to:]
    if kind == 6:
        return data[:at] + data[to:]
    if kind == 7:
        other = rng.randrange(len(data) + 1)
        return data[:at] + data[other : other + rng.choice((4, 64, 1024))] + data[at:]
    payload = pickle.dumps(Touch())
    return rng.choice((payload, data[:at] + payload + data[at:], payload + data[at:]))


class Touch:
    """An object whose pickle creates a file when it is loaded."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


def mutate_json(rng: random.Random, value: Any) -> Any:
    """A copy of nested lists and dicts with one random change."""
    value = json.loads(json.dumps(value))
    parents: list[tuple[Any, Any]] = []
    _collect(value, parents)
    if not parents or rng.random() < 0.01:
        return rng.choice(ODD)
    # Mostly entries of dicts: else long lists of numbers get most changes.
    entries = [pair for pair in parents if isinstance(pair[0], dict)] or parents
    parent, key = rng.choice(entries if rng.random() < 0.7 else parents)
    kind = rng.random()
    if kind < 0.6:
        parent[key] = rng.choice(ODD)
    elif kind < 0.7:
        parent[key] = _nudged(rng, parent[key])
    elif kind < 0.8:
        del parent[key]
    elif kind < 0.87:
        parent[key] = [parent[key]] * rng.choice((1, 2, 3))
    elif kind < 0.92:
        for _ in range(rng.choice((3, 60, 400))):
            parent[key] = {"a": parent[key]} if rng.random() < 0.5 else [parent[key]]
    elif isinstance(parent, dict):
        parent[rng.choice(("x", "", "__class__", "step", "config", key + "_"))] = parent.pop(key)
    else:
        parent.extend(parent[:])
    return value


def _collect(value: Any, parents: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in items:
        parents.append((value, key))
        _collect(entry, parents)


def _nudged(rng: random.Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice((value + 1, value - 1, -value, value * 1000, value + 0.5))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value.upper(), value[::-1], value * 50))
    if isinstance(value, list):
        return rng.choice((value[:-1], value[::-1], value + value[:1]))
    return {**value, "more": 1} if isinstance(value, dict) else 0


def mutate_yaml(rng: random.Random, text: bytes) -> bytes:
    try:
        values = mutate_json(rng, yaml.safe_load(text))
        if rng.random() < 0.3:
            values = mutate_json(rng, values)
        return yaml.dump(values, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError, RecursionError):
        return mutate_bytes(rng, text)


def mutate_safetensors(rng: random.Random, data: bytes) -> bytes:
    """Tensors of other shapes, dtypes, names and values, or a wrong header."""
    try:
        tensors = safetensors.torch.load(data)
    except Exception:  # already mutated
        return mutate_bytes(rng, data)
    if not tensors or rng.random() < 0.25:
        length = int.from_bytes(data[:8], "little")
        header = mutate_json(rng, json.loads(data[8 : 8 + length]))
        return _with_header(json.dumps(header).encode(), data[8 + length :])
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__")
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    kind = rng.randrange(9)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[rng.choice((name + "x", "x", "metric_sum.0", "metric_sum.a.b", "actions_99"))] = tensors.pop(name)
    elif kind == 2:
        tensors[name] = tensor.to(rng.choice(DTYPES))
    elif kind == 3:
        tensors[name] = tensor.reshape(-1)
    elif kind == 4:
        tensors[name] = tensor.unsqueeze(rng.randrange(tensor.dim() + 1))
    elif kind == 5:
        tensors[name] = torch.cat([tensor.reshape(1, *tensor.shape)] * 2)
    elif kind == 6:
        tensors[name] = torch.zeros(rng.choice(((0,), (0, 3), (1,), (), (3, 0, 2))), dtype=tensor.dtype)
    elif kind == 7 and tensor.is_floating_point():
        tensors[name] = torch.full_like(tensor, rng.choice((math.nan, math.inf, -1.0, 1e30)))
    else:
        whole = tensor.dtype in (torch.int64, torch.int32, torch.int8, torch.uint8)
        limit = torch.iinfo(tensor.dtype).max if whole else 1
        tensors[name] = torch.full_like(tensor, rng.choice((-1, limit, 2)) if tensor.dtype != torch.uint8 else limit)
    tensors = {key: value.contiguous().clone() for key, value in tensors.items()}
    return safetensors.torch.save(tensors, metadata)


def _with_header(header: bytes, body: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + body
