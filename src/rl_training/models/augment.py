"""Random shifts of images, on any device and inside compiled or captured updates."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.core.checks import UserError


def random_shift(images: Tensor, uniforms: Tensor, pad: int) -> Tensor:
    """Shift images (batch, channels, height, width) by up to `pad` whole pixels, repeating the pixels at the edge.

    `uniforms` (copies * batch, 2) in [0, 1) give the shifts down and right; with several copies row i is image
    i % batch. Equal to padding by replication and a random crop, without the padded image, and to DrQ-v2's bilinear
    sampling, whose shifts are whole pixels.
    """
    if images.ndim != 4:
        raise UserError(f"images to shift must be (batch, channels, height, width), got {tuple(images.shape)}")
    batch, _, height, width = images.shape
    device, shifts = images.device, 2 * pad + 1
    # Just below 1 a float times 9 rounds to 9, hence the bound.
    offsets = (uniforms * shifts).long().clamp(max=shifts - 1) - pad
    source = torch.arange(len(uniforms), device=device) % batch
    down = (torch.arange(height, device=device) + offsets[:, :1]).clamp(0, height - 1)
    right = (torch.arange(width, device=device) + offsets[:, 1:]).clamp(0, width - 1)
    # Channels last in memory, on which convolutions are fastest; in the shape they stay first.
    moved = images.permute(0, 2, 3, 1)[source[:, None, None], down[:, :, None], right[:, None, :]]
    return moved.permute(0, 3, 1, 2)
