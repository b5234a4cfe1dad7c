"""SAC written plainly in eager torch, updates only, on random data: a yardstick where no package is.

side_sac_eager.py LIBRARY CLASS SHAPE WARM_UP STRETCH [batch_size=256 hidden_sizes=[256,256] device="cuda"]
The first two words are not used. As in a file of one's own: twin critics, torch.optim.Adam, a tuned temperature.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
from pacer import Pacer
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = {"HalfCheetah-v5": (17, 6)}  # numbers in an observation and in an action
ROWS, GAMMA, TAU, RATE = 10_000, 0.99, 0.005, 3e-4


def mlp(inputs: int, hidden: list[int], outputs: int) -> nn.Sequential:
    sizes = [inputs, *hidden]
    layers = [layer for pair in zip(sizes, hidden, strict=False) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


class PlainSAC:
    """The networks, their optimizers and one update."""

    def __init__(self, obs: int, actions: int, hidden: list[int], device: str) -> None:
        self.actor = mlp(obs, hidden, 2 * actions).to(device)
        self.critics = nn.ModuleList(mlp(obs + actions, hidden, 1) for _ in range(2)).to(device)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        self.target_entropy = -float(actions)
        parameters = (self.actor.parameters(), self.critics.parameters(), [self.log_alpha])
        self.adams = [torch.optim.Adam(each, lr=RATE) for each in parameters]

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Squashed actions and their log-probabilities."""
        mean, log_std = self.actor(obs).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        logprob = (-0.5 * noise.pow(2) - log_std - 0.9189385).sum(-1)
        return raw.tanh(), logprob - (2 * (0.6931472 - raw - F.softplus(-2 * raw))).sum(-1)

    def update(self, obs: Tensor, actions: Tensor, rewards: Tensor, next_obs: Tensor, dones: Tensor) -> None:
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_actions, next_logprobs = self.sample(next_obs)
            pair = torch.cat([next_obs, next_actions], -1)
            next_q = torch.min(*(target(pair).squeeze(-1) for target in self.targets)) - alpha * next_logprobs
            target_q = rewards + GAMMA * (1 - dones) * next_q
        pair = torch.cat([obs, actions], -1)
        self._step(1, torch.stack([F.mse_loss(critic(pair).squeeze(-1), target_q) for critic in self.critics]).sum())
        sampled, logprobs = self.sample(obs)
        pair = torch.cat([obs, sampled], -1)
        q = torch.min(*(critic(pair).squeeze(-1) for critic in self.critics))
        self._step(0, (alpha * logprobs - q).mean())
        self._step(2, -(self.log_alpha * (logprobs.detach() + self.target_entropy)).mean())
        with torch.no_grad():
            for target, value in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(value, TAU)

    def _step(self, number: int, loss: Tensor) -> None:
        self.adams[number].zero_grad(set_to_none=True)
        loss.backward()
        self.adams[number].step()


def main() -> None:
    _library, _algo, shape, warm_up, stretch, *words = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words)}
    device, batch_size = values.get("device", "cpu"), values.get("batch_size", 256)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    obs, actions = SIZES[shape]
    learner = PlainSAC(obs, actions, values.get("hidden_sizes", [256, 256]), device)
    widths = {"obs": (obs,), "actions": (actions,), "rewards": (), "next_obs": (obs,), "dones": ()}
    data = {name: torch.randn(ROWS, *width, device=device) for name, width in widths.items()}
    data["actions"], data["dones"] = data["actions"].tanh(), torch.zeros(ROWS, device=device)
    pacer = Pacer(int(warm_up), int(stretch), torch.cuda.synchronize if device != "cpu" else lambda: None)
    while True:
        rows = torch.randint(ROWS, (batch_size,), device=device)
        learner.update(*(data[name][rows] for name in widths))
        pacer.step()


if __name__ == "__main__":
    main()
