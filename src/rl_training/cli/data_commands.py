"""`rl-training data`: look at a data set, convert it, record one."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError

Words = argparse.Namespace
MOST_BINS, LEAST_BINS = 12, 4
NARROWEST, WIDEST = 24, 100  # columns


def add_data(subparsers: Any, whole: Any) -> None:
    """`whole` reads a whole number off the command line."""
    text = "look at a data set for offline learning, convert it, record one"
    parser: argparse.ArgumentParser = subparsers.add_parser("data", help=text, description=text)
    parser.set_defaults(run=lambda words: parser.print_help())
    commands = parser.add_subparsers(dest="data_command", metavar="COMMAND", parser_class=type(parser))

    show = _command(commands, "show", run_show, "what a data set holds, with a histogram of its returns")
    show.add_argument("path", metavar="DATA", help="npz, HDF5, a Minari folder or id, or a run (its replay)")
    show.add_argument("--env", metavar="ENV", help="check that it fits this environment")

    convert = _command(commands, "convert", run_convert, "the same transitions in another format, bit for bit")
    convert.add_argument("path", metavar="DATA")
    convert.add_argument("output", metavar="OUTPUT", help=".npz, .hdf5 or .h5; without a suffix, a Minari folder")
    add_mending(show, clip_help="with --env: actions outside its bounds are clipped")
    add_mending(convert)

    record = _command(commands, "record", run_record, "play an environment, at random or with an agent, and keep it")
    record.add_argument("output", metavar="OUTPUT", help=".npz, .hdf5 or .h5; without a suffix, a Minari folder")
    record.add_argument("--env", metavar="ENV", help="the environment; with --agent, its own unless given")
    record.add_argument("--agent", metavar="PATH", help="an agent file, a checkpoint or a run; none: random actions")
    record.add_argument("--size", type=whole, default=10_000, metavar="N", help="transitions (default 10000)")
    record.add_argument("--seed", type=whole, default=0, metavar="K")
    noise = "standard deviation of noise on actions in [-1, 1], or the share of random choices"
    record.add_argument("--noise", type=float, default=0.0, metavar="X", help=noise)
    record.add_argument("--device", default="cpu", metavar="D")
    record.add_argument("--quiet", action="store_true", help="no progress display")
    add_episode_limit(record, whole)
    for command in (convert, record):
        command.add_argument("--format", metavar="F", help="npz, hdf5 or minari, where the name does not tell")


def add_episode_limit(parser: argparse.ArgumentParser, whole: Any) -> None:
    text = "cut an episode after N steps (default: the config's eval_episode_limit, without a time limit)"
    parser.add_argument("--episode-limit", type=whole, metavar="N", help=text)


def add_mending(parser: argparse.ArgumentParser, clip_help: str | None = None) -> None:
    """What can be done about a data set's faults; actions are clipped only where there are bounds."""
    parser.add_argument("--drop-nonfinite", action="store_true", help="leave out rows with NaN or infinity")
    if clip_help is not None:
        parser.add_argument("--clip-actions", action="store_true", help=clip_help)


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(run=run)
    return parser


def run_show(words: Words) -> int:
    from rl_training.data.datasets.conversion import differences, load_data, training_data
    from rl_training.data.datasets.prepare import environment_codecs
    from rl_training.data.datasets.summary import summarize_data, trajectory_returns
    from rl_training.envs.host.factory import EnvSource

    transitions, mended = load_data(words.path, drop_nonfinite=words.drop_nonfinite), list[str]()
    if words.env is not None:
        observation, action = environment_codecs(EnvSource(words.env))
        training_data(transitions, observation, action, words.path, words.clip_actions, mended.append)
        mended += differences(transitions, observation, action, words.env, words.path)
    summary = summarize_data(transitions, words.env)
    summary["notes"] = [*summary["notes"], *mended]
    if words.json:
        print(_json(summary))
        return 0
    columns = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    lines = [textwrap.fill(line, columns, subsequent_indent="  ") for line in _facts(summary)]
    lines += ["", "returns", *histogram(trajectory_returns(transitions)[0].tolist(), columns, _solid(sys.stdout))]
    print("\n".join(lines))
    for note in summary["notes"]:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _facts(summary: dict[str, Any]) -> list[str]:
    returns, lengths = summary["returns"], summary["lengths"]
    rows = {
        "transitions": f"{summary['transitions']:,} ({summary['bytes'] / 2**20:.1f} MiB)",
        "trajectories": f"{summary['trajectories']:,} ({summary['terminal']:,} end in a terminal state)",
        "return": f"{returns['mean']:.2f} +- {returns['std']:.2f}, {returns['min']:.2f} to {returns['max']:.2f}",
        "length": f"{lengths['mean']:.1f}, {lengths['min']:.0f} to {lengths['max']:.0f}",
    }
    if summary["d4rl_score"] is not None:
        rows["D4RL score"] = f"{summary['d4rl_score']:.1f}"
    for name in ("observations", "actions", "rewards"):
        about = summary[name]
        shape = "x".join(map(str, about["shape"])) + " " if about["shape"] else ""
        kind = "choices, " * bool(about.get("discrete"))
        rows[name] = f"{shape}{about['dtype']}, {kind}{about['min']:.4g} to {about['max']:.4g}"
    rows |= {"environment": summary["env_id"] or "not told", "sha256": summary["sha256"]}
    return [f"{name:13s} {text}" for name, text in rows.items()]


def histogram(values: list[float], columns: int, solid: bool) -> list[str]:
    """One line a bin: its lower end, a bar, and how many. Fits into `columns`."""
    low, high = min(values), max(values)
    bins = 1 if low == high else max(LEAST_BINS, min(MOST_BINS, len(values)))
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / (high - low) * bins), bins - 1) if bins > 1 else 0] += 1
    labels = [f"{low + (high - low) * number / bins:.4g}" for number in range(bins)]
    left, right = max(map(len, labels)), max(len(str(count)) for count in counts)
    room = max(columns - left - right - 2, 1)
    lines = []
    for label, count in zip(labels, counts, strict=True):
        eighths = -(-count * room * 8 // max(counts))  # rounded up: a bin that is not empty is seen
        full, rest = divmod(eighths, 8)
        bar = "█" * full + " ▏▎▍▌▋▊▉"[rest].strip() if solid else "#" * (full + bool(rest))
        lines.append(f"{label:>{left}} {bar:<{room}} {count:>{right}}")
    return lines


def _solid(stream: Any) -> bool:
    return "utf" in (getattr(stream, "encoding", None) or "").lower()


def _new_file(words: Words) -> str:
    """The format to write in; what is there already is not written over."""
    from rl_training.data.datasets.formats.writing import check_new, choose_format

    chosen = choose_format(Path(words.output), words.format)
    check_new(Path(words.output), chosen)
    return chosen


def _json(answer: dict[str, Any]) -> str:
    from rl_training.files.atomic import finite

    return json.dumps(finite(answer), allow_nan=False)


def run_convert(words: Words) -> int:
    from rl_training.data.datasets.conversion import load_data
    from rl_training.data.datasets.formats.writing import save_transitions

    chosen = _new_file(words)  # before a large file is read
    transitions = load_data(words.path, drop_nonfinite=words.drop_nonfinite)
    _print_notes(transitions)
    return _report(words, save_transitions(transitions, words.output, chosen), transitions)


def run_record(words: Words) -> int:
    from rl_training.data.datasets.formats.writing import save_transitions
    from rl_training.data.datasets.generate import record_policy, record_random
    from rl_training.envs.host.episode_bound import EpisodeBound
    from rl_training.envs.host.factory import EnvSource
    from rl_training.run.agent import load_agent
    from rl_training.run.progress import Progress
    from rl_training.run.workflows import env_source

    chosen = _new_file(words)
    if words.agent is None and words.env is None:
        raise UserError("record needs --env ENV, or --agent PATH, or both")
    if words.agent is None and words.noise:
        raise UserError("--noise is noise on an agent's actions: it needs --agent")
    if not 0 <= words.seed < 2**31:
        raise UserError(f"seed must be >= 0 and < 2**31, got {words.seed}")
    if words.size < 2:
        raise UserError(f"--size must be >= 2, got {words.size}")
    with ExitStack() as stack:
        display: Progress | None = None

        def watch(step: int) -> None:
            nonlocal display
            if display is None:  # not before the first step: a mistake is told without a bar
                label = f"record {words.env or words.agent}"
                display = stack.enter_context(Progress(words.size, label, enabled=not words.quiet))
            display.update(step, {})

        if words.agent is None:
            bound = EpisodeBound(asked=words.episode_limit)
            transitions = record_random(EnvSource(words.env), words.size, words.seed, watch, bound)
        else:
            agent = load_agent(words.agent, words.device)
            source = env_source(agent.config, words.env)
            bound = EpisodeBound.of(agent.config, words.episode_limit)
            transitions = record_policy(agent, source, words.size, words.seed, words.noise, watch, bound)
    _print_notes(transitions)
    return _report(words, save_transitions(transitions, words.output, chosen), transitions)


def _print_notes(transitions: Any) -> None:
    for note in transitions.notes:
        print(f"note: {note}", file=sys.stderr)


def _report(words: Words, path: Path, transitions: Any) -> int:
    from rl_training.data.datasets.summary import trajectory_returns

    returns, _ = trajectory_returns(transitions)
    answer = {"path": str(path), "transitions": len(transitions), "trajectories": len(returns)}
    answer |= {"return_mean": float(returns.mean()), "sha256": transitions.sha256()}
    text = f"{path}: {len(transitions)} transitions, {len(returns)} trajectories, mean return {returns.mean():.2f}"
    print(_json(answer) if words.json else f"{text}\nsha256 {answer['sha256']}")
    return 0
