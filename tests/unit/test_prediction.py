"""`predict` of one observation takes short cuts; results and errors are those of the long way."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec
from rl_training.models.layers import StackedLinear
from rl_training.run.agent import Agent

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float64)
PAIR = spaces.Tuple((VECTOR, spaces.Discrete(3)))
LONG = spaces.Box(-np.inf, np.inf, (100,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": VECTOR,
    "long vector": LONG,
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "number": spaces.Box(-1, 1, (), np.float32),
    "choice": spaces.Discrete(4, start=2),
    "image": IMAGE,
    "dict": spaces.Dict({"a": VECTOR, "b": spaces.Box(-1, 1, (2, 2), np.float32), "c": spaces.Discrete(3)}),
    "mixed": spaces.Dict({"a": VECTOR, "picture": IMAGE}),
    "tuple": spaces.Tuple([VECTOR, spaces.MultiBinary(3), spaces.Box(-1, 1, (), np.float64)]),
}
BOX = spaces.Box(np.array([-2, -1], np.float32), np.array([3, 1], np.float32))


def make_agent(algo: str, observation: spaces.Space[Any], action: spaces.Space[Any], **settings: Any) -> Agent:
    codecs = ObservationCodec(observation), ActionCodec(action)
    cls = learner_class(algo)
    learner = cls.create(env_spec(*codecs), parse(cls.settings_type, {"hidden_sizes": [8, 8], **settings}), [0])
    return Agent(TrainConfig(algo, "none"), learner, *codecs)


def batch_of_one(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: batch_of_one(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(batch_of_one, observation))
    return np.asarray(observation)[None]


@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_one_observation_is_read_as_in_a_batch(name: str, masked: bool) -> None:
    space = OBSERVATIONS[name]
    space.seed(0)
    codec = ObservationCodec(space, ActionCodec(spaces.Discrete(3)).spec if masked else None)
    for _ in range(3):
        observation = space.sample()
        (one, single), (batch, not_single) = codec.read(observation), codec.read(batch_of_one(observation))
        assert single and not not_single
        assert one.dtype == batch.dtype and one.shape == batch.shape and one.tobytes() == batch.tobytes()
        row = np.zeros(codec.shape, codec.dtype)
        codec.encode(observation, row)
        assert row.tobytes() == one.tobytes()


@pytest.mark.parametrize("number", [0.3, np.float32(0.3), np.array(0.3), np.array(0.3, np.float32)], ids=repr)
def test_an_observation_of_one_number_is_one_however_it_is_given(number: Any) -> None:
    rows, single = ObservationCodec(OBSERVATIONS["number"]).read(number)
    assert single and rows.tolist() == [[np.float32(0.3)]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("space", [VECTOR, LONG], ids=["short", "long"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_batch_of_vectors_is_read_row_by_row(space: Any, dtype: Any) -> None:
    codec = ObservationCodec(space)
    batch = (np.random.default_rng(0).standard_normal((7, *space.shape)) * 1e3).astype(dtype)
    batch[0, 0] = np.finfo(np.float32).max / 2 if dtype != np.int64 else 2**60
    rows, single = codec.read(batch)
    assert not single and rows.dtype == np.float32 and not np.shares_memory(rows, batch)
    assert rows.tobytes() == batch.astype(np.float32).tobytes()
    assert rows.tobytes() == np.concatenate([codec.read(one)[0] for one in batch]).tobytes()


BOXES = {
    "symmetric": spaces.Box(-2, 2, (3,)),
    "mixed": spaces.Box(np.array([-2, 0.1, -1e3], np.float32), np.array([3, 0.7, 7], np.float32)),
    "float64": spaces.Box(-0.3, 0.4, (3,), np.float64),
    "matrix": spaces.Box(-0.4, 0.4, (3, 1)),
    "long": spaces.Box(-0.4, 0.4, (40,)),
}


@pytest.mark.parametrize("name", BOXES)
def test_actions_are_scaled_in_float64_and_clipped(name: str) -> None:
    box, codec = BOXES[name], ActionCodec(BOXES[name])
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (50, int(np.prod(box.shape)))).astype(np.float32)
    actions[:3] = np.array([[-1], [1], [0]])
    low, high = box.low.astype(np.float64), box.high.astype(np.float64)
    unit = actions.reshape(50, *box.shape).astype(np.float64)
    expected = (low + (unit + 1.0) * ((high - low) / 2)).clip(low, high).astype(box.dtype)
    assert codec.to_env(actions).tobytes() == expected.tobytes() and codec.to_env(actions).dtype == box.dtype
    for one, row in zip(actions, expected, strict=True):
        assert codec.to_env(one[None]).tobytes() == row.tobytes() and codec.to_env(one[None]).shape == (1, *box.shape)


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (OBSERVATIONS["matrix"], np.zeros(6), r"observation must be of shape \(2, 3\) or a batch of it, got \(6,\)"),
        (VECTOR, np.zeros((0, 5)), r"observation must be of shape \(5,\) or a batch of it, got \(0, 5\)"),
        (VECTOR, np.array([[1, 2, 3, 4, np.inf]]), "observation must be finite, got NaN or infinity"),
        (LONG, np.full(100, 1e39), "observation must be finite in float32"),
        (VECTOR, np.zeros(4), r"^observation must be of shape \(5,\) or a batch of it, got \(4,\)"),
        (VECTOR, np.full(5, np.nan), "observation must be finite, got NaN or infinity"),
        (VECTOR, np.full(5, 1e39), "observation must be finite in float32"),
        (VECTOR, np.full(5, "a"), r"^observation must be an array of numbers of shape \(5,\)"),
        (spaces.Discrete(4, start=2), 6, r"observation must be in Discrete\(4, start=2\), got 6"),
        (spaces.Discrete(4), 1.5, r"observation must be in Discrete\(4\), got 1.5"),
        (spaces.Dict({"a": VECTOR}), {"b": np.zeros(5)}, "must have the keys a, got b"),
        (spaces.Dict({"a": VECTOR}), np.zeros(5), "must have the keys a, got ndarray"),
        (PAIR, (np.zeros(5),), "the observation must have 2 elements, got 1"),
        (PAIR, [np.zeros(5), 1, 1], "the observation must have 2 elements, got 3"),
        (PAIR, np.zeros((3, 2)), "the observation must have 2 elements, got 3"),
        (PAIR, 3, "the observation must have 2 elements, got int"),
        (PAIR, {0: np.zeros(5), 1: 1}, "the observation must have 2 elements, got dict"),
        (PAIR, np.array(3), "the observation must have 2 elements, got ndarray"),
        (spaces.Dict({"a": PAIR}), {"a": [np.zeros(5)]}, "entry 'a' of the observation must have 2 elements, got 1"),
        (IMAGE, np.full((36, 36, 3), 256), "must be an image of whole numbers from 0 to 255"),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_an_invalid_observation_is_rejected_in_one_line(space: Any, observation: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ObservationCodec(space).read(observation)


@pytest.mark.parametrize(
    ("algo", "observation", "action", "settings"),
    [
        ("sac", "vector", BOX, {}),
        ("sac", "dict", BOX, {"normalize_observations": True}),
        ("td3", "matrix", BOX, {"network": {"layer_norm": True}}),
        ("dqn", "vector", spaces.Discrete(3, start=1), {}),
        ("dqn", "choice", spaces.Discrete(3), {"dueling": True, "noisy": True}),
        ("qr_dqn", "dict", spaces.Discrete(2), {}),
        ("iqn", "vector", spaces.Discrete(2), {}),
        ("ppo", "vector", BOX, {}),
        ("ppo", "tuple", spaces.MultiDiscrete([2, 3]), {"network": {"activation": "SiLU"}}),
        ("ppo", "vector", spaces.Discrete(1), {}),
    ],
)
def test_predicts_what_the_modules_compute_with_autograd(
    algo: str, observation: str, action: spaces.Space[Any], settings: dict[str, Any]
) -> None:
    agent, space = make_agent(algo, OBSERVATIONS[observation], action, **settings), OBSERVATIONS[observation]
    space.seed(1)
    learner = agent.learner
    for _ in range(5):
        observed = space.sample()
        rows, _ = agent.observation.read(observed)
        with torch.enable_grad():  # by the forward passes of the modules, as in a loss
            groups = learner.engine.groups_by_seed()[0]
            prepared = learner.binding.batch_for(groups, {"obs": torch.from_numpy(rows)})["obs"]
            expected = learner.greedy(learner.nets(), prepared).action.detach().numpy()
        given = np.asarray(agent.predict(observed))
        wanted = np.asarray(agent.action.one(agent.action.to_env(expected)))
        assert given.tobytes() == wanted.tobytes() and given.dtype == wanted.dtype
        assert learner.act_greedy(torch.from_numpy(rows[None])).action[0].numpy().tobytes() == expected.tobytes()


def test_predicts_with_the_weights_of_now() -> None:
    agent = make_agent("td3", VECTOR, BOX)
    observation = np.ones(5)
    before = agent.predict(observation)
    weights = {name: tensor + 1 for name, tensor in agent.parameters(0).items()}
    agent.learner.load_seed_parameters(0, weights)
    assert not np.array_equal(before, agent.predict(observation))


def test_hooks_on_a_layer_are_called() -> None:
    agent, calls = make_agent("sac", VECTOR, BOX), []
    layers = [part for part in agent.learner.model.actor.modules() if isinstance(part, StackedLinear)]
    handle = layers[1].register_forward_hook(lambda *_: calls.append(1))
    agent.predict(np.ones(5))
    handle.remove()
    agent.predict(np.ones(5))
    assert calls == [1]


class Remembers(torch.nn.Module):
    """A module of the user that keeps tensors."""

    kept: ClassVar[list[torch.Tensor]] = []

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(x * 2)
        return self.layer(x)  # type: ignore[no-any-return]


def test_a_tensor_that_a_users_module_keeps_can_be_trained_with() -> None:
    agent = make_agent("td3", VECTOR, BOX, network={"actor": Remembers})
    Remembers.kept.clear()
    agent.predict(np.ones(5))
    (torch.ones(5, requires_grad=True) * Remembers.kept[0]).sum().backward()
