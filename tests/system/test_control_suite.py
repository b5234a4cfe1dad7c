"""DeepMind Control through its extra: what an agent sees, exact resume, and what is said where it is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_quick_config
from safetensors.numpy import load_file

from rl_training.core.checks import UserError
from rl_training.envs.host import control_suite
from rl_training.envs.host.conformance import check_environment
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.snapshots import native_state
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train


def test_a_missing_package_is_told_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(UserError) as error:
        EnvSource("dm_control/cheetah-run-v0").make()
    said = "environment 'dm_control/cheetah-run-v0' needs dm_control; install it with: pip install 'rl-training[dmc]'"
    assert str(error.value) == said


def test_a_renderer_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoEGL:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "dm_control":
                raise AttributeError("'NoneType' object has no attribute\n'eglQueryString'")

    monkeypatch.setattr(sys, "meta_path", [NoEGL(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "dm_control", raising=False)
    with pytest.raises(UserError, match=r"AttributeError: .*eglQuery.*apt-get install libegl1\)$") as error:
        EnvSource("dm_control/cheetah-run-v0").make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("display", "library", "chosen"), [("", True, "egl"), ("", False, "disabled"), (":0", True, None)]
)
def test_egl_is_chosen_where_there_is_no_display_and_nothing_where_it_is_missing(
    display: str, library: bool, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")  # so that it is put back
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(control_suite, "_egl_present", lambda: library)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(UserError, match="needs dm_control"):
        control_suite.register_suite("dm_control/cheetah-run-v0")
    assert control_suite.os.environ.get("MUJOCO_GL") == chosen


@pytest.fixture
def suite() -> None:
    pytest.importorskip("shimmy")
    pytest.importorskip("dm_control")


@pytest.mark.usefixtures("suite")
def test_observations_are_one_vector_in_the_order_of_their_names() -> None:
    env = EnvSource("dm_control/walker-walk-v0").make()
    flat, _ = env.reset(seed=1)
    named = env.unwrapped._env.task.get_observation(env.unwrapped._env.physics)
    assert list(named) != sorted(named), "this task tells whether the order is kept apart from the task's"
    assert np.array_equal(flat, np.concatenate([np.ravel(named[name]) for name in sorted(named)]))
    assert env.observation_space.contains(flat) and env.metadata["render_fps"] == 40
    assert np.array_equal(env.reset(seed=1)[0], flat) and not np.array_equal(env.reset(seed=2)[0], flat)


@pytest.mark.usefixtures("suite")
def test_episodes_are_cut_off_not_terminated_and_the_limit_is_known() -> None:
    source = EnvSource("dm_control/pendulum-swingup-v0", {"wrappers": {"action_repeat": 8}})
    found = check_environment(source)
    assert found.restore != "inexact" and found.spec.episode_limit == 125
    env = source.make()
    env.reset(seed=0)
    ends = [env.step(np.zeros(1))[2:4] for _ in range(125)]
    assert ends == [(False, False)] * 124 + [(False, True)]


@pytest.mark.sweep
@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize(
    ("task", "workers"),
    [("cheetah-run", 0), ("cheetah-run", 2), ("reacher-easy", 0), ("point_mass-hard", 0), ("hopper-hop", 0)],
)
@pytest.mark.parametrize("native", [True, False])
def test_open_episodes_are_resumed(task: str, workers: int, native: bool) -> None:
    """By their state or by replay. reacher and point_mass change their model when an episode begins."""
    source = EnvSource(f"dm_control/{task}-v0", {"max_episode_steps": 12})
    envs, restored = (SeededEnvs(source, [1], 2, workers=w) for w in (0, workers))
    rng = np.random.default_rng(0)

    def actions() -> np.ndarray:
        return rng.uniform(-1, 1, (2, envs.action.spec.size)).astype(np.float32)

    try:
        assert restored.note is None
        envs.reset_all()
        for _ in range(30):  # into the third episode
            envs.step(actions())
            envs.advance()
        snapshot = envs.snapshot()
        assert all(len(state) for state in snapshot["states"])
        if not native:
            snapshot["states"] = [np.empty(0, np.uint8)] * 2
        assert restored.restore(snapshot)
        for _ in range(15):
            action = actions()
            for one in (envs, restored):
                one.step(action)
            assert np.array_equal(envs.next_obs, restored.next_obs) and np.array_equal(envs.rewards, restored.rewards)
            assert np.array_equal(envs.truncated, restored.truncated)
            for one in (envs, restored):
                one.advance()
    finally:
        envs.close()
        restored.close()


@pytest.mark.usefixtures("suite")
def test_random_numbers_and_the_step_count_are_part_of_the_state() -> None:
    source = EnvSource("dm_control/pendulum-swingup-v0")
    env = source.make()
    env.reset(seed=0)
    seen = [native_state(env).tobytes()]
    env.unwrapped._env.task.random.normal()
    seen.append(native_state(env).tobytes())
    env.unwrapped._env._step_count += 1
    seen.append(native_state(env).tobytes())
    assert len(set(seen)) == 3


@pytest.mark.usefixtures("suite")
def test_a_model_drawn_when_it_is_made_has_no_native_state() -> None:
    env = EnvSource("dm_control/lqr-lqr_2_1-v0").make()
    env.reset(seed=0)
    assert native_state(env) is None


@pytest.mark.sweep
@pytest.mark.usefixtures("suite")
def test_pixels_are_drawn_in_their_size_and_resumed() -> None:
    wrappers = {"pixels": {"resize_shape": [20, 24], "frame_stack": 2}, "action_repeat": 2}
    source = EnvSource("dm_control/cartpole-swingup-v0", {"wrappers": wrappers})
    env = source.make()
    try:
        obs, _ = env.reset(seed=0)
    except UserError as error:
        pytest.skip(f"no headless rendering here: {error}")
    physics = env.unwrapped._env.physics
    assert np.array_equal(obs[:3], physics.render(20, 24, camera_id=0).transpose(2, 0, 1))
    assert env.render().shape == (240, 320, 3), "a video stays full-size"
    assert check_environment(source).spec.observation.shape == (6, 20, 24)
    envs, restored = SeededEnvs(source, [1], 1), SeededEnvs(source, [1], 1)
    envs.reset_all()
    action = np.full((1, 1), 0.5, np.float32)
    for _ in range(4):
        envs.step(action)
        envs.advance()
    assert restored.restore(envs.snapshot()) and np.array_equal(envs.obs, restored.obs)
    for one in (envs, restored):
        one.step(action)
    assert np.array_equal(envs.next_obs, restored.next_obs)
    for one in (env, envs, restored):
        one.close()


@pytest.mark.sweep
@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("task", ["cartpole-swingup", "walker-walk"])
def test_smaller_shadows_leave_a_small_picture_as_it_was(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = []
    for texels in (control_suite.SHADOW_TEXELS, 10**6):  # the second: the suite's own
        monkeypatch.setattr(control_suite, "SHADOW_TEXELS", texels)
        env = EnvSource(f"dm_control/{task}-v0", {"wrappers": {"pixels": {"resize_shape": [84, 84]}}}).make()
        try:
            pictures.append(env.reset(seed=0)[0].astype(int))
        except UserError as error:
            pytest.skip(f"no headless rendering here: {error}")
        assert env.unwrapped._env.physics.model.vis.quality.shadowsize == min(texels, 2048)
        env.close()
    assert (np.abs(pictures[0] - pictures[1]).max(0) > 0).mean() < 0.005


class Stop(Callback):
    def on_step(self, session: Any) -> bool | None:
        return False if session.step >= 36 else None


@pytest.mark.sweep
@pytest.mark.usefixtures("suite")
def test_a_stopped_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    changes = {"env_id": "dm_control/reacher-easy-v0", "env_kwargs": {"max_episode_steps": 13}, "total_timesteps": 60}
    whole = train(make_quick_config("sac", tmp_path / "whole", **changes), show_progress=False)
    cut = train(make_quick_config("sac", tmp_path / "cut", **changes), callbacks=[Stop()], show_progress=False)
    assert cut.metrics["global_step"] == 36, "in the middle of an episode"
    resumed = resume_training(cut.run_dir, show_progress=False)
    assert resumed.metrics["global_step"] == 60 and resumed.metrics["gradient_steps"] > 0
    agents = [load_file(result.run_dir / "agents" / "seed_0_final.safetensors") for result in (whole, resumed)]
    assert {k: v.tobytes() for k, v in agents[0].items()} == {k: v.tobytes() for k, v in agents[1].items()}
    evaluations = [(result.run_dir / "evaluations.jsonl").read_text() for result in (whole, resumed)]
    assert evaluations[0] == evaluations[1]
    assert json.loads((whole.run_dir / "run.json").read_text())["resume"] == "exact"


def test_physics_that_are_built_anew_at_every_reset_are_found() -> None:
    pytest.importorskip("dm_control")
    env = EnvSource("dm_control/reach_site_features-v0").make()
    for seed in (1, 2):
        env.reset(seed=seed)
        assert env.unwrapped._env.physics.model.ncam == env.get_wrapper_attr("physics").model.ncam > 0
