"""The artifacts of a run: a video of its agent, and a report."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import Note, UserError
from rl_training.core.rng import episode_seed
from rl_training.core.signals import interruptible
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import Env, EnvSource
from rl_training.envs.host.masks import masks_checked, newest_mask
from rl_training.envs.host.pixels import describe_error, free_renderer
from rl_training.envs.host.stepping import describe_failure
from rl_training.envs.host.vector import EnvironmentFailure
from rl_training.envs.host.wrappers import episode_limit
from rl_training.report.page import write_report
from rl_training.report.video import write_video
from rl_training.run.agent import Agent, load_agent
from rl_training.run.session import Session

MAX_FRAMES = 1500
Frame = NDArray[np.uint8]


def record_video(
    agent: Agent, source: EnvSource, path: Path, episodes: int = 1, bound: EpisodeBound | None = None
) -> tuple[Path, list[float]]:
    """Record greedy episodes without a display. Returns the file and the episode returns; warns of cut episodes."""
    bound = bound or EpisodeBound.of(agent.config)
    try:
        env = source.for_evaluation().make(render_mode="rgb_array")
    except UserError as error:
        raise UserError(f"{source.env_id} cannot be rendered: {error}") from error
    fps = int(env.metadata.get("render_fps") or 30)
    returns, cut = list[float](), list[int]()
    try:
        frames = _frames(agent, env, episodes, returns, source.env_id, bound.steps(episode_limit(env)), cut)
        written = write_video(frames, path, fps)
        if cut:
            warnings.warn(f"{path.name}: {bound.report(len(cut), episodes)}", Note, stacklevel=2)
        return written, returns
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        env.close()


def _frames(
    agent: Agent, env: Env, episodes: int, returns: list[float], name: str, last: int | None, cut: list[int]
) -> Iterator[Frame]:
    """The frames of the episodes; appends to `returns`, and to `cut` the episodes that were cut at step `last`."""
    left = MAX_FRAMES
    for episode in range(episodes):
        seed = episode_seed(agent.learner.seeds[0], "video", 0, episode)
        actions, total, done, state = list[Any](), 0.0, False, dict[str, Any]()
        with _failure_reported(name, episode, seed, actions):
            obs, info = env.reset(seed=seed)
        yield _render(env, name)
        while not done:
            if len(actions) == last:
                cut.append(episode)
                break
            mask = None
            if agent.observation.mask:
                with masks_checked(name, "step" if actions else "reset"):
                    mask = newest_mask(env, info, agent.action.spec)
            action, state = agent.predict(obs, state=state, action_mask=mask)
            actions.append(np.array(action))  # a copy: an environment may write into its argument
            with _failure_reported(name, episode, seed, actions):
                obs, reward, terminated, truncated, info = env.step(action)
                total, done, left = total + float(reward), bool(terminated or truncated), left - 1
            if left > 0:  # without frames left, the episode still runs to its end for its return
                yield _render(env, name)
        returns.append(total)


@contextmanager
def _failure_reported(name: str, episode: int, seed: int, actions: Sequence[NDArray[Any]]) -> Iterator[None]:
    """Report an exception of the environment's reset, or of its step after some actions, as training does."""
    try:
        yield
    except UserError:  # of our own wrappers
        raise
    except Exception as error:
        what = describe_failure("step" if actions else "reset", error)
        report = {"what": what, "episode": episode, "reset_seed": seed, "actions": [one.tolist() for one in actions]}
        raise EnvironmentFailure(
            f"environment {name!r}, episode {episode}, step {len(actions)}: {what}", report
        ) from error


def _render(env: Env, name: str) -> Frame:
    try:
        frame: Any = env.render()
    except Exception as error:
        free_renderer(error)
        raise UserError(f"{name} cannot be rendered: {describe_error(error)}") from error
    if not isinstance(frame, np.ndarray):
        raise UserError(f"{name} cannot be rendered: render() returned {type(frame).__name__}")
    return frame.astype(np.uint8, copy=False)


def pending_artifacts(session: Session) -> dict[str, Callable[[], None]]:
    """The functions that write the artifacts of a finished run, by name; none of them can fail the run."""
    pending: dict[str, Callable[[], None]] = {}
    if session.config.video and session.inputs.has_environment:
        pending["video"] = partial(_write_video, session)
    if session.config.report:
        pending["report"] = partial(_write_report, session)
    return pending


def _write_video(session: Session) -> None:
    """`video.webm` of the best agent, and `video_last.webm` of the last one where it is another."""
    run_dir, seed, objects = session.run_dir, session.seeds[0], session.agent.objects
    try:
        best = run_dir / "agents" / f"seed_{seed}_best.safetensors"
        final = run_dir / "agents" / f"seed_{seed}_final.safetensors"
        with interruptible():
            shown = load_agent(best if best.exists() else final, objects=objects)
            record_video(shown, session.source, run_dir / "video.webm")
            if best.exists() and final.exists() and best.read_bytes() != final.read_bytes():
                record_video(load_agent(final, objects=objects), session.source, run_dir / "video_last.webm")
            else:
                (run_dir / "video_last.webm").unlink(missing_ok=True)  # of an earlier end of a resumed run
    except Exception as error:  # an environment may raise anything when it is rendered
        _print_note(f"no video: {error}")


def _write_report(session: Session) -> None:
    with interruptible():
        write_report_if_enabled(session.config, session.run_dir)


def write_report_if_enabled(config: TrainConfig, run_dir: Path) -> None:
    """Write the report of a run that has ended, if its config has one; an error cannot fail the run."""
    if not config.report:
        return
    try:
        write_report(run_dir)
    except Exception as error:
        _print_note(f"no report: {error}")


def _print_note(text: str) -> None:
    print(text, file=sys.stderr)
