"""Random shifts of images, on whatever device they are on and inside compiled or captured updates."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.core.checks import UserError


def random_shift(images: Tensor, uniforms: Tensor, pad: int) -> Tensor:
    """(batch, channels, height, width) moved by up to `pad` whole pixels each way; what comes in repeats the edge.

    `uniforms` (copies * batch, 2) in [0, 1) choose how far down and right; with several copies row i shows image
    i % batch. The same as padding by replication and cropping at a random place, without making the padded image, and
    the same as DrQ-v2's bilinear sampling, whose shifts are whole pixels: no weight falls on a second pixel.
    """
    if images.ndim != 4:
        raise UserError(f"images to shift must be (batch, channels, height, width), got {tuple(images.shape)}")
    batch, _, height, width = images.shape
    device, places = images.device, 2 * pad + 1
    # Just below 1 a float times 9 rounds to 9, hence the bound.
    offsets = (uniforms * places).long().clamp(max=places - 1) - pad
    picture = torch.arange(len(uniforms), device=device) % batch
    down = (torch.arange(height, device=device) + offsets[:, :1]).clamp(0, height - 1)
    right = (torch.arange(width, device=device) + offsets[:, 1:]).clamp(0, width - 1)
    # Channels last in memory, which is what convolutions are fastest on; in shape they stay first.
    moved = images.permute(0, 2, 3, 1)[picture[:, None, None], down[:, :, None], right[:, None, :]]
    return moved.permute(0, 3, 1, 2)
