"""Hindsight replay: which goals a row may get, and what a relabelled row holds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.config.settings import HindsightSettings
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.hindsight import HindsightReplay
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.goal_envs import BitFlip, PointReach
from rl_training.envs.host.goals import Goals
from rl_training.envs.spaces import ActionCodec

SEEDS, ENVS, CAPACITY = 2, 3, 30
OBSERVATION, ACHIEVED, DESIRED = slice(0, 4), slice(4, 6), slice(6, 8)


def goals_of(factory: Any, **kwargs: Any) -> Goals:
    return Goals(EnvSource("Test-v0", kwargs, factory))


@pytest.fixture(scope="module")
def point_goals() -> Goals:
    return goals_of(PointReach)


class World:
    """A filled hindsight replay, and what happened in it: (seed, env) -> the episode number of every step."""

    def __init__(self, goals: Goals, strategy: str, steps: int, n: int = 4) -> None:
        self.goals, self.her = goals, HindsightSettings(strategy, n)
        self.replay = self.empty()
        self.episodes: dict[tuple[int, int], list[int]] = {(s, e): [] for s in range(SEEDS) for e in range(ENVS)}
        rng, self.steps = np.random.default_rng(5), steps
        number = {key: 0 for key in self.episodes}
        for step in range(steps):
            ended = rng.random((2, SEEDS, ENVS)) < 0.15
            obs, next_obs = (rng.uniform(-1, 1, (SEEDS, ENVS, 8)).astype(np.float32) for _ in range(2))
            for seed, env in self.episodes:
                self.episodes[seed, env].append(number[seed, env])
                number[seed, env] += int(ended[:, seed, env].any())
                next_obs[seed, env, ACHIEVED] = (step, env)  # tells where a goal is from
            rewards = np.full((SEEDS, ENVS), -7.0, np.float32)
            self.replay.add(obs=obs, actions=np.zeros((SEEDS, ENVS, 2), np.float32), rewards=rewards,
                            next_obs=next_obs, terminated=ended[0], truncated=ended[1])  # fmt: skip

    def empty(self) -> HindsightReplay:
        spec = EnvSpec(self.goals.observation.spec, ActionCodec(self.goals.env.action_space).spec)
        options = {"capacity": CAPACITY, "num_envs": ENVS, "seeds": SEEDS, "device": "cpu"}
        return HindsightReplay(spec, goals=self.goals, her=self.her, **options)

    def stored_steps(self) -> range:
        return range(max(self.steps - CAPACITY // ENVS, 0), self.steps)

    def allowed(self, seed: int, env: int, step: int) -> set[int]:
        """The steps whose goals a row may get: of its episode, as far as it is stored."""
        episode = self.episodes[seed, env]
        same = [one for one in self.stored_steps() if episode[one] == episode[step]]
        return {"future": set(range(step, same[-1] + 1)), "final": {same[-1]}, "episode": set(same)}[self.her.strategy]


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("steps", [4, 10, 57])
def test_a_goal_is_from_the_same_episode_as_far_as_it_is_stored(point_goals: Goals, strategy: str, steps: int) -> None:
    """Every allowed step can be drawn and no other: with open episodes, and starts that the ring has overwritten."""
    world = World(point_goals, strategy, steps)
    uniforms = np.linspace(0, 1, 400, endpoint=False)
    for step in world.stored_steps():
        for env in range(ENVS):
            row = (step * ENVS + env) % CAPACITY
            rows = world.replay.goal_rows(np.full((SEEDS, 400), row), np.tile(uniforms, (SEEDS, 1)))
            for seed in range(SEEDS):
                found = world.replay.storage["next_obs"][seed, rows[seed]][:, ACHIEVED].numpy()
                assert set(found[:, 1].tolist()) == {env}
                assert set(found[:, 0].astype(int).tolist()) == world.allowed(seed, env, step)


def test_the_largest_uniform_number_stays_inside_the_episode(point_goals: Goals) -> None:
    world = World(point_goals, "future", 57)
    rows = np.tile(np.arange(CAPACITY), (SEEDS, 1))
    drawn = world.replay.goal_rows(rows, np.full(rows.shape, 1 - 2**-53))
    assert np.array_equal(drawn, World(point_goals, "final", 57).replay.goal_rows(rows, np.zeros(rows.shape)))


@pytest.mark.parametrize("steps", [4, 10, 57])
def test_a_loaded_replay_draws_the_same_goals(point_goals: Goals, steps: int) -> None:
    world = World(point_goals, "episode", steps)
    mine, loaded = world.replay, world.empty()
    loaded.write(mine.oldest(), mine.read(mine.oldest(), mine.added))
    loaded.finish_writing(mine.added)
    rows = np.random.default_rng(0).integers(mine.size, size=(SEEDS, 500))
    uniforms = np.random.default_rng(1).random((SEEDS, 500))
    assert np.array_equal(mine.goal_rows(rows, uniforms), loaded.goal_rows(rows, uniforms))
    step = {"rewards": np.zeros((SEEDS, ENVS)), "actions": np.zeros((SEEDS, ENVS, 2)),
            "obs": np.zeros((SEEDS, ENVS, 8)), "next_obs": np.zeros((SEEDS, ENVS, 8)),
            "terminated": np.eye(SEEDS, ENVS, dtype=bool), "truncated": np.zeros((SEEDS, ENVS), bool)}  # fmt: skip
    for replay in (mine, loaded):
        replay.add(**step)
    assert np.array_equal(mine.goal_rows(rows, uniforms), loaded.goal_rows(rows, uniforms))


def test_an_episode_that_was_cut_off_gives_no_goal_to_the_next(point_goals: Goals) -> None:
    world = World(point_goals, "final", 7)
    env = next(env for env in range(ENVS) if world.episodes[0, env][5] == world.episodes[0, env][6])
    ended = bool(world.replay.storage["terminated"][0, 18 + env] or world.replay.storage["truncated"][0, 18 + env])
    assert not ended
    world.replay.cut_off([env])
    empty = np.zeros((SEEDS, ENVS, 8), np.float32)
    flags = np.zeros((SEEDS, ENVS), bool)
    world.replay.add(obs=empty, next_obs=empty, actions=np.zeros((SEEDS, ENVS, 2)), rewards=np.zeros((SEEDS, ENVS)),
                     terminated=flags, truncated=flags)  # fmt: skip
    assert world.replay.goal_rows(np.full((SEEDS, 1), 15 + env), np.zeros((SEEDS, 1)))[0, 0] == 18 + env


@pytest.mark.parametrize("n", [1, 4])
def test_a_relabelled_row_has_its_new_goal_and_reward_and_the_others_are_as_stored(point_goals: Goals, n: int) -> None:
    world = World(point_goals, "future", 57, n)
    stored = {name: tensor.clone() for name, tensor in world.replay.storage.items()}
    rows = torch.from_numpy(np.random.default_rng(2).integers(CAPACITY, size=(3, SEEDS, 20)))
    plain, batch = world.replay.gather(rows), world.replay.relabelled(rows, (3, 8), 11)
    count = 20 * n // (n + 1)
    for name in plain:
        assert torch.equal(plain[name][:, :, count:], batch[name][:, :, count:])
        assert batch[name].dtype == plain[name].dtype
    obs, next_obs = batch["obs"][:, :, :count], batch["next_obs"][:, :, :count]
    assert torch.equal(obs[..., DESIRED], next_obs[..., DESIRED])
    assert not torch.equal(obs[..., DESIRED], plain["obs"][:, :, :count, DESIRED])
    assert torch.equal(obs[..., :6], plain["obs"][:, :, :count, :6])
    reached = (next_obs[..., ACHIEVED] - next_obs[..., DESIRED]).norm(dim=-1) <= 0.25
    assert torch.equal(batch["rewards"][:, :, :count], reached.float() - 1) and reached.any() and not reached.all()
    assert (batch["rewards"][:, :, count:] == -7).all()
    assert all(torch.equal(stored[name], tensor) for name, tensor in world.replay.storage.items())


def test_the_goals_of_a_seed_are_a_function_of_its_number_and_the_update(point_goals: Goals) -> None:
    world = World(point_goals, "future", 57)
    rows = torch.from_numpy(np.random.default_rng(2).integers(CAPACITY, size=(2, SEEDS, 20)))
    first, again, other_seed, other_update = (
        world.replay.relabelled(rows, *arguments)["obs"]
        for arguments in (((3, 8), 11), ((3, 8), 11), ((3, 9), 11), ((3, 8), 12))
    )
    assert torch.equal(first, again)
    assert torch.equal(first[:, 0], other_seed[:, 0]) and not torch.equal(first[:, 1], other_seed[:, 1])
    assert not torch.equal(first, other_update)


def test_terminal_states_are_those_of_the_new_goal() -> None:
    goals = goals_of(BitFlip, bits=3)
    achieved, desired = np.array([[0, 1, 1], [1, 1, 1]], np.float32), np.array([[0, 1, 1], [0, 1, 1]], np.float32)
    assert goals.rewards(achieved, desired).tolist() == [0, -1]
    assert goals.terminated(achieved, desired).tolist() == [1, 0]  # type: ignore[union-attr]
    assert goals_of(PointReach).terminated(achieved[:, :2], desired[:, :2]) is None


def test_a_relabelled_row_ends_where_its_new_goal_is_reached() -> None:
    """An episode of three steps without an end of its own, whose last achieved goal every row gets."""
    goals = goals_of(BitFlip, bits=2)
    spec = EnvSpec(goals.observation.spec, ActionCodec(goals.env.action_space).spec)
    her = HindsightSettings("final", 10_000)
    replay = HindsightReplay(spec, goals=goals, her=her, device="cpu", capacity=3, num_envs=1, seeds=1)
    columns = slice(goals.achieved.start, goals.achieved.stop)
    for achieved in [(1, 1), (1, 0), (1, 1)]:
        next_obs = np.zeros((1, 1, 6), np.float32)
        next_obs[..., columns] = achieved
        flags = np.zeros((1, 1), bool)
        replay.add(obs=np.zeros((1, 1, 6)), next_obs=next_obs, actions=np.zeros((1, 1)), rewards=np.full((1, 1), -1.0),
                   terminated=flags, truncated=flags)  # fmt: skip
    batch = replay.relabelled(torch.arange(3).view(1, 1, 3), (0,), 0)
    assert batch["dones"].tolist() == [[[1, 0, 1]]] and batch["rewards"].tolist() == [[[0, -1, 0]]]
    replay.storage["terminated"][0, 1] = True  # stored as terminal, but not for the new goal
    assert replay.relabelled(torch.tensor([[[1, 1, 1]]]), (0,), 0)["dones"].tolist() == [[[0, 0, 0]]]


# --- the environment's functions ---------------------------------------------------------------------------------
def test_functions_of_single_goals_are_called_for_each() -> None:
    class Single(BitFlip):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            assert achieved_goal.shape == (3,)
            return 0.0 if (achieved_goal == desired_goal).all() else -1.0

        def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            return bool((achieved_goal == desired_goal).all())  # one for the whole batch

        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}), *rest

    achieved, desired = np.array([[0, 1, 1], [1, 1, 1]], np.float32), np.array([[0, 1, 1], [0, 1, 1]], np.float32)
    goals = goals_of(Single, bits=3)
    assert goals.rewards(achieved, desired).tolist() == [0, -1]
    assert goals.terminated(achieved, desired).tolist() == [1, 0]  # type: ignore[union-attr]


class OnlyReach(PointReach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return super().compute_reward(achieved_goal, desired_goal, info)


class Shaped(OnlyReach):
    """Adds a cost of the action, which is not in the goals."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward - 0.1 * float(np.abs(action).sum()), *rest


class NotTheEnd(BitFlip):
    def ends(self, achieved_goal: Any, desired_goal: Any) -> bool:
        return True


class NoReward(gym.ObservationWrapper[Any, Any, Any]):
    """A goal environment without the function."""

    def __init__(self) -> None:
        super().__init__(PointReach())
        self.env: Any = self.env

    def has_wrapper_attr(self, name: str) -> bool:
        return name != "compute_reward" and super().has_wrapper_attr(name)

    def observation(self, observation: Any) -> Any:
        return observation


class WithImage(OnlyReach):
    def __init__(self) -> None:
        super().__init__()
        old = self.observation_space.spaces  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**old, "observation": spaces.Box(0, 255, (3, 36, 36), np.uint8)})


class OtherShape(OnlyReach):
    def __init__(self) -> None:
        super().__init__()
        old = self.observation_space.spaces  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({**old, "desired_goal": spaces.Box(-1, 1, (3,))})


class Broken(OnlyReach):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float(info["is_success"])


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (Shaped, "gives -1 where step gave reward -"),
        (NotTheEnd, "compute_terminated(achieved_goal, desired_goal, {}) gives 0 where step gave terminated 1"),
        (NoReward, "her needs an environment with compute_reward; Test-v0 has none"),
        (WithImage, "her needs observations of numbers; Test-v0 has images"),
        (OtherShape, "her needs goals that are arrays of one shape; Test-v0 has Box"),
        (lambda: gym.make("Pendulum-v1"), "with the keys observation, achieved_goal, desired_goal; Test-v0 has Box"),
        (Broken, "'Test-v0': compute_reward raised KeyError: 'is_success'"),
    ],
)
def test_an_environment_that_cannot_be_relabelled_is_named(factory: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        goals_of(factory)
    assert message in str(refused.value) and "Test-v0" in str(refused.value) and "\n" not in str(refused.value)
