"""A run's config and its agent file hold every setting: a default that changes later changes no run that is there."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from conftest import one_of_a_kind, settings_of
from safetensors import safe_open

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.algorithms.sac import SAC, SACSettings
from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import UserError
from rl_training.envs.host import wrappers
from rl_training.run import validate as fitting
from rl_training.run.agent import Agent, load_agent
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.validate import parse_settings, with_task_defaults


@dataclasses.dataclass(frozen=True)
class ChangedSettings(SACSettings):
    gamma: float = 0.5
    tau: float = 0.5
    num_critics: int = 3
    hidden_sizes: tuple[int, ...] = (4,)


def tensors_of(agent_file: Path) -> dict[str, bytes]:
    with safe_open(str(agent_file), "pt") as file:
        return {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("algo", algorithm_names())
def test_the_resolved_config_holds_every_setting_and_comes_back_equal(algo: str, quick_config, tmp_path: Path) -> None:
    sparse = quick_config(algo, tmp_path, eval_interval=None)
    sparse = dataclasses.replace(sparse, algo_kwargs=settings_of(algo, {"batch_size": 8}))
    resolved, cls, settings = with_task_defaults(sparse)
    names = [field.name for field in dataclasses.fields(cls.settings_type) if field.init]
    assert list(resolved.algo_kwargs) == names
    assert parse_settings(resolved)[1] == settings
    pixels = resolved.env_kwargs.get("wrappers", {}).get("pixels")
    assert pixels is None or set(pixels) == {"resize_shape", "frame_stack", "channel_first"}
    assert resolved.eval_interval == 12
    written = tmp_path / "config.yaml"
    written.write_text(dump_yaml(resolved.to_dict()))
    again = load_config(written)
    assert again == resolved
    assert with_task_defaults(again)[0] == resolved


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind())
def test_training_from_the_resolved_config_gives_the_same_bits(algo: str, quick_config, tmp_path: Path) -> None:
    first = train(quick_config(algo, tmp_path, total_timesteps=40, eval_episodes=0), show_progress=False).run_dir
    second = train(load_config(first / "config.yaml"), show_progress=False).run_dir
    assert second != first
    assert (first / "config.yaml").read_bytes() == (second / "config.yaml").read_bytes()
    files = [tensors_of(run / "agents" / "seed_0_final.safetensors") for run in (first, second)]
    assert files[0] == files[1] and files[0]


def test_checkpoint_and_agent_file_hold_every_setting(quick_config, tmp_path: Path) -> None:
    config = quick_config("sac", tmp_path, total_timesteps=30, eval_interval=None)
    result = train(config, show_progress=False)
    names = {field.name for field in dataclasses.fields(SACSettings)}
    assert set(load_checkpoint(result.checkpoint_path).state["config"]["algo_kwargs"]) == names
    for file in (result.run_dir / "agents").iterdir():
        config = load_agent(file).config
        assert set(config.algo_kwargs) == names and config.eval_interval == 3
        assert set(config.to_dict()) == {field.name for field in dataclasses.fields(TrainConfig)}


def test_resume_and_load_keep_the_settings_when_a_default_changes(quick_config, tmp_path: Path, monkeypatch) -> None:
    sparse = quick_config("sac", tmp_path, total_timesteps=30, checkpoint_interval=10)
    sparse = dataclasses.replace(sparse, algo_kwargs={"batch_size": 8, "learning_starts": 20})
    result = train(sparse, show_progress=False)
    monkeypatch.setattr(SAC, "settings_type", ChangedSettings)
    assert learner_class("sac").settings_type().num_critics == 3
    resumed = resume_training(result.run_dir, total_timesteps=40, show_progress=False)
    for path in (resumed.checkpoint_path, resumed.run_dir / "agents" / "seed_0_final.safetensors"):
        settings = load_agent(path).learner.settings
        assert (settings.gamma, settings.tau, settings.num_critics) == (0.99, 0.005, 2)
    again = parse_settings(load_config(result.run_dir / "config.yaml"))[1]
    assert dataclasses.asdict(again) == dataclasses.asdict(SACSettings(batch_size=8, learning_starts=20))


def test_resume_keeps_the_wrappers_when_a_default_changes(quick_config, tmp_path: Path, monkeypatch) -> None:
    given = {"render_mode": "rgb_array", "wrappers": {"pixels": {"resize_shape": [15, 16]}}}
    result = train(quick_config("drq", tmp_path, total_timesteps=24, env_kwargs=given, eval_episodes=0),
                   show_progress=False)  # fmt: skip

    @dataclasses.dataclass(frozen=True)
    class ChangedPixels(wrappers.PixelSettings):
        frame_stack: int = 1

    monkeypatch.setattr(wrappers, "PixelSettings", ChangedPixels)
    resumed = resume_training(result.run_dir, total_timesteps=26, show_progress=False)
    assert load_agent(resumed.checkpoint_path).config.env_kwargs["wrappers"]["pixels"]["frame_stack"] == 3


def test_an_old_run_and_an_old_agent_that_lack_settings_still_load(quick_config, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(fitting, "filled", lambda config, settings: config)
        config = quick_config("sac", tmp_path, total_timesteps=30, eval_interval=None)
        result = train(config, show_progress=False)
    agent = load_agent(result.checkpoint_path)
    assert "gamma" not in agent.config.algo_kwargs and agent.config.eval_interval is None
    less = dataclasses.replace(agent.config, algo_kwargs={"hidden_sizes": [16, 16]})
    old = Agent(less, agent.learner, agent.observation, agent.action).save(tmp_path / "old.safetensors")
    assert load_agent(old).learner.settings.gamma == 0.99
    resumed = resume_training(result.run_dir, total_timesteps=40, show_progress=False)
    config = load_agent(resumed.checkpoint_path).config
    assert config.algo_kwargs["gamma"] == 0.99 and config.eval_interval == 4


def test_a_filled_in_default_does_not_hide_what_the_task_asks_for() -> None:
    resolved: Any = with_task_defaults(TrainConfig("iql", "AntMaze_UMaze-v5"))[0].algo_kwargs
    assert (resolved["expectile"], resolved["beta"], resolved["reward_shift"]) == (0.9, 10.0, -1.0)
    assert with_task_defaults(TrainConfig("redq", "Hopper-v5"))[0].algo_kwargs["target_entropy"] == -1.0


@pytest.mark.parametrize("range_", [[0.7, math.inf], [math.nan, 1.0]])
def test_numbers_that_no_checkpoint_holds_are_rejected_before_training(range_: list[float]) -> None:
    with pytest.raises(UserError, match="env_kwargs must hold no NaN or infinity"):
        with_task_defaults(TrainConfig("sac", "Hopper-v5", env_kwargs={"healthy_z_range": range_}))
