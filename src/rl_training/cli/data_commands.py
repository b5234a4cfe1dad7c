"""`rl-training data`: show, convert or record a dataset for offline learning."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import (
    Args,
    Parser,
    add_cleaning_flags,
    add_command,
    add_episode_limit,
    whole_number,
)
from rl_training.core.checks import UserError

if TYPE_CHECKING:
    from rl_training.data.datasets.transitions import Transitions

MIN_BINS, MAX_BINS = 4, 12
MIN_COLUMNS, MAX_COLUMNS = 24, 100


def add_data(subparsers: Any) -> None:
    text = "show, convert or record a dataset for offline learning"
    parser: Parser = subparsers.add_parser("data", help=text, description=text)
    parser.print_help_by_default()
    commands = parser.add_subparsers(dest="data_command", metavar="COMMAND", parser_class=Parser)
    for add in (add_show, add_convert, add_record):
        add(commands)


def add_show(subparsers: Any) -> None:
    show = add_command(subparsers, "show", run_show, "what a dataset holds, with a histogram of its returns")
    show.add_argument("path", metavar="DATA", help="npz, HDF5, a Minari folder or id, or a run (its replay)")
    show.add_argument("--env", metavar="ENV", help="check that it fits this environment")
    add_cleaning_flags(show, clip_help="with --env: clip actions to its bounds")


def run_show(args: Args) -> int:
    from rl_training.data.datasets.conversion import differences, load_data, training_data
    from rl_training.data.datasets.summary import summarize_data, trajectory_returns
    from rl_training.envs.host.factory import EnvSource, environment_codecs

    transitions, notes = load_data(args.path, drop_nonfinite=args.drop_nonfinite), list[str]()
    if args.env is not None:
        observation, action = environment_codecs(EnvSource(args.env))
        training_data(transitions, observation, action, args.path, args.clip_actions, notes.append)
        notes += differences(transitions, observation, action, args.env, args.path)
    summary = summarize_data(transitions, args.env)
    summary["notes"] = [*summary["notes"], *notes]
    if args.json:
        print(_json(summary))
        return 0
    columns = min(max(shutil.get_terminal_size().columns, MIN_COLUMNS), MAX_COLUMNS)
    lines = [textwrap.fill(line, columns, subsequent_indent="  ") for line in _summary_lines(summary)]
    returns = trajectory_returns(transitions)[0].tolist()
    lines += ["", "returns", *histogram(returns, columns, solid=_prints_blocks(sys.stdout))]
    print("\n".join(lines))
    _print_notes(summary["notes"])
    return 0


def _summary_lines(summary: dict[str, Any]) -> list[str]:
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
    rows |= {"environment": summary["env_id"] or "unknown", "sha256": summary["sha256"]}
    return [f"{name:13s} {text}" for name, text in rows.items()]


def histogram(values: list[float], columns: int, solid: bool) -> list[str]:
    """One line per bin, at most `columns` wide: its lower bound, a bar, and the number of values."""
    low, high = min(values), max(values)
    bins = 1 if low == high else max(MIN_BINS, min(MAX_BINS, len(values)))
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / (high - low) * bins), bins - 1) if bins > 1 else 0] += 1
    labels = [f"{low + (high - low) * number / bins:.4g}" for number in range(bins)]
    left, right = max(map(len, labels)), max(len(str(count)) for count in counts)
    room = max(columns - left - right - 2, 1)
    lines = []
    for label, count in zip(labels, counts, strict=True):
        eighths = -(-count * room * 8 // max(counts))  # rounded up, so that every nonempty bin has a bar
        full, rest = divmod(eighths, 8)
        bar = "█" * full + " ▏▎▍▌▋▊▉"[rest].strip() if solid else "#" * (full + bool(rest))
        lines.append(f"{label:>{left}} {bar:<{room}} {count:>{right}}")
    return lines


def _prints_blocks(stream: Any) -> bool:
    return "utf" in (getattr(stream, "encoding", None) or "").lower()


def add_convert(subparsers: Any) -> None:
    convert = add_command(subparsers, "convert", run_convert, "the same transitions in another format, bit for bit")
    convert.add_argument("path", metavar="DATA", help="as of `data show`")
    _add_output(convert)
    add_cleaning_flags(convert)


def run_convert(args: Args) -> int:
    from rl_training.data.datasets.conversion import load_data

    chosen = _output_format(args)  # before reading a large file
    return _save(args, load_data(args.path, drop_nonfinite=args.drop_nonfinite), chosen)


def add_record(subparsers: Any) -> None:
    text = "record transitions of random actions or of an agent in an environment"
    record = add_command(subparsers, "record", run_record, text)
    _add_output(record)
    record.add_argument("--env", metavar="ENV", help="the environment (default with --agent: the agent's)")
    text = "an agent file, a checkpoint or a run (default: random actions)"
    record.add_argument("--agent", metavar="PATH", help=text)
    record.add_argument("--size", type=whole_number, default=10_000, metavar="N", help="transitions (default 10000)")
    record.add_argument("--seed", type=whole_number, default=0, metavar="K", help="of the recording (default 0)")
    text = "standard deviation of noise on actions in [-1, 1], or the share of random choices"
    record.add_argument("--noise", type=float, default=0.0, metavar="X", help=text)
    record.add_argument("--device", default="cpu", metavar="D", help="auto, cpu, cuda or cuda:1 (default %(default)s)")
    record.add_argument("--quiet", action="store_true", help="no progress display")
    add_episode_limit(record)


def run_record(args: Args) -> int:
    from rl_training.data.datasets.generate import record_policy, record_random
    from rl_training.envs.host.episode_bound import EpisodeBound
    from rl_training.envs.host.factory import EnvSource, env_source
    from rl_training.run.agent import load_agent

    chosen = _output_format(args)
    _check_record(args)
    with _progress(args) as show_progress:
        if args.agent is None:
            bound = EpisodeBound(override=args.episode_limit)
            transitions = record_random(EnvSource(args.env), args.size, args.seed, show_progress, bound)
        else:
            agent = load_agent(args.agent, args.device)
            source = env_source(agent.config, args.env)
            bound = EpisodeBound.of(agent.config, args.episode_limit)
            transitions = record_policy(agent, source, args.size, args.seed, args.noise, show_progress, bound)
    return _save(args, transitions, chosen)


def _check_record(args: Args) -> None:
    if args.agent is None and args.env is None:
        raise UserError("record needs --env ENV, or --agent PATH, or both")
    if args.agent is None and args.noise:
        raise UserError("--noise is noise on an agent's actions: it needs --agent")
    if not 0 <= args.seed < 2**31:
        raise UserError(f"seed must be >= 0 and < 2**31, got {args.seed}")
    if args.size < 2:
        raise UserError(f"--size must be >= 2, got {args.size}")


@contextmanager
def _progress(args: Args) -> Iterator[Callable[[int], None]]:
    """A function that shows the progress of a recording; the display opens at the first step, after all checks."""
    from rl_training.run.progress import Progress

    display: Progress | None = None

    def show_progress(step: int) -> None:
        nonlocal display
        display = display or Progress(args.size, f"record {args.env or args.agent}", enabled=not args.quiet)
        display.update(step, {})

    try:
        yield show_progress
    finally:
        if display is not None:
            display.close()


def _add_output(parser: Parser) -> None:
    parser.add_argument("output", metavar="OUTPUT", help=".npz, .hdf5 or .h5; without a suffix, a Minari folder")
    parser.add_argument("--format", metavar="F", help="npz, hdf5 or minari (default: by the suffix)")


def _output_format(args: Args) -> str:
    """The format to write; an existing output is rejected."""
    from rl_training.data.datasets.formats.writing import check_writable, choose_format

    chosen = choose_format(Path(args.output), args.format)
    check_writable(Path(args.output), chosen)
    return chosen


def _save(args: Args, transitions: Transitions, chosen: str) -> int:
    from rl_training.data.datasets.formats.writing import save_transitions
    from rl_training.data.datasets.summary import trajectory_returns

    _print_notes(transitions.notes)
    path = save_transitions(transitions, args.output, chosen)
    returns, _ = trajectory_returns(transitions)
    answer = {"path": str(path), "transitions": len(transitions), "trajectories": len(returns)}
    answer |= {"return_mean": float(returns.mean()), "sha256": transitions.sha256()}
    text = f"{path}: {len(transitions)} transitions, {len(returns)} trajectories, mean return {returns.mean():.2f}"
    print(_json(answer) if args.json else f"{text}\nsha256 {answer['sha256']}")
    return 0


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _json(answer: dict[str, Any]) -> str:
    from rl_training.files.atomic import finite

    return json.dumps(finite(answer), allow_nan=False)
