"""The random shift, pixel by pixel, against padding and cropping written out and against bilinear sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from rl_training.core.checks import UserError
from rl_training.models.augment import random_shift


def images(batch: int = 5, shape: tuple[int, ...] = (6, 9, 7), seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def padded_and_cropped(image: np.ndarray, top: int, left: int, pad: int) -> np.ndarray:
    """The obvious way, one pixel at a time."""
    channels, height, width = image.shape
    padded = np.zeros((channels, height + 2 * pad, width + 2 * pad), np.uint8)
    for row in range(height + 2 * pad):
        for column in range(width + 2 * pad):
            inside = min(max(row - pad, 0), height - 1), min(max(column - pad, 0), width - 1)
            padded[:, row, column] = image[:, inside[0], inside[1]]
    return padded[:, top : top + height, left : left + width]


@pytest.mark.parametrize(("pad", "copies"), [(4, 1), (4, 2), (1, 3), (0, 1), (11, 1)])
def test_every_pixel_is_that_of_the_padded_and_cropped_image(pad: int, copies: int) -> None:
    batch, places = images(), 2 * pad + 1
    drawn = np.random.default_rng(1).integers(places, size=(copies * 5, 2))
    drawn[0], drawn[-1] = 0, 2 * pad  # the outermost shifts
    shifted = random_shift(batch, torch.from_numpy((drawn + 0.5) / places).float(), pad)
    assert shifted.dtype == torch.uint8 and shifted.shape == (copies * 5, 6, 9, 7)
    for row, (top, left) in enumerate(drawn):
        expected = padded_and_cropped(batch[row % 5].numpy(), top, left, pad)
        assert np.array_equal(shifted[row].numpy(), expected), row


def test_every_shift_is_as_likely_as_any_other_and_one_is_within_bounds() -> None:
    """A single bright pixel in the middle shows where the image went."""
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 4, 4] = 1
    uniforms = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0))
    counts = random_shift(image, uniforms, 2).sum(0)[0, 2:7, 2:7]
    assert counts.sum() == 20_000, "none went farther than two pixels"
    assert (counts - 800).abs().max() < 5 * 28, "five standard deviations"
    largest = torch.full((1, 2), 1 - 2.0**-24)
    assert torch.equal(random_shift(image, largest, 4), random_shift(image, torch.full((1, 2), 0.99), 4))


def bilinear(batch: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """As the paper does it: the padded image sampled at a grid of places between -1 and 1, moved by whole pixels."""
    size = batch.shape[-1]
    padded = F.pad(batch.float(), (pad,) * 4, mode="replicate")
    whole = size + 2 * pad
    line = torch.linspace(-1 + 1 / whole, 1 - 1 / whole, whole, dtype=torch.float64)[:size]
    columns, rows = line.expand(size, size), line.unsqueeze(1).expand(size, size)
    moves = offsets.double() * 2 / whole
    grid = torch.stack([columns + moves[:, 1, None, None], rows + moves[:, 0, None, None]], -1)
    return F.grid_sample(padded.double(), grid, padding_mode="zeros", align_corners=False)


def test_bilinear_sampling_at_whole_shifts_is_the_same_shift() -> None:
    batch = images(16, (3, 20, 20))
    offsets = torch.randint(0, 9, (16, 2), generator=torch.Generator().manual_seed(2))
    shifted = random_shift(batch, (offsets + 0.5) / 9, 4)
    torch.testing.assert_close(bilinear(batch, offsets, 4), shifted.double(), rtol=0, atol=1e-9)


def test_seeds_at_once_and_compiled_give_the_same_pixels() -> None:
    batch = torch.stack([images(seed=seed) for seed in range(3)])
    uniforms = torch.rand(3, 10, 2, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([random_shift(one, draws, 4) for one, draws in zip(batch, uniforms, strict=True)])
    assert torch.equal(vmap(lambda one, draws: random_shift(one, draws, 4))(batch, uniforms), alone)
    compiled = torch.compile(random_shift, backend="aot_eager", fullgraph=True, dynamic=False)
    assert torch.equal(compiled(batch[1], uniforms[1], 4), alone[1])


def test_the_channels_lie_last_in_memory() -> None:
    shifted = random_shift(images(), torch.rand(5, 2), 4)
    assert shifted.is_contiguous(memory_format=torch.channels_last)


def test_what_is_no_batch_of_images_is_refused() -> None:
    with pytest.raises(UserError, match=r"images to shift must be \(batch, channels, height, width\), got \(3, 4\)"):
        random_shift(torch.zeros(3, 4), torch.zeros(3, 2), 1)
