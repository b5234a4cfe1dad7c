"""Convolutional encoders: images of bytes to features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.settings import PRECISIONS
from rl_training.core.checks import UserError, require
from rl_training.core.specs import image
from rl_training.models.parts import check_count


class ImageEncoder(nn.Module):
    """(batch, channels, height, width) of bytes -> (batch, features), after a ReLU and without dense layers.

    Weights have PyTorch's initial values, uniform within 1 / sqrt(fan in). `center` is subtracted from the pixels,
    scaled to [0, 1]; `precision` is that of the convolutions, parameters and features stay float32. `layer_norm`
    normalises the output of each convolution, before its ReLU.
    """

    layout: ClassVar[tuple[tuple[int, int, int], ...]]  # channels, kernel, stride

    def __init__(
        self, obs_shape: Sequence[int], center: float = 0.0, precision: str = "float32", layer_norm: bool = False
    ) -> None:
        super().__init__()
        require(precision in PRECISIONS, "precision", f"one of {', '.join(PRECISIONS)}, got {precision!r}")
        self.obs_shape, self.center = tuple(obs_shape), center
        self.dtype: torch.dtype = getattr(torch, precision)
        self.features = self.features_of(obs_shape)
        widths = [self.obs_shape[0], *(channels for channels, _, _ in self.layout)]
        self.layers = nn.ModuleList(
            nn.Conv2d(width, channels, kernel, stride)
            for width, (channels, kernel, stride) in zip(widths, self.layout, strict=False)
        )
        shapes = self.output_shapes(obs_shape)
        self.norms = nn.ModuleList(nn.LayerNorm(shape) for shape in shapes) if layer_norm else None

    @classmethod
    def min_side(cls) -> int:
        """The smallest side of an image, in pixels, for which the last layer has an output."""
        side = 1
        for _, kernel, stride in reversed(cls.layout):
            side = (side - 1) * stride + kernel
        return side

    @classmethod
    def features_of(cls, obs_shape: Sequence[int]) -> int:
        """The number of features for images of this shape."""
        if len(obs_shape) != 3:
            raise UserError(f"obs_shape must be (channels, height, width), got {tuple(obs_shape)}")
        if image(*obs_shape).channels_last is not None:
            raise UserError(f"obs_shape must be (channels, height, width), got {tuple(obs_shape)}, channels last")
        check_count("the number of channels", obs_shape[0])
        _, height, width = obs_shape
        side = cls.min_side()
        if min(height, width) < side:
            what = f"images must be at least {side}x{side} for this network, got {height}x{width}"
            raise UserError(f"{what}; network.features takes one of your own for smaller ones")
        return math.prod(cls.output_shapes(obs_shape)[-1])

    @classmethod
    def output_shapes(cls, obs_shape: Sequence[int]) -> list[list[int]]:
        """The shape of each layer's output: channels, height and width."""
        shapes, sides = [], obs_shape[1:]
        for channels, kernel, stride in cls.layout:
            sides = [(side - kernel) // stride + 1 for side in sides]
            shapes.append([channels, *sides])
        return shapes

    def forward(self, obs: Tensor) -> Tensor:
        hidden = image_batch(obs, self.obs_shape)
        hidden = (hidden - self.center if self.center else hidden).to(self.dtype)
        layer: Any  # nn.ModuleList does not type them as nn.Conv2d
        for number, layer in enumerate(self.layers):
            weight, bias = layer.weight.to(self.dtype), layer.bias.to(self.dtype)
            hidden = F.conv2d(hidden, weight, bias, layer.stride)
            if self.norms is not None:
                hidden = self.norms[number](hidden.float()).to(self.dtype)
            hidden = F.relu(hidden)
        return hidden.flatten(1).float()


class NatureCNN(ImageEncoder):
    """Mnih et al., "Human-level control through deep reinforcement learning", 2015."""

    layout = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


class DrQCNN(ImageEncoder):
    """The four layers of DrQ and DrQ-v2: their output for 84x84 pixels is 35x35, that of the Nature CNN 7x7."""

    layout = ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1))


ENCODERS: dict[str, type[ImageEncoder]] = {"drq": DrQCNN, "nature": NatureCNN}


def image_batch(obs: Tensor, obs_shape: tuple[int, ...]) -> Tensor:
    """Images of bytes as float32 in [0, 1]; a single image becomes a batch of one."""
    obs = torch.as_tensor(obs)
    if tuple(obs.shape[-3:]) != obs_shape or obs.ndim > 4:
        raise UserError(f"this network takes images of shape {obs_shape}, got {tuple(obs.shape)}")
    return (obs.unsqueeze(0) if obs.ndim == 3 else obs).float() / 255
