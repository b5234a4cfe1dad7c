"""Seed k of N is seed k alone, bit for bit; compiled is eager within rounding; an update never waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler import needs_compiler
from conftest import one_of_a_kind, settings_of
from seed_harness import (
    BATCH_NORM,
    SEEDS,
    QuickConfig,
    assert_same_bits,
    filled_source,
    make_learner,
    run,
    saved_arrays,
    take_updates,
    together_shape,
)
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.engine.engine import Engine, Execution
from rl_training.engine.networks import Binding, Networks
from rl_training.engine.phases import LossResult, Phase
from rl_training.models.layers import StackedLinear

every_algorithm = pytest.mark.parametrize("algo", algorithm_names())
one_algorithm = pytest.mark.parametrize("algo", one_of_a_kind())  # and every other in the sweep
one_or_two = pytest.mark.parametrize(
    "seeds", [pytest.param((0,), marks=pytest.mark.sweep), (0, 1)], ids=["one seed", "two seeds"]
)


# --- together and alone --------------------------------------------------------------------------------------------
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "small": ({}, {}, (0, 2)),
    "odd sizes": ({}, {"hidden_sizes": (17, 5), "batch_size": 7}, (2,)),
    "two environments, wide": ({"num_envs": 2}, {"hidden_sizes": (400, 300), "batch_size": 33}, (1,)),
}
KEPT = {  # in the default run; of images: test_image_runs.py
    "small": ("rainbow_dqn", "tqc", "iql", "ppo"),
    "odd sizes": ("pqn",),
    "two environments, wide": ("dqn", "a2c"),
}


@pytest.mark.parametrize(
    ("algo", "size"),
    [
        pytest.param(*one.values, size, marks=one.marks, id=f"{size}-{one.values[0]}")
        for size, kept in KEPT.items()
        for one in one_of_a_kind(*kept)
    ],
)
def test_seeds_among_many_are_the_seeds_alone(algo: str, size: str, quick_config: QuickConfig, tmp_path: Path) -> None:
    changes, settings, alone = SIZES[size]
    if algo == "flashsac" and "hidden_sizes" in settings:  # a block for each, of equal sizes
        settings = {**settings, "hidden_sizes": settings["hidden_sizes"][:1] * 2}
    changes = {**changes, "algo_kwargs": settings_of(algo, settings)}
    together = run(quick_config, algo, tmp_path, SEEDS, **changes)
    shares = [saved_arrays(together, index) for index in range(len(SEEDS))]
    for index in alone:
        only = run(quick_config, algo, tmp_path, (SEEDS[index],), **changes)
        if not issubclass(learner_class(algo), OnPolicyLearner):
            assert only.metrics["gradient_steps"] == (120 if learner_class(algo).offline else 100)
        assert_same_bits(shares[index], saved_arrays(only, 0))
    weights = [torch.cat([v.flatten() for k, v in share.items() if k.startswith("params.")]) for share in shares]
    assert not torch.equal(weights[0], weights[1]), "different seeds must differ"


@pytest.mark.parametrize(
    ("members", "n_in", "n_out", "rows"), [(1, 64, 1, 33), (2, 64, 1, 33), (1, 400, 5, 7), (1, 5, 1, 1)]
)
def test_a_layer_rounds_alike_with_and_without_a_seed_axis(members: int, n_in: int, n_out: int, rows: int) -> None:
    torch.manual_seed(0)
    layers = [StackedLinear(members, n_in, n_out) for _ in range(3)]
    x = torch.randn(3, members, rows, n_in)

    def squares(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
        return functional_call(layers[0], {"weight": weight, "bias": bias}, x).square().sum()

    both = grad_and_value(squares, argnums=(0, 1, 2))
    weights, biases = (
        torch.stack([la.weight.detach() for la in layers]),
        torch.stack([la.bias.detach() for la in layers]),
    )
    together, values = vmap(both)(weights, biases, x)
    for seed in range(3):
        alone, value = both(weights[seed], biases[seed], x[seed])
        assert torch.equal(values[seed], value)
        assert all(torch.equal(t[seed], a) for t, a in zip(together, alone, strict=True))


@one_algorithm
def test_seeds_draw_the_same_numbers_in_any_company(algo: str) -> None:
    together, alone = make_learner(algo, seeds=SEEDS), make_learner(algo, seeds=SEEDS[2:])
    shape = together_shape(algo).observation.shape
    obs = torch.randn(1, 4, *shape, generator=torch.Generator().manual_seed(0))
    for step in (0, 1, 1_000_000):
        assert torch.equal(together.act_random(step, 4).action[2], alone.act_random(step, 4).action[0])
        acted = together.act_explore(torch.cat([obs] * 3), step, 0.05).action[2]
        assert torch.equal(acted, alone.act_explore(obs, step, 0.05).action[0])
        together.engine.update_count = alone.engine.update_count = step
        assert torch.equal(together.engine.host_indices(50, 2, 9)[:, 2], alone.engine.host_indices(50, 2, 9)[:, 0])
        noises = [learner.engine.host_noise(learner.noise(9)) for learner in (together, alone)]
        assert all(torch.equal(noises[0][name][2], noises[1][name][0]) for name in noises[0])
    rows = together.engine.host_indices(50, 1, 200)
    assert not torch.equal(rows[:, 0], rows[:, 1])
    assert (rows.min(), rows.max()) == (0, 49), "every row of the replay can be drawn"


# --- compiled --------------------------------------------------------------------------------------------------------
def assert_compiled_is_eager(algo: str, seeds: tuple[int, ...], backend: str) -> None:
    # Adam would make a full step of a gradient that is nothing but rounding.
    wanted = {"adam_eps": 1e-2} if algo in BATCH_NORM and backend == "inductor" else {}
    eager = make_learner(algo, seeds, wanted)
    compiled = make_learner(algo, seeds, wanted, compiled=True, backend=backend)
    sources = [filled_source(learner) for learner in (eager, compiled)]
    start = {name: tensor.clone() for name, tensor in eager.engine.flat.items()}
    for step in (9, 10):  # a target copy between the two
        for learner, source in zip((eager, compiled), sources, strict=True):
            take_updates(learner, source, 2, step)
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], tensor, rtol=1e-5, atol=1e-5, equal_nan=True)
    trained = [group for phase in eager.engine.phases for group in phase.groups]
    assert all((compiled.engine.flat[group] - start[group]).abs().max() > 1e-4 for group in trained)


@pytest.mark.parametrize("algo", one_of_a_kind("tqc"))  # of images: test_image_runs.py
def test_compiled_is_eager(algo: str) -> None:
    assert_compiled_is_eager(algo, (0, 1), "aot_eager")


@pytest.mark.sweep  # the default run has that of Inductor
@pytest.mark.parametrize("algo", algorithm_names())
def test_compiled_is_eager_for_a_single_seed(algo: str) -> None:
    if learner_class(algo).observations == ("image",):
        pytest.skip("its seeds are compiled one after the other, so two show what one does")
    assert_compiled_is_eager(algo, (0,), "aot_eager")


@pytest.mark.sweep
@needs_compiler
def test_inductor_is_eager() -> None:
    assert_compiled_is_eager(algorithm_names()[0], (0,), "inductor")


@pytest.mark.slow
@needs_compiler
@every_algorithm
def test_inductor_is_eager_for_two_seeds(algo: str) -> None:
    assert_compiled_is_eager(algo, (0, 1), "inductor")


# --- no waiting for the device ---------------------------------------------------------------------------------------
class Waited(Exception):
    pass


class _Operations(TorchDispatchMode):
    """What fetches a number, or whose result's shape depends on numbers."""

    waits = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(getattr(i, "dtype", None) is torch.bool for i in _indices(args))
        if name in self.waits or by_mask:
            raise Waited(name)
        return func(*args, **(kwargs or {}))


def _indices(args: Any) -> list[Any]:
    return args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else []


class _Methods(TorchFunctionMode):
    """What leaves torch without being an operation."""

    waits = (Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__, Tensor.__repr__)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.waits:
            raise Waited(func.__name__)
        return func(*args, **(kwargs or {}))


def refusing_to_wait(call: Callable[[], Any]) -> None:
    with _Methods(), _Operations():
        call()


PLANTED: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda loss: loss.item(),
    "float": lambda loss: float(loss),
    "branch": lambda loss: 1 if loss > 0 else 0,
    "tolist": lambda loss: loss.tolist(),
    "numpy": lambda loss: loss.detach().numpy(),
    "nonzero": lambda loss: loss.reshape(1).nonzero(),
    "mask": lambda loss: loss.reshape(1)[loss.reshape(1) > 0],
    "format": lambda loss: f"{loss}",
    "nothing": lambda loss: loss * 1,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_guard_catches_a_planted_wait(planted: str) -> None:
    def loss(nets: Any, batch: Any, noise: Any) -> LossResult:
        value = (nets.g["w"] * batch["x"]).mean()
        PLANTED[planted](value)
        return LossResult(value, {"loss": value})

    execution = Execution((0,), torch.device("cpu"))
    engine = Engine([Phase("g", ("g",), loss)], {"g": [{"w": torch.ones(())}]}, Binding(Networks, {}), execution)
    if planted == "nothing":
        refusing_to_wait(lambda: engine.update({"x": torch.ones(1, 2)}, {}))
        return
    with pytest.raises(Waited):
        refusing_to_wait(lambda: engine.update({"x": torch.ones(1, 2)}, {}))


@one_algorithm
@one_or_two
def test_an_update_never_waits_for_the_device(algo: str, seeds: tuple[int, ...]) -> None:
    learner = make_learner(algo, seeds)
    source = filled_source(learner)
    batch = {name: tensor[0] for name, tensor in source.gather(learner.engine.host_indices(40, 1, 8)).items()}
    noise = learner.engine.host_noise(learner.update_noise(8))
    refusing_to_wait(lambda: learner.engine.update(batch, noise))
    refusing_to_wait(lambda: take_updates(learner, source, 3, 1000))
    learned = {"a2c": 1, "ppo": 10, "pqn": 10}.get(algo, 3)  # from a rollout: one, or two epochs of five minibatches
    assert learner.update_count == 1 + learned


class _Additions(TorchDispatchMode):
    """What several threads of a GPU add into the same place, in whatever order they come: only floats round."""

    adds = ("scatter_add", "scatter_reduce", "index_add", "embedding_dense_backward", "bincount", "histc")

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        accumulates = name == "index_put" and (args[3:4] == (True,) or bool((kwargs or {}).get("accumulate")))
        if args and getattr(args[0], "is_floating_point", bool)() and (name in self.adds or accumulates):
            self.found.add(name)
        return func(*args, **(kwargs or {}))


@one_algorithm
def test_no_update_adds_in_an_order_that_is_up_to_the_device(algo: str) -> None:
    """Compiled for a GPU these become atomic additions, and two runs of the same config would differ."""
    learner = make_learner(algo, (0, 1))
    source = filled_source(learner)
    with _Additions() as additions:
        take_updates(learner, source, 2, 1000)
    assert additions.found == set()


def test_the_guard_notices_additions_in_any_order() -> None:
    rows, places = torch.ones(3, requires_grad=True), torch.zeros(4, dtype=torch.int64)
    with _Additions() as additions:
        rows.gather(0, places).sum().backward()
        torch.zeros(3).index_put_((places,), torch.ones(4), accumulate=True)
        torch.zeros(3, dtype=torch.int64).index_put_((places,), places, accumulate=True)  # exact in any order
    assert additions.found == {"scatter_add", "index_put"}


@one_algorithm
@one_or_two
def test_every_gradient_can_be_clipped(algo: str, seeds: tuple[int, ...]) -> None:
    """Tuned temperatures and multipliers among them: after one update Adam's mean is a tenth of the gradient."""
    wanted = {"max_grad_norm": 1e-3, "alpha": "auto", "lagrange_threshold": 1.0, "policy_delay": 1}
    wanted |= {"optimizer": "Adam", "epochs": 1, "batch_size": 40 if algo in ("ppo", "pqn") else 8}  # one update
    learner = make_learner(algo, seeds, wanted)
    assert take_updates(learner, filled_source(learner), 1, 1) == 1
    for phase in learner.engine.phases:
        for seed in range(len(seeds)):
            means = [
                view[seed].square().sum()
                for group in phase.groups
                for view in learner.engine.layouts[group].views(learner.engine.slots["adam_mean"][group]).values()
            ]
            assert sum(means).sqrt() == pytest.approx(1e-4, rel=1e-3)
