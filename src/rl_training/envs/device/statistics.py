"""Returns and lengths of training episodes, counted on the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.envs.episode_metrics import WINDOW, episode_metrics


class DeviceEpisodeStatistics:
    """A ring of each seed's last WINDOW episodes, in the order they ended: by step, then by environment.

    Episode number n of a seed is stored at n % WINDOW. Every place of the ring gathers its episode, instead of
    episodes being scattered to their places: of two that end at once and share a place the later one is stored, not
    the one that the device happens to write last.
    """

    def __init__(self, seeds: int, num_envs: int, device: torch.device) -> None:
        self.open_returns = torch.zeros(seeds, num_envs, dtype=torch.float64, device=device)
        self.returns = torch.zeros(seeds, WINDOW, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(seeds, WINDOW, dtype=torch.int64, device=device)
        self.finished = torch.zeros(seeds, 1, dtype=torch.int64, device=device)
        self._places = torch.arange(WINDOW, device=device)

    def count(self, rewards: Tensor, lengths: Tensor, ended: Tensor) -> None:
        """Count one step of every row; `lengths` of the open episodes include this step."""
        by_seed = self.open_returns.shape
        self.open_returns.add_(rewards.view(by_seed))
        ended = ended.view(by_seed)
        ended_so_far = ended.cumsum(1)  # among the environments of the seed
        finished = self.finished + ended_so_far[:, -1:]
        newest = finished - 1 - (finished - 1 - self._places) % WINDOW  # the episode that belongs in each place
        number = newest - self.finished  # among those that ended in this step, from 0; negative: in an earlier step
        env = torch.searchsorted(ended_so_far, number + 1)
        self.returns.copy_(torch.where(number >= 0, self.open_returns.gather(1, env), self.returns))
        self.lengths.copy_(torch.where(number >= 0, lengths.view(by_seed).gather(1, env), self.lengths))
        self.finished.copy_(finished)
        self.open_returns.masked_fill_(ended, 0)

    def drop_open_episodes(self) -> None:
        """Reset the returns of the open episodes."""
        self.open_returns.zero_()

    def rows(self) -> list[dict[str, Any]]:
        """Each seed's metrics. Waits for the device: for log intervals only."""
        returns, lengths = self.returns.cpu().numpy(), self.lengths.cpu().numpy()
        rows = []
        for seed, finished in enumerate(self.finished.flatten().tolist()):
            last = [number % WINDOW for number in range(max(0, finished - WINDOW), finished)]
            rows.append(episode_metrics(returns[seed, last], lengths[seed, last], finished))
        return rows

    def tensors(self) -> dict[str, Tensor]:
        """The state that later metrics depend on, by name."""
        names = ("open_returns", "returns", "lengths", "finished")
        return {f"statistics.{name}": getattr(self, name) for name in names}
