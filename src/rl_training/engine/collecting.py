"""Collects a whole rollout in device environments as one CUDA graph: acting, stepping and storing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from rl_training.data.rollout import Rollout
from rl_training.engine import drawing
from rl_training.engine.acting import STREAM, Act, Acting, Policy, valid
from rl_training.engine.compilation import captured, warm_up
from rl_training.engine.phases import NoiseSpec
from rl_training.envs.base import Step, VectorEnv
from rl_training.envs.device.base import DeviceEnv


class Explorer(Protocol):
    """A learner whose policy collects."""

    acting: Acting

    @property
    def explore(self) -> Policy: ...

    def explore_noise(self, rows: int) -> NoiseSpec: ...

    def exploration(self, progress: float) -> float: ...


def step_fields(envs: VectorEnv, obs: Tensor, act: Act, step: Step) -> dict[str, Tensor]:
    """The columns of a rollout that one step of every environment fills, each (seeds, num_envs, ...)."""
    return {
        "obs": obs,
        "actions": act.action,
        "rewards": envs.by_seed(step.rewards),
        "next_obs": envs.by_seed(step.next_obs),
        "terminated": envs.by_seed(step.terminated),
        "truncated": envs.by_seed(step.truncated),
        **act.extras,
    }


def can_capture(envs: VectorEnv, rollout: Rollout) -> bool:
    """Whether the steps of these environments can be part of a CUDA graph."""
    return isinstance(envs, DeviceEnv) and envs.device.type == "cuda" == rollout.device.type


class RolloutProgram:
    """The steps of a rollout: all of them as one graph, or one by one with the same kernels."""

    def __init__(self, learner: Explorer, envs: Any, rollout: Rollout) -> None:
        self.learner, self.envs, self.rollout = learner, envs, rollout
        self.engine = learner.acting.engine
        device = self.engine.device
        self._step = torch.zeros((), dtype=torch.int64, device=device)  # the run's, at the first step of the rollout
        self._amount = torch.zeros(len(self.engine.seeds), 1, device=device)
        self._places = [torch.tensor([step], device=device) for step in range(rollout.steps)]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._draw_all: Callable[[], Tensor] = lambda: self._draw()
        self._step_once: Callable[[Tensor, Tensor], None] = lambda noise, place: self._one_step(noise, place)
        if self.engine.compiled:
            self._draw_all, self._step_once = self.engine.compile(self._draw_all), self.engine.compile(self._step_once)

    @torch.no_grad()
    def run(self, step: int, progress: float) -> None:
        """Collect a rollout that begins at this environment step of the run."""
        self._set(step, progress)
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()
        self.rollout.filled = self.rollout.steps

    @torch.no_grad()
    def run_once(self, step: int, progress: float) -> None:
        """Collect the next step of a rollout that began at this environment step of the run."""
        self._set(step, progress)
        self._step_once(self._draw_all()[self.rollout.filled], self._places[self.rollout.filled])
        self.rollout.filled += 1

    def _set(self, step: int, progress: float) -> None:
        self._step.fill_(step)
        self._amount.fill_(self.learner.exploration(progress))

    def _draw(self) -> Tensor:
        """The random numbers of all steps: those that each step would draw by itself."""
        spec, envs = self.learner.explore_noise(self.envs.num_envs), self.envs
        steps = self._step + envs.num_envs * torch.arange(self.rollout.steps, device=self.engine.device)
        return drawing.device_noise(self.engine.seed_tensor, steps, {STREAM: spec}, STREAM)[STREAM]

    def _one_step(self, noise: Tensor, place: Tensor) -> None:
        envs, rollout, learner = self.envs, self.rollout, self.learner
        obs, state = envs.by_seed(envs.obs), [rollout.open_state] if rollout.open_state else []
        act = valid(learner.acting.run(learner.explore, obs, noise, self._amount, *state))
        step = envs.step(act.action.flatten(0, 1))
        rollout.write_at(place, act.state, **step_fields(envs, obs, act, step))
        envs.advance()

    def _capture(self) -> torch.cuda.CUDAGraph:
        engine = self.engine

        def run() -> None:
            for noise, place in zip(self._draw_all(), self._places, strict=True):
                self._step_once(noise, place)

        changed = [*self.envs.changed_tensors(), *self.rollout.open_state.values(), self.rollout.open_starts]
        before = [tensor.clone() for tensor in changed]
        warm_up(run, engine.device)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            run()
        return graph
