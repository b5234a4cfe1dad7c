"""Environments on a device: against Gymnasium, across seeds and saves, at an episode's end, and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.core.checks import UserError
from rl_training.core.rng import STREAM_IDS
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.envs.base import VectorEnv
from rl_training.envs.device.base import DeviceEnv
from rl_training.envs.device.cartpole import MAX_ANGLE, MAX_POSITION, CartPole
from rl_training.envs.device.pendulum import Pendulum
from rl_training.envs.device.registry import DEVICE_ENVIRONMENTS, device_environment
from rl_training.envs.episode_metrics import WINDOW
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec
from rl_training.tensors.device_rng import member_uniforms, uniforms

CLASSES = tuple(DEVICE_ENVIRONMENTS.values())
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
on_gpu = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
ROUNDING = 2.0**-24  # of float32, relative
SEEDS = (3, 0, 2**31 - 1)


class Bandit(DeviceEnv):
    """Rewards and lengths of all kinds: it ends with a chance of 1/3, or after 5 steps; the reward is the action."""

    spec = EnvSpec(vector(1), continuous(1), episode_limit=5)
    gymnasium_id = "none"
    num_draws = 1

    @staticmethod
    def initial(uniforms: Tensor) -> Tensor:
        return uniforms

    @staticmethod
    def transition(physics: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        physics = (physics * 3.7 + actions.abs()) % 1
        return physics, actions[:, 0], physics[:, 0] < 1 / 3

    @staticmethod
    def observe(physics: Tensor) -> Tensor:
        return physics


def policy(env: DeviceEnv) -> Tensor:
    """Actions that depend on a row's own observation only."""
    if env.spec.action.kind == "discrete":
        return (env.obs[:, 2] > 0).long()
    return 1.2 * env.obs[:, 1:2]


def record(env: DeviceEnv, steps: int, choose: Callable[[DeviceEnv], Tensor] = policy) -> list[Tensor]:
    """Everything that a loop sees of so many steps, and the state behind them."""
    seen = []
    for _ in range(steps):
        seen += [env.obs.clone(), *(one.clone() for one in env.step(choose(env)))]
        env.advance()
    return [*seen, *env.state().values()]


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# --- against Gymnasium ------------------------------------------------------------------------------------------------
def gymnasium_steps(env_id: str, physics: Tensor, actions: list[Any]) -> list[Any]:
    """Gymnasium's state, observation, reward and termination after one step from each of these states, in float64."""
    env: Any = gym.make(env_id).unwrapped
    answers = []
    for row, action in zip(physics.double().numpy(), actions, strict=True):
        env.reset(seed=0)
        env.state = row
        obs, reward, terminated, _, _ = env.step(action)
        answers.append((np.array([float(value) for value in env.state]), obs, float(reward), terminated))
    return [np.stack(column) for column in zip(*answers, strict=True)]


def random_states(*limits: float, rows: int = 5000) -> Tensor:
    rng = np.random.default_rng(7)
    return torch.from_numpy((rng.uniform(-1, 1, (rows, len(limits))) * limits).astype(np.float32))


def test_a_step_of_cartpole_is_that_of_gymnasium() -> None:
    physics = random_states(1.1 * MAX_POSITION, 4, 1.3 * MAX_ANGLE, 4)
    actions = torch.arange(len(physics)) % 2
    state, obs, reward, terminated = gymnasium_steps("CartPole-v1", physics, actions.tolist())
    mine, my_reward, my_terminated = CartPole.transition(physics, actions)
    assert (np.abs(mine.double().numpy() - state) <= 4 * ROUNDING * np.maximum(np.abs(state), 1)).all()
    assert (np.abs(CartPole.observe(mine).numpy() - obs) <= 6 * ROUNDING * np.maximum(np.abs(obs), 1)).all()
    assert (my_reward.numpy() == reward).all()
    on_the_edge = np.abs(np.abs(state[:, [0, 2]]) - [MAX_POSITION, MAX_ANGLE]).min(1) < 8 * ROUNDING
    assert on_the_edge.mean() < 0.01 and 0.2 < terminated.mean() < 0.8
    assert (my_terminated.numpy() == terminated)[~on_the_edge].all()


@pytest.mark.parametrize("max_angle", [4.0, 90.0], ids=["at the start", "after many turns"])
def test_a_step_of_pendulum_is_that_of_gymnasium(max_angle: float) -> None:
    physics = random_states(max_angle, 8)
    actions = 1.2 * random_states(1)  # some beyond the bounds
    torques = ActionCodec(gym.make("Pendulum-v1").action_space).to_env(actions.numpy())
    state, obs, reward, terminated = gymnasium_steps("Pendulum-v1", physics, list(torques))
    mine, my_reward, my_terminated = Pendulum.transition(physics, actions)
    assert (np.abs(mine.double().numpy() - state) <= 4 * ROUNDING * np.maximum(np.abs(state), 1)).all()
    # Cosine and sine move as much as the angle, its square up to 2 pi times as much.
    angle_error = 4 * ROUNDING * (max_angle + np.pi)
    assert (np.abs(Pendulum.observe(mine).numpy() - obs) <= angle_error).all()
    assert (np.abs(my_reward.double().numpy() - reward) <= 2 * np.pi * angle_error).all()
    assert not my_terminated.any() and not terminated.any()


@each_class
def test_the_spec_is_that_of_the_twin(cls: type[DeviceEnv]) -> None:
    env = gym.make(cls.gymnasium_id)
    assert env.spec is not None
    spec = env_spec(ObservationCodec(env.observation_space), ActionCodec(env.action_space))
    assert spec == cls.spec and cls.spec.episode_limit == env.spec.max_episode_steps


@pytest.mark.parametrize(("cls", "limits"), [(CartPole, [0.05] * 4), (Pendulum, [np.pi, 1.0])])
def test_episodes_start_uniformly_where_those_of_gymnasium_do(cls: type[DeviceEnv], limits: list[float]) -> None:
    scaled = cls(range(40), 100).physics.double() / torch.tensor(limits).double()
    assert len(scaled.unique(dim=0)) == len(scaled), "every row must start in a state of its own"
    assert (scaled.abs() < 1).all()
    error = 5 / len(scaled) ** 0.5  # five standard errors: sd(u) = sqrt(1/3), sd(u^2) = sqrt(4/45)
    assert (scaled.mean(0).abs() < error * (1 / 3) ** 0.5).all()
    assert ((scaled.square().mean(0) - 1 / 3).abs() < error * (4 / 45) ** 0.5).all()
    assert torch.corrcoef(scaled.T).fill_diagonal_(0).abs().max() < error


# --- seeds ------------------------------------------------------------------------------------------------------------
def test_member_uniforms_depend_on_seed_stream_member_and_step_only() -> None:
    seeds, members, steps = (torch.tensor(values) for values in ([4, 4, 9], [0, 1, 1], [5, 5, 6]))
    together = member_uniforms(seeds, 4, members, steps, 5)
    for row in range(3):
        assert torch.equal(member_uniforms(seeds[[row]], 4, members[[row]], steps[[row]], 5)[0], together[row])
    one, zero, step = torch.tensor([1]), torch.tensor([0]), torch.tensor([5])
    others = [(4, 3, zero, step), (4, 4, one, step), (4, 4, zero, step + 1), (5, 4, zero, step)]
    for seed, stream, member, at in others:
        assert not np.isin(member_uniforms(torch.tensor([seed]), stream, member, at, 5), together[0]).any()
    assert torch.equal(member_uniforms(seeds[:1], 4, zero, step, 4), uniforms(seeds[:1], 4, step[0], 4))


@each_class
def test_a_seed_among_many_has_the_bits_of_the_seed_alone(cls: type[DeviceEnv]) -> None:
    together = cls(SEEDS, 7)
    seen = record(together, 230)
    for index, seed in enumerate(SEEDS):
        alone = cls([seed], 7)
        for many, one in zip(seen, record(alone, 230), strict=True):
            assert torch.equal(many.unflatten(0, (len(SEEDS), -1))[index].flatten(), one.flatten())
        assert alone.episodes.min() >= 1, "no row came to a second episode"


@each_class
def test_an_environment_does_not_depend_on_how_many_there_are(cls: type[DeviceEnv]) -> None:
    few, many = cls([5], 3), cls([5], 64)
    steps_seen = record(few, 230), record(many, 230)
    for one, other in zip(*(seen[: 5 * 230] for seen in steps_seen), strict=True):
        assert torch.equal(one, other[:3])


def test_the_next_episode_is_seeded_by_its_number() -> None:
    env = Pendulum([6], 2)
    record(env, 200)
    stream, seeds = STREAM_IDS["episode"], torch.tensor([6, 6])
    draws = member_uniforms(seeds, stream, torch.tensor([0, 1]), torch.tensor([1, 1]), 2)
    assert torch.equal(env.physics, Pendulum.initial(draws))


# --- an episode's end -------------------------------------------------------------------------------------------------
def test_a_fall_terminates_and_does_not_truncate() -> None:
    env = CartPole([0], 4)
    for step in range(1, 13):
        before, physics = env.obs.clone(), env.physics.clone()
        answer = env.step(torch.ones(4, dtype=torch.int64))
        true_successor = CartPole.observe(CartPole.transition(physics, torch.ones(4, dtype=torch.int64))[0])
        assert torch.equal(env.obs, before) and torch.equal(answer.next_obs, true_successor)
        assert not answer.truncated.any()
        ended = answer.terminated.clone()
        env.advance()
        assert torch.equal(env.obs[~ended], true_successor[~ended])
        assert (env.obs[ended].abs() <= 0.05).all() and (env.steps == torch.where(ended, 0, step)).all()
        if ended.any():
            assert (true_successor[ended, 2].abs() > MAX_ANGLE).all()
            return
    pytest.fail("a cart that is always pushed to the right must lose its pole within 12 steps")


def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    env = Pendulum([0], 3)
    for step in range(1, 402):
        answer = env.step(policy(env))
        assert (answer.truncated == (step % 200 == 0)).all() and not answer.terminated.any()
        before = answer.next_obs.clone()
        env.advance()
        assert torch.equal(env.obs, before) == (step % 200 != 0)
    assert env.episodes.tolist() == [2, 2, 2] and env.steps.tolist() == [1, 1, 1]


def test_a_fall_at_the_time_limit_is_both() -> None:
    """As in Gymnasium, whose TimeLimit does not look at the termination."""
    env = CartPole([0], 2)
    env.steps.fill_(499)
    env.physics[1, 2:] = torch.tensor([MAX_ANGLE, 1.0])
    answer = env.step(torch.zeros(2, dtype=torch.int64))
    assert answer.truncated.tolist() == [True, True] and answer.terminated.tolist() == [False, True]


def test_reset_all_starts_the_open_episodes_again() -> None:
    env = Pendulum([1], 2)
    start = env.state()
    record(env, 3)
    env.reset_all()
    assert_same(list(env.state().values()), list(start.values()))


# --- statistics -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_envs", [1, 3, WINDOW, 4 * WINDOW + 30])
def test_statistics_are_those_that_the_host_counts(num_envs: int) -> None:
    """The host appends episode by episode; with many environments more end in one step than the window holds."""
    env, host = Bandit(SEEDS, num_envs), EpisodeStatistics(len(SEEDS), num_envs)
    generator = torch.Generator().manual_seed(num_envs)
    assert env.statistics.rows() == host.rows()
    for step in range(1, 301):
        answer = env.step(torch.rand(env.size, 1, generator=generator) * 2 - 1)
        host.count(answer.rewards.numpy(), (answer.terminated | answer.truncated).numpy())
        env.advance()
        if step % 7 == 0 or step < 9:
            assert env.statistics.rows() == host.rows()
    assert all(row["time/episodes"] > WINDOW for row in env.statistics.rows()) or num_envs == 1


# --- save and load ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", [*CLASSES, Bandit], ids=lambda cls: cls.__name__)
def test_a_loaded_state_continues_with_the_same_bits(cls: type[DeviceEnv]) -> None:
    def choose(env: DeviceEnv) -> Tensor:
        return env.obs if cls is Bandit else policy(env)

    env = cls(SEEDS, 5)
    record(env, 33, choose)
    state = env.state()
    rest = record(env, 290, choose)
    other = cls(SEEDS, 5)
    record(other, 3, choose)
    other.load(state)
    assert_same(record(other, 290, choose), rest)
    assert other.statistics.rows() == env.statistics.rows()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": torch.zeros(3, dtype=torch.int64)}, r"steps is torch.int64 \(3,\), this environment's is .* \(4,\)"),
        ({"physics": torch.zeros(4, 2, dtype=torch.float64)}, "physics is torch.float64"),
        ({"episodes": None}, "state does not fit this environment: missing episodes"),
        ({"wind": torch.zeros(4)}, "state does not fit this environment: unknown wind"),
        ({"statistics.finished": torch.tensor([[0], [-1]])}, "statistics.finished must be >= 0"),
    ],
    ids=["shape", "dtype", "missing", "unknown", "negative"],
)
def test_a_state_that_does_not_fit_is_rejected(change: dict[str, Tensor | None], message: str) -> None:
    env = Pendulum([0, 1], 2)
    record(env, 2)
    before = env.state()
    changed = {name: tensor for name, tensor in {**before, **change}.items() if tensor is not None}
    changed["obs"] = torch.full_like(env.obs, 9.0)
    with pytest.raises(ValueError, match=message) as raised:
        env.load(changed)
    assert "\n" not in str(raised.value)
    assert_same(list(env.state().values()), list(before.values()))


# --- the boundary -----------------------------------------------------------------------------------------------------
@each_class
def test_it_is_a_vector_env(cls: type[DeviceEnv]) -> None:
    env = cls([2, 7], 3)
    assert isinstance(env, VectorEnv)
    assert (env.seeds, env.num_envs, env.size, env.device) == ((2, 7), 3, 6, torch.device("cpu"))
    assert env.obs.shape == (6, *cls.spec.observation.shape) and env.obs.dtype == torch.float32
    answer = env.step(policy(env))
    for name, tensor in answer._asdict().items():
        assert tensor is getattr(env, name) and len(tensor) == 6
    assert [one.dtype for one in answer] == [torch.float32, torch.float32, torch.bool, torch.bool]
    env.close()


@pytest.mark.parametrize(("cls", "shape"), [(CartPole, (4, 1)), (Pendulum, (4,)), (Pendulum, (1, 1))])
def test_actions_of_another_shape_are_rejected(cls: type[DeviceEnv], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"actions must have shape \(4,"):
        cls([0], 4).step(torch.zeros(shape))


def test_environments_by_id() -> None:
    assert device_environment("torch/CartPole-v1") is CartPole and device_environment("torch/Pendulum-v1") is Pendulum
    assert device_environment("CartPole-v1") is None and device_environment("ALE/Pong-v5") is None
    with pytest.raises(UserError, match="'torch/Cartpole-v1' does not exist; did you mean torch/CartPole-v1"):
        device_environment("torch/Cartpole-v1")
    with pytest.raises(UserError, match="there are torch/CartPole-v1, torch/Pendulum-v1"):
        device_environment("torch/Zzz")


# --- without waiting --------------------------------------------------------------------------------------------------
@each_class
def test_no_step_depends_on_values_that_only_the_device_has(cls: type[DeviceEnv]) -> None:
    """Tensors on `meta` have no values: whatever would copy one to the host, or take its shape from one, raises."""
    env = cls(SEEDS, 4096, "meta")
    for _ in range(2):
        env.step(policy(env))
        env.advance()
    with pytest.raises((RuntimeError, NotImplementedError)):
        env.statistics.rows()


@pytest.mark.sweep
@each_class
def test_compiled_steps_are_the_eager_ones(cls: type[DeviceEnv]) -> None:
    compiled, eager = cls(SEEDS, 4), cls(SEEDS, 4)

    @torch.compile(fullgraph=True, dynamic=False, backend="aot_eager")
    def step_and_advance(actions: Tensor) -> None:
        compiled.step(actions)
        compiled.advance()

    addresses = {name: tensor.data_ptr() for name, tensor in compiled._tensors().items()}
    for _ in range(210):
        step_and_advance(policy(compiled))
        eager.step(policy(eager))
        eager.advance()
        assert torch.equal(compiled.next_obs, eager.next_obs)
    assert_same(list(compiled.state().values()), list(eager.state().values()))
    assert addresses == {name: tensor.data_ptr() for name, tensor in compiled._tensors().items()}


class _NoWaiting:
    """Inside, whatever makes the host wait for the GPU raises."""

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_sync_debug_mode("default")


class TestOnGPU:
    pytestmark = on_gpu

    @each_class
    def test_the_guard_does_see_a_copy_to_the_host(self, cls: type[DeviceEnv]) -> None:
        env = cls([0], 2, "cuda")
        with pytest.raises(RuntimeError, match="synchroniz"), _NoWaiting():
            env.statistics.rows()

    @each_class
    def test_no_step_waits_for_the_gpu(self, cls: type[DeviceEnv]) -> None:
        env = cls(SEEDS, 4096, "cuda")
        with _NoWaiting():
            for _ in range(230):
                env.step(policy(env))
                env.advance()
        assert (env.episodes >= 1).all()

    @each_class
    def test_a_captured_graph_gives_the_bits_of_the_steps(self, cls: type[DeviceEnv]) -> None:
        eager, captured = cls(SEEDS, 64, "cuda"), cls(SEEDS, 64, "cuda")
        start = captured.state()
        graph = torch.cuda.CUDAGraph()
        actions = policy(captured)
        with torch.cuda.graph(graph):
            actions.copy_(policy(captured))
            captured.step(actions)
            captured.advance()
        captured.load(start)
        for _ in range(230):
            graph.replay()
            eager.step(policy(eager))
            eager.advance()
        assert_same(list(captured.state().values()), list(eager.state().values()))

    @each_class
    def test_a_state_that_went_through_the_host_continues_with_the_same_bits(self, cls: type[DeviceEnv]) -> None:
        env, other = cls(SEEDS, 64, "cuda"), cls(SEEDS, 64, "cuda")
        record(env, 33)
        state = {name: tensor.cpu() for name, tensor in env.state().items()}
        rest = record(env, 250)
        other.load(state)
        assert_same(record(other, 250), rest)

    @each_class
    def test_the_gpu_starts_and_steps_as_the_cpu_does(self, cls: type[DeviceEnv]) -> None:
        gpu, cpu = cls(SEEDS, 64, "cuda"), cls(SEEDS, 64)
        torch.testing.assert_close(gpu.physics.cpu(), cpu.physics, rtol=1e-6, atol=1e-6)
        for _ in range(10):
            gpu.load(cpu.state())
            for one, other in zip(gpu.step(policy(gpu)), cpu.step(policy(cpu)), strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)
            cpu.advance()
