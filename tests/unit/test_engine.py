"""The engine against PyTorch's own optimizer and clipping, and against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.algorithms.dqn import DQN
from rl_training.engine.acting import MAX_GRAPHS, Act, Acting
from rl_training.engine.engine import Engine, Execution
from rl_training.engine.groups import GroupLayout
from rl_training.engine.networks import Binding, Networks
from rl_training.engine.optimizers import OPTIMIZERS, Adam, clip_per_seed
from rl_training.engine.phases import LossResult, Phase
from rl_training.engine.targets import Polyak
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.tensors.device_rng import normals, threefry, uniforms

CPU = torch.device("cpu")


def as_int32(word: int) -> Tensor:
    return torch.tensor(word - (1 << 32) if word >= 1 << 31 else word, dtype=torch.int32)


def quadratic_engine(starts: tuple[float, ...] = (1.0,), tau: float = 0.0) -> Engine:
    """Minimises mean(batch * w) for each start; its metric `loss` is that, and a slow second phase reports `slow`."""

    def fast(nets: Any, batch: Any, noise: Any) -> LossResult:
        loss = (batch["x"] * nets.fast["w"]).mean()
        return LossResult(loss, {"loss": loss})

    def slow(nets: Any, batch: Any, noise: Any) -> LossResult:
        loss = (batch["x"] * nets.slow["w"]).mean()
        return LossResult(loss, {"slow": loss})

    members = {name: [{"w": torch.tensor(start)} for start in starts] for name in ("fast", "slow", "target_fast")}
    phases = [Phase("fast", ("fast",), fast), Phase("slow", ("slow",), slow, every=2)]
    execution = Execution(tuple(range(len(starts))), CPU)
    targets = Polyak({"target_fast": "fast"}, tau, after="fast")
    engine = Engine(phases, members, Binding(Networks, {}), execution, targets)
    engine.set_rates({"fast": 0.1, "slow": 0.1})
    return engine


def feed(engine: Engine, *values: float) -> None:
    """One update in which seed k sees the batch (values[k],)."""
    engine.update({"x": torch.tensor(values).unsqueeze(1)}, {})


# --- optimizer ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {}),
        ("Adam", {"eps": 1.5e-4}),
        ("Adam", {"betas": (0.5, 0.95), "weight_decay": 0.1}),
        ("AdamW", {}),
        ("AdamW", {"weight_decay": 0.3, "betas": (0.5, 0.999)}),
        ("RAdam", {"betas": (0.9, 0.9)}),  # adaptive from the sixth step
        ("RAdam", {"betas": (0.9, 0.9), "eps": 1e-2}),
        ("RAdam", {}),
        ("RMSprop", {}),
        ("RMSprop", {"alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.1}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_optimizers_are_those_of_torch(name: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator)
    rule = OPTIMIZERS[name](**options)
    mine, state = start.clone(), [torch.zeros(50) for _ in rule.used_slots]
    theirs = torch.nn.Parameter(start.clone())
    optimizer = getattr(torch.optim, name)([theirs], lr=3e-3, **options)
    for step in range(1, 21):
        grad = torch.randn(50, generator=generator) * 10.0 ** (step % 5 - 3)
        powers = torch.tensor(rule.powers, dtype=torch.float64) ** step
        rule.step_(mine, grad, state, powers, torch.tensor(3e-3, dtype=torch.float64))
        theirs.grad = grad.clone()
        optimizer.step()
        torch.testing.assert_close(mine, theirs.data, rtol=2e-6, atol=1e-7)
        assert not torch.equal(mine, start)


def test_clipping_is_that_of_each_seed_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    shapes: dict[str, dict[str, tuple[int, ...]]] = {"a": {"w": (4, 3), "b": (3,)}, "c": {"v": (5,)}, "d": {"log": ()}}
    scale = torch.tensor([0.01, 1.0, 300.0])  # below the limit, near it, far above it
    grads = {
        group: {
            name: torch.randn(3, *s, generator=generator) * scale.view(3, *[1] * len(s)) for name, s in names.items()
        }
        for group, names in shapes.items()
    }
    layouts = {g: GroupLayout({n: torch.Size(s) for n, s in names.items()}, 3) for g, names in shapes.items()}
    clipped = clip_per_seed(grads, layouts, 2.0)
    for seed in range(3):
        alone = [torch.nn.Parameter(torch.zeros(s)) for names in shapes.values() for s in names.values()]
        for parameter, tensor in zip(alone, [t for names in grads.values() for t in names.values()], strict=True):
            parameter.grad = tensor[seed].clone()
        torch.nn.utils.clip_grad_norm_(alone, 2.0)
        mine = [tensor[seed].flatten() for names in clipped.values() for tensor in names.values()]
        for got, parameter in zip(mine, alone, strict=True):
            torch.testing.assert_close(got, parameter.grad.flatten(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seeds", [2, 4, 7])
def test_a_clipped_gradient_has_the_bits_of_the_seed_alone(seeds: int, threads: int) -> None:
    generator, before = torch.Generator().manual_seed(2), torch.get_num_threads()
    shapes = {f"w{i}": (40 + i, 30) for i in range(9)} | {"b": (7,), "large": (40_000, 2), "conv": (8, 4, 3, 3)}
    grads = {name: torch.randn(seeds, *shape, generator=generator) for name, shape in shapes.items()}
    sizes = {name: torch.Size(shape) for name, shape in shapes.items()}
    torch.set_num_threads(threads)
    try:
        clipped = {
            count: clip_per_seed({"q": given}, {"q": GroupLayout(sizes, count)}, 0.1)
            for count, given in ((seeds, grads), (1, {name: tensor[-1:] for name, tensor in grads.items()}))
        }
    finally:
        torch.set_num_threads(before)
    for name in shapes:
        assert torch.equal(clipped[seeds]["q"][name][-1], clipped[1]["q"][name][0]), name


def test_layout_round_trip_and_seed_order() -> None:
    shapes = {"weight": torch.Size((5, 3)), "bias": torch.Size((3,)), "scalar": torch.Size(())}
    layout = GroupLayout(shapes, seeds=2)
    members = [{name: torch.randn(shape) for name, shape in shapes.items()} for _ in range(2)]
    flat = layout.stack(members, CPU)
    views = layout.views(flat)
    for name in shapes:
        for seed in range(2):
            assert torch.equal(views[name][seed], members[seed][name])
    assert torch.equal(layout.flatten(views), flat)
    views["bias"][1, 2] = 42.0
    assert (flat == 42.0).sum() == 1, "a view must share the buffer's memory"
    assert all(start % 16 == 0 for _, start, _, _ in layout.blocks)


def test_polyak_by_hand() -> None:
    """Adam's first step is -rate * sign(g): w goes 1 -> 0.9 -> 0.8, the target 1 + 0.25 * (0.9 - 1) = 0.975 and on."""
    engine = quadratic_engine(tau=0.25)
    feed(engine, 4.0)
    assert engine.flat["fast"][0].item() == pytest.approx(0.9, abs=1e-6)
    assert engine.flat["target_fast"][0].item() == pytest.approx(0.975, abs=1e-6)
    feed(engine, 4.0)
    assert engine.flat["target_fast"][0].item() == pytest.approx(0.975 + 0.25 * (0.8 - 0.975), abs=1e-6)


# --- random numbers inside a graph ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("word", "expected"),
    [(0, (0x6B200159, 0x99BA4EFE)), (0xFFFFFFFF, (0x1CB996FC, 0xBB002BE7))],
    ids=["zeros", "ones"],
)
def test_threefry_gives_the_published_vectors(word: int, expected: tuple[int, int]) -> None:
    answer = threefry(*[as_int32(word)] * 4)
    assert tuple(int(x) & 0xFFFFFFFF for x in answer) == expected


def test_threefry_with_distinct_key_and_counter() -> None:
    """Random123's third known answer: catches a key or counter word used twice."""
    words = [as_int32(w) for w in (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)]
    assert tuple(int(x) & 0xFFFFFFFF for x in threefry(*words)) == (0xC4923A9C, 0x483DF7A0)


def test_moments_of_the_device_numbers() -> None:
    seeds, step, count = torch.tensor([0, 1, 7]), torch.tensor(5), 100_001
    uniform, normal = uniforms(seeds, 3, step, count).double(), normals(seeds, 3, step, count).double()
    assert uniform.shape == normal.shape == (3, count)
    assert ((uniform > 0) & (uniform < 1)).all()
    # five standard errors: sd(u) = sqrt(1/12), sd(u^2) = sqrt(4/45), sd(n) = 1, sd(n^2) = sqrt(2), sd(n^4) = sqrt(96)
    error = 5 / count**0.5
    assert (uniform.mean(1) - 1 / 2).abs().max() < error * (1 / 12) ** 0.5
    assert (uniform.square().mean(1) - 1 / 3).abs().max() < error * (4 / 45) ** 0.5
    assert normal.mean(1).abs().max() < error
    assert (normal.square().mean(1) - 1).abs().max() < error * 2**0.5
    assert (normal.pow(4).mean(1) - 3).abs().max() < error * 96**0.5
    assert torch.corrcoef(normal).fill_diagonal_(0).abs().max() < error, "seeds must be independent"
    halves = normal[:, : count // 2], normal[:, count // 2 + 1 :]
    assert (halves[0] * halves[1]).mean(1).abs().max() < error * 2**0.5, "Box and Muller's pair must be independent"


def test_device_numbers_depend_on_seed_stream_and_step_only() -> None:
    step = torch.tensor(9)
    together = normals(torch.tensor([4, 2**31 - 1]), 3, step, 11)
    assert torch.equal(normals(torch.tensor([2**31 - 1]), 3, step, 11)[0], together[1])
    for other in (normals(torch.tensor([4]), 2, step, 11), normals(torch.tensor([4]), 3, step + 1, 11)):
        assert not np.isin(other.numpy(), together.numpy()).any()


# --- what happens between updates ----------------------------------------------------------------------------------
def dqn_learner(**settings: Any) -> DQN:
    torch.manual_seed(0)
    return DQN(q_network=MLPQNetwork(2, 2, (4,)), learning_rate=0.1, **settings)


def dqn_batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    obs = torch.randn(2, 6, 2, generator=generator)
    return {
        "obs": obs[0],
        "actions": torch.tensor([0, 1, 0, 1, 0, 1]),
        "rewards": torch.ones(6),
        "next_obs": obs[1],
        "dones": torch.zeros(6),
    }


def test_the_hard_target_copy_happens_when_the_step_passes_a_multiple() -> None:
    learner = dqn_learner(target_update_interval=10)
    copied = []
    for step in (3, 9, 10, 11, 19, 27, 29, 45):  # 27 has jumped over 20, 45 over 30 and 40
        learner.update(dqn_batch(), global_step=step)
        copied.append(torch.equal(learner.engine.flat["target_q"], learner.engine.flat["q"]))
    assert copied == [False, False, True, False, False, True, False, True]


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_the_learning_rate_schedule_reaches_the_step_size(schedule: str) -> None:
    learner = dqn_learner(learning_rate_schedule=schedule, max_grad_norm=None)
    learner.set_progress(0.75)
    expected = 0.1 if schedule == "constant" else 0.1 * 0.25
    assert learner.learning_rate == pytest.approx(expected)
    before = learner.engine.flat["q"].clone()
    learner.update(dqn_batch())
    # Adam's first step moves each parameter by the learning rate, whatever the size of its gradient.
    assert (learner.engine.flat["q"] - before).abs().max().item() == pytest.approx(expected, rel=1e-3)
    learner.set_progress(1.5)
    assert learner.learning_rate == pytest.approx(0.1 if schedule == "constant" else 0.0)


# --- failures and metrics --------------------------------------------------------------------------------------------
def test_the_first_nonfinite_update_of_a_seed_is_kept() -> None:
    engine = quadratic_engine((1.0, 1.0, 1.0))
    feed(engine, 1.0, 1.0, 1.0)
    assert engine.first_nonfinite_update.tolist() == [-1, -1, -1]
    feed(engine, 1.0, float("nan"), 1.0)
    feed(engine, 1.0, float("inf"), 1.0)
    assert engine.first_nonfinite_update.tolist() == [-1, 2, -1]
    assert engine.flat["fast"][:3].isfinite().tolist() == [True, False, True]


def test_metrics_are_means_over_the_interval_and_none_before_a_phase_ran() -> None:
    """Seed 0: w = 1 at the first update and 0.9 at the second, so the losses are 2 * 1 and 4 * 0.9."""
    engine = quadratic_engine((1.0, -1.0))
    feed(engine, 2.0, 3.0)
    first, second = engine.metrics.take_means()
    assert first == {"loss": pytest.approx(2.0), "slow": None}
    assert second == {"loss": pytest.approx(-3.0), "slow": None}
    feed(engine, 4.0, 3.0)
    feed(engine, 4.0, 3.0)
    first, _ = engine.metrics.take_means()
    assert first["loss"] == pytest.approx((4 * 0.9 + 4 * engine_weight_after(2.0, 4.0)) / 2, rel=1e-5)
    assert first["slow"] == pytest.approx(4.0), "one of the two updates ran the slow phase: its mean is over that one"
    assert engine.metrics.take_means()[0] == {"loss": None, "slow": None}, "reading starts a new interval"


def engine_weight_after(*gradients: float) -> float:
    """The weight 1.0 after torch.optim.Adam's steps at rate 0.1."""
    weight = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    return float(weight.item())


def test_every_metric_key_is_there_after_the_first_update() -> None:
    engine = quadratic_engine()
    feed(engine, 2.0)
    latest = engine.metrics.newest()
    assert set(latest) == {"loss", "slow"}
    assert latest["loss"] == pytest.approx(2.0)
    feed(engine, 5.0)
    assert latest["loss"] == pytest.approx(2.0), "a result keeps its own update's numbers"
    assert engine.metrics.newest()["loss"] == pytest.approx(5.0 * 0.9)


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("starts", [(2.0,), (2.0, 3.0)])
def test_what_a_phase_carries_reaches_the_next_as_it_was_before_the_step(
    starts: tuple[float, ...], looped: bool
) -> None:
    """The first hands w * x on: 2 * 5 and 3 * 7, although by the time of the second phase w has moved by 0.1."""

    def first(nets: Any, batch: Any, noise: Any) -> LossResult:
        product = nets.one["w"] * batch["x"]
        return LossResult(product.sum(), {"loss": product.sum()}, carried={"product": product.detach()})

    def second(nets: Any, batch: Any, noise: Any) -> LossResult:
        loss = (batch["product"] * nets.two["w"]).sum()
        return LossResult(loss, {"carried_loss": loss})

    members = {name: [{"w": torch.tensor(start)} for start in starts] for name in ("one", "two")}
    phases = [Phase("first", ("one",), first), Phase("second", ("two",), second)]
    execution = Execution(tuple(range(len(starts))), CPU, looped=looped)
    engine = Engine(phases, members, Binding(Networks, {}), execution)
    engine.set_rates({"first": 0.1, "second": 0.1})
    feed(engine, *(5.0, 7.0)[: len(starts)])
    assert engine.metrics.names == {"first": ("loss",), "second": ("carried_loss",)}
    expected = [2.0 * 5 * 2, 3.0 * 7 * 3][: len(starts)]
    assert engine.metrics.latest["second"][0].tolist() == pytest.approx(expected)
    assert engine.groups()["one"]["w"].tolist() == pytest.approx([start - 0.1 for start in starts])


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("starts", [(2.0,), (2.0, 3.0)])
def test_a_counted_phase_sees_the_number_of_the_update(starts: tuple[float, ...], looped: bool) -> None:
    seen: list[Tensor] = []

    def loss(nets: Any, batch: Any, noise: Any) -> LossResult:
        loss = (nets.one["w"] * batch["x"]).sum()
        return LossResult(loss, {"loss": loss, "update": batch["update"].float()})

    def uncounted(nets: Any, batch: Any, noise: Any) -> LossResult:
        assert "update" not in batch
        return LossResult(nets.two["w"].sum(), {"other": batch["x"].sum()})

    members = {name: [{"w": torch.tensor(start)} for start in starts] for name in ("one", "two")}
    phases = [Phase("counted", ("one",), loss, counted=True), Phase("other", ("two",), uncounted)]
    execution = Execution(tuple(range(len(starts))), CPU, looped=looped)
    engine = Engine(phases, members, Binding(Networks, {}), execution)
    engine.set_rates({"counted": 0.1, "other": 0.1})
    for _ in range(3):
        feed(engine, *(5.0, 7.0)[: len(starts)])
        seen.append(engine.metrics.latest["counted"][1].clone())
    assert torch.stack(seen).tolist() == [[number] * len(starts) for number in (1.0, 2.0, 3.0)]


def test_each_phase_has_its_own_optimizer_and_rate() -> None:
    """Constant gradients: Adam's first step is rate * g / (|g| + eps), so eps = |g| halves it."""

    def loss_of(group: str) -> Any:
        def loss(nets: Any, batch: Any, noise: Any) -> LossResult:
            value = (getattr(nets, group)["w"] * batch["x"]).mean()
            return LossResult(value, {group: value})

        return loss

    phases = [
        Phase("plain", ("a",), loss_of("a")),
        Phase("damped", ("b",), loss_of("b"), optimizer=Adam(eps=4.0)),
        Phase("clipped", ("c",), loss_of("c"), optimizer=Adam(max_grad_norm=1.0)),
        Phase("quick", ("d",), loss_of("d"), optimizer=Adam(betas=(0.5, 0.9))),
    ]
    members = {name: [{"w": torch.tensor(1.0)}] for name in "abcd"}
    engine = Engine(phases, members, Binding(Networks, {}), Execution((0,), CPU))
    engine.set_rates({"plain": 0.1, "damped": 0.1, "clipped": 0.1, "quick": 0.2})
    feed(engine, 4.0)
    moved = {name: 1 - engine.groups()[name]["w"].item() for name in "abcd"}
    assert moved == pytest.approx({"a": 0.1, "b": 0.05, "c": 0.1, "d": 0.2}, rel=1e-4)
    means = {name: engine.slots["adam_mean"][name][0].item() for name in "acd"}
    assert means == pytest.approx({"a": 0.4, "c": 0.1, "d": 2.0}, rel=1e-4)


def test_a_phase_runs_at_each_multiple_only() -> None:
    engine = quadratic_engine()
    seen = []
    for _ in range(5):
        before = engine.flat["slow"].clone()
        feed(engine, 1.0)
        seen.append(not torch.equal(before, engine.flat["slow"]))
    assert seen == [False, True, False, True, False]
    powers = torch.tensor([[0.9**5, 0.999**5], [0.9**2, 0.999**2]], dtype=torch.float64)  # 5 steps and 2
    torch.testing.assert_close(engine.beta_powers, powers, rtol=1e-14, atol=0)


@pytest.mark.parametrize("change", [lambda s: s.pop("beta_powers"), lambda s: s.update(extra=torch.zeros(1))])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change: Callable[[Any], Any]) -> None:
    engine = quadratic_engine()
    state = {name: tensor + 1 for name, tensor in engine.state_dict().items()}
    change(state)
    with pytest.raises(ValueError, match=r"state does not fit this learner: (beta_powers|extra)"):
        engine.load_state_dict(state)
    assert engine.flat["fast"][0].item() == 1.0
    assert engine.update_count == 0


def test_graphs_for_acting_do_not_pile_up(monkeypatch) -> None:
    captured = []

    def capture(self, work, inputs):
        captured.append(len(inputs[0]))
        static = [value.clone() for value in inputs]
        return SimpleNamespace(replay=lambda: None), static, Act(static[0])

    monkeypatch.setattr(Acting, "_capture", capture)
    acting = Acting(SimpleNamespace(device=CPU, seeds=(0,)))
    acting.engine.device = SimpleNamespace(type="cuda")
    sizes = [*range(1, MAX_GRAPHS + 1), 1, MAX_GRAPHS + 1, 1, 2]
    for size in sizes:
        assert acting.greedy(torch.relu, torch.full((size,), float(size))).action.tolist() == [size] * size
    assert len(acting._graphs) == MAX_GRAPHS
    assert captured == [*range(1, MAX_GRAPHS + 1), MAX_GRAPHS + 1, 2]  # 1 was used again, so 2 had to go


def test_a_failure_names_the_first_loss_that_was_not_finite() -> None:
    """Seed 0 stays well; seed 1 fails in the slow phase of update 2, and everything of it is NaN later."""
    engine = quadratic_engine((1.0, -1.0))
    feed(engine, 2.0, 3.0)
    engine.flat["slow"][1] = torch.nan
    feed(engine, 2.0, 3.0)
    engine.flat["fast"][1] = torch.nan
    feed(engine, 2.0, 3.0)
    feed(engine, 2.0, 3.0)
    assert engine.first_nonfinite_update.tolist() == [-1, 2]
    names, metrics = engine.failure(1)
    assert names == ["slow"] and metrics["loss"] == pytest.approx(-3.0 * 1.1) and np.isnan(metrics["slow"])
    assert engine.metrics.newest()["loss"] == pytest.approx(2.0 * engine_weight_after(2.0, 2.0, 2.0))


def test_a_failure_in_the_first_phase_is_not_blamed_on_one_that_never_ran_well() -> None:
    engine = quadratic_engine()
    feed(engine, 2.0)
    assert engine.failure(0) == ([], {"loss": 2.0})
    feed(engine, float("inf"))  # the slow phase runs for the first time
    assert engine.failure(0)[0] == ["loss"]
