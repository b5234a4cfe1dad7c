"""Shared by the tests that run whole programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_program(*words: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """A Python program or `-m module`, as a user would start it, with the checkout on its path."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)


def run_cli(*words: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return run_program("-m", "rl_training", *words, cwd=cwd, timeout=timeout)


def check_reference_script(name: str, output_dir: Path) -> None:
    """The example finishes in seconds with a tiny budget, still learns something, and exports an agent that loads."""
    from rl_training.runtime.agents import load_agent

    script = str(ROOT / "examples" / f"{name}_reference.py")
    answer = run_program(script, "--total-timesteps", "128", "--eval-episodes", "1", "--output-dir", str(output_dir))
    assert answer.returncode == 0, answer.stderr
    (run_dir,) = output_dir.iterdir()
    agent = load_agent(run_dir / "agent.safetensors")
    assert agent.config.total_timesteps == 128
    assert agent.config.algo_kwargs["learning_starts"] == 32
    assert f"agent  {run_dir / 'agent.safetensors'}" in answer.stdout
