"""Learning from images through the whole library: it learns, resumes exactly, and its agents travel."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import one_of_a_kind
from gymnasium import spaces
from harness import decode
from image_envs import HEIGHT, WIDTH, Dot
from probes import train_on
from resume_harness import Forks, compare_runs, make_config
from seed_harness import assert_same_bits, saved_arrays

from rl_training.algorithms import DQN, SAC
from rl_training.algorithms.registry import learner_class
from rl_training.cli import load_config
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.replay.frames import FrameReplay
from rl_training.envs.host.conformance import check_environment
from rl_training.envs.host.factory import EnvSource
from rl_training.models import MLPQNetwork, MLPSACModel
from rl_training.models.cnn.encoders import NatureCNN
from rl_training.run.agent import load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.run import train
from rl_training.run.validate import check_compatible
from rl_training.run.workflows import predict_checkpoint

PIXELS = {"pixels": {"resize_shape": [36, 40], "frame_stack": 2}}
ATARI = {"atari": {"resize_shape": [36, 36], "noop_max": 3, "terminal_on_life_loss": True}}
IMAGE = EnvSpec(image(6, 36, 40, frames=2), discrete(2))


# --- networks ---------------------------------------------------------------------------------------------------------
def test_the_convolutions_are_those_of_the_paper() -> None:
    network = NatureCNN((4, 84, 84))
    assert [tuple(layer.weight.shape) for layer in network.layers] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert network.features == 3136 and network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 3136)
    bound = 1 / np.sqrt(32 * 4 * 4)
    assert 0.99 * bound < network.layers[1].weight.abs().max() <= bound


def test_bytes_become_numbers_from_zero_to_one() -> None:
    torch.manual_seed(0)
    network = NatureCNN((1, 36, 36))
    image = torch.randint(0, 256, (3, 1, 36, 36), dtype=torch.uint8)
    hidden = image.float() / 255
    for layer in network.layers:
        hidden = torch.relu(torch.nn.functional.conv2d(hidden, layer.weight, layer.bias, layer.stride))
    assert torch.equal(network(image), hidden.flatten(1))
    assert torch.equal(network(image[0]), network(image[:1])), "a single image comes back as a batch of one"


def test_a_dueling_noisy_network_on_images_has_noise_in_every_dense_layer() -> None:
    network = MLPQNetwork((4, 36, 36), 3, (16,), dueling=True, noisy=True)
    assert network.noise_size == 2 * (64 + 16) + (16 + 1) + (16 + 3)
    plain = MLPQNetwork(7, 3, (16,), dueling=True, noisy=True)
    assert plain.noise_size == (16 + 1) + (16 + 3), "behind a vector the first layer stays plain"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NatureCNN((3, 35, 84)), "images must be at least 36x36 for this network, got 35x84"),
        (lambda: NatureCNN((84, 84)), r"obs_shape must be \(channels, height, width\), got \(84, 84\)"),
        (lambda: NatureCNN((4, 84, 84))(torch.zeros(2, 3, 84, 84)), r"takes images of shape \(4, 84, 84\), got"),
        (lambda: MLPQNetwork((4, 84, 84), 2)(torch.zeros(2, 5)), r"takes images of shape \(4, 84, 84\), got \(2, 5\)"),
        (lambda: MLPQNetwork(4, 2)(torch.zeros(2, 3, 36, 36)), "an MLP takes vectors"),
        (lambda: MLPSACModel(4, 2).sample_actions(torch.zeros(2, 3, 36, 36)), "an MLP takes vectors"),
    ],
)
def test_what_does_not_fit_a_network_is_told_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_updates_on_images_by_hand_and_images_for_an_mlp() -> None:
    image = {"obs": np.zeros((4, 6, 36, 40), np.uint8), "next_obs": np.ones((4, 6, 36, 40), np.uint8)}
    rest = {"rewards": np.ones(4), "dones": np.zeros(4)}
    learner = DQN(q_network=MLPQNetwork((6, 36, 40), 2, (8,)))
    assert learner.update({**image, **rest, "actions": np.zeros(4, int)}).metrics["loss"] > 0
    with pytest.raises(UserError, match="an MLP takes vectors"):
        DQN(q_network=MLPQNetwork(4, 2)).update({**image, **rest, "actions": np.zeros(4, int)})
    with pytest.raises(UserError, match="an MLP takes vectors"):
        SAC(model=MLPSACModel(4, 2)).update({**image, **rest, "actions": np.zeros((4, 2))})


def image_learner(seeds: tuple[int, ...], **options: Any) -> DQN:
    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(MLPQNetwork((2, 36, 36), 3, (8,), dueling=True))
    return DQN(model=models, seeds=seeds, dueling=True, **options)


def image_batches(seeds: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    images = torch.randint(0, 256, (2, seeds, 5, 2, 36, 36), dtype=torch.uint8)
    rest = {
        "actions": torch.randint(0, 3, (seeds, 5)),
        "rewards": torch.randn(seeds, 5),
        "dones": torch.zeros(seeds, 5),
    }
    return {"obs": images[0], "next_obs": images[1], **rest}


@pytest.mark.parametrize("kind", ["all seeds at once, as on a GPU", pytest.param("compiled", marks=pytest.mark.sweep)])
def test_other_ways_to_run_the_seeds_agree_within_rounding(kind: str) -> None:
    plain = image_learner((0, 1))
    other = image_learner((0, 1), compiled=kind == "compiled", backend="aot_eager")
    assert plain.engine.looped
    other.engine.looped = kind == "compiled"
    batch = image_batches(2)
    for _ in range(3):
        for learner in (plain, other):
            learner.engine.update(batch, {})
    for name, tensor in plain.state_dict().items():
        if name.startswith("params."):
            torch.testing.assert_close(other.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)
    acted = [learner.act_greedy(batch["obs"]).action for learner in (plain, other)]
    assert acted[0].shape == (2, 5) and torch.equal(*acted)


@pytest.mark.parametrize(("algo", "settings"), [("drq", {}), ("drq", {"encoder": "nature"}), ("drqv2", {})])
def test_actors_and_critics_of_all_seeds_at_once_as_on_a_gpu(algo: str, settings: Any) -> None:
    """Gradients, as Adam keeps them, and not parameters: of mere rounding Adam would make full steps."""
    cls, shape = learner_class(algo), EnvSpec(image(2, 36, 36), continuous(3))
    sizes = {"hidden_sizes": (8,), "features_dim": 5, "batch_size": 5}
    plain, other = (cls.create(shape, parse(cls.settings_type, {**sizes, **settings}), (0, 1)) for _ in range(2))
    other.engine.looped = False
    batch = {**image_batches(2), "actions": torch.rand(2, 5, 3) * 2 - 1}
    noise = plain.engine.host_noise(plain.noise(5))
    for learner in (plain, other):
        learner.engine.update(batch, noise, due=tuple(phase.name for phase in learner.engine.phases))
    for name, tensor in plain.state_dict().items():
        if name.startswith("adam_mean"):
            torch.testing.assert_close(other.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    acted = [learner.act_greedy(batch["obs"]).action for learner in (plain, other)]
    np.testing.assert_allclose(acted[1], acted[0], atol=1e-2)


# --- does the algorithm fit the images? -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("algo", "spec", "message"),
    [
        ("dqn", EnvSpec(image(84, 84, 3), discrete(2)), r"images must be \(channels, height, width\); Some-v0 gives"),
        ("dqn", EnvSpec(image(3, 20, 84), discrete(2)), "images must be at least 36x36 for this network, got 20x84"),
        (
            "drq",
            EnvSpec(vector(3), continuous(1)),
            r"drq takes images; Some-v0 gives vectors of shape \(3,\); use ppo, .*; env_kwargs.wrappers.pixels gives",
        ),
        (
            "drqv2",
            EnvSpec(image(9, 84, 84), discrete(4)),
            r"drqv2 needs Box actions; Some-v0 has Discrete\(4\); use dqn",
        ),
        (
            "drqv2",
            EnvSpec(image(84, 84, 9), continuous(2)),
            r"images must be \(channels, height, width\); Some-v0 gives \(84, 84, 9\), channels last",
        ),
        (
            "drq",
            EnvSpec(image(84, 84, 27), continuous(2)),
            r"gives \(84, 84, 27\), channels last",
        ),  # nine colour pictures
        ("drq", EnvSpec(image(64, 48, 18), continuous(2)), r"gives \(64, 48, 18\), channels last"),
        ("drq", EnvSpec(image(3, 14, 84), continuous(2)), "images must be at least 15x15 for this network, got 14x84"),
    ],
)
def test_images_that_do_not_fit_are_refused_before_anything_is_built(algo: str, spec: EnvSpec, message: str) -> None:
    cls = learner_class(algo)
    with pytest.raises(UserError, match=message):
        check_compatible(cls, spec, "Some-v0", parse(cls.settings_type, {}))


def test_a_shift_as_far_as_the_picture_is_refused() -> None:
    cls, shape = learner_class("drq"), EnvSpec(image(3, 48, 20), continuous(2))
    check_compatible(cls, shape, "Some-v0", parse(cls.settings_type, {"augmentation_pad": 19}))
    with pytest.raises(UserError, match=r"augmentation_pad must be less than the images' size \(48, 20\), got 20"):
        check_compatible(cls, shape, "Some-v0", parse(cls.settings_type, {"augmentation_pad": 20}))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((84, 84), np.uint8), ((4, 84, 84), np.float32), ((84, 84, 3), np.float64), ((4, 84, 84, 3), np.uint8)],
)
def test_images_in_another_form_are_no_vectors(shape: tuple[int, ...], dtype: Any) -> None:
    class Odd(BrightOrDark):
        observation_space = spaces.Box(0, 1, shape, dtype)

    with pytest.raises(UserError) as error:
        check_environment(EnvSource("Odd-v0", factory=Odd))
    said = f"its observation is {np.dtype(dtype)} {shape}, and images must be uint8 (channels, height, width)"
    assert said in str(error.value) and "env_kwargs.wrappers.pixels" in str(error.value)


def test_an_algorithm_for_images_given_vectors_is_told_how_to_get_them() -> None:
    class Pixels(learner_class("dqn")):  # type: ignore[misc]
        name, observations = "pixels_only", ("image",)

    with pytest.raises(UserError, match=r"pixels_only takes images; Some-v0 gives vectors of shape \(4,\)"):
        check_compatible(Pixels, EnvSpec(vector(4), discrete(2)), "Some-v0", Pixels.settings_type())


# --- learning ---------------------------------------------------------------------------------------------------------
class BrightOrDark(gym.Env[np.ndarray, int]):
    """One step: at a bright image action 1 pays, at a dark one action 0; Q is 1 or 0."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    action_space = spaces.Discrete(2)
    time_limit = None

    def __init__(self, discrete: bool = True) -> None:
        self.bright = False

    def _image(self) -> np.ndarray:
        return np.full((1, 36, 36), 200 * self.bright, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.bright = bool(self.np_random.integers(2))
        return self._image(), {}

    def step(self, action: int) -> Any:
        return self._image(), float(action == self.bright), True, False, {}


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn", among=("dqn", "iqn", "rainbow_dqn")))
def test_values_are_learned_from_images(algo: str, tmp_path: Path) -> None:
    settings = {
        "hidden_sizes": (16,),
        "learning_rate": 1e-3,
        "num_quantiles": 5,
        "num_atoms": 21,
        "v_min": -2.0,
        "v_max": 2.0,
    }
    names = {field.name for field in dataclasses.fields(learner_class(algo).settings_type)}
    wanted = {name: value for name, value in settings.items() if name in names}
    learner = train_on(BrightOrDark, algo, tmp_path, steps=300, batch_size=16, **wanted)  # type: ignore[arg-type]
    for bright in (0, 1):
        image = torch.full((1, 1, 36, 36), 200 * bright, dtype=torch.uint8)
        values = learner.model.action_values(image)[0].detach()  # type: ignore[operator]
        assert values.tolist() == pytest.approx([1.0 - bright, float(bright)], abs=0.25)


# --- whole runs -------------------------------------------------------------------------------------------------------
def dot_config(quick_config: Any, algo: str, path: Path, algo_kwargs: Any = None, **changes: Any) -> TrainConfig:
    env = {"env_id": "<Dot>", "env_kwargs": {"wrappers": PIXELS}}
    return quick_config(algo, path, {"hidden_sizes": (8,), **(algo_kwargs or {})}, **{**env, **changes})


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", among=("dqn", "iqn", "rainbow_dqn")))
def test_seeds_among_many_learn_from_images_as_alone(algo: str, quick_config: Any, tmp_path: Path) -> None:
    def run(*seeds: int) -> Any:
        settings = {"batch_size": 7, "n_step": 2, "learning_starts": 60}
        changes = {"seeds": seeds, "num_envs": 2, "eval_episodes": 0, "total_timesteps": 100}
        config = dot_config(quick_config, algo, tmp_path, settings, **changes)
        return train(config, env_factory=lambda **kwargs: Dot(**kwargs, limit=9), show_progress=False)

    together = run(4, 0, 9)
    assert_same_bits(saved_arrays(together, 2), saved_arrays(run(9), 0))


def test_an_agent_that_sees_travels_as_one_file(quick_config: Any, tmp_path: Path) -> None:
    from rl_training.run.callbacks import Callback

    class Keep(Callback):
        def on_end(self, session: Any) -> None:
            self.agent, self.replay = session.agent, session.replay

    keep = Keep()
    result = train(dot_config(quick_config, "dqn", tmp_path), callbacks=[keep], env_factory=Dot, show_progress=False)
    assert type(keep.replay) is FrameReplay and keep.replay.stack == 2 and "obs" not in keep.replay.storage
    path = keep.agent.save(tmp_path / "agent")
    agent = load_agent(path)
    images = np.random.default_rng(0).integers(0, 256, (5, *IMAGE.observation.shape), dtype=np.uint8)
    batch = agent.predict(images)
    assert batch.tolist() == keep.agent.predict(images).tolist()
    one = agent.predict(images[3])
    assert type(one) is int and one == batch[3] and agent.predict(images[3].tolist()) == one
    assert predict_checkpoint(result.checkpoint_path, images[3]) == one
    for wrong, message in (
        (images[0, 0], r"observation must be of shape \(6, 36, 40\)"),
        (images[0] / 255, "observation must be an image of whole numbers from 0 to 255"),
    ):
        with pytest.raises(UserError, match=message):
            agent.predict(wrong)
    source = EnvSource("<Dot>", {"wrappers": PIXELS}, lambda **kwargs: Dot(**kwargs, limit=8))
    video, returns = record_video(agent, source, tmp_path / "video.webm")
    assert decode(video)[1].shape[1:3] == (HEIGHT, WIDTH), "in full size, not as the agent sees it"
    assert len(returns) == 1


def image_config(algo: str, env_id: str, wrappers: Any, **changes: Any) -> TrainConfig:
    config = make_config(algo, wanted={"hidden_sizes": (8,), "batch_size": 4, "n_step": 3}, eval_episodes=0, **changes)
    return dataclasses.replace(config, env_id=env_id, env_kwargs={"max_episode_steps": 13, "wrappers": wrappers})


PIXEL_CONFIG = image_config("dqn", "CartPole-v1", {**PIXELS, "action_repeat": 2})


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: Any) -> Path:
    return forks.train(PIXEL_CONFIG, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def cut(forks: Forks, tmp_path_factory: Any) -> Path:
    """A run that was killed in the middle of its episodes, with the ring around once."""
    path = tmp_path_factory.mktemp("cut")
    where = forks.cut(PIXEL_CONFIG, path, at="mid_episode", n=90, save=True)
    assert where["updates"] > 0 and min(where["open_lengths"]) > 0 and where["added"] > 64
    return path


def test_cut_and_resumed_equals_uncut(forks: Forks, whole: Path, cut: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path, dirs_exist_ok=True)
    assert compare_runs(whole, forks.resume(tmp_path)) == []


@pytest.mark.sweep
def test_cut_at_an_episodes_end_and_resumed_equals_uncut(forks: Forks, whole: Path, tmp_path: Path) -> None:
    where = forks.cut(PIXEL_CONFIG, tmp_path, at="episode_end", n=39, save=True)
    assert min(where["open_lengths"]) == 0
    assert compare_runs(whole, forks.resume(tmp_path)) == []


@pytest.mark.sweep
@pytest.mark.parametrize("what", [pytest.param("frames", marks=pytest.mark.sweep), "final_frames"])
def test_frames_forgotten_by_resume_show(what: str, forks: Forks, whole: Path, cut: Path, tmp_path: Path) -> None:
    shutil.copytree(cut, tmp_path, dirs_exist_ok=True)
    differences = compare_runs(whole, forks.resume(tmp_path, {"zero": what}))
    assert any(line.startswith("learner.safetensors:params.") for line in differences)


@pytest.mark.sweep
def test_a_game_cut_between_two_lives_and_resumed_equals_uncut(forks: Forks, tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    config = image_config("rainbow_dqn", "ALE/Breakout-v5", ATARI, seeds=(3,), num_envs=2, total_timesteps=150)
    config = dataclasses.replace(config, env_kwargs={"wrappers": ATARI})
    expected = forks.train(config, tmp_path / "whole")
    where = forks.cut(config, tmp_path / "cut", at="step", n=120, save=True)
    assert max(where["open_lengths"]) < 60, "an environment has lost a life"
    assert compare_runs(expected, forks.resume(tmp_path / "cut")) == []


# --- Atari ------------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("name", ["pong", "breakout"])
def test_the_packaged_atari_configs_train(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    config = load_config(f"configs/dqn/{name}.yaml")
    settings = {**config.algo_kwargs, "buffer_capacity": 200, "learning_starts": 40, "batch_size": 4}
    wrappers = config.env_kwargs["wrappers"]["atari"]
    assert wrappers["repeat_action_probability"] == 0.25 and wrappers["frame_skip"] == 4
    quick = {"total_timesteps": 64, "num_envs": 2, "workers": 0, "threads": 1, "eval_episodes": 1, "compile": "off"}
    output = {"output_dir": tmp_path, "device": "cpu", "video": False, "report": False}
    limited = {**config.env_kwargs, "max_episode_steps": 20}
    small = dataclasses.replace(config, **quick, **output, algo_kwargs=settings, env_kwargs=limited)
    result = train(small, show_progress=False)
    assert result.metrics["gradient_steps"] == 6 and np.isfinite(result.metrics["eval_return_mean"])


def test_images_are_not_normalised_and_the_refusal_comes_before_a_run() -> None:
    cls = learner_class("dqn")
    with pytest.raises(UserError, match="normalize_observations must be false for images, which Some-v0 gives"):
        settings = parse(cls.settings_type, {"normalize_observations": True})
        check_compatible(cls, EnvSpec(image(3, 84, 84), discrete(2)), "Some-v0", settings)
