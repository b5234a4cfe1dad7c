"""Datasets of Dict and Tuple observations and multi-discrete actions: recorded, converted, learned from."""

from __future__ import annotations

import importlib.util
import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from dict_envs import NUMBERS, AnySpaces
from gymnasium import spaces

import rl_training
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.data.datasets.conversion import load_data
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.data.datasets.transitions import Transitions
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.spaces import ObservationCodec

needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
QUICK: dict[str, Any] = {
    "total_timesteps": 20, "eval_episodes": 1, "video": False, "report": False, "device": "cpu", "compile": "off",
    "threads": 1, "hidden_sizes": (8,), "batch_size": 8, "normalize_observations": True,
}  # fmt: skip


def recorded(observation: str = "numbers", action: str = "box", size: int = 60) -> Transitions:
    source = EnvSource("AnySpaces-v0", {"observation": observation, "action": action}, AnySpaces)
    return record_random(source, size, seed=0)


def tensors(agent: Any) -> dict[str, bytes]:
    found = load_checkpoint(agent.checkpoint_path).tensors("learner.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in found.items()}


@needs_h5py
@pytest.mark.parametrize(
    ("observation", "action"),
    [("numbers", "box"), ("numbers", "multi_discrete"), ("mixed", "multi_binary"), ("two images", "discrete")],
)
def test_every_format_holds_the_same_data(observation: str, action: str, tmp_path: Path) -> None:
    data, path = recorded(observation, action), tmp_path / "a.npz"
    save_transitions(data, path)
    for name in ("set", "b.hdf5", "c.npz"):
        save_transitions(load_data(path), tmp_path / name)
        path = tmp_path / name
        again = load_data(path)
        assert again.sha256() == data.sha256(), name
        assert again.observation_space == data.observation_space and again.action_space == data.action_space


@needs_h5py
def test_minari_has_the_entries_under_their_own_names(tmp_path: Path) -> None:
    import h5py

    data = recorded()
    save_transitions(data, tmp_path / "set")
    with h5py.File(tmp_path / "set" / "data" / "main_data.hdf5") as file:
        episode = file["episode_0/observations"]
        assert sorted(episode) == ["gears", "inner", "position"]
        assert sorted(episode["gears"]) == ["_index_0", "_index_1"]
        assert episode["inner/mode"].shape == (10,) and set(np.unique(episode["inner/mode"])) <= {1, 2, 3}
        first = ObservationCodec(NUMBERS).decode_rows(data.obs[:1])
        assert np.array_equal(episode["gears/_index_1"][0], first["gears"][1][0])
    described = json.loads((tmp_path / "set" / "data" / "metadata.json").read_text())["observation_space"]
    assert list(json.loads(described)["subspaces"]) == ["position", "inner", "gears"]


@needs_h5py
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file["episode_2/observations/inner/mode"].__setitem__(3, 9), "'inner.mode' must be in Discrete"),
        (lambda file: file.__delitem__("episode_1/observations/position"), "observations: has no 'position'"),
        (lambda file: _replace(file, "episode_1/observations/inner"), "'inner' is not a group"),
        (lambda file: _replace(file, "episode_1/observations/position", (10, 3)), "numbers of shape (rows, *(2,))"),
        (lambda file: _replace(file, "episode_1/observations/position", (4, 2)), "entries of the same length"),
    ],
)
def test_a_minari_set_that_breaks_its_space_names_the_entry(change: Any, message: str, tmp_path: Path) -> None:
    import h5py

    save_transitions(recorded(), tmp_path / "set")
    with h5py.File(tmp_path / "set" / "data" / "main_data.hdf5", "a") as file:
        change(file)
    with pytest.raises(UserError) as refused:
        load_data(tmp_path / "set")
    assert message in str(refused.value) and "\n" not in str(refused.value)


def _replace(file: Any, name: str, shape: tuple[int, ...] = (10,)) -> None:
    del file[name]
    file.create_dataset(name, data=np.zeros(shape))


@pytest.mark.parametrize("algo", ["BC", pytest.param("IQL", marks=pytest.mark.sweep)])
def test_observations_by_key_are_learned_from_like_a_file(algo: str, tmp_path: Path) -> None:
    data, cls = recorded(), getattr(rl_training, algo)
    save_transitions(data, tmp_path / "data.npz")
    codec = ObservationCodec(NUMBERS)
    arrays = {
        "observations": codec.decode_rows(data.obs), "next_observations": codec.decode_rows(data.next_obs),
        "actions": data.actions, "rewards": data.rewards, "terminals": data.terminated, "timeouts": data.truncated,
    }  # fmt: skip
    options = {**QUICK, "env_kwargs": {"action": "box"}}
    from_file = cls(AnySpaces, dataset_path=tmp_path / "data.npz", output_dir=tmp_path / "a", **options)
    from_memory = cls(AnySpaces, dataset=arrays, output_dir=tmp_path / "b", **options)
    found = [tensors(agent.learn(show_progress=False)) for agent in (from_file, from_memory)]
    assert found[0] == found[1]
    first, _ = AnySpaces("numbers", "box").reset(seed=1)
    assert from_memory.predict(first).shape == (2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": np.zeros((60, 3))}, "observation entry 'position' must be numbers of shape (rows, *(2,)), got"),
        ({"position": np.zeros((59, 2))}, "must have the same length, got {'position': 59"),
        ({"more": np.zeros(60)}, "(unknown: more)"),
    ],
)
def test_wrong_observations_by_key_name_the_entry(change: Any, message: str, tmp_path: Path) -> None:
    data, codec = recorded(), ObservationCodec(NUMBERS)
    arrays = {
        "observations": {**codec.decode_rows(data.obs), **change}, "actions": data.actions, "rewards": data.rewards,
        "terminals": data.terminated, "timeouts": data.truncated,
    }  # fmt: skip
    agent = rl_training.BC(AnySpaces, dataset=arrays, output_dir=tmp_path, env_kwargs={"action": "box"}, **QUICK)
    with pytest.raises(UserError) as refused:
        agent.learn(show_progress=False)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_observations_by_key_need_an_environment_with_those_keys(tmp_path: Path) -> None:
    arrays = {"observations": {"a": np.zeros((4, 3))}, "actions": np.zeros((4, 1)), "rewards": np.zeros(4),
              "terminals": np.zeros(4), "timeouts": np.ones(4)}  # fmt: skip
    agent = rl_training.BC("Pendulum-v1", dataset=arrays, output_dir=tmp_path, **QUICK)
    with pytest.raises(UserError, match="dataset: observations by key needs a Dict environment"):
        agent.learn(show_progress=False)


def test_a_dataset_with_other_entries_is_rejected(tmp_path: Path) -> None:
    """The same numbers in another order would be learned from silently."""

    class Swapped(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(AnySpaces(**kwargs))
            order = OrderedDict((key, NUMBERS[key]) for key in ("gears", "inner", "position"))
            self.observation_space = spaces.Dict(order)

        def observation(self, observation: Any) -> Any:
            return observation

    save_transitions(recorded(), tmp_path / "data.npz")
    options = {**QUICK, "env_kwargs": {"action": "box"}, "dataset_path": tmp_path / "data.npz"}
    with pytest.raises(UserError, match=r"data.npz: has observations of .*position.*, the environment has .*gears"):
        rl_training.BC(Swapped, output_dir=tmp_path / "runs", **options).learn(show_progress=False)


@pytest.mark.parametrize("algo", ["BC", pytest.param("CQL", marks=pytest.mark.sweep)])
def test_images_with_numbers_are_learned_from_and_resumed(algo: str, tmp_path: Path) -> None:
    """The numbers are standardised by the dataset's, the images are not; a cut run ends with the same bits."""
    data, cls = recorded("mixed"), getattr(rl_training, algo)
    save_transitions(data, tmp_path / "data.npz")
    options = {**QUICK, "env_kwargs": {"observation": "mixed", "action": "box"}, "seeds": (0, 3)}
    agents = []
    for name in ("whole", "cut"):
        agent = cls(AnySpaces, dataset_path=tmp_path / "data.npz", output_dir=tmp_path / name, **options)
        stop = [] if name == "whole" else [lambda session: session.step < 13]
        agents.append(agent.learn(callbacks=stop, show_progress=False))
    assert agents[1].result.metrics["global_step"] == 13
    agents[1].resume(show_progress=False)
    found = [tensors(agent) for agent in agents]
    assert found[0] == found[1]
    vectors = data.obs[:, : 4 * 5].copy().view(np.float32)  # two of the position, three of the mode's choices
    mean = np.frombuffer(found[0]["params.normalizer.mean"], np.float32).reshape(2, -1)
    np.testing.assert_allclose(mean[0], vectors.mean(0), rtol=1e-5)
