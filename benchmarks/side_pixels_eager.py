"""The updates of DrQ and DrQ-v2 as in the authors' code: eager, float32, on one device.

side_pixels_eager.py eager drq|drqv2 pixels WARM_UP STRETCH [device="cuda"] [workers=4]
The replay is in host memory and each batch is copied to the device. DrQ's is one numpy gather for each update; DrQ-v2's
samples come from `workers` processes that pick one transition at a time and put batches together ahead of time.
The networks, sizes and order of updates are the papers'; the code is ours.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pacer import Pacer
from torch import Tensor, nn

CHANNELS, SIDE, ACTIONS, FEATURES, WIDTH, PAD = 9, 84, 6, 50, 1024, 4
ROWS = 4000  # of the replay
EPISODE = 500
GAMMA, TAU = 0.99, 0.01


def convolutions() -> nn.Sequential:
    """(9, 84, 84) to 32 maps of 35 x 35."""
    layers: list[nn.Module] = []
    for index in range(4):
        layers += [nn.Conv2d(32 if index else CHANNELS, 32, 3, stride=1 if index else 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten())


def compression() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32 * 35 * 35, FEATURES), nn.LayerNorm(FEATURES), nn.Tanh())


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
    )


def follow(target: nn.Module, source: nn.Module) -> None:
    with torch.no_grad():
        for old, new in zip(target.parameters(), source.parameters(), strict=True):
            old.copy_(TAU * new + (1 - TAU) * old)


class TwinCritic(nn.Module):
    """Two critics with their own encoder (DrQ), or on the features of a shared one (DrQ-v2: None)."""

    def __init__(self, encoder: nn.Module | None) -> None:
        super().__init__()
        self.encoder, self.head = encoder, compression()
        self.first, self.second = mlp(FEATURES + ACTIONS, 1), mlp(FEATURES + ACTIONS, 1)

    def forward(self, seen: Tensor, action: Tensor, detach_encoder: bool = False) -> tuple[Tensor, Tensor]:
        if self.encoder is not None:
            seen = self.encoder(seen / 255.0)
        both = torch.cat([self.head(seen.detach() if detach_encoder else seen), action], -1)
        return self.first(both), self.second(both)


# --- DrQ --------------------------------------------------------------------------------------------------------------
class NumpyReplay:
    """Whole stacks of frames for each transition, gathered with numpy."""

    def __init__(self, batch: int, device: torch.device) -> None:
        rng = np.random.default_rng(0)
        self.rng, self.batch, self.device = rng, batch, device
        self.obs = rng.integers(0, 256, (ROWS, CHANNELS, SIDE, SIDE), dtype=np.uint8)
        self.next_obs = np.roll(self.obs, -1, 0)
        self.actions = rng.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32)
        self.rewards = rng.normal(size=(ROWS, 1)).astype(np.float32)
        self.not_terminated = np.ones((ROWS, 1), np.float32)

    def sample(self) -> list[Tensor]:
        rows = self.rng.integers(0, ROWS, self.batch)
        images = [torch.as_tensor(a[rows], device=self.device).float() for a in (self.obs, self.next_obs)]
        rest = [torch.as_tensor(a[rows], device=self.device) for a in (self.actions, self.rewards, self.not_terminated)]
        return images + rest


def random_crops(images: Tensor) -> Tensor:
    """Each image padded by its border and cut at a random place of its own."""
    padded = F.pad(images, (PAD,) * 4, mode="replicate")
    places = torch.randint(0, 2 * PAD + 1, (len(images), 2), device=images.device)
    span = torch.arange(SIDE, device=images.device)
    rows, columns = places[:, :1] + span, places[:, 1:] + span
    images_index = torch.arange(len(images), device=images.device)[:, None, None, None]
    channels = torch.arange(CHANNELS, device=images.device)[None, :, None, None]
    return padded[images_index, channels, rows[:, None, :, None], columns[:, None, None, :]]


class SquashedActor(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head, self.trunk = encoder, compression(), mlp(FEATURES, 2 * ACTIONS)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """An action and its log-density; the convolutions are the critic's and not trained from here."""
        mean, log_std = self.trunk(self.head(self.encoder(obs / 255.0).detach())).chunk(2, -1)
        log_std = -10 + 6 * (log_std.tanh() + 1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        raw = normal.rsample()
        density = normal.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return raw.tanh(), density.sum(-1, keepdim=True)


def drq(device: torch.device, **_: Any) -> Callable[[int], None]:
    encoder = convolutions()
    critic, actor = TwinCritic(encoder).to(device), SquashedActor(encoder).to(device)
    target = copy.deepcopy(critic)
    log_alpha = torch.tensor(math.log(0.1), device=device, requires_grad=True)
    actor_parameters = [*actor.head.parameters(), *actor.trunk.parameters()]
    critic_adam, actor_adam, alpha_adam = (
        torch.optim.Adam(p, lr=1e-3) for p in (critic.parameters(), actor_parameters, [log_alpha])
    )
    replay = NumpyReplay(128, device)

    def update(number: int) -> None:
        obs, next_obs, action, reward, not_terminated = replay.sample()
        views, next_views = [random_crops(obs) for _ in range(2)], [random_crops(next_obs) for _ in range(2)]
        with torch.no_grad():
            targets = []
            for view in next_views:
                next_action, density = actor(view)
                value = torch.min(*target(view, next_action)) - log_alpha.exp() * density
                targets.append(reward + not_terminated * GAMMA * value)
            target_q = (targets[0] + targets[1]) / 2
        loss = torch.zeros((), device=device)
        for view in views:
            first, second = critic(view, action)
            loss = loss + F.mse_loss(first, target_q) + F.mse_loss(second, target_q)
        critic_adam.zero_grad()
        loss.backward()
        critic_adam.step()
        if number % 2 == 0:
            sampled, density = actor(views[0])
            value = torch.min(*critic(views[0], sampled, detach_encoder=True))
            actor_adam.zero_grad()
            (log_alpha.exp().detach() * density - value).mean().backward()
            actor_adam.step()
            alpha_adam.zero_grad()
            (log_alpha.exp() * (-density + ACTIONS).detach()).mean().backward()
            alpha_adam.step()
            follow(target, critic)

    return update


# --- DrQ-v2 -----------------------------------------------------------------------------------------------------------
class Episodes(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Transitions of three steps, one at a time, from episodes in memory."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        count = ROWS // EPISODE
        self.images = [rng.integers(0, 256, (EPISODE + 1, CHANNELS, SIDE, SIDE), dtype=np.uint8) for _ in range(count)]
        self.actions = rng.uniform(-1, 1, (count, EPISODE + 1, ACTIONS)).astype(np.float32)
        self.rewards = rng.normal(size=(count, EPISODE + 1, 1)).astype(np.float32)

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        rng = np.random.default_rng()
        while True:
            episode, at = int(rng.integers(len(self.images))), int(rng.integers(1, EPISODE - 1))
            reward, discount = np.zeros(1, np.float32), np.ones(1, np.float32)
            for step in range(3):
                reward += discount * self.rewards[episode, at + step]
                discount *= GAMMA
            images = self.images[episode]
            yield images[at - 1], self.actions[episode, at], reward, discount, images[at + 2]


def bilinear_shifts(images: Tensor) -> Tensor:
    """Whole-pixel shifts of a padded image, read by bilinear interpolation."""
    padded = F.pad(images, (PAD,) * 4, mode="replicate")
    size = SIDE + 2 * PAD
    line = torch.linspace(-1 + 1 / size, 1 - 1 / size, size, device=images.device)[:SIDE]
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).repeat(len(images), 1, 1, 1)
    shift = torch.randint(0, 2 * PAD + 1, (len(images), 1, 1, 2), device=images.device, dtype=images.dtype)
    return F.grid_sample(padded, grid + shift * (2 / size), padding_mode="zeros", align_corners=False)


def clipped_noise(mean: Tensor, std: float) -> Tensor:
    action = mean + (std * torch.randn_like(mean)).clamp(-0.3, 0.3)
    return action - action.detach() + action.clamp(-1 + 1e-6, 1 - 1e-6).detach()


def drqv2(device: torch.device, workers: int) -> Callable[[int], None]:
    encoder, critic = convolutions().to(device), TwinCritic(None).to(device)
    actor = nn.Sequential(compression(), mlp(FEATURES, ACTIONS), nn.Tanh()).to(device)
    target = copy.deepcopy(critic)
    adams = [torch.optim.Adam(module.parameters(), lr=1e-4) for module in (encoder, critic, actor)]
    loader = torch.utils.data.DataLoader(
        Episodes(), batch_size=256, num_workers=workers, pin_memory=device.type == "cuda"
    )
    batches = iter(loader)

    def update(number: int) -> None:
        obs, action, reward, discount, next_obs = (tensor.to(device) for tensor in next(batches))
        seen = encoder(bilinear_shifts(obs.float()) / 255.0 - 0.5)
        with torch.no_grad():
            next_seen = encoder(bilinear_shifts(next_obs.float()) / 255.0 - 0.5)
            next_action = clipped_noise(actor(next_seen), 0.5)
            target_q = reward + discount * torch.min(*target(next_seen, next_action))
        first, second = critic(seen, action)
        loss = F.mse_loss(first, target_q) + F.mse_loss(second, target_q)
        for adam in adams[:2]:
            adam.zero_grad(set_to_none=True)
        loss.backward()
        for adam in reversed(adams[:2]):
            adam.step()
        seen = seen.detach()
        value = torch.min(*critic(seen, clipped_noise(actor(seen), 0.5)))
        adams[2].zero_grad(set_to_none=True)
        (-value.mean()).backward()
        adams[2].step()
        follow(target, critic)

    return update


def main() -> None:
    _library, algo, _shape, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    device = torch.device(values.get("device", "cpu"))
    workers = values.get("workers", 4)  # as in the authors' settings
    torch.backends.cudnn.benchmark = True  # as the authors do
    update = {"drq": drq, "drqv2": drqv2}[algo](device, workers=workers)
    pacer = Pacer(int(warm_up), int(stretch), torch.cuda.synchronize if device.type == "cuda" else lambda: None)
    for number in itertools.count():
        update(number)
        pacer.step()


if __name__ == "__main__":
    main()
