"""What a run leaves to look at: a video of its agent and a report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.core.rng import episode_seed
from rl_training.envs.factory import Env, EnvSource
from rl_training.experiment.report import write_report
from rl_training.experiment.video import write_video
from rl_training.runtime.agents import Agent, load_agent
from rl_training.runtime.session import Session

MOST_FRAMES = 1500
Frame = NDArray[np.uint8]


def record_video(agent: Agent, source: EnvSource, path: Path, episodes: int = 1) -> tuple[Path, list[float]]:
    """Greedy episodes, rendered headless. Returns the file and the returns."""
    try:
        env = source.for_evaluation().make(render_mode="rgb_array")
    except UserError as error:
        raise UserError(f"{source.env_id} cannot be rendered: {error}") from error
    fps = int(env.metadata.get("render_fps") or 30)
    returns: list[float] = []
    try:
        return write_video(_frames(agent, env, episodes, returns, source.env_id), path, fps), returns
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        env.close()


def _frames(agent: Agent, env: Env, episodes: int, returns: list[float], name: str) -> Iterator[Frame]:
    left = MOST_FRAMES
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode_seed(agent.learner.seeds[0], "video", 0, episode))
        total, done = 0.0, False
        yield _render(env, name)
        while not done:
            obs, reward, terminated, truncated, _ = env.step(agent.predict(obs))
            total, done, left = total + float(reward), bool(terminated or truncated), left - 1
            if left > 0:  # beyond that the episode is played to its end, for its return, and not filmed
                yield _render(env, name)
        returns.append(total)


def _render(env: Env, name: str) -> Frame:
    try:
        frame: Any = env.render()
    except Exception as error:
        raise UserError(f"{name} cannot be rendered: {type(error).__name__}: {error}") from error
    if not isinstance(frame, np.ndarray):
        raise UserError(f"{name} cannot be rendered: render() returned {type(frame).__name__}")
    return frame.astype(np.uint8, copy=False)


def write_video_and_report(session: Session) -> None:
    """Neither may fail the run: training is done and saved."""
    run_dir, seed = session.run_dir, session.seeds[0]
    if session.config.video and session.has_environment:
        try:
            best = run_dir / "agents" / f"seed_{seed}_best.safetensors"
            final = run_dir / "agents" / f"seed_{seed}_final.safetensors"
            agent = load_agent(best if best.exists() else final)
            record_video(agent, session.source, run_dir / "video.webm")
        except Exception as error:  # an environment may raise anything when it is rendered
            _say(f"no video: {error}")
    if session.config.report:
        try:
            write_report(run_dir)
        except Exception as error:
            _say(f"no report: {error}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
