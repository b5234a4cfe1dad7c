"""Random numbers of updates, each a function of (seed, stream, update): on the host, or in a graph on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.core.rng import STREAM_IDS, stream
from rl_training.engine.phases import Noise, NoiseSpec, Source
from rl_training.tensors import device_rng


def host_indices(
    seeds: Sequence[int], update: int, size: int | NDArray[np.int64], count: int, batch_size: int
) -> Tensor:
    """(count, seeds, batch) uniform row numbers below `size`."""
    rows = [stream(seed, "replay", update).integers(size, size=(count, batch_size)) for seed in seeds]
    return torch.from_numpy(np.stack(rows, 1))


def host_uniforms(seeds: Sequence[int], update: int, batch_size: int, device: torch.device) -> Tensor:
    """(seeds, batch) numbers in [0, 1), for a source with priorities."""
    return torch.from_numpy(np.stack([stream(seed, "replay", update).random(batch_size) for seed in seeds])).to(device)


def host_noise(
    seeds: Sequence[int],
    step: int,
    specs: Mapping[str, NoiseSpec],
    device: torch.device | None = None,
    stream_name: str = "noise",
) -> Noise:
    """(seeds, *shape) random numbers for each spec; `step` is the update, or the counter of another stream."""
    rows: dict[str, list[Any]] = {name: [] for name in specs}
    for seed in seeds if specs else ():
        rng = stream(seed, stream_name, step)
        for name, spec in specs.items():
            rows[name].append(spec.draw(rng))
    # np.stack would copy the numbers of a single seed.
    arrays = {name: values[0][None] if len(seeds) == 1 else np.stack(values) for name, values in rows.items()}
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def device_indices(seeds: Tensor, updates: Tensor, source: Source, batch_size: int) -> Tensor:
    """(updates, seeds, batch) uniform row numbers below the source's size at the time the graph runs."""
    # floor(u * size), clamped: randint(high) would freeze the size into the graph.
    random = device_uniforms(seeds, updates, batch_size)
    return torch.minimum((random * source.size_tensor).long(), source.size_tensor - 1)


def device_uniforms(seeds: Tensor, updates: Tensor, batch_size: int) -> Tensor:
    """(updates, seeds, batch) numbers in (0, 1) of 48 bits: with 24, rows of a large source are not equally likely."""
    high, low = device_rng.uniforms(seeds, STREAM_IDS["replay"], updates, 2 * batch_size).double().chunk(2, -1)
    return high + (low - 0.5) * 2.0**-24


def device_noise(seeds: Tensor, steps: Tensor, specs: Mapping[str, NoiseSpec], stream_name: str = "noise") -> Noise:
    """(*steps, seeds, *shape) random numbers for each spec, drawn on the device of `seeds`."""
    noise = {}
    for number, (name, spec) in enumerate(specs.items()):
        draw = device_rng.normals if spec.kind == "normal" else device_rng.uniforms
        key = STREAM_IDS[stream_name] + 256 * (number + 1)
        noise[name] = draw(seeds, key, steps, math.prod(spec.shape)).unflatten(-1, spec.shape)
    return noise
