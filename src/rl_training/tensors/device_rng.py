"""Threefry-2x32 in torch operations: random numbers as a function of (seed, stream, step) inside a compiled graph."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry(key0: Tensor, key1: Tensor, counter0: Tensor, counter1: Tensor) -> tuple[Tensor, Tensor]:
    """Twenty rounds of Threefry on int32, which wraps around; an arithmetic shift and a mask make a logical shift."""
    keys = (key0, key1, key0 ^ key1 ^ PARITY)
    x0, x1 = counter0 + keys[0], counter1 + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << rotation) | ((x1 >> (32 - rotation)) & ((1 << rotation) - 1))) ^ x0
        x0, x1 = x0 + keys[(group + 1) % 3], x1 + keys[(group + 2) % 3] + (group + 1)
    return x0, x1


def uniforms(seeds: Tensor, stream: int, step: Tensor, count: int) -> Tensor:
    """(*steps, seeds, count) uniform numbers in (0, 1), each row a function of its own seed and step only."""
    half = (count + 1) // 2
    counter = torch.arange(half, dtype=torch.int32, device=seeds.device)
    key0 = seeds.to(torch.int32).unsqueeze(1)
    words = threefry(key0, torch.full_like(key0, stream), counter, step.to(torch.int32)[..., None, None])
    return _unit_interval(words, count)


def member_uniforms(seeds: Tensor, stream: int, members: Tensor, steps: Tensor, count: int) -> Tensor:
    """(rows, count) uniform numbers in (0, 1), each row a function of its own seed, member and step only."""
    half = (count + 1) // 2
    key0, member, step = (one.to(torch.int32).unsqueeze(1) for one in (seeds, members, steps))
    counter = member * half + torch.arange(half, dtype=torch.int32, device=seeds.device)
    return _unit_interval(threefry(key0, torch.full_like(key0, stream), counter, step), count)


def _unit_interval(words: tuple[Tensor, Tensor], count: int) -> Tensor:
    """The first `count` random words as float32 in (0, 1): 24 bits of each, and half a unit."""
    bits = torch.cat(words, dim=-1)[..., :count]
    return ((bits >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24 + 2.0**-25


def normals(seeds: Tensor, stream: int, step: Tensor, count: int) -> Tensor:
    """(*steps, seeds, count) standard normal numbers by the Box-Muller transform."""
    half = (count + 1) // 2
    radius, angle = uniforms(seeds, stream, step, 2 * half).chunk(2, dim=-1)
    radius, angle = (-2 * radius.log()).sqrt(), 2 * math.pi * angle
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=-1)[..., :count]
