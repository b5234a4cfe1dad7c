"""The captured path on a real GPU. Skipped where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import settings_of
from own_networks import BatchNormNet, Features
from picture_stream import Stream, shape_of
from seed_harness import BATCH_NORM, take_updates

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.config.fields import parse
from rl_training.core.specs import EnvSpec, action_spec, discrete, image, vector
from rl_training.data.replay.frames import FrameReplay, replay_class
from rl_training.data.rollout import Rollout
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import Session

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
# Stated tolerance: GPU kernels choose other summation orders for other batch sizes.
TOLERANCE = 2e-3
# Of networks with batch norms, which learn at a tenth of the others' rate here: their losses have kinks, at which steps
# of 0.01 turn a rounding error of 5e-7 into 6e-5 in one update, and into 2e-4 in twenty.
SMALL_TOLERANCE = 2e-4
CHAOTIC = ("flashsac",)  # weights that differ by 1e-6 at the start differ by 1e-3 after forty updates, eager too
ROUNDS = {"ppo": 2, "pqn": 2}  # of twelve updates each


@pytest.fixture(autouse=True)
def _whole_float32(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Full float32 products, whatever ran before: `train` allows TF32, which differs in the third digit."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def shape_for(name: str) -> EnvSpec:
    cls = learner_class(name)
    if cls.observations == ("image",):
        return EnvSpec(image(6, 20, 20, frames=2), action_spec(cls.actions[0], 3))
    return EnvSpec(vector(5), action_spec(cls.actions[0], 3))


def make(name: str, seeds: list[int], compiled: bool, **settings):  # type: ignore[no-untyped-def]
    cls, shape = learner_class(name), shape_for(name)
    if shape.observation.kind == "image" or name in BATCH_NORM:
        # As below: of a gradient that is nothing but rounding Adam would make a full step.
        settings = {"learning_rate": 1e-3 if name in BATCH_NORM else 1e-2, "adam_eps": 1e-2, **settings}
    small = {
        "hidden_sizes": (32, 32),
        "batch_size": 16,
        "epochs": 1,
        **({"learning_rate": 1e-2} if name == "pqn" else {}),
    }
    chosen = parse(cls.settings_type, settings_of(name, small, settings))
    learner = cls.create(shape, chosen, seeds, device="cuda", compiled=compiled)
    if isinstance(learner, OnPolicyLearner):
        return learner, filled_rollout(learner, shape)
    replay = replay_class(shape)(shape, capacity=200, num_envs=1, seeds=len(seeds), device="cuda")
    for index, seed in enumerate(seeds):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        for tensor in replay.storage.values():
            if tensor.is_floating_point():
                tensor[index].normal_(generator=generator).tanh_()
        if isinstance(replay, FrameReplay):
            replay.storage["final"].fill_(-1)
            replay.storage["age"].fill_(replay.stack - 1)
            replay.pictures[index].random_(256, generator=generator)
    replay.finish_writing(200)
    return learner, replay


def filled_rollout(learner: OnPolicyLearner, shape: EnvSpec) -> Rollout:
    """20 steps of 10 environments, a function of the seeds."""
    layout, device = learner.rollout_layout(learner.settings), torch.device("cuda")
    seeds = learner.seeds
    rollout = Rollout(shape, layout, seeds=len(seeds), num_envs=10, steps=20, device=device, host=False)
    for index, seed in enumerate(seeds):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        for name, tensor in rollout.columns.items():
            if tensor.is_floating_point():
                tensor[index].normal_(generator=generator).tanh_()
            elif name in ("terminated", "truncated"):
                drawn = torch.rand(tensor[index].shape, generator=generator, device="cuda")
                tensor[index].copy_(drawn < 0.1)
    return rollout


def parameters(learner, index: int = 0) -> torch.Tensor:  # type: ignore[no-untyped-def]
    groups = learner.nets(index).groups
    return torch.cat([p.reshape(-1) for params in groups.values() for p in params.values()])


def tolerance(name: str) -> float:
    return SMALL_TOLERANCE if name in BATCH_NORM else TOLERANCE


@pytest.mark.parametrize("name", algorithm_names())
@pytest.mark.parametrize("compiled", [False, True])
def test_seeds_among_many_are_the_seeds_alone(name: str, compiled: bool) -> None:
    together, replay_together = make(name, [3, 4, 5], compiled)
    alone, replay_alone = make(name, [4], compiled)
    start = parameters(alone).clone()
    for step in range(ROUNDS.get(name, 20)):
        take_updates(together, replay_together, 1, step)
        take_updates(alone, replay_alone, 1, step)
    moved = (parameters(alone) - start).abs().max()
    assert moved > 1e-3
    assert (parameters(together, 1) - parameters(alone)).abs().max() < tolerance(name)


@pytest.mark.parametrize("name", algorithm_names())
def test_captured_compiled_equals_captured_eager(name: str) -> None:
    eager, replay = make(name, [0], False)
    compiled, replay_too = make(name, [0], True)
    taken = 0
    for step in range(ROUNDS.get(name, 20)):
        taken += take_updates(eager, replay, 2, step)
        take_updates(compiled, replay_too, 2, step)
        if name in CHAOTIC:  # two updates at a time, each pair from the same weights
            assert (parameters(eager) - parameters(compiled)).abs().max() < tolerance(name)
            compiled.load_state_dict(eager.state_dict())
    assert eager.update_count == compiled.update_count == int(eager.engine.count_tensor) == taken >= 20
    assert (parameters(eager) - parameters(compiled)).abs().max() < tolerance(name)


def _update_both(gpu, cpu, batch, noise) -> None:  # type: ignore[no-untyped-def]
    for learner in (gpu, cpu):
        here_batch, here_noise = ({k: v.to(learner.device) for k, v in part.items()} for part in (batch, noise))
        with learner.engine.denormals_flushed():
            learner.engine.update(here_batch, here_noise)


@pytest.mark.parametrize("name", algorithm_names())
def test_updates_are_those_of_a_cpu(name: str) -> None:
    """With the same rows and random numbers: losses and kernels that differ between the two come to the same."""
    gpu, replay = make(name, [3, 4], False)
    cpu = learner_class(name).create(shape_for(name), gpu.settings, [3, 4])
    start = parameters(cpu, 1).clone()
    for step in range(10):
        rows = (torch.arange(32, device="cuda") + 19 * step).remainder(200).view(2, 16)
        batch, noise = replay.gather(rows), cpu.engine.host_noise(cpu.update_noise(16))
        _update_both(gpu, cpu, batch, noise)
    assert (parameters(cpu, 1) - start).abs().max() > 1e-3
    assert (parameters(gpu, 1).cpu() - parameters(cpu, 1)).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", algorithm_names())
def test_capturing_leaves_no_trace(name: str) -> None:
    """Warm-up updates before a capture are undone: the first replay starts from the initial parameters."""
    learner, replay = make(name, [0], False)
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    learner.training.capture(replay, 16, learner.update_noise(16), (learner.engine.due(1),))
    after = learner.state_dict()
    assert all(torch.equal(before[key], after[key].to(before[key].device)) for key in before)


NETWORKS = {
    "options": {"layer_norm": True, "dropout": 0.2, "spectral_norm": True, "activation": "SiLU"},
    "own": {"critic": BatchNormNet, "features": Features},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_buffers_and_dropout_in_a_graph(name: str, compiled: bool, network: str) -> None:
    """Captured, a seed among others is the seed alone, and a state that is loaded continues with the same bits."""
    options = {"network": NETWORKS[network], "learning_rate": 1e-2, "adam_eps": 1e-2, "optimizer": "AdamW"}
    (together, rows), (alone, own_rows), (loaded, _) = (make(name, s, compiled, **options) for s in ([3, 4], [4], [4]))
    before = {key: value.clone() for key, value in alone.state_dict().items()}
    for step in range(6):
        together.train(rows, 1, step)
        alone.train(own_rows, 1, step)
        if step == 2:
            loaded.load_state_dict({key: value.clone() for key, value in alone.state_dict().items()})
        elif step > 2:
            loaded.train(own_rows, 1, step)
    now = alone.state_dict()
    changed = {key for key in before if not torch.equal(before[key], now[key])}
    assert {key for key in before if key.startswith("buffers.") and "target" not in key} <= changed
    assert all(torch.equal(now[key], value) for key, value in loaded.state_dict().items())
    assert (parameters(together, 1) - parameters(alone)).abs().max() < TOLERANCE


@pytest.mark.parametrize("network", NETWORKS)
def test_updates_with_buffers_and_dropout_are_those_of_a_cpu(network: str) -> None:
    gpu, replay = make("sac", [3, 4], False, network=NETWORKS[network], learning_rate=1e-2, adam_eps=1e-2)
    cpu = learner_class("sac").create(shape_for("sac"), gpu.settings, [3, 4])
    for step in range(5):
        drawn = (torch.arange(32, device="cuda") + 19 * step).remainder(200).view(2, 16)
        batch, noise = replay.gather(drawn), cpu.engine.host_noise(cpu.update_noise(16))
        _update_both(gpu, cpu, batch, noise)
    assert (parameters(gpu, 1).cpu() - parameters(cpu, 1)).abs().max() < TOLERANCE


def test_a_learner_that_nobody_holds_does_not_disturb_the_next_ones_capture() -> None:
    """Learners hang in circles, so the garbage collector frees them, and their graphs, whenever it likes."""
    thresholds = gc.get_threshold()
    for _ in range(3):
        learner, replay = make("sac", [0], False)
        learner.train(replay, 1, 1)
        learner.act_greedy(torch.zeros(1, 1, 5))
        del learner, replay
        gc.set_threshold(1, 1, 1)  # from now on it likes to at every chance
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_updates_of_a_step_are_one_graph(compiled: bool) -> None:
    """Twenty of the critics and one of the actor, with the numbers of twenty replays of one update each."""
    together, replay = make("redq", [3, 4], compiled)
    apart, replay_too = make("redq", [3, 4], compiled)
    for step in range(3):
        together.train(replay, 20, step)
        for _ in range(20):
            apart.train(replay_too, 1, step)
    assert [len(key[2]) for key in together.training.programs if key[-1] == "graph"] == [20]
    assert together.update_count == int(together.engine.count_tensor) == apart.update_count == 60
    assert (parameters(together, 1) - parameters(apart, 1)).abs().max() < TOLERANCE
    together.train(replay, 80, 3)  # four environments at once: four replays of the same graph
    assert len([key for key in together.training.programs if key[-1] == "graph"]) == 1


# --- acting ---------------------------------------------------------------------------------------------------------
VECTORS = ["dqn", "rainbow_dqn", "sac", "td3", "iql"]


@pytest.mark.parametrize("name", VECTORS)
def test_a_step_on_the_device_never_waits_for_it(name: str) -> None:
    """Observing, acting, learning and schedules, once everything is captured."""
    learner, replay = make(name, [3, 4], False, normalize_observations=True, learning_rate_schedule="linear")
    obs = torch.randn(2, 8, 5, device="cuda")

    def step(number: int) -> None:
        learner.observe(obs)
        learner.act_random(number, 8, obs.device)
        learner.act_greedy(obs)
        learner.act_explore(obs, number, number / 10)
        learner.set_progress(number / 10)
        learner.train(replay, 2, number)

    step(0)
    step(1)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for number in range(2, 8):
            step(number)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert learner.update_count == 16 and (learner.observation_count in (None, 64))


@pytest.mark.parametrize("name", VECTORS)
def test_exploration_on_the_device_is_of_the_seed_and_the_step(name: str) -> None:
    together, _ = make(name, [3, 4], False)
    alone, _ = make(name, [4], False)
    obs = torch.randn(2, 50, 5, device="cuda")
    acts = {step: together.act_explore(obs, step, 0.0).action for step in (0, 1)}
    assert torch.equal(acts[0], together.act_explore(obs, 0, 0.0).action), "and a result outlives the next call"
    assert not torch.equal(acts[0], acts[1]) and acts[0].is_cuda
    same = (alone.act_explore(obs[1:], 1, 0.0).action[0] - acts[1][1]).abs() < TOLERANCE
    assert same.float().mean() > 0.98, "of discrete actions, two may be worth the same within rounding"
    for step in (0, 7):
        drawn = together.act_random(step, 50, obs.device).action
        assert torch.equal(drawn[1], alone.act_random(step, 50, obs.device).action[0])
        assert together.action_spec.contains(drawn) and not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("name", VECTORS)
def test_with_observations_on_the_host_actions_are_those_of_a_cpu(name: str) -> None:
    gpu, _ = make(name, [3, 4], False)
    cpu = learner_class(name).create(shape_for(name), gpu.settings, [3, 4])
    obs = torch.randn(2, 50, 5)
    for found, expected, on_device in (
        (gpu.act_greedy(obs), cpu.act_greedy(obs), True),
        (gpu.act_explore(obs, 3, 0.0), cpu.act_explore(obs, 3, 0.0), True),
        (gpu.act_random(3, 50), cpu.act_random(3, 50), False),  # drawn on the host, where they are used
    ):
        assert found.action.is_cuda == on_device and found.action.dtype == expected.action.dtype
        assert ((found.action.cpu() - expected.action).abs() < TOLERANCE).float().mean() > 0.98


def test_observations_on_the_device_are_counted_as_on_the_host() -> None:
    gpu, _ = make("td3", [3, 4], False, normalize_observations=True)
    cpu = learner_class("td3").create(shape_for("td3"), gpu.settings, [3, 4])
    for _ in range(5):
        obs = 100 + torch.randn(2, 60, 5) * torch.tensor([0.1, 1.0, 3.0, 10.0, 100.0])
        gpu.observe(obs.cuda())
        cpu.observe(obs)
    for name, tensor in cpu.state_dict().items():
        if "normalizer" in name:
            torch.testing.assert_close(gpu.state_dict()[name].cpu(), tensor, rtol=1e-6, atol=1e-6)
    gpu.load_state_dict(cpu.state_dict())
    gpu.observe(obs.cuda())
    assert gpu.observation_count == 360


ONLINE_LATER = [name for name in algorithm_names() if learner_class(name).offline and learner_class(name).learns_online]


@pytest.mark.parametrize(
    ("name", "offline_steps"), [*((name, None) for name in algorithm_names()), *((name, 43) for name in ONLINE_LATER)]
)
@pytest.mark.parametrize("compile_mode", ["off", "on"])
def test_resume_is_exact(name: str, offline_steps, compile_mode: str, quick_config, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    changes = {"device": "cuda", "compile": compile_mode, "total_timesteps": 137, "checkpoint_interval": 61}
    changes["algo_kwargs"] = {"normalize_observations": learner_class(name).observations != ("image",)}
    if offline_steps is not None:
        changes["algo_kwargs"]["offline_steps"] = offline_steps
    plays = offline_steps is not None or not learner_class(name).offline
    whole = train(quick_config(name, tmp_path / "whole", **changes), show_progress=False)

    class StopAt97(Callback):
        def on_step(self, session: Session) -> bool:
            return session.step < 97

    cut = train(quick_config(name, tmp_path / "cut", **changes), callbacks=[StopAt97()], show_progress=False)
    assert cut.metrics["global_step"] == (97 if plays else 100)  # offline, updates come ten at a time
    resumed = resume_training(cut.run_dir, show_progress=False)
    first, second = (load_checkpoint(result.checkpoint_path) for result in (whole, resumed))
    assert first.step == second.step == 137
    for file in ("learner.safetensors", "envs.safetensors")[: 1 + plays]:
        a, b = first.tensors(file), second.tensors(file)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("n_step", [1, 3])
def test_frames_on_the_gpu_are_those_on_the_host(n_step: int) -> None:
    shape, options = shape_of(), {"capacity": 31, "num_envs": 3, "seeds": 2, "n_step": n_step, "gamma": 0.9}
    host, gpu, stream = FrameReplay(shape, **options), FrameReplay(shape, **options, device="cuda"), Stream(shape, 2, 3)
    for _ in range(40):
        fields = stream.step()
        host.add(**fields)
        gpu.add(**fields)
    rows = torch.arange(host.size).expand(2, -1)
    expected, found = host.gather(rows), gpu.gather(rows.cuda())
    assert all(torch.equal(found[name].cpu(), tensor) for name, tensor in expected.items())
    again = FrameReplay(shape, **options, device="cuda")
    again.write(gpu.oldest(), gpu.read(gpu.oldest(), gpu.added))
    again.finish_writing(gpu.added)
    assert all(torch.equal(again.gather(rows.cuda())[name], tensor) for name, tensor in found.items())


@pytest.mark.parametrize("name", ["dqn", "rainbow_dqn"])
@pytest.mark.parametrize("compiled", [False, True])
def test_images_learned_by_seeds_among_many_and_alone(name: str, compiled: bool) -> None:
    cls, shape = learner_class(name), EnvSpec(image(2, 36, 36, frames=2), discrete(5))
    # A large eps: Adam would make a full step of a gradient that is nothing but rounding, for many of 100,000 weights.
    settings = cls.settings_type(hidden_sizes=(32,), batch_size=16, learning_rate=1e-2, adam_eps=1e-2)

    def run(seeds: list[int], first: int) -> torch.Tensor:
        learner = cls.create(shape, settings, seeds, device="cuda", compiled=compiled)
        alpha = settings.prioritized_alpha if settings.prioritized else None
        options = {"n_step": settings.n_step, "gamma": 0.9, "priority_alpha": alpha}
        replay = FrameReplay(shape, capacity=60, num_envs=1, seeds=len(seeds), device="cuda", **options)
        stream = Stream(shape, 3, 1)
        for step in range(80):
            replay.add(**{key: value[first : first + len(seeds)] for key, value in stream.step().items()})
            if step >= 60:
                learner.train(replay, 1, step)
        return parameters(learner, 1 if len(seeds) > 1 else 0)

    assert (run([3, 4, 5], 0) - run([4], 1)).abs().max() < TOLERANCE


class SeenRows(Callback):
    """Compares the newest rows of the replay with what the environments returned, at every step."""

    def __init__(self) -> None:
        self.checked = 0

    def on_step(self, session: Session) -> None:
        replay, rows = session.replay, session.envs.watched  # type: ignore[union-attr]
        assert replay is not None and rows is not None and int(replay.added_tensor) == replay.added
        newest = replay.read(replay.added - replay.num_envs, replay.added)
        for name in ("rewards", "terminated", "truncated"):
            expected = torch.from_numpy(getattr(rows, name).copy()).view_as(newest[name])
            assert torch.equal(newest[name], expected), (session.step, name)
        self.checked += 1


@pytest.mark.parametrize("name, settings", [("sac", {}), ("dqn", {"prioritized": True, "train_frequency": 4})])
def test_the_replay_holds_what_happened_after_every_step(name: str, settings, quick_config, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Sent by the outbox, stored by an update, by a graph of its own, or by the hook that reads it."""
    seen = SeenRows()
    options = {"num_envs": 2, "seeds": (3, 4), "device": "cuda", "algo_kwargs": settings}
    train(quick_config(name, tmp_path, **options), callbacks=[seen], show_progress=False)
    assert seen.checked == 60


def test_random_steps_are_stored_as_on_a_cpu(quick_config, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    stored = []
    for device in ("cpu", "cuda"):
        kept = KeptReplay()
        options = {"device": device, "total_timesteps": 40, "algo_kwargs": {"learning_starts": 40}}
        train(quick_config("sac", tmp_path / device, **options), callbacks=[kept], show_progress=False)
        stored.append(kept.rows)
    assert stored[0] and all(torch.equal(stored[0][name], stored[1][name]) for name in stored[0])


class KeptReplay(Callback):
    """Keeps all transitions of a run."""

    def on_end(self, session: Session) -> None:
        assert session.replay is not None
        self.rows = {name: rows.clone() for name, rows in session.replay.read(0, session.replay.added).items()}
