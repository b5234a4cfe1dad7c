"""PPO on a GPU, for `bench_on_policy.py --device cuda`: learning alone, and a run that is all on the device."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from side_ppo_eager import PlainPPO, Settings
from sources import SHAPES
from turns import machine

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.statistics import bootstrap_interval
from rl_training.data.rollout import Rollout
from rl_training.run.callbacks import Callback
from rl_training.run.run import train
from rl_training.run.session import Session

REACHED = {
    "learning": "8 x 2,048 steps (10 epochs, minibatch 64) learned in {ours_s:.3f} s, plain in {plain_s:.2f} s: "
    "{ratio:.1f} times as fast (wanted: >= 5), waiting for the device: {waits_for_the_device}",
    "on_device": "torch/CartPole-v1 with 4,096 environments: {steps_per_s:,.0f} steps per second (wanted: 8 million, "
    "aimed at: 15), learning waits for the device: {waits_for_the_device}",
}


# --- learning alone --------------------------------------------------------------------------------------------------
def random_rollout(num_envs: int, steps: int) -> dict[str, torch.Tensor]:
    """HalfCheetah-shaped steps (environments, steps, ...) of a policy with standard normal actions."""
    generator = torch.Generator().manual_seed(0)
    rows = (num_envs, steps)
    columns = {name: torch.randn(*rows, 17, generator=generator) for name in ("obs", "next_obs")}
    columns["actions"] = torch.randn(*rows, 6, generator=generator)
    columns["rewards"] = torch.randn(rows, generator=generator)
    columns["logprobs"] = torch.distributions.Normal(0, 1).log_prob(columns["actions"]).sum(-1)
    columns["terminated"] = torch.zeros(rows, dtype=torch.bool)
    columns["truncated"] = (torch.arange(steps) % 1000 == 999).expand(rows)
    return columns


def our_learning(device: str, num_envs: int, steps: int, values: dict[str, Any]) -> tuple[OnPolicyLearner, Rollout]:
    cls, spec = learner_class("ppo"), SHAPES["HalfCheetah-v5"]
    assert issubclass(cls, OnPolicyLearner)
    settings = parse(cls.settings_type, {"rollout_steps": steps, **values}, "algo_kwargs")
    learner = cls.create(spec, settings, [0], device=device, compiled=device != "cpu")
    layout = cls.rollout_layout(settings)
    where = torch.device(device)
    # As in a run: the steps are in host memory until the rollout is complete.
    rollout = Rollout(spec, layout, seeds=1, num_envs=num_envs, steps=steps, device=where, host=True)
    for name, column in random_rollout(num_envs, steps).items():
        rollout.written[name][0].copy_(column)
    rollout.filled = steps
    return learner, rollout


def plain_learning(device: str, num_envs: int, steps: int, values: dict[str, Any]) -> Callable[[], None]:
    columns = random_rollout(num_envs, steps)
    plain = PlainPPO(17, 6, False, Settings(rollout_steps=steps, num_envs=num_envs, **values), device)
    columns["ended"] = (columns.pop("terminated") | columns.pop("truncated")).float()
    rollout = {name: column.transpose(0, 1).contiguous().to(device) for name, column in columns.items()}
    last = rollout.pop("next_obs")[-1]
    with torch.no_grad():
        rollout["values"] = plain.policy.value(rollout["obs"])
        last_value = plain.policy.value(last)
    return lambda: plain.learn(rollout, last_value)


def learning(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds to learn one rollout, ours and plain in turns, and whether ours waited for the device."""
    torch.set_float32_matmul_precision("high")
    num_envs, steps, values = 8, 2048, {"batch_size": 64, "epochs": 10}
    if args.quick:
        num_envs, steps, values = 2, 32, {"batch_size": 16, "epochs": 2}
    learner, rollout = our_learning(args.device, num_envs, steps, values)
    count = 0

    def ours() -> None:
        nonlocal count
        count += num_envs * steps
        learner.learn(rollout, 0.0, count)

    plain = plain_learning(args.device, num_envs, steps, values)
    ready = seconds(ours, args.device)
    seconds(ours, args.device)
    seconds(plain, args.device)
    timed = [(seconds(ours, args.device), seconds(plain, args.device)) for _ in range(args.rounds)]
    ratios = [other / own for own, other in timed]
    return {
        "rows": num_envs * steps,
        **values,
        "ours_s": statistics.median(own for own, _ in timed),
        "plain_s": statistics.median(other for _, other in timed),
        "ready_s": ready,
        "ratio": statistics.median(ratios),
        "interval": [round(x, 2) for x in bootstrap_interval(ratios, statistics.median)],
        "ratios": [round(ratio, 2) for ratio in ratios],
        "waits_for_the_device": waits(ours, args.device),
    }


def seconds(work: Callable[[], Any], device: str, times: int = 1) -> float:
    wait: Callable[[], None] = torch.cuda.synchronize if device != "cpu" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - started) / times


def waits(work: Callable[[], Any], device: str) -> str:
    """Whether `work`, which has run before, waits for the device: "no", or the error of what does."""
    if device == "cpu":
        return "not measured on a CPU"
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    except RuntimeError as error:
        return f"yes, {error}".partition("\n")[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


# --- all on the device -----------------------------------------------------------------------------------------------
class Stopwatch(Callback):
    """Times rollouts with their learning once they are compiled, then learning alone, and profiles a few rollouts."""

    def __init__(self, device: str, rollout_rows: int, warm_up: int, timed: int, profiled: int) -> None:
        self.device, self.rows = device, rollout_rows
        self.begin, self.end = warm_up * rollout_rows, (warm_up + timed) * rollout_rows
        self.last = self.end + profiled * rollout_rows
        self.timed, self.profiled = timed, profiled
        self.found: dict[str, Any] = {"waits_for_the_device": "not measured"}
        self.started, self.ready = 0.0, time.perf_counter()

    def on_step(self, session: Session) -> bool | None:
        step = session.clock.step
        if step not in (self.begin, self.end, self.last):
            return None
        if self.device != "cpu":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if step == self.begin:
            self.found["ready_s"], self.started = now - self.ready, now
        elif step == self.end:
            per_rollout = (now - self.started) / self.timed
            self.found |= {"steps_per_s": self.rows / per_rollout, "rollout_and_learning_s": per_rollout}
            self.profile = torch.profiler.profile(activities=activities(self.device))
            self.profile.__enter__()
            self.profile_started = time.perf_counter()
        else:
            wall = (now - self.profile_started) / self.profiled
            self.profile.__exit__(None, None, None)
            self.found["profile"] = {"wall_s_per_rollout": wall, **table(self.profile, self.device, self.profiled)}
            self._learn_alone(session)
            return False
        return None

    def _learn_alone(self, session: Session) -> None:
        learner = session.learner
        assert isinstance(learner, OnPolicyLearner) and learner._minibatches is not None
        rollout = learner._minibatches.rollout  # its steps are still there

        def work() -> None:
            learner.learn(rollout, 0.0, session.clock.step)  # type: ignore[arg-type]

        self.found["learning_s"] = seconds(work, self.device, self.timed)
        self.found["collecting_s"] = self.found["rollout_and_learning_s"] - self.found["learning_s"]
        self.found["waits_for_the_device"] = waits(work, self.device)
        self.found["statistics"] = session.statistics.rows()  # of the episodes so far


def activities(device: str) -> list[torch.profiler.ProfilerActivity]:
    kinds = torch.profiler.ProfilerActivity
    return [kinds.CPU] if device == "cpu" else [kinds.CPU, kinds.CUDA]


def table(profile: Any, device: str, rollouts: int) -> dict[str, Any]:
    """The largest shares of the device's time per rollout, by kernel."""
    field = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    kind = torch.autograd.DeviceType.CPU if device == "cpu" else torch.autograd.DeviceType.CUDA
    events = [one for one in profile.key_averages() if one.device_type == kind]  # not the calls that launch kernels
    events.sort(key=lambda one: -getattr(one, field))
    whole = sum(getattr(one, field) for one in events)
    rows = [
        {
            "name": one.key[:90],
            "calls": one.count / rollouts,
            "ms": round(getattr(one, field) / 1000 / rollouts, 4),
            "share": round(getattr(one, field) / whole, 4) if whole else 0.0,
        }
        for one in events[:30]
    ]
    return {"busy_s_per_rollout": whole / 1e6 / rollouts, "largest": rows}


def on_device(args: argparse.Namespace) -> dict[str, Any]:
    """Environment steps per second of a normal run in torch/CartPole-v1."""
    num_envs, steps, batch, (warm_up, timed, profiled) = 4096, 32, 32_768, (20, 300, 5)
    if args.quick:
        num_envs, steps, batch, (warm_up, timed, profiled) = 16, 8, 32, (2, 2, 2)
    rows, never = num_envs * steps, 10**9
    watch = Stopwatch(args.device, rows, warm_up, timed, profiled)
    settings = {
        "rollout_steps": steps, "epochs": 4, "batch_size": batch, "learning_rate": 1e-3, "entropy_weight": 0.01,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            "ppo", "torch/CartPole-v1", total_timesteps=watch.last + rows, num_envs=num_envs, device=args.device,
            compile="off" if args.device == "cpu" else "on", output_dir=Path(folder), eval_episodes=0, video=False,
            report=False, log_interval=never, checkpoint_interval=never, algo_kwargs=settings,
        )  # fmt: skip
        try:
            train(config, callbacks=[watch], show_progress=False)
        except Exception as error:
            if "steps_per_s" not in watch.found:
                raise
            watch.found["failed_afterwards"] = f"{type(error).__name__}: {error}"  # the speed is measured
    return {"num_envs": num_envs, **settings, "rollouts_timed": timed, **watch.found}


def measure_device(args: argparse.Namespace) -> dict[str, Any]:
    """Both measurements; one that fails is recorded with its error, so that the other is not lost."""
    name = torch.cuda.get_device_name(0) if args.device != "cpu" else "cpu"
    found: dict[str, Any] = {"machine": {**machine(), "device": name}}
    for part in (learning, on_device):
        try:
            found[part.__name__] = part(args)
        except Exception as error:
            found[part.__name__] = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({part.__name__: found[part.__name__]}), flush=True)
    parts = [text.format(**found[name]) for name, text in REACHED.items() if "error" not in found[name]]
    what = "PPO on a GPU: learning against the same written plainly in eager torch, and a run that is all on the device"
    return {"what": what, "reached": "; ".join(parts), **found}
