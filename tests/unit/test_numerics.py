"""The numeric mode: what is pinned and when, what a run records of it, and when a resume is not exact."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from harness import ROOT

from rl_training.core import numerics
from rl_training.engine import rounding
from rl_training.files.run_directory import RunRecord, versions
from rl_training.run.plan import ExecutionPlan, rounding_changes
from rl_training.run.resume import recorded_plan

FOUND = {
    "mode": "pinned", "mkl": "AVX2", "aten": "AVX2", "onednn": "AVX2", "numpy": "X86_V3", "openblas": "Haswell",
    "libm": "glibc-2.36",
}  # fmt: skip
VARIABLES = numerics.LIBRARY_VARIABLES


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch):
    """What `pin_libraries` sets in an environment of the given variables."""

    def pin(avx2: bool = True, **given: str) -> dict[str, str]:
        monkeypatch.setattr(numerics, "has_avx2", lambda: avx2)
        for name in (*VARIABLES, numerics.VARIABLE):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        numerics.pin_libraries()
        return {name: os.environ[name] for name in VARIABLES if name in os.environ}

    return pin


def test_every_library_is_pinned_but_those_the_user_has_set(pinned) -> None:
    everything = pinned()
    assert set(everything) == set(VARIABLES) and everything["MKL_CBWR"] == "AVX2"
    assert pinned(MKL_CBWR="SSE4_2") == {**everything, "MKL_CBWR": "SSE4_2"}
    assert pinned(RL_TRAINING_NUMERICS="portable") == {**everything, "MKL_CBWR": "COMPATIBLE"}


def test_nothing_is_pinned_natively_or_on_a_processor_without_avx2(pinned, tmp_path: Path) -> None:
    """ATen does not check the variable: an older processor would end the program with an illegal instruction."""
    cpuinfo = tmp_path / "cpuinfo"
    for flags, expected in (("fpu sse4_2 avx", False), ("fpu avx2 fma bmi2", True), ("fpu avx2 bmi2", False)):
        cpuinfo.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
        assert numerics.has_avx2(cpuinfo) == (expected and platform.machine() == "x86_64")
        assert not numerics.has_avx512(cpuinfo)
    cpuinfo.write_text("flags\t\t: fpu avx2 fma bmi2 avx512f\n")
    assert numerics.has_avx512(cpuinfo) == (platform.machine() == "x86_64")
    assert not numerics.has_avx2(tmp_path / "missing")
    assert pinned(RL_TRAINING_NUMERICS="native") == {} and pinned(avx2=False) == {}


def test_the_processor_is_named_by_its_model_or_its_architecture(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model\t\t: 85\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: Another\n")
    assert numerics.processor_name(cpuinfo) == "Some CPU @ 2.00GHz"
    assert numerics.processor_name(tmp_path / "missing") in (platform.processor(), platform.machine())


def test_a_mistyped_mode_is_rejected(monkeypatch) -> None:
    monkeypatch.setenv(numerics.VARIABLE, "potable")
    with pytest.raises(ValueError, match="one of pinned, portable, native, got 'potable'; did you mean portable"):
        rounding.numerics("cpu")


def test_numpy_names_its_features_by_version() -> None:
    """An unknown name would be a warning at every start."""
    words = numerics._numpy_features().replace(" ", ",")
    program = "import warnings; warnings.simplefilter('error'); import numpy"
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": words}
    assert subprocess.run([sys.executable, "-c", program], env=env, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("changes", "elsewhere"),
    [
        ({}, "Intel with AVX2"),
        ({"mkl": "AUTO"}, "AMD with AVX2"),
        ({"mkl": "COMPATIBLE"}, "x86-64 with AVX2"),
        ({"mkl": "off"}, None),
        ({"numpy": "AVX512_ICL"}, None),
        ({"aten": "AVX512"}, None),
        ({"onednn": "default"}, None),
        ({"openblas": "SkylakeX"}, None),
    ],
)
def test_where_the_same_bits_are_promised(changes, elsewhere, monkeypatch) -> None:
    monkeypatch.setattr(rounding, "is_amd", lambda: True)
    found = {**FOUND, **changes}
    eager = ExecutionPlan("cpu", False, 1, numerics=found)
    assert eager.same_bits_on == elsewhere
    assert replace(eager, compiled=True).same_bits_on is None, "Inductor compiles for the processor it runs on"
    assert replace(eager, threads=2).same_bits_on is None
    assert replace(eager, threads=2).promises["seeds"] == "the seed alone within rounding"
    assert (eager.promises["seeds"] == "the bits of the seed alone") == (found["mkl"] != "off")
    on_gpu = ExecutionPlan("cuda", True, 1, numerics={**found, "gpu": "H200"})
    assert on_gpu.same_bits_on == (f"H200 with {elsewhere}" if elsewhere else None)


def test_nothing_is_promised_of_libraries_that_are_not_known(monkeypatch) -> None:
    monkeypatch.setattr(rounding, "is_amd", lambda: False)
    assert rounding.portable_to({**FOUND, "mkl": "AUTO"}) is None, "on Intel, AUTO is whatever the processor has"
    for matrices in ("none", "unknown"):  # ARM, macOS
        assert not rounding.seeds_are_exact({**FOUND, "mkl": matrices})
        assert rounding.portable_to({**FOUND, "mkl": matrices}) is None


@pytest.mark.parametrize(
    ("now", "versions", "expected"),
    [
        ({}, {}, ""),
        ({}, {"platform": "another kernel"}, ""),
        ({}, {"processor": "another"}, ""),  # of the family: Intel, since MKL is in its AVX2 mode
        ({"mode": "portable"}, {}, ""),  # what counts is what the libraries do
        ({"mkl": "AUTO"}, {"processor": "AMD"}, "mkl AVX2 -> AUTO"),
        ({"aten": "AVX512"}, {"processor": "another"}, "processor this -> another, aten AVX2 -> AVX512"),
        ({"libm": "glibc-2.41"}, {}, "libm glibc-2.36 -> glibc-2.41"),
        ({}, {"torch": "9"}, "torch 2 -> 9"),
    ],
)
def test_what_makes_a_resume_inexact(now, versions, expected, monkeypatch) -> None:
    monkeypatch.setattr(rounding, "is_amd", lambda: versions.get("processor") == "AMD")
    before = ExecutionPlan("cpu", False, 1, numerics=FOUND)
    here = ExecutionPlan("cpu", False, 1, numerics={**FOUND, **now})
    recorded = {"torch": "2", "platform": "kernel", "processor": "this"}
    assert rounding_changes(before, here, recorded, {**recorded, **versions}) == expected


def test_a_compiled_run_on_another_processor_is_inexact() -> None:
    before = ExecutionPlan("cpu", True, 1, numerics=FOUND)
    assert rounding_changes(before, before, {"processor": "a"}, {"processor": "b"}) == "processor a -> b"


def test_compiled_code_is_of_an_instruction_set_and_not_of_a_name(monkeypatch, tmp_path: Path) -> None:
    """Under a hypervisor one name stands for many processors, and AVX-512 may be masked."""
    plan = ExecutionPlan("cpu", True, 1, numerics=rounding.numerics("cpu", compiled=True))
    record = RunRecord(tmp_path, {"execution_plan": plan.to_dict(), "versions": versions()})
    assert recorded_plan(record) == (plan, None)
    monkeypatch.setattr(rounding, "uses_own_products", lambda: plan.numerics["products"] != "own")
    other = {"own": "torch", "torch": "own"}[plan.numerics["products"]]
    line = f"it will not be bit-identical: products {plan.numerics['products']} -> {other}"
    assert recorded_plan(record)[1] == line
    monkeypatch.undo()
    monkeypatch.setattr(rounding, "vector_instructions", lambda: ["avx", "avx9"])
    assert (recorded_plan(record)[1] or "").endswith(" -> avx avx9")
    eager = replace(plan, compiled=False, numerics=rounding.numerics("cpu"))
    record = RunRecord(tmp_path, {"execution_plan": eager.to_dict(), "versions": versions()})
    assert recorded_plan(record) == (eager, None), "eager updates use neither"


def test_the_instruction_sets_of_compiled_code(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu sse4_2 fma bmi2 avx2 avx512f rdrand avx f16c amx_tile\n")
    assert numerics.vector_instructions(cpuinfo) == ["amx_tile", "avx", "avx2", "avx512f", "f16c", "fma"]
    cpuinfo.write_text("Features\t: fp asimd sve2 crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")  # ARM
    assert numerics.vector_instructions(cpuinfo) == ["asimd", "sve2"]
    assert numerics.processor_name(cpuinfo).endswith(" 0x41 0xd4f"), "which tells one ARM processor from another"


def test_resume_in_another_mode_reports_inexact(quick_config, tmp_path: Path, capsys) -> None:
    from rl_training.run.resume import resume_training
    from rl_training.run.run import train

    result = train(quick_config("dqn", tmp_path, total_timesteps=40), show_progress=False)
    place = result.run_dir / "run.json"
    record = json.loads(place.read_text())
    assert record["resume"] == "exact" and record["execution_plan"]["numerics"] == rounding.numerics("cpu")
    resume_training(result.run_dir, total_timesteps=50, show_progress=False)
    assert json.loads(place.read_text())["resume"] == "exact"
    record["execution_plan"]["numerics"]["mkl"] = "SSE4_2"
    place.write_text(json.dumps(record))
    resume_training(result.run_dir, total_timesteps=60, show_progress=False)
    line = f"it will not be bit-identical: mkl SSE4_2 -> {rounding.numerics('cpu')['mkl']}"
    assert capsys.readouterr().err.count(f"resume: inexact ({line})\n") == 1
    now = json.loads(place.read_text())
    assert (now["resume"], now["resume_note"]) == ("inexact", line)


@pytest.mark.sweep
def test_torch_in_use_before_the_library_narrows_the_promise(tmp_path: Path) -> None:
    """Nobody is misled: where MKL's mode could not be set any more, the run says that its seeds are not exact."""
    program = (
        "import torch; torch.ones(3, 3) @ torch.ones(3, 3)\n"
        "from rl_training import DQN\n"
        f"DQN('CartPole-v1', seeds=(0, 1), total_timesteps=8, eval_episodes=0, video=False, report=False, "
        f"output_dir={str(tmp_path)!r}, compile='off', threads=1, hidden_sizes=[8]).learn(show_progress=False)\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    env["PYTHONPATH"] = str(ROOT / "src")
    answer = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    (place,) = tmp_path.glob("*/run.json")
    record = json.loads(place.read_text())
    if not numerics.has_avx2():
        pytest.skip("nothing is pinned on this processor")
    assert record["execution_plan"]["numerics"]["mkl"] == "off"
    assert record["promises"] == {"seeds": "the seed alone within rounding", "same_bits_on": "this processor"}
    assert "import rl_training first" in answer.stderr
