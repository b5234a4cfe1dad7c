"""The convolutions of Mnih et al., "Human-level control through deep reinforcement learning", 2015."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.core.checks import UserError

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride
SMALLEST = 36  # pixels a side: what leaves one for the last layer


class NatureCNN(nn.Module):
    """(batch, channels, height, width) of bytes -> (batch, features), behind a ReLU. Dense layers are for who uses it.

    Weights start as PyTorch's do, evenly within 1 / sqrt(fan in).
    """

    def __init__(self, obs_shape: Sequence[int]) -> None:
        super().__init__()
        self.obs_shape = tuple(obs_shape)
        self.features = self.features_of(obs_shape)
        widths = [self.obs_shape[0], *(channels for channels, _, _ in LAYERS)]
        self.layers = nn.ModuleList(
            nn.Conv2d(width, channels, kernel, stride)
            for width, (channels, kernel, stride) in zip(widths, LAYERS, strict=False)
        )

    @staticmethod
    def features_of(obs_shape: Sequence[int]) -> int:
        if len(obs_shape) != 3:
            raise UserError(f"obs_shape must be (channels, height, width), got {tuple(obs_shape)}")
        _, height, width = obs_shape
        if min(height, width) < SMALLEST:
            raise UserError(f"images must be at least {SMALLEST}x{SMALLEST} for this network, got {height}x{width}")
        for _, kernel, stride in LAYERS:
            height, width = ((side - kernel) // stride + 1 for side in (height, width))
        return LAYERS[-1][0] * height * width

    def forward(self, obs: Tensor) -> Tensor:
        hidden = image_batch(obs, self.obs_shape)
        for layer in self.layers:
            hidden = F.relu(layer(hidden))
        return hidden.flatten(1)


def image_batch(obs: Tensor, obs_shape: tuple[int, ...]) -> Tensor:
    """Images of bytes as numbers from 0 to 1; a single one comes back as a batch of one."""
    obs = torch.as_tensor(obs)
    if tuple(obs.shape[-3:]) != obs_shape or obs.ndim > 4:
        raise UserError(f"this network takes images of shape {obs_shape}, got {tuple(obs.shape)}")
    return (obs.unsqueeze(0) if obs.ndim == 3 else obs).float() / 255
