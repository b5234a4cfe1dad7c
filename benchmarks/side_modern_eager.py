"""CrossQ, SAC with SimBa's networks and FlashSAC written plainly in eager torch: the yardsticks of `modern_speed.py`.

Ordinary modules, autograd and torch.optim, one network after the other, as in a file of one's own; the replay is on the
device. A test feeds them the weights, batches and noise of the library and finds the same losses.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = Mapping[str, Tensor]
ROWS = 10_000  # of the replay


# --- networks --------------------------------------------------------------------------------------------------------
class BatchRenorm(nn.Module):
    """Batch renormalisation of Ioffe 2017, after a warm-up of plain batch normalisation."""

    def __init__(self, size: int, warmup: int = 100_000) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.warmup, self.passes, self.momentum, self.eps = warmup, 0, 0.01, 1e-3

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return (x - self.running_mean) / (self.running_var + self.eps).sqrt() * self.weight + self.bias
        mean, var = x.mean(0), x.var(0, correction=0)
        normal = (x - mean) / (var + self.eps).sqrt()
        with torch.no_grad():
            if self.passes >= self.warmup:
                std = (self.running_var + self.eps).sqrt()
                scale = ((var + self.eps).sqrt() / std).clamp(1 / 3, 3)
                shift = ((mean - self.running_mean) / std).clamp(-5, 5)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (len(x) / (len(x) - 1)), self.momentum)
        if self.passes >= self.warmup:
            normal = normal * scale + shift
        self.passes += 1
        return normal * self.weight + self.bias


def renormalized_mlp(inputs: int, sizes: list[int], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip([inputs, *sizes], sizes, strict=False):
        layers += [BatchRenorm(before), nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, BatchRenorm(sizes[-1]), nn.Linear(sizes[-1], outputs))


class Residual(nn.Module):
    """x + the layers of x."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def simba(inputs: int, sizes: list[int], outputs: int) -> nn.Sequential:
    blocks = [Residual(nn.LayerNorm(h), nn.Linear(h, 4 * h), nn.ReLU(), nn.Linear(4 * h, h)) for h in sizes]
    return nn.Sequential(nn.Linear(inputs, sizes[0]), *blocks, nn.LayerNorm(sizes[0]), nn.Linear(sizes[0], outputs))


def flash_network(inputs: int, sizes: list[int], outputs: int) -> nn.Sequential:
    def normalized(before: int, after: int) -> list[nn.Module]:
        return [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after, momentum=0.01), nn.ReLU()]

    blocks = [Residual(*normalized(h, 4 * h), *normalized(4 * h, h)) for h in sizes]
    embedder = [nn.BatchNorm1d(inputs, momentum=0.01), nn.Linear(inputs, sizes[0], bias=False)]
    return nn.Sequential(*embedder, *blocks, nn.RMSNorm(sizes[0], eps=1e-6), nn.Linear(sizes[0], outputs))


@torch.no_grad()
def project(module: nn.Module) -> None:
    """Rows of weights to length 1, scales (with shifts) of normalisations to the root of their number."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.copy_(F.normalize(layer.weight, dim=-1))
        elif isinstance(layer, nn.BatchNorm1d):
            factor = math.sqrt(len(layer.weight)) / (layer.weight.square() + layer.bias.square()).sum().sqrt()
            layer.weight.mul_(factor)
            layer.bias.mul_(factor)
        elif isinstance(layer, nn.RMSNorm):
            layer.weight.mul_(math.sqrt(len(layer.weight)) / layer.weight.norm())


# --- learners --------------------------------------------------------------------------------------------------------
class PlainSimba:
    """SAC on networks of SimBa with normalised observations."""

    network = staticmethod(simba)
    log_std_limits = (-20.0, 2.0)
    outputs = 1
    every, policy_first = 1, False  # updates of the critics for one of the policy, and whether that comes first

    def __init__(self, obs: int, actions: int, settings: Any, device: str) -> None:
        """`settings` are those of the library's algorithm."""
        self.settings, self.device, self.actions = settings, torch.device(device), actions
        self.actor = self.network(obs, list(settings.actor_layers), 2 * actions).to(device)
        make = lambda: self.network(obs + actions, list(settings.critic_layers), self.outputs)  # noqa: E731
        self.critics = nn.ModuleList([make(), make()]).to(device)
        self.log_alpha = torch.tensor(math.log(settings.initial_alpha), device=device, requires_grad=True)
        self.target = copy.deepcopy(self.critics)
        self.critic_optimizer, self.actor_optimizer = map(self.optimizer, (self.critics, self.actor))
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=settings.learning_rate)
        self.mean, self.scale = torch.zeros(obs, device=device), torch.ones(obs, device=device)
        self.target_entropy = self.entropy_goal()
        rows = {"obs": (obs,), "next_obs": (obs,), "actions": (actions,), "rewards": (), "dones": ()}
        self.replay = {name: torch.randn(ROWS, *shape, device=device) for name, shape in rows.items()}
        self.replay["actions"].tanh_()
        self.replay["dones"].zero_()
        self.count = 0

    def optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(module.parameters(), lr=self.settings.learning_rate, weight_decay=0.01)

    def entropy_goal(self) -> float:
        return -float(self.actions) if self.settings.target_entropy == "auto" else self.settings.target_entropy

    def train(self) -> None:
        """One update on a batch from the replay."""
        rows = torch.randint(0, ROWS, (self.settings.batch_size,), device=self.device)
        self.update({name: column[rows] for name, column in self.replay.items()})

    def update(self, batch: Batch, noise: Batch | None = None, policy: bool | None = None) -> dict[str, Tensor]:
        """One update; the losses. `noise` and whether the policy is due are given by a test alone."""
        self.count += 1
        batch, shape = self.prepared(batch), (len(batch["rewards"]), self.actions)
        drawn = noise or {name: torch.randn(shape, device=self.device) for name in ("next_action", "action")}
        due = self.count % self.every == 0 if policy is None else policy
        losses = {}
        for phase in ("policy", "critics") if self.policy_first else ("critics", "policy"):
            if phase == "critics":
                losses["critic_loss"] = self.train_critics(batch, drawn["next_action"])
            elif due:
                losses["actor_loss"] = self.train_policy(batch, drawn["action"])
        self.follow()
        return losses

    def prepared(self, batch: Batch) -> dict[str, Tensor]:
        normal = {name: ((batch[name] - self.mean) * self.scale).clamp(-10, 10) for name in ("obs", "next_obs")}
        return {**batch, **normal}

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Squashed Gaussian actions and their log-densities."""
        mean, log_std = self.actor(obs).chunk(2, -1)
        log_std = self.limited(log_std)
        raw = mean + log_std.exp() * noise
        density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        return raw.tanh(), (density - 2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)

    def limited(self, log_std: Tensor) -> Tensor:
        return log_std.clamp(*self.log_std_limits)

    def train_critics(self, batch: Batch, noise: Tensor) -> Tensor:
        with torch.no_grad():
            next_action, density = self.act(batch["next_obs"], noise)
            following = torch.cat([batch["next_obs"], next_action], -1)
            value = torch.min(*(critic(following) for critic in self.target)).squeeze(-1)
            value = value - self.log_alpha.exp() * density
            goal = batch["rewards"] + self.settings.gamma * (1 - batch["dones"]) * value
        current = torch.cat([batch["obs"], batch["actions"]], -1)
        return self.step(self.critic_optimizer, sum(F.mse_loss(one(current).squeeze(-1), goal) for one in self.critics))

    def train_policy(self, batch: Batch, noise: Tensor) -> Tensor:
        action, density = self.act(batch["obs"], noise)
        inputs = torch.cat([batch["obs"], action], -1)
        value = torch.min(*(critic(inputs) for critic in self.critics)).squeeze(-1)
        loss = self.step(self.actor_optimizer, (self.log_alpha.exp().detach() * density - value).mean())
        self.step(self.alpha_optimizer, -(self.log_alpha * (density.detach() + self.target_entropy)).mean())
        return loss

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def follow(self) -> None:
        for old, new in zip(self.target.parameters(), self.critics.parameters(), strict=True):
            old.lerp_(new, self.settings.tau)


class PlainCrossQ(PlainSimba):
    """CrossQ: one pass over current and next rows, no target networks."""

    network = staticmethod(renormalized_mlp)
    every = 3

    def optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(module.parameters(), lr=self.settings.learning_rate, betas=(0.5, 0.999))

    def prepared(self, batch: Batch) -> dict[str, Tensor]:
        return dict(batch)

    def train_critics(self, batch: Batch, noise: Tensor) -> Tensor:
        self.actor.eval()
        with torch.no_grad():
            next_action, density = self.act(batch["next_obs"], noise)
        obs = torch.cat([batch["obs"], batch["next_obs"]])
        both = torch.cat([obs, torch.cat([batch["actions"], next_action])], -1)
        self.critics.train()
        values = [critic(both).squeeze(-1).chunk(2) for critic in self.critics]
        with torch.no_grad():
            value = torch.min(*(following for _, following in values)) - self.log_alpha.exp() * density
            goal = batch["rewards"] + self.settings.gamma * (1 - batch["dones"]) * value
        return self.step(self.critic_optimizer, sum(F.mse_loss(current, goal) for current, _ in values))

    def train_policy(self, batch: Batch, noise: Tensor) -> Tensor:
        self.actor.train()
        self.critics.eval()
        return super().train_policy(batch, noise)

    def follow(self) -> None:
        pass


class PlainFlashSAC(PlainSimba):
    """FlashSAC: the policy first, categorical critics, weights of fixed length."""

    network = staticmethod(flash_network)
    log_std_limits = (-10.0, 2.0)
    every, policy_first = 2, True

    def __init__(self, obs: int, actions: int, settings: Any, device: str) -> None:
        self.outputs = settings.num_atoms
        super().__init__(obs, actions, settings, device)
        self.atoms = torch.linspace(-settings.v_max, settings.v_max, settings.num_atoms, device=device)
        self.reward_scale = torch.ones((), device=device)
        for module in (self.actor, self.critics):
            project(module)
        self.target.load_state_dict(self.critics.state_dict())

    def optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(module.parameters(), lr=self.settings.learning_rate)

    def entropy_goal(self) -> float:
        return 0.5 * self.actions * math.log(2 * math.pi * math.e * self.settings.target_std**2)

    def prepared(self, batch: Batch) -> dict[str, Tensor]:
        return {**batch, "rewards": self.reward_scale * batch["rewards"]}

    def limited(self, log_std: Tensor) -> Tensor:
        low, high = self.log_std_limits
        return low + 0.5 * (high - low) * (log_std.tanh() + 1)

    def train_policy(self, batch: Batch, noise: Tensor) -> Tensor:
        self.actor.train()
        self.critics.eval()
        both = self.act(torch.cat([batch["obs"], batch["next_obs"]]), torch.cat([noise, torch.zeros_like(noise)]))
        action, density = (one[: len(noise)] for one in both)
        inputs = torch.cat([batch["obs"], action], -1)
        value = torch.min(*((critic(inputs).softmax(-1) * self.atoms).sum(-1) for critic in self.critics))
        loss = self.step(self.actor_optimizer, (self.log_alpha.exp().detach() * density - value).mean())
        project(self.actor)
        self.step(self.alpha_optimizer, -self.log_alpha.exp() * (density.detach().mean() + self.target_entropy))
        return loss

    def train_critics(self, batch: Batch, noise: Tensor) -> Tensor:
        self.actor.eval()
        self.critics.train()
        with torch.no_grad():
            next_action, density = self.act(batch["next_obs"], noise)
            obs = torch.cat([batch["obs"], batch["next_obs"]])
            both = torch.cat([obs, torch.cat([batch["actions"], next_action])], -1)
            following = torch.stack([critic(both).chunk(2)[1].softmax(-1) for critic in self.target])
            smallest = (following * self.atoms).sum(-1).argmin(0)
            probabilities = following[smallest, torch.arange(len(smallest), device=self.device)]
            goal = self.projected(batch, self.log_alpha.exp() * density, probabilities)
        logits = [critic(both).chunk(2)[0] for critic in self.critics]
        loss = sum(-(goal * one.log_softmax(-1)).sum(-1).mean() for one in logits) / len(logits)
        self.step(self.critic_optimizer, loss)
        project(self.critics)
        return loss.detach()

    def projected(self, batch: Batch, entropy: Tensor, probabilities: Tensor) -> Tensor:
        """The target distribution on the atoms: each probability goes to its two neighbours."""
        alive = self.settings.gamma * (1 - batch["dones"]).unsqueeze(-1)
        support = batch["rewards"].unsqueeze(-1) + alive * (self.atoms - entropy.unsqueeze(-1))
        place = (support.clamp(self.atoms[0], self.atoms[-1]) - self.atoms[0]) / (self.atoms[1] - self.atoms[0])
        lower = place.floor().long().clamp(0, len(self.atoms) - 1)
        upper, share = (lower + 1).clamp(max=len(self.atoms) - 1), place - lower
        goal = torch.zeros_like(probabilities)
        goal.scatter_add_(1, lower, probabilities * (1 - share))
        return goal.scatter_add_(1, upper, probabilities * share)


PLAIN = {"crossq": PlainCrossQ, "simba": PlainSimba, "flashsac": PlainFlashSAC}
