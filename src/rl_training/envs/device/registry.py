"""The device environments by id."""

from __future__ import annotations

from rl_training.core.checks import UserError, did_you_mean, shown
from rl_training.envs.device.base import DeviceEnv
from rl_training.envs.device.cartpole import CartPole
from rl_training.envs.device.pendulum import Pendulum
from rl_training.envs.host.factory import DEVICE_PREFIX

DEVICE_ENVIRONMENTS: dict[str, type[DeviceEnv]] = {
    f"{DEVICE_PREFIX}{cls.gymnasium_id}": cls for cls in (CartPole, Pendulum)
}


def device_environment(env_id: str) -> type[DeviceEnv] | None:
    """The class of a `torch/…` id, None for every other id; an unknown `torch/…` is rejected."""
    if not env_id.startswith(DEVICE_PREFIX):
        return None
    if env_id not in DEVICE_ENVIRONMENTS:
        hint = did_you_mean(env_id, DEVICE_ENVIRONMENTS) or f"; there are {', '.join(DEVICE_ENVIRONMENTS)}"
        raise UserError(f"environment {shown(env_id)} does not exist{hint}", field_name="env_id")
    return DEVICE_ENVIRONMENTS[env_id]
