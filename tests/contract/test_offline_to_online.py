"""An agent trained offline continues online: the dataset stays, batches are mixed, a cut run ends in equal bits."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import one_of_a_kind
from resume_harness import compare_runs
from test_offline_loop import OFFLINE, StopAt, config, learner_bits

from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.data.datasets.transition_dataset import ResidentData, TransitionDataset
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.mixed import MixedData
from rl_training.envs.host.factory import EnvSource
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

LEARNERS = [algo for algo in OFFLINE if learner_class(algo).learns_online]
ENV = {"env_kwargs": {"max_episode_steps": 13}}  # the online stage sees the ends of episodes


def offline_run(tmp_path: Path, algo: str = "iql", **changes: Any) -> Path:
    return train(config(tmp_path, algo, **ENV, **changes), show_progress=False).run_dir


def replay_rows(result: Any) -> dict[str, torch.Tensor]:
    checkpoint = load_checkpoint(result.checkpoint_path)
    parts = [checkpoint.tensors(name) for name in checkpoint.names("replay_")]
    return {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}


def go_on(run_dir: Path, total: int = 140, **keywords: Any) -> Any:
    values = {"env_id": "Pendulum-v1", "online": True, "show_progress": False, **keywords}
    return resume_training(run_dir, total_timesteps=total, **values)


def test_the_command_line_resumes_online(tmp_path: Path, capsys) -> None:
    run_dir = offline_run(tmp_path, "td3_bc")
    words = ["resume", str(run_dir), "--env", "Pendulum-v1", "--total-timesteps", "140", "--quiet", "--json"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["metrics"]["global_step"] == 140
    assert answer["metrics"]["gradient_steps"] == 47 + (93 - 20)  # learning_starts is 20
    state = load_checkpoint(Path(answer["checkpoint_path"])).state
    assert state["parts"]["replay"]["added"] == 93 and state["config"]["algo_kwargs"]["offline_steps"] == 47
    assert state["dataset"] == json.loads((run_dir / "run.json").read_text())["dataset"]
    assert main(["resume", str(run_dir), "--total-timesteps", "150", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["gradient_steps"] == 47 + (103 - 20)


@pytest.mark.parametrize("algo", one_of_a_kind("iql", among=LEARNERS))
def test_one_config_with_both_stages_is_the_same_run(algo: str, tmp_path: Path) -> None:
    later = go_on(offline_run(tmp_path / "later", algo))
    both = train(
        config(tmp_path / "both", algo, {"offline_steps": 47}, total_timesteps=140, **ENV), show_progress=False
    )
    assert learner_bits(later) == learner_bits(both)
    first, second = replay_rows(later), replay_rows(both)
    assert all(torch.equal(first[name], second[name]) for name in first) and first["rewards"].shape[1] >= 64


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind("iql", among=LEARNERS))
def test_resume_after_a_cut_in_either_stage_leaves_no_trace(algo: str, tmp_path: Path, monkeypatch) -> None:
    """Before the offline stage ends, at its end, before updates go on, and in the middle of an episode."""
    settings = {"offline_steps": 47, "train_frequency": 3}
    changes = {"total_timesteps": 140, "seeds": (3, 5), "num_envs": 2, "eval_episodes": 1, "eval_interval": 37, **ENV}
    both = config(Path("runs"), algo, settings, **changes)  # a path of its own would be a difference

    def run_in(folder: Path, *callbacks: Callback) -> Any:
        folder.mkdir()
        monkeypatch.chdir(folder)
        return train(both, callbacks=callbacks, show_progress=False)

    whole = tmp_path / "whole" / run_in(tmp_path / "whole").run_dir
    for cut in (30, 47, 60, 101):
        stopped = run_in(tmp_path / str(cut), StopAt(cut))
        assert cut <= stopped.metrics["global_step"] <= cut + 1
        resumed = resume_training(stopped.run_dir, show_progress=False)
        assert compare_runs(whole, resumed.run_dir) == [], cut


class Killed(Exception):
    pass


class KillAt(StopAt):
    def on_step(self, session: Any) -> bool:
        if session.step >= self.step:
            raise Killed
        return True


@pytest.mark.sweep
def test_resume_of_an_online_stage_killed_before_a_checkpoint_knew_of_it(tmp_path: Path) -> None:
    expected = go_on(offline_run(tmp_path / "whole", checkpoint_interval=1000))
    run_dir = offline_run(tmp_path / "cut", checkpoint_interval=1000)
    with pytest.raises(Killed):
        go_on(run_dir, callbacks=[KillAt(90)])
    resumed = resume_training(run_dir, show_progress=False)
    assert resumed.metrics["global_step"] == 140 and learner_bits(resumed) == learner_bits(expected)


def test_seeds_among_many_are_the_seeds_alone(tmp_path: Path) -> None:
    both = {"offline_steps": 20}
    changes = {"total_timesteps": 90, **ENV}
    together = train(config(tmp_path / "all", "cql", both, seeds=(3, 8), **changes), show_progress=False)
    tensors = load_checkpoint(together.checkpoint_path).tensors("learner.safetensors")
    alone = train(config(tmp_path / "one", "cql", both, seeds=(8,), **changes), show_progress=False)
    assert together.metrics["gradient_steps"] == 20 + (70 - 20)
    for name, tensor in load_checkpoint(alone.checkpoint_path).tensors("learner.safetensors").items():
        if name.startswith("params."):
            assert torch.equal(tensor[0], tensors[name][1]), name


class Rates(Callback):
    def __init__(self) -> None:
        self.seen: dict[int, dict[str, float]] = {}

    def on_step(self, session: Any) -> None:
        self.seen[session.step] = session.learner.engine.rate_values


def test_schedules_belong_to_the_offline_stage(tmp_path: Path) -> None:
    """At its end the actor's rate is next to zero; online it is as at the start, as the authors of IQL do."""
    rates = Rates()
    train(config(tmp_path, "iql", {"offline_steps": 40}, total_timesteps=80), callbacks=[rates], show_progress=False)
    assert rates.seen[40]["actor"] == pytest.approx(3e-4 * 0.5 * (1 + np.cos(np.pi * 0.75)))  # moved every ten updates
    assert rates.seen[41] == rates.seen[80] == dict.fromkeys(("value", "actor", "critic"), 3e-4)


def test_batches_are_mixed_and_rewards_alike() -> None:
    """A quarter of 8 is 2: two rows of the dataset, six of the replay, whose rewards get the dataset's scale."""
    number = np.arange(10, dtype=np.float32)
    data = ResidentData(
        TransitionDataset(obs=number[:, None], actions=number[:, None], rewards=number, next_obs=number[:, None],
                          dones=number * 0)
    )  # fmt: skip
    replay = ReplayBuffer(EnvSpec(vector(1), continuous(1)), capacity=16, num_envs=1, seeds=2)
    for step in range(3):
        rows = np.full((2, 1, 1), 100.0 + step, np.float32)
        flags = np.zeros((2, 1), np.bool_)
        replay.add(obs=rows, actions=rows * 0, rewards=rows[..., 0], next_obs=rows, terminated=flags, truncated=flags)
    mixed = MixedData(data, replay, batch_size=8, share=0.25, scale=2.0, shift=-1.0)
    assert mixed.size.tolist() == mixed.size_tensor.tolist() == [10, 10, 3, 3, 3, 3, 3, 3]
    indices = torch.tensor([[9, 4, 0, 1, 2, 0, 1, 2], [0, 1, 2, 2, 2, 2, 2, 2]])
    batch = mixed.gather(indices)
    assert batch["obs"][0, :, 0].tolist() == [9, 4, 100, 101, 102, 100, 101, 102]
    assert batch["rewards"][0].tolist() == [9, 4, 199, 201, 203, 199, 201, 203]
    assert batch["obs"][1, :3, 0].tolist() == [0, 1, 102] and batch["dones"].shape == (2, 8)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_either_source_alone(share: float, tmp_path: Path) -> None:
    settings = {"offline_steps": 10, "online_data_share": share}
    result = train(config(tmp_path, "td3_bc", settings, total_timesteps=60), show_progress=False)
    assert result.metrics["gradient_steps"] == 10 + (50 - 20)


def test_steps_that_leave_nothing_to_learn_online_are_told(tmp_path: Path, capsys) -> None:
    train(config(tmp_path, "td3_bc", {"offline_steps": 47}, total_timesteps=60))
    said = (
        "offline_steps (47) and learning_starts (20) are not below total_timesteps (60): nothing will be learned online"
    )
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_what_cannot_resume_online_is_refused(tmp_path: Path, capsys) -> None:
    cloned = offline_run(tmp_path / "bc", "bc")
    assert main(["resume", str(cloned), "--env", "Pendulum-v1", "--total-timesteps", "90", "--quiet"]) == 2
    assert "bc cannot continue online: it learns nothing from its own transitions" in capsys.readouterr().err
    with pytest.raises(UserError, match="offline_steps must be null for bc"):
        train(config(tmp_path, "bc", {"offline_steps": 10}), show_progress=False)
    stopped = train(config(tmp_path / "cut"), callbacks=[StopAt(20)], show_progress=False)
    with pytest.raises(UserError, match=r"the offline run is at update 20 of 47; resume it to its end first"):
        go_on(stopped.run_dir)
    assert (
        main(["resume", str(stopped.run_dir), "--env", "Pendulum-v1", "--quiet", "--json"]) == 0
    )  # offline, to its end
    assert json.loads(capsys.readouterr().out)["metrics"]["gradient_steps"] == 47
    with pytest.raises(UserError, match="the dataset has changed"):  # its recipe would play elsewhere
        go_on(stopped.run_dir, env_id="MountainCarContinuous-v0")


@pytest.fixture
def module_env(tmp_path: Path, monkeypatch) -> str:
    register = "gymnasium.register('Own-v0', entry_point='gymnasium.envs.classic_control:PendulumEnv')"
    (tmp_path / "own_module.py").write_text(f"import gymnasium\n{register}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_module:Own-v0"


def test_a_module_named_again_does_not_mean_online(tmp_path: Path, module_env: str, capsys) -> None:
    """`--offline` says so; cloning, which cannot continue online, needs not even that."""
    for algo, words in (("iql", ["--offline"]), ("bc", ["--offline"]), ("bc", [])):
        run_dir = train(config(tmp_path / algo, algo, env_id=module_env), show_progress=False).run_dir
        asked = ["resume", str(run_dir), "--total-timesteps", "60", "--quiet", "--json"]
        assert main(asked) == 2
        assert "is in a module; name it again with --env" in capsys.readouterr().err
        assert main([*asked, "--env", module_env, *words]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["metrics"]["gradient_steps"] == answer["metrics"]["global_step"] == 60
        settings = load_checkpoint(Path(answer["checkpoint_path"])).state["config"]["algo_kwargs"]
        assert settings["offline_steps"] is None
    assert main(["resume", str(run_dir), "--offline"]) == 2
    assert capsys.readouterr().err == "error: --offline is only allowed with --env\n"


def test_resuming_online_needs_a_total(tmp_path: Path, capsys) -> None:
    run_dir = offline_run(tmp_path)
    with pytest.raises(UserError, match="total_timesteps must be given to continue online, above 47"):
        resume_training(run_dir, online=True, show_progress=False)
    stopped = go_on(run_dir, callbacks=[StopAt(90)])
    assert stopped.metrics["global_step"] < 140
    assert main(["resume", str(run_dir), "--env", "Pendulum-v1", "--offline"]) == 2
    said = "error: this run learns in its environment: it cannot resume offline (--offline)\n"
    assert capsys.readouterr().err.endswith(said)
    assert resume_training(run_dir, online=True, show_progress=False).metrics["global_step"] == 140  # it is online


def test_from_a_file_without_an_environment_to_one(tmp_path: Path) -> None:
    """The file knows no bounds of observations, and takes its actions to be in [-1, 1]."""
    made = record_random(EnvSource("MountainCarContinuous-v0"), 80, seed=0)
    bare = dataclasses.replace(made, env_id=None, observation_space=None, action_space=None)
    settings = {"dataset_kind": "file", "dataset_path": str(save_transitions(bare, tmp_path / "bare.npz"))}
    run_dir = offline_run(tmp_path, "td3_bc", algo_kwargs=settings, env_id="Elsewhere-v3")
    with pytest.raises(UserError, match=r"observations are of shape \(2,\), the environment's are \(3,\)"):
        go_on(run_dir)
    result = go_on(run_dir, env_id="MountainCarContinuous-v0")
    assert result.metrics["global_step"] == 140 and replay_rows(result)["obs"].shape[2] == 2
