"""Features of observations: convolutions for images, vectors as they are, or the user's own module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.config.network import ModuleFunction, NetworkSettings
from rl_training.config.objects import python_object
from rl_training.core.specs import VECTOR, ArraySpec
from rl_training.models.cnn.encoders import NatureCNN
from rl_training.models.own import OwnFeatures
from rl_training.models.parts import as_batch


@dataclass(frozen=True)
class Observed:
    """Observations from which features are computed, and the user's function that makes their module, if any."""

    spec: ArraySpec
    make: ModuleFunction | None = None
    layer_norm: bool = False  # after each convolution of ours


ObsDim = int | Sequence[int] | Observed  # the length of a vector, the shape of an image, or any other observation


def network_input(spec: ArraySpec, network: NetworkSettings, layer_norm: bool = False) -> ObsDim:
    """What a model is built for: a length or a shape where that says everything.

    `layer_norm`: layer normalisation after each convolution.
    """
    if network.features is not None:
        return Observed(spec, python_object(network.features, "network.features"))
    normalised = layer_norm and bool(spec.images)
    return Observed(spec, None, normalised) if spec.parts or normalised else spec.network_input


class MixedEncoder(nn.Module):
    """Images with a vector, or several images: the features of each image's convolutions, and the vector."""

    def __init__(self, spec: ArraySpec, layer_norm: bool = False) -> None:
        super().__init__()
        self.names = list(spec.images)
        self.vector = VECTOR if VECTOR in spec.arrays else None
        self.encoders = nn.ModuleList(NatureCNN(one.shape, layer_norm=layer_norm) for one in spec.images.values())
        sizes = [NatureCNN.features_of(one.shape) for one in spec.images.values()]
        self.features = sum(sizes) + (spec.arrays[VECTOR].size if self.vector else 0)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        found = [encoder(obs[name]) for name, encoder in zip(self.names, self.encoders, strict=True)]
        return torch.cat([*([obs[self.vector]] if self.vector else []), *found], -1)


def make_features(observed: ObsDim) -> nn.Module | None:
    """The module that computes features, with their number as `features`; None: the vector itself."""
    if isinstance(observed, int):
        return None
    if not isinstance(observed, Observed):
        return NatureCNN(observed)
    if observed.make is not None:
        return OwnFeatures(observed.spec, observed.make)
    if observed.spec.parts:
        return MixedEncoder(observed.spec, observed.layer_norm)
    return NatureCNN(observed.spec.shape, layer_norm=observed.layer_norm)


class WithFeatures(nn.Module):
    """A network on the features of observations, which the members of an ensemble share."""

    shared = "features"

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, obs: Any, *rest: Any) -> Any:
        return self.head(self.features(obs), *rest)


def on_features(observed: ObsDim, make: Callable[[int], nn.Module]) -> nn.Module:
    """The network of `make(inputs)`, on features of its own where observations are not vectors."""
    features = make_features(observed)
    if features is None:
        assert isinstance(observed, int)
        return make(observed)
    return WithFeatures(features, make(features.features))  # type: ignore[arg-type]


def batch_of(obs: Any, observed: ObsDim) -> Any:
    """A batch; a single vector or image becomes a batch of one."""
    if isinstance(observed, int):
        return as_batch(obs)
    if isinstance(obs, Tensor):
        single = not isinstance(observed, Observed) and obs.dim() == len(observed)
        return obs.unsqueeze(0) if single else obs
    return obs


def rows_of(obs: Any) -> int:
    """The number of rows of a batch of observations."""
    return len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
