"""The commands. Each parses its words, calls the library and prints; torch is imported inside."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rl_training.cli.data_commands import add_data, add_episode_limit, add_mending
from rl_training.core.checks import UserError

Words = argparse.Namespace


def add_all(subparsers: Any) -> None:
    train = _command(subparsers, "train", run_train, "train from a config file, or `train ALGO ENV`")
    train.add_argument("algo", nargs="?", metavar="ALGO", help="an algorithm (see `list`)")
    train.add_argument("env", nargs="?", metavar="ENV", help="a Gymnasium id, or module:Id; offline learning from a "
                       "data file does without")  # fmt: skip
    train.add_argument("--config", metavar="FILE", help="a YAML config; packaged ones are found from any directory")
    train.add_argument("--total-timesteps", type=_whole, metavar="N", help="environment steps per seed")
    train.add_argument("--seed", type=_whole, metavar="K")
    train.add_argument("--seeds", metavar="LIST", help="several seeds as one program, e.g. 0-7 or 0,3,5")
    train.add_argument("--num-envs", type=_whole, metavar="N", help="environments per seed")
    train.add_argument("--eval-episodes", type=_whole, metavar="N")
    train.add_argument("--device", metavar="D", help="auto, cpu, cuda or cuda:1")
    train.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                       help="any field of the config or setting of the algorithm: num_envs=4, gamma=0.98")  # fmt: skip
    add_mending(train, clip_help="offline: actions outside the environment's bounds are clipped")
    _add_run_options(train)

    resume = _command(
        subparsers, "resume", run_resume, "go on with a run that was stopped, killed or is to be extended"
    )
    resume.add_argument("target", nargs="?", metavar="RUN", help="a run directory or a checkpoint")
    resume.add_argument("--checkpoint", metavar="PATH", help="the same, as an option")
    resume.add_argument("--total-timesteps", type=_whole, metavar="N", help="extend the run to this many steps")
    resume.add_argument("--eval-episodes", type=_whole, metavar="N")
    resume.add_argument("--env", metavar="ENV", help="an offline run that is done goes on in this environment (with "
                        "--total-timesteps); needed too when the run's own is in a module (module:Id)")  # fmt: skip
    resume.add_argument("--offline", action="store_true", help="with --env: it only names the environment again, and "
                        "the run goes on offline")  # fmt: skip
    resume.add_argument(
        "--data", nargs="+", default=[], metavar="PATH", help="where its data set, or its player, is now"
    )
    resume.add_argument("--force", action="store_true", help="go on although the data set has changed")
    _add_run_options(resume)

    for name, text in (("evaluate", "play fresh episodes with a trained agent"), ("eval", "short for evaluate")):
        evaluate = _command(subparsers, name, run_evaluate, text)
        _add_agent(evaluate)
        evaluate.add_argument("--num-episodes", type=_whole, metavar="N")
        evaluate.add_argument("--env", metavar="ENV", help="another environment, or module:Id")
        add_episode_limit(evaluate, _whole)

    predict = _command(subparsers, "predict", run_predict, "the action for an observation")
    _add_agent(predict)
    predict.add_argument("--obs", required=True, metavar="JSON", help="one observation or a batch; - reads stdin")
    predict.add_argument("--stochastic", action="store_true", help="explore instead of the best action")

    record = _command(subparsers, "record", run_record, "a video of a trained agent, without a display")
    _add_agent(record)
    record.add_argument("--output", default="video.webm", metavar="FILE", help=".webm (default), .mp4 or .gif")
    record.add_argument("--episodes", type=_whole, default=1, metavar="N")
    record.add_argument("--env", metavar="ENV", help="another environment, or module:Id")
    add_episode_limit(record, _whole)

    report = _command(
        subparsers, "report", run_report, "the HTML report of a run: finished, stopped, failed or running"
    )
    report.add_argument("target", metavar="RUN", help="a run directory")
    report.add_argument("-o", "--output", metavar="FILE", help="by default report.html in the run directory")

    add_data(subparsers, _whole)
    _command(subparsers, "list", run_list, "algorithms and packaged configs")
    _command(subparsers, "doctor", run_doctor, "what this machine can do")
    demo = _command(subparsers, "demo", run_demo, "train DQN on CartPole, evaluate, film and report it")
    demo.add_argument("--output-dir", default="runs", metavar="DIR")


def _command(subparsers: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(run=run)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output-dir", metavar="DIR")
    parser.add_argument("--run-suffix", metavar="NAME", help="appended to the run directory's name")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", nargs="?", metavar="PATH", help="an agent file, a checkpoint or a run directory")
    parser.add_argument("--checkpoint", metavar="PATH", help="the same, as an option")
    parser.add_argument("--device", default="auto", metavar="D")


def _whole(text: str) -> int:
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
        return int(text) if text.lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _target(words: Words) -> Path:
    given = [path for path in (words.target, words.checkpoint) if path is not None]
    if len(given) != 1:
        raise UserError("exactly one path is needed: an agent file, a checkpoint or a run directory")
    return Path(given[0])


def _print(words: Words, answer: Any, text: str) -> None:
    print(json.dumps(answer, default=str) if words.json else text)


# --- the commands -------------------------------------------------------------------------------------------------
def run_train(words: Words) -> int:
    from rl_training.cli.loading import default_config, load_config
    from rl_training.config.train_config import parse_seeds

    changes = {
        "output_dir": words.output_dir,
        "total_timesteps": words.total_timesteps,
        "seed": words.seed,
        "seeds": list(parse_seeds(words.seeds)) if words.seeds is not None else None,
        "num_envs": words.num_envs,
        "eval_episodes": words.eval_episodes,
        "device": words.device,
    }
    if words.config is not None:
        if words.algo is not None:
            raise UserError("either --config or ALGO ENV, not both")
        config = load_config(words.config, words.overrides, **changes)
    elif words.algo is None or (words.env is None and not any("dataset_path" in text for text in words.overrides)):
        raise UserError("train needs --config FILE, or ALGO and ENV, e.g. `rl-training train sac Pendulum-v1`")
    else:
        config = default_config(words.algo, words.env, words.overrides, **changes)
    config = _with_mending(words, config)

    from rl_training.run.manager import DefaultExperimentManager

    prepared = DefaultExperimentManager().setup(config, run_suffix=words.run_suffix, show_progress=not words.quiet)
    return _report_run(words, prepared.train())


def _with_mending(words: Words, config: Any) -> Any:
    """The config with what the flags say is to be done about a data set's faults."""
    from dataclasses import replace

    from rl_training.algorithms.registry import learner_class

    asked = {name: True for name in ("drop_nonfinite", "clip_actions") if getattr(words, name)}
    if asked and not learner_class(config.algo).offline:
        flag = f"--{next(iter(asked)).replace('_', '-')}"
        raise UserError(f"{flag} is for algorithms that learn from a data set, which {config.algo} does not")
    return replace(config, algo_kwargs={**config.algo_kwargs, **asked}) if asked else config


def run_resume(words: Words) -> int:
    from rl_training.run.manager import DefaultExperimentManager

    online = words.env is not None and words.total_timesteps is not None and not words.offline
    if words.offline and words.env is None:
        raise UserError("--offline tells what --env is for, which is not given")
    prepared = DefaultExperimentManager().resume(
        _target(words), words.total_timesteps, words.output_dir, words.eval_episodes, words.run_suffix,
        env_id=words.env, show_progress=not words.quiet, online=online, offline=words.offline,
        force=words.force, data=words.data,
    )  # fmt: skip
    return _report_run(words, prepared.train())


def _report_run(words: Words, result: Any) -> int:
    from rl_training.cli.report_command import return_line

    metrics, run_dir = result.metrics, result.run_dir
    lines = []
    if metrics.get("already_finished"):
        lines.append(f"finished at step {metrics['global_step']}; extend it with --total-timesteps")
    shown = return_line(metrics)
    lines += [f"return     {shown}"] if shown else []
    if "eval_d4rl_score" in metrics:
        lines.append(f"D4RL score {metrics['eval_d4rl_score']:.1f}")
    lines += [f"run        {run_dir}", f"checkpoint {result.checkpoint_path}"]
    for name, file in (("video", "video.webm"), ("report", "report.html")):
        if (run_dir / file).exists():
            lines.append(f"{name:10s} {run_dir / file}")
    answer = {"run_dir": str(run_dir), "checkpoint_path": str(result.checkpoint_path), "metrics": metrics}
    _print(words, answer, "\n".join(lines))
    return 0


def run_evaluate(words: Words) -> int:
    from rl_training.core.statistics import headline
    from rl_training.run.workflows import evaluate_checkpoint

    metrics = evaluate_checkpoint(
        _target(words), words.num_episodes, words.device, env_id=words.env, episode_limit=words.episode_limit
    )
    mean, std = metrics["eval_return_mean"], metrics["eval_return_std"]
    text = f"return {mean:.2f} +- {std:.2f} ({metrics['eval_episodes']} episodes)"
    if "eval_d4rl_score" in metrics:
        text += f"\nD4RL score {metrics['eval_d4rl_score']:.1f}"
    if "summary" in metrics:
        text += f"\nover seeds {headline(metrics['summary'])}"
        text += "".join(f"\n  seed {seed}: {mean:.2f}" for seed, mean in metrics["seeds"].items())
    _print(words, metrics, text)
    return 0


def run_predict(words: Words) -> int:
    from rl_training.run.workflows import predict_checkpoint

    text = sys.stdin.read() if words.obs == "-" else words.obs
    try:
        obs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--obs must be JSON, e.g. [0.1, 0, 0, 0], got {text[:60]!r}") from error
    action = predict_checkpoint(_target(words), obs, not words.stochastic, words.device)
    print(json.dumps(action.tolist() if hasattr(action, "tolist") else action))
    return 0


def run_record(words: Words) -> int:
    from rl_training.run.workflows import record_checkpoint

    path, returns = record_checkpoint(
        _target(words), words.output, words.episodes, words.device, env_id=words.env, episode_limit=words.episode_limit
    )
    shown = ", ".join(f"{value:.1f}" for value in returns)
    _print(words, {"video": str(path), "returns": returns}, f"video {path} (return {shown})")
    return 0


def run_report(words: Words) -> int:
    from rl_training.cli.report_command import report_of

    path = report_of(words)
    _print(words, {"report": str(path)}, f"report {path}")
    return 0


def run_list(words: Words) -> int:
    from rl_training.core.assets import ASSETS, packaged_configs
    from rl_training.run.algorithm_spec import list_algorithm_specs

    algorithms = [
        {
            "name": spec.name,
            "title": spec.learner.title,
            "actions": " or ".join(spec.learner.actions),
            "offline": spec.learner.offline,
        }
        for spec in list_algorithm_specs()
    ]
    configs = [str(path.relative_to(ASSETS)) for path in packaged_configs()]
    lines = ["algorithms"]
    for one in algorithms:
        lines.append(f"  {one['name']:11s} {one['actions']:10s} {one['title']}{' (offline)' if one['offline'] else ''}")
    lines += ["configs", *(f"  {name}" for name in configs)]
    _print(words, {"algorithms": algorithms, "configs": configs}, "\n".join(lines))
    return 0


def run_doctor(words: Words) -> int:
    from rl_training.cli.doctor import examine

    checks = examine()
    mark = {"ok": "ok  ", "info": "-   ", "problem": "!!  "}
    text = "\n".join(f"{mark[check['status']]} {check['name']:12s} {check['detail']}" for check in checks)
    _print(words, checks, text)
    return 1 if any(check["status"] == "problem" for check in checks) else 0


def run_demo(words: Words) -> int:
    from rl_training.cli.demo import run_demo

    answer = run_demo(Path(words.output_dir))
    _print(words, answer, answer["text"])
    return 0 if answer["solved"] else 1


def exit_code_of(error: BaseException) -> int | None:
    """What a failed run exits with; None for anything unforeseen, which keeps its traceback."""
    from rl_training.envs.host.vector import EnvironmentFailure
    from rl_training.files.atomic import DISK_ERRORS
    from rl_training.run.session import TrainingFailure

    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return 1
    return 1 if isinstance(error, (TrainingFailure, EnvironmentFailure)) else None
