"""A user's own batched environment: trained, evaluated, resumed; and messages about a broken protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from seed_harness import assert_same_bits
from torch import Tensor

import rl_training
from rl_training.checkpoint.parts import PartState
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.core.rng import stream
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.envs.base import Step, VectorEnv
from rl_training.envs.device.pendulum import Pendulum
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.spaces import codecs_of
from rl_training.run.callbacks import Callback

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
EXAMPLE = next(code for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S) if "DeviceEnv" in code)
QUICK: dict[str, Any] = {"eval_episodes": 2, "video": False, "report": False, "compile": "off", "threads": 1}
SETTINGS = {"learning_starts": 40, "batch_size": 16, "hidden_sizes": [16], "checkpoint_interval": 60}


class Corridors:
    """Walk right to the end of a corridor of five places, from a random one: on the host, with a part of its own."""

    spec = EnvSpec(vector(2), discrete(2), episode_limit=8)
    device, note, watched, lost, can_restore = torch.device("cpu"), None, None, (), True
    codecs = codecs_of(spec)
    name = "corridors"

    def __init__(self, seeds: Any, num_envs: int, device: Any, length: int = 5) -> None:
        self.seeds, self.num_envs, self.size, self.length = tuple(seeds), num_envs, len(seeds) * num_envs, length
        self.statistics, self.part = EpisodeStatistics(len(self.seeds), num_envs), self
        self.places = torch.zeros(self.size, dtype=torch.int64)
        self.episodes, self.steps = torch.zeros_like(self.places), torch.zeros_like(self.places)

    @property
    def obs(self) -> Tensor:
        return torch.stack([self.places / self.length, torch.ones(self.size)], 1).float()

    def by_seed(self, tensor: Tensor) -> Tensor:
        return tensor.view(len(self.seeds), self.num_envs, *tensor.shape[1:])

    def start(self, rows: Any) -> None:
        for row in rows:
            seed, env = divmod(row, self.num_envs)
            draws = stream(self.seeds[seed], "episode", int(self.episodes[row])).integers(self.length - 1, size=env + 1)
            self.places[row] = int(draws[env])
            self.steps[row] = 0

    def reset_all(self) -> None:
        self.start(range(self.size))

    def step(self, actions: Tensor) -> Step:
        self.places = (self.places + 2 * actions.cpu() - 1).clamp(min=0)
        self.steps += 1
        self.terminated = self.places >= self.length - 1
        self.truncated = ~self.terminated & (self.steps >= 8)
        self.rewards = self.terminated.float()
        return Step(self.obs, self.rewards, self.terminated, self.truncated)

    def advance(self) -> None:
        ended = self.terminated | self.truncated
        self.statistics.count(self.rewards.numpy(), ended.numpy())
        self.episodes += ended
        self.start(ended.nonzero().flatten().tolist())

    def close(self) -> None: ...

    def tensors(self) -> dict[str, Tensor]:
        return {"places": self.places, "episodes": self.episodes, "steps": self.steps}

    def state(self, previous: Any) -> PartState:
        return PartState({"statistics": self.statistics.state()}, {"corridors": self.tensors()})

    def check(self, stored: Any) -> None:
        layout = {name: (tuple(one.shape), one.dtype) for name, one in self.tensors().items()}
        stored.check_tensors("corridors.safetensors", stored.tensors("corridors.safetensors"), layout)

    def load(self, stored: Any) -> None:
        found = stored.tensors("corridors.safetensors")
        self.places, self.episodes, self.steps = (found[name].clone() for name in self.tensors())
        self.statistics.load(stored.values["statistics"])


class StopAt(Callback):
    def on_step(self, session: Any) -> bool:
        return session.step < 101


def make(folder: Path, factory: Any = Corridors, **changes: Any) -> rl_training.DQN:
    return rl_training.DQN(factory, output_dir=folder, **{**QUICK, **SETTINGS, "num_envs": 2, **changes})


def learned(agent: Any, seed: int = 0) -> dict[str, Tensor]:
    found = load_checkpoint(agent.checkpoint_path)
    files = [name for name in found.files if name.endswith(".safetensors") and not name.startswith("replay_")]
    return {f"{file}.{name}": one for file in files for name, one in found.tensors(file).items()}


def test_it_has_the_protocol_and_trains_evaluates_and_resumes(tmp_path: Path) -> None:
    assert isinstance(Corridors((0,), 1, "cpu"), VectorEnv)
    whole = make(tmp_path / "whole", seeds=(3, 4)).learn(160, show_progress=False)
    cut = make(tmp_path / "cut", seeds=(3, 4)).learn(160, StopAt(), show_progress=False)
    cut.resume(show_progress=False)
    expected = learned(whole)
    assert "corridors.safetensors.places" in expected
    assert_same_bits(learned(cut), expected)
    rows = [(one.run_dir / "metrics.jsonl").read_text().count("\n") for one in (whole, cut)]
    assert rows[0] == rows[1]
    found = whole.evaluate(num_episodes=40)
    assert found["eval_episodes"] == 80
    file = whole.save(tmp_path / "agent")
    for load in (rl_training.DQN.load, rl_training.load):
        again = load(file, env_factory=Corridors)
        assert 0 <= again.evaluate(num_episodes=3)["eval_return_mean"] <= 1
    assert again.predict([0.2, 1.0]) in (0, 1)
    assert rl_training.load(file, env_id="CartPole-v1").config.env_id == "CartPole-v1"


def test_set_env_takes_another_one(tmp_path: Path) -> None:
    class Longer(Corridors):
        def __init__(self, seeds: Any, num_envs: int, device: Any, length: int = 5) -> None:
            super().__init__(seeds, num_envs, device, length=9)

    class Wider(Corridors):
        spec = EnvSpec(vector(3), discrete(2), episode_limit=8)
        codecs = codecs_of(spec)
        obs = property(lambda self: torch.zeros(self.size, 3))  # type: ignore[assignment]

    agent = make(tmp_path).learn(60, show_progress=False)
    agent.set_env(Longer)
    assert agent.env_factory is Longer and agent.evaluate(num_episodes=1)["eval_episodes"] == 1
    with pytest.raises(UserError, match="the agent was trained on"):
        agent.set_env(Wider)


def test_it_learns_what_pays(tmp_path: Path) -> None:
    agent = make(tmp_path, learning_rate=1e-2, gamma=0.9).learn(800, show_progress=False)
    assert agent.evaluate(num_episodes=50)["eval_return_mean"] == 1.0


def test_evaluation_has_episodes_of_its_own_and_changes_nothing(tmp_path: Path) -> None:
    made: list[Any] = []

    def corridors(seeds: Any, num_envs: int, device: Any, **kwargs: Any) -> Corridors:
        made.append((tuple(seeds), num_envs))
        return Corridors(seeds, num_envs, device, **kwargs)

    runs = [
        make(tmp_path / str(number), corridors, eval_interval=interval, env_kwargs={"length": 4}).learn(120)
        for number, interval in enumerate((30, 120))
    ]
    assert_same_bits(
        {k: v for k, v in learned(runs[0]).items() if "learner" in k},
        {k: v for k, v in learned(runs[1]).items() if "learner" in k},
    )
    evaluations = [one for one in made if one[1] == 2 and one[0] != (0,)]
    assert len(evaluations) == len(set(evaluations)) + 1  # the last evaluation of both runs has the same episodes


@pytest.mark.sweep
def test_a_twin_is_used_for_evaluation_and_video(tmp_path: Path) -> None:
    settings = {**SETTINGS, "learning_starts": 400, "train_frequency": 64}
    options = {**QUICK, **settings, "num_envs": 8, "output_dir": tmp_path, "video": True}
    agent = rl_training.SAC(Pendulum, **options).learn(200, show_progress=False)
    assert (agent.run_dir / "video.webm").stat().st_size > 1000
    assert agent.evaluate(num_episodes=1)["eval_return_mean"] < -200  # Pendulum-v1's own scale: a random policy


def test_the_example_of_the_page_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = "total_timesteps=600, batch_size=16, hidden_sizes=(16,), compile='off', eval_episodes=1, report=False"
    code = EXAMPLE.replace("total_timesteps=4_000", small).replace("num_episodes=100", "num_episodes=3")
    assert small in code
    names: dict[str, Any] = {}
    exec(code, names)
    agent = names["agent"]
    assert agent.predict(np.zeros(2)).shape == (1,) and not (agent.run_dir / "video.webm").exists()
    assert agent.evaluate(num_episodes=4)["eval_episodes"] == 4


@pytest.mark.slow
def test_the_example_of_the_page_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    assert names["agent"].evaluate(num_episodes=20)["eval_return_mean"] > -15  # standing still: -80


class NoPart(Corridors):
    part: Any = property()

    def __init__(self, seeds: Any, num_envs: int, device: Any) -> None:
        self.seeds, self.num_envs, self.size, self.places = (0,), 2, 2, torch.zeros(2)
        self.statistics, self.length = EpisodeStatistics(1, 2), 5


class WrongShape(Corridors):
    @property
    def obs(self) -> Tensor:
        return torch.zeros(self.size, 3)


class Raises(Corridors):
    def step(self, actions: Tensor) -> Step:
        raise RuntimeError("the simulator\nis gone")


class NotFinite(Corridors):
    def step(self, actions: Tensor) -> Step:
        return super().step(actions)._replace(rewards=torch.full((self.size,), torch.nan))


class Doubles(Corridors):
    def step(self, actions: Tensor) -> Step:
        return super().step(actions)._replace(rewards=torch.zeros(self.size, dtype=torch.float64))


def plain(seeds: Any, num_envs: int, device: Any) -> Any:
    return gym.make("CartPole-v1")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (NoPart, "environment '<NoPart>': a VectorEnv must have part"),
        (WrongShape, "'<WrongShape>': obs must be torch.float32 (2, 2), got torch.float32 (2, 3)"),
        (Raises, "'<Raises>': step raised RuntimeError: the simulator is gone"),
        (NotFinite, "'<NotFinite>': rewards has NaN or infinity"),
        (Doubles, "'<Doubles>': rewards must be torch.float32 (2,), got torch.float64 (2,)"),
        (plain, "'<plain>': a VectorEnv must have advance, by_seed, can_restore, codecs"),
    ],
)
def test_one_that_breaks_the_protocol_is_named_with_what_is_wrong(factory: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        make(tmp_path, factory).learn(100, show_progress=False)
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


class Renamed(Corridors):
    name = "other_corridors"


def test_another_environment_cannot_continue_a_run(tmp_path: Path) -> None:
    first = make(tmp_path).learn(100, StopAt(), show_progress=False)
    with pytest.raises(UserError, match="cannot be resumed in <Renamed>, whose state is another one"):
        make(tmp_path, Renamed).resume(first.run_dir, 140, show_progress=False, env_id="<Renamed>")


def test_what_needs_a_gymnasium_environment_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"<Corridors> is a VectorEnv, where a gymnasium\.Env is needed, as for her"):
        make(tmp_path, her={}).learn(100, show_progress=False)
