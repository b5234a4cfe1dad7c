"""The promises in other numeric modes than this process's own: each mode in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from harness import ROOT

from rl_training.core.numerics import LIBRARY_VARIABLES, has_avx2

RECORDED = ROOT / "tests" / "data" / "digests.json"
# What a digest depends on: the libraries' versions and modes, and the C library's functions.
# All versions of this library must agree: what changes the bits on purpose records the digests anew.
COMPARED = ("torch", "numpy", "gymnasium")
pytestmark = pytest.mark.skipif(not has_avx2(), reason="nothing is pinned on a processor without AVX2")


def drive(what: str, **mode: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name not in LIBRARY_VARIABLES}
    folders = (ROOT / "src", ROOT / "tests")
    env |= {"PYTHONPATH": os.pathsep.join(map(str, folders)), **mode}
    program = [sys.executable, str(ROOT / "tests" / "numeric_driver.py"), what]
    answer = subprocess.run(program, env=env, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"RL_TRAINING_NUMERICS": "portable"}, id="portable", marks=pytest.mark.sweep),
        pytest.param(
            {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"}, id="without vectors", marks=pytest.mark.sweep
        ),
    ],
)
def test_seeds_among_many_are_the_seeds_alone_in_every_mode(mode: dict[str, str]) -> None:
    found = drive("seeds", **mode)
    assert found["numerics"]["mkl"] == "COMPATIBLE"
    assert found["different"] == []


@pytest.mark.parametrize("mode", ["pinned", pytest.param("portable", marks=pytest.mark.sweep)])
def test_short_runs_have_the_digests_of_other_machines(mode: str) -> None:
    """Recorded with their processors; those with the same versions and modes must agree on whatever runs this test."""
    found = drive("digests", RL_TRAINING_NUMERICS=mode)

    def about(entry: dict[str, Any]) -> dict[str, str]:
        return {**entry["numerics"], **{name: entry["versions"].get(name) for name in COMPARED}}

    same = [entry for entry in json.loads(RECORDED.read_text()) if about(entry) == about(found)]
    if not same:
        pytest.skip(f"no digest is recorded for {about(found)}")
    for entry in same:
        assert found["digests"] == entry["digests"], f"differs from {entry['versions']['processor']}"
