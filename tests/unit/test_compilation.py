"""A compiled function called without Dynamo does what the function does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from compiler import needs_compiler
from torch import Tensor

from rl_training.algorithms import DQN
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.engine.compilation import compile_once
from rl_training.engine.engine import Engine
from rl_training.models import MLPQNetwork


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=needs_compiler)])
@torch.no_grad()
def test_later_calls_use_their_own_inputs_and_change_the_same_tensors(backend: str) -> None:
    kept, ring = torch.zeros(4), torch.zeros(100)

    def function(a: Tensor, named: dict[str, Tensor], listed: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        kept.add_(1.0)
        ring[3:5] += a[:2]
        return {"product": a * kept, "sum": named["x"] + listed[0]}, a.sum()

    compiled, expected = compile_once(function, backend), torch.zeros(100)
    for call in range(4):
        a, x, y = torch.randn(4), torch.randn(3), torch.randn(3)
        found, total = compiled(a, {"x": x}, [y])
        expected[3:5] += a[:2]
        assert kept.tolist() == [call + 1.0] * 4
        torch.testing.assert_close(found, {"product": a * (call + 1), "sum": x + y})
        torch.testing.assert_close(total, a.sum())
        torch.testing.assert_close(ring, expected)


@torch.no_grad()
def test_two_programs_of_one_function_keep_apart() -> None:
    def make(tensor: Tensor):
        def add(amount: Tensor) -> None:
            tensor.add_(amount)

        return compile_once(add, "aot_eager")

    first, second = torch.zeros(2), torch.zeros(3)
    add_first, add_second = make(first), make(second)
    for _ in range(3):
        add_first(torch.ones(2))
        add_second(torch.ones(3))
    assert first.tolist() == [3.0] * 2 and second.tolist() == [3.0] * 3


@pytest.mark.sweep
def test_a_state_from_before_the_first_update_loads_into_a_used_learner() -> None:
    """It knows no metrics yet: programs compiled before must not go on writing into the tensors of the old ones."""
    learner = DQN(q_network=MLPQNetwork(2, 2, ()), batch_size=2, compiled=True, backend="aot_eager")
    fresh = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    replay = ReplayBuffer(EnvSpec(vector(2), discrete(2)), capacity=8, num_envs=1, seeds=1)
    replay.storage["rewards"].fill_(3.0)
    replay.finish_writing(8)
    losses = []
    for _ in range(2):
        learner.load_state_dict(fresh)
        learner.train(replay, 1, 1)
        losses.append(learner.engine.metrics.newest()["loss"])
    assert losses[0] == losses[1] > 0


@pytest.mark.sweep
def test_a_batch_in_another_order_or_of_another_kind_is_the_same_batch() -> None:
    """The kernels know their inputs by position, shape and type: a program must not be used for others."""
    batch = {
        "obs": torch.randn(4, 2),
        "actions": torch.tensor([0, 1, 1, 0]),
        "rewards": torch.randn(4),
        "next_obs": torch.randn(4, 2),
        "dones": torch.tensor([0.0, 1.0, 0.0, 0.0]),
    }
    variants = [
        batch,
        dict(reversed(batch.items())),
        {**batch, "actions": batch["actions"].int()},
        {**batch, "obs": batch["obs"].T.contiguous().T},
    ]
    torch.manual_seed(0)
    learner = DQN(q_network=MLPQNetwork(2, 2, ()), learning_rate=1e-12, compiled=True, backend="aot_eager")
    losses = [learner.update(one).metrics["loss"] for one in variants]
    assert losses == pytest.approx([losses[0]] * 4)
    weighted = learner.update({**batch, "weights": torch.full((4,), 2.0)}).metrics["loss"]
    assert weighted == pytest.approx(2 * losses[0])


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "No working C++ compiler found in torch._inductor.config.cpp.cxx"),
        ("echo 'x.cpp:1: fatal error: Python.h: No such file' >&2; exit 1", "x.cpp:1: fatal error: Python.h"),
    ],
    ids=["missing", "failing"],
)
def test_a_compiler_that_fails_is_one_line(script: str | None, reason: str, tmp_path: Path) -> None:
    compiler = tmp_path / "our-compiler"
    if script is not None:
        compiler.write_text(
            f"#!/bin/sh\ncase $1 in --version|-v|-dumpversion) echo 'g++ 12.2.0';; *) {script};; esac\n"
        )
        compiler.chmod(0o755)
    program = (
        "import torch\nfrom rl_training.engine.compilation import compile_once\n"
        "try: compile_once(lambda x: x + 1)(torch.ones(3))\n"
        "except ValueError as error: print(type(error).__name__, error)\n"
    )
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    env = {**os.environ, "CXX": compiler.name, "PATH": path, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env).stdout
    assert found.count("\n") == 1 and found.startswith(f"UserError compile: the C++ compiler failed ({reason}")
    assert found.endswith("; repair it, or train a new run with compile: off\n")


def test_kernels_are_chosen_by_rule_and_not_by_a_timer() -> None:
    """Two runs of the same config on a busy GPU picked other kernels, which round differently."""
    from torch._inductor import config

    config.deterministic = False
    compile_once(lambda: None, "aot_eager")
    assert not config.deterministic
    compile_once(lambda: None, "inductor")
    assert config.deterministic
    width = {"AVX2": 256, "AVX512": 512}.get(torch.backends.cpu.get_cpu_capability())
    assert config.cpp.simdlen == width, "kernels cached in another numeric mode are of another width"


@needs_compiler
def test_the_kernels_are_called_by_cpp_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program by its own device, whatever other programs of the process do."""
    from torch._inductor import compile_fx, config

    found: list[bool] = []

    def compile_nothing(graph: torch.fx.GraphModule, *rest: object, **options: object) -> Callable[..., object]:
        found.append(config.cpp_wrapper)
        return graph.forward

    monkeypatch.setattr(compile_fx, "compile_fx", compile_nothing)
    for given in (False, True):
        engines = [
            SimpleNamespace(backend="inductor", device=torch.device(device), while_compiling=nullcontext)
            for device in ("cpu", "cuda")
        ]
        programs = [Engine.compile(engine, lambda a: a * 2) for engine in engines]  # type: ignore[arg-type]
        with config.patch(cpp_wrapper=given):  # pytest's monkeypatch would delete it afterwards
            for program in programs:
                program(torch.ones(2))
            assert config.cpp_wrapper == given, "what others compile is left alone"
    assert found == [True, False] * 2


@torch.no_grad()
def test_compiling_is_announced_for_the_first_call_only() -> None:
    announced: list[str] = []

    @contextmanager
    def announce() -> Iterator[None]:
        announced.append("begun")
        yield
        announced.append("done")

    double = compile_once(lambda a: a * 2, "aot_eager", announce)
    for _ in range(3):
        double(torch.ones(2))
    assert announced == ["begun", "done"]


def test_a_learner_announces_every_program_that_it_compiles() -> None:
    learner = DQN(q_network=MLPQNetwork(2, 2, ()), batch_size=2, compiled=True, backend="aot_eager")
    replay = ReplayBuffer(EnvSpec(vector(2), discrete(2)), capacity=8, num_envs=1, seeds=1)
    replay.finish_writing(8)
    announced: list[str] = []

    def announce(name: str) -> nullcontext[None]:
        announced.append(name)
        return nullcontext()

    learner.while_compiling = lambda: announce("program")
    for step in range(3):
        learner.act_explore(torch.zeros(1, 1, 2), step, 0.0)
        learner.train(replay, 1, step)
    assert len(announced) == 2  # acting and learning


def test_an_eager_run_does_not_import_the_compiler() -> None:
    """Dynamo is half of the time to import everything."""
    code = "import sys, rl_training.run.run, rl_training.algorithms.sac; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
