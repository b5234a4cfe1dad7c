"""The shape of an environment: what a learner and a replay must know of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class EnvShape:
    """What a learner must know of an environment: everything else stays in `envs`."""

    obs_shape: tuple[int, ...]
    obs_dtype: str
    action_dim: int
    discrete: bool
    # How observations come about, which matters to who stores them and not to who learns from them.
    frame_stack: int = field(default=1, compare=False)  # frames in an image, oldest first
    episode_limit: int | None = field(default=None, compare=False)  # steps until an episode is cut off, if known

    def __str__(self) -> str:
        actions = f"{self.action_dim} choices" if self.discrete else f"actions of shape ({self.action_dim},)"
        return f"observations of shape {self.obs_shape} ({self.obs_dtype}) and {actions}"

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) == 3

    @property
    def network_input(self) -> int | tuple[int, ...]:
        """A vector's length or an image's shape."""
        return self.obs_shape if self.is_image else self.obs_dim

    @property
    def obs_dim(self) -> int:
        size = 1
        for length in self.obs_shape:
            size *= length
        return size
