"""Make the environments that a run trains in: on the host, on a device, or a user's own batched ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec
from rl_training.envs.base import VectorEnv
from rl_training.envs.batched import check_batched, make_batched
from rl_training.envs.device.registry import device_environment
from rl_training.envs.host.conformance import (
    PLAIN,
    Conformance,
    Takes,
    check_environment,
    check_equal,
    check_spaces,
    matching,
)
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.host_envs import HostEnvs


def make_envs(
    source: EnvSource,
    seeds: Sequence[int],
    num_envs: int,
    device: torch.device,
    *,
    workers: int,
    threads: int,
    timeout: float,
) -> VectorEnv:
    """`num_envs` environments for each seed; `workers`, `threads` and `timeout` are for those on the host."""
    if source.batched:
        return make_batched(source, seeds, num_envs, device)
    on_device = device_environment(source.env_id)
    if on_device is not None:
        return on_device(seeds, num_envs, device)
    return HostEnvs(SeededEnvs(source, seeds, num_envs, workers=workers, timeout=timeout, threads=threads))


def check_for_training(source: EnvSource, device: torch.device | str, takes: Takes = PLAIN) -> Conformance:
    """Check an environment and how it is brought back on resume; a batched one saves its own state."""
    if source.batched:
        return Conformance(check_batched(source, torch.device(device)), "native")
    on_device = device_environment(source.env_id)
    if on_device is None:
        return check_environment(source, takes=takes)
    if source.kwargs or source.factory is not None:
        raise UserError(f"env_kwargs must be empty for {source.env_id}, which runs on the device")
    return Conformance(on_device.spec, "native")


def check_for_agent(spec: EnvSpec, source: EnvSource, device: torch.device | str) -> EnvSource:
    """Reject an environment whose observations or actions differ from those that an agent was trained on.

    Returns the source whose observations have an action mask where the agent's have one.
    """
    tried = source.for_evaluation()
    batched = tried.batched
    found = check_batched(tried, torch.device(device)) if batched else check_spaces(tried, Takes.of(spec))
    check_equal(spec, found, tried)
    return matching(source, spec)
