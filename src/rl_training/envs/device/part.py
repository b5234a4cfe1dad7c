"""Device environments as a part of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint

if TYPE_CHECKING:
    from rl_training.envs.device.base import DeviceEnv

FILE = "device_environments"


class DeviceEnvironmentsPart:
    """Saves and loads the tensors of a device environment."""

    name = "device_environments"

    def __init__(self, env: DeviceEnv) -> None:
        self.env = env

    def state(self, previous: Checkpoint | None) -> PartState:
        return PartState(files={FILE: self.env.state()})

    def check(self, stored: StoredPart) -> None:
        try:
            self.env.check(stored.tensors(f"{FILE}.safetensors"))
        except ValueError as error:
            raise stored.invalid(f"{FILE}.safetensors: {error}") from error

    def load(self, stored: StoredPart) -> None:
        self.env.load(stored.tensors(f"{FILE}.safetensors"))
