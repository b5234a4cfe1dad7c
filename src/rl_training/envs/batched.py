"""A user's own `VectorEnv`: a class or function in Python that is called with (seeds, num_envs, device)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.core.checks import UserError
from rl_training.core.rng import stream
from rl_training.core.specs import MASK, Array, ArraySpec, EnvSpec
from rl_training.envs.base import VectorEnv
from rl_training.envs.host.factory import EnvSource, call_environment
from rl_training.envs.spaces.masks import allowed_actions, blocked
from rl_training.tensors.observations import split

MEMBERS = sorted(name for name in vars(VectorEnv) if not name.startswith("_"))
PROBE_STEPS = 12
PROBE_ENVS = 2


def make_batched(source: EnvSource, seeds: Sequence[int], num_envs: int, device: torch.device) -> VectorEnv:
    """The environments of all seeds, from the factory of `source`."""
    factory: Any = source.factory
    env = call_environment(source.env_id, "it", lambda: factory(tuple(seeds), num_envs, device, **source.kwargs))
    missing = [name for name in MEMBERS if not hasattr(env, name)]
    if missing:
        where = "envs/base.py: VectorEnv"
        raise UserError(f"environment {source.env_id!r}: a VectorEnv must have {', '.join(missing)} ({where})")
    expected = (tuple(seeds), num_envs, len(seeds) * num_envs)
    if (tuple(env.seeds), env.num_envs, env.size) != expected:
        found = f"{tuple(env.seeds)}, {env.num_envs} and {env.size}"
        raise UserError(f"environment {source.env_id!r}: seeds, num_envs and size must be {expected}, got {found}")
    return env  # type: ignore[no-any-return]


def check_batched(source: EnvSource, device: torch.device) -> EnvSpec:
    """The spec of a user's own `VectorEnv`, after a few steps of a small one; rejects one that breaks the protocol."""
    env = make_batched(source, (0,), PROBE_ENVS, device)
    with closing(env):
        spec, rng = env.spec, stream(0, "conformance")
        same = env.codecs[0].spec == spec.observation and env.codecs[1].spec == spec.action
        _check(source, "codecs must be those of its spec", same)
        call_environment(source.env_id, "reset_all", env.reset_all)
        for _ in range(PROBE_STEPS):
            _check_tensor(source, env, "obs", env.obs, spec.observation)
            actions = torch.from_numpy(_random_actions(source, env, rng)).to(device)
            step = call_environment(source.env_id, "step", partial(env.step, actions))
            _check_tensor(source, env, "next_obs", step.next_obs, spec.observation)
            _check_tensor(source, env, "rewards", step.rewards, ArraySpec("vector", (), "float32"))
            for name in ("terminated", "truncated"):
                _check_tensor(source, env, name, getattr(step, name), ArraySpec("vector", (), "bool"))
            call_environment(source.env_id, "advance", env.advance)
        return spec


def _random_actions(source: EnvSource, env: VectorEnv, rng: np.random.Generator) -> Array:
    """Random actions in the library's units, which the masks in the observations allow."""
    spec, drawn = env.spec, env.spec.action.sample(rng, env.size)
    if not spec.observation.mask:
        return drawn
    masks = split(spec.observation, env.obs)[MASK].cpu().numpy()
    size = spec.action.mask_size
    _check(source, f"mask must have {size} elements, got {masks.shape[1]}", masks.shape[1] == size)
    for row in masks:
        problem = blocked(row, spec.action)
        _check(source, f"obs: {problem}", problem is None)
    return allowed_actions(spec.action, masks, drawn)


def _check_tensor(source: EnvSource, env: VectorEnv, name: str, tensor: Any, spec: ArraySpec) -> None:
    shape, dtype = (env.size, *spec.shape), getattr(torch, spec.dtype)
    if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape or tensor.dtype != dtype:
        found = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise UserError(f"environment {source.env_id!r}: {name} must be {dtype} {shape}, got {found}")
    if tensor.device.type != torch.device(env.device).type:
        raise UserError(f"environment {source.env_id!r}: {name} is on {tensor.device}, its device is {env.device}")
    if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
        raise UserError(f"environment {source.env_id!r}: {name} has NaN or infinity")


def _check(source: EnvSource, problem: str, ok: bool) -> None:
    if not ok:
        raise UserError(f"environment {source.env_id!r}: {problem}")
