"""The weights of Stable-Baselines3's policies as those of the learners here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rl_training.core.checks import UserError, shown
from rl_training.deploy.sb3.reading import SavedModel
from rl_training.envs.spaces import ActionCodec

SUPPORTED = "SAC, TD3, DQN, PPO, A2C, TQC, QR-DQN"
Layers = list[tuple[Tensor, Tensor]]  # weights (outputs, inputs) and biases


@dataclass
class Imported:
    """An algorithm here with its settings, and its parameters by name."""

    path: Path  # of the model's file
    algo: str
    settings: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def add(self, prefix: str, *members: Layers) -> None:
        """Add a network's dense layers: of one member, or of several, which are stacked."""
        shapes = [[tuple(weight.shape) for weight, _ in layers] for layers in members]
        if any(one != shapes[0] for one in shapes):
            raise UserError(f"{self.path}: the members of {prefix} differ in their layers")
        # A network is made of these sizes, and must not be larger than the weights of the file.
        for (outputs, _), (_, inputs) in pairwise(shapes[0]):
            if outputs != inputs:
                raise UserError(f"{self.path}: a layer of {prefix} takes {inputs} inputs, not the {outputs} before it")
        for number, same in enumerate(zip(*members, strict=True)):
            weights, biases = [weight.T for weight, _ in same], [bias.unsqueeze(0) for _, bias in same]
            self.parameters[f"{prefix}.layers.{number}.weight"] = torch.stack(weights).contiguous()
            self.parameters[f"{prefix}.layers.{number}.bias"] = torch.stack(biases).contiguous()


def dense_layers(model: SavedModel, prefix: str) -> Layers:
    """The dense layers `<prefix>.<number>.weight` in their order."""
    named = (re.fullmatch(rf"{re.escape(prefix)}\.([0-9]{{1,4}})\.weight", name) for name in model.weights)
    return [layer(model, f"{prefix}.{number}") for number in sorted(int(one[1]) for one in named if one)]


def layer(model: SavedModel, name: str) -> tuple[Tensor, Tensor]:
    try:
        weight, bias = model.weight(f"{name}.weight"), model.weight(f"{name}.bias")
    except KeyError as error:
        raise UserError(
            f"{model.path}: its policy has no {error.args[0]}; only dense policies are supported"
        ) from error
    if weight.dim() != 2 or bias.shape != weight.shape[:1]:
        raise UserError(f"{model.path}: {name} must be a dense layer, got {tuple(weight.shape)}")
    return weight, bias


def sizes(layers: Layers) -> list[int]:
    """The outputs of each layer."""
    return [len(bias) for _, bias in layers]


def critics_of(model: SavedModel) -> list[Layers]:
    found: list[Layers] = []
    while layers := dense_layers(model, f"critic.qf{len(found)}"):
        found.append(layers)
    if not found:
        raise UserError(f"{model.path}: its policy has no critic")
    return found


def soft_actor_critic(model: SavedModel, action: ActionCodec, algo: str = "sac") -> Imported:
    """SAC; actor and critics have hidden layers of their own."""
    if model.values.get("use_sde"):
        raise UserError(f"{model.path}: use_sde is not supported")
    hidden, mean, log_std = (
        dense_layers(model, "actor.latent_pi"),
        layer(model, "actor.mu"),
        layer(model, "actor.log_std"),
    )
    if mean[0].shape != log_std[0].shape:
        raise UserError(f"{model.path}: actor.mu is {tuple(mean[0].shape)}, actor.log_std {tuple(log_std[0].shape)}")
    last = torch.cat([mean[0], log_std[0]]), torch.cat([mean[1], log_std[1]])
    critics = critics_of(model)
    found = Imported(model.path, algo, {"num_critics": len(critics)})
    found.settings |= _hidden(sizes(hidden), sizes(critics[0])[:-1])
    found.add("actor.net", [*hidden, last])
    found.add("critic.net", *critics)
    log_alpha, alpha = model.variable("log_ent_coef"), model.variable("ent_coef_tensor")
    if log_alpha is None and alpha is not None:
        found.settings["alpha"] = float(alpha)
        log_alpha = alpha.log()
    if log_alpha is not None:
        found.parameters["temperature.log_alpha"] = log_alpha
    return found


def truncated_quantile_critics(model: SavedModel, action: ActionCodec) -> Imported:
    found = soft_actor_critic(model, action, "tqc")
    drop = model.values.get("top_quantiles_to_drop_per_net", 2)
    found.settings["num_quantiles"] = sizes(critics_of(model)[0])[-1]
    found.settings["top_quantiles_to_drop_per_net"] = drop if isinstance(drop, int) else 2
    return found


def twin_delayed(model: SavedModel, action: ActionCodec) -> Imported:
    """TD3; DDPG, which has one critic there, is not here."""
    actor, critics = dense_layers(model, "actor.mu"), critics_of(model)
    if len(critics) != 2:
        raise UserError(f"{model.path}: TD3 must have 2 critics, got {len(critics)}; DDPG is not supported")
    found = Imported(model.path, "td3", _hidden(sizes(actor)[:-1], sizes(critics[0])[:-1]))
    found.add("actor.net", actor)
    found.add("critic.net", *critics)
    return found


def deep_q(model: SavedModel, action: ActionCodec) -> Imported:
    layers = dense_layers(model, "q_net.q_net")
    found = Imported(model.path, "dqn", {"hidden_sizes": sizes(layers)[:-1], "double": False})
    found.add("q.net", layers)
    return found


def quantile_regression(model: SavedModel, action: ActionCodec) -> Imported:
    """QR-DQN, whose outputs are ordered by quantile first there, and by action first here."""
    *hidden, (weight, bias) = dense_layers(model, "quantile_net.quantile_net") or [layer(model, "quantile_net")]
    choices = action.spec.size
    if len(bias) % choices:
        raise UserError(f"{model.path}: its {len(bias)} outputs do not fit {choices} actions")
    quantiles = len(bias) // choices
    order = torch.arange(len(bias)).reshape(quantiles, choices).T.reshape(-1)
    found = Imported(model.path, "qr_dqn", {"hidden_sizes": sizes(hidden), "num_quantiles": quantiles, "double": False})
    found.add("q.net", [*hidden, (weight[order], bias[order])])
    return found


def actor_critic(model: SavedModel, action: ActionCodec) -> Imported:
    """PPO and A2C; means of actions are in the environment's units there, and in [-1, 1] here."""
    if model.values.get("use_sde"):
        raise UserError(f"{model.path}: use_sde is not supported")
    if "cg_max_steps" in model.values:  # its policy is of the same class
        raise UserError(f"{model.path}: TRPO is not supported; supported: {SUPPORTED}")
    actor, critic = (dense_layers(model, f"mlp_extractor.{name}_net") for name in ("policy", "value"))
    found = Imported(model.path, "ppo" if "clip_range" in model.values else "a2c", {"shared_network": False})
    found.settings |= _hidden(sizes(actor), sizes(critic))
    last, log_std = _action_layer(model, action)
    found.add("actor.net", [*actor, last])
    found.add("critic.net", [*critic, layer(model, "value_net")])
    if log_std is not None:
        found.parameters["actor.log_std"] = log_std
    return found


def _action_layer(model: SavedModel, action: ActionCodec) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
    """The last layer of an actor in the units of this library."""
    weight, bias = layer(model, "action_net")
    log_std = model.weight("log_std") if "log_std" in model.weights else None
    space = action.space
    if isinstance(space, spaces.MultiBinary):  # one logit for each element there, one for each of two choices here
        zeros = torch.zeros_like
        pairs = [torch.stack([zeros(one), one], 1).flatten(0, 1) for one in (weight, bias)]
        return (pairs[0], pairs[1]), None
    if not isinstance(space, spaces.Box) or log_std is None:
        return (weight, bias), None
    if not action.spec.bounded:
        return (weight, bias), log_std
    low, high = (torch.from_numpy(np.asarray(one, np.float64).reshape(-1)) for one in (space.low, space.high))
    half, centre = (high - low) / 2, (high + low) / 2
    if not bias.shape == log_std.shape == half.shape:
        raise UserError(f"{model.path}: its {len(bias)} actions do not fit the {len(half)} of the environment")
    scaled = (weight.double() / half.unsqueeze(1)).float(), ((bias.double() - centre) / half).float()
    log_std = (log_std.double() - half.log()).float()
    if not all(one.isfinite().all() for one in (*scaled, log_std)):
        raise UserError(f"{model.path}: its action_net gives infinite actions in {shown(space)}")
    return scaled, log_std


def _hidden(actor: list[int], critic: list[int]) -> dict[str, Any]:
    return {"network": {"actor": {"hidden_sizes": actor}, "critic": {"hidden_sizes": critic}}}


Rule = Callable[[SavedModel, ActionCodec], Imported]
# By the module of the policy's class: the activation by default, and the rule.
POLICIES: dict[str, tuple[str, Rule]] = {
    "stable_baselines3.sac.policies": ("ReLU", soft_actor_critic),
    "stable_baselines3.td3.policies": ("ReLU", twin_delayed),
    "stable_baselines3.dqn.policies": ("ReLU", deep_q),
    "stable_baselines3.common.policies": ("Tanh", actor_critic),
    "sb3_contrib.tqc.policies": ("ReLU", truncated_quantile_critics),
    "sb3_contrib.qrdqn.policies": ("ReLU", quantile_regression),
}
