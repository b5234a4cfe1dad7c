"""`rl-training train` and `rl-training resume`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import (
    Args,
    Parser,
    add_cleaning_flags,
    add_command,
    add_objects,
    agent_path,
    print_answer,
    whole_number,
)
from rl_training.config.objects import Objects, named_objects, with_objects
from rl_training.config.train_config import TrainConfig, parse_seeds
from rl_training.core.checks import UserError
from rl_training.run.loading import default_config, load_config

if TYPE_CHECKING:
    from rl_training.core.results import TrainResult


def add_train(subparsers: Any) -> None:
    train = add_command(subparsers, "train", run_train, "train from a config file, or `train ALGO ENV`")
    train.add_argument("algo", nargs="?", metavar="ALGO", help="an algorithm (see `list`)")
    text = "a Gymnasium id, or module:Id; not needed for offline learning from a file"
    train.add_argument("env", nargs="?", metavar="ENV", help=text)
    train.add_argument("--config", metavar="FILE", help="a YAML config; packaged ones are found from any directory")
    train.add_argument("--total-timesteps", type=whole_number, metavar="N", help="environment steps per seed")
    train.add_argument("--seed", type=whole_number, metavar="K", help="determines all random numbers")
    train.add_argument("--seeds", metavar="LIST", help="several seeds as one program, e.g. 0-7 or 0,3,5")
    train.add_argument("--num-envs", type=whole_number, metavar="N", help="environments per seed")
    train.add_argument("--eval-episodes", type=whole_number, metavar="N", help="episodes of an evaluation, per seed")
    train.add_argument("--device", metavar="D", help="auto, cpu, cuda or cuda:1")
    train.add_argument("--run-name", metavar="NAME", help="of the run's directory; -2, -3 … is added where it exists")
    text = "start from the weights of an agent file or a run; without ALGO ENV, with its config too"
    train.add_argument("--from", metavar="AGENT|RUN", dest="start", help=text)
    text = "with --from: only these groups of weights, e.g. actor,critic"
    train.add_argument("--from-groups", metavar="NAMES", help=text)
    text = "any field of the config or setting of the algorithm: num_envs=4, gamma=0.98"
    train.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=text)
    add_cleaning_flags(train, clip_help="offline: clip actions to the environment's bounds")
    _add_run_options(train)


def run_train(args: Args) -> int:
    objects = named_objects(args.objects)
    config = apply_cleaning_flags(args, _config(args, objects))
    config = replace(config, algo_kwargs=with_objects(config.algo_kwargs, objects))

    from rl_training.run.run import train

    return _print_result(args, train(config, args.run_suffix, show_progress=not args.quiet))


def add_resume(subparsers: Any) -> None:
    text = "resume a run that was stopped or killed, or extend it"
    resume = add_command(subparsers, "resume", run_resume, text)
    resume.add_argument("target", nargs="?", metavar="RUN", help="a run directory or a checkpoint")
    resume.add_argument("--checkpoint", metavar="PATH", help="the same, as an option")
    resume.add_argument("--total-timesteps", type=whole_number, metavar="N", help="extend the run to this many steps")
    resume.add_argument("--eval-episodes", type=whole_number, metavar="N", help="episodes of an evaluation, per seed")
    text = (
        "with --total-timesteps: continue a finished offline run online, in this environment; also needed if the run's "
        "own environment is in a module (module:Id)"
    )
    resume.add_argument("--env", metavar="ENV", help=text)
    text = "with --env: only name the environment again, and continue offline"
    resume.add_argument("--offline", action="store_true", help=text)
    text = "the new location of the run's dataset, or of the agent that generates it"
    resume.add_argument("--data", nargs="+", default=[], metavar="PATH", help=text)
    resume.add_argument("--force", action="store_true", help="resume even if the dataset has changed")
    _add_run_options(resume)


def run_resume(args: Args) -> int:
    if args.offline and args.env is None:
        raise UserError("--offline is only allowed with --env")
    path = agent_path(args)

    from rl_training.run.resume import ResumeRequest, resume

    request = ResumeRequest(
        path,
        args.total_timesteps,
        args.output_dir,
        args.eval_episodes,
        args.run_suffix,
        env_id=args.env,
        show_progress=not args.quiet,
        online=args.env is not None and args.total_timesteps is not None and not args.offline,
        offline=args.offline,
        force=args.force,
        data=args.data,
        objects=named_objects(args.objects),
    )
    return _print_result(args, resume(request))


def _add_run_options(parser: Parser) -> None:
    parser.add_argument("--output-dir", metavar="DIR", help="the directory in which the run's directory is made")
    parser.add_argument("--run-suffix", metavar="NAME", help="appended to the run directory's name")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    add_objects(parser)


def _config(args: Args, objects: Objects) -> TrainConfig:
    """The config of `train`: a file's or the algorithm's defaults, with the values of the command line."""
    changes = {
        "output_dir": args.output_dir,
        "total_timesteps": args.total_timesteps,
        "seed": args.seed,
        "seeds": list(parse_seeds(args.seeds)) if args.seeds is not None else None,
        "num_envs": args.num_envs,
        "eval_episodes": args.eval_episodes,
        "device": args.device,
        "run_name": args.run_name,
        "started_from": _start(args),
    }
    if args.config is not None:
        if args.algo is not None:
            raise UserError("either --config or ALGO ENV, not both")
        return load_config(args.config, args.overrides, **changes)
    if args.algo is None and args.start is not None:
        return _config_of_start(args, objects, changes)
    if args.algo is None or (args.env is None and not any("dataset_path" in text for text in args.overrides)):
        raise UserError("train needs --config FILE, or ALGO and ENV, e.g. `rl-training train sac Pendulum-v1`")
    return default_config(args.algo, args.env, args.overrides, **changes)


def _start(args: Args) -> dict[str, Any] | None:
    """The value of `started_from` for `--from` and `--from-groups`."""
    if args.start is None:
        if args.from_groups is not None:
            raise UserError("--from-groups is only allowed with --from")
        return None
    from rl_training.run.start_weights import start_entry

    groups = None if args.from_groups is None else [name.strip() for name in args.from_groups.split(",")]
    return start_entry(args.start, groups)


def _config_of_start(args: Args, objects: Objects, changes: dict[str, Any]) -> TrainConfig:
    """The config of the agent that a run starts from, with the values of the command line."""
    from rl_training.envs.host.factory import env_source
    from rl_training.run.agent import load_agent, new_run_config
    from rl_training.run.loading import build_config

    config = new_run_config(load_agent(args.start, objects=objects).config)
    if not any(text.partition("=")[0].strip() == "env_id" for text in args.overrides):
        env_source(config)  # a module named in a file is not imported
    return build_config(config.to_dict(), args.overrides, changes, None)


def apply_cleaning_flags(args: Args, config: TrainConfig) -> TrainConfig:
    """The config with the dataset-cleaning settings of the flags."""
    from rl_training.algorithms.registry import learner_class

    cleaning = {name: True for name in ("drop_nonfinite", "clip_actions") if getattr(args, name)}
    if cleaning and not learner_class(config.algo).offline:
        flag = f"--{next(iter(cleaning)).replace('_', '-')}"
        raise UserError(f"{flag} is only for algorithms that learn from a dataset, and {config.algo} does not")
    return replace(config, algo_kwargs={**config.algo_kwargs, **cleaning}) if cleaning else config


def _print_result(args: Args, result: TrainResult) -> int:
    metrics, run_dir = result.metrics, result.run_dir
    lines = []
    if metrics.get("already_finished"):
        lines.append(f"finished at step {metrics['global_step']}; extend it with --total-timesteps")
    summary = _return_line(metrics)
    lines += [f"return     {summary}"] if summary else []
    if "eval_d4rl_score" in metrics:
        lines.append(f"D4RL score {metrics['eval_d4rl_score']:.1f}")
    lines += [f"run        {run_dir}", f"checkpoint {result.checkpoint_path}"]
    for name, file in (("video", "video.webm"), ("report", "report.html")):
        if (run_dir / file).exists():
            lines.append(f"{name:10s} {run_dir / file}")
    answer = {"run_dir": str(run_dir), "checkpoint_path": str(result.checkpoint_path), "metrics": metrics}
    print_answer(args, answer, "\n".join(lines))
    return 0


def _return_line(metrics: dict[str, Any]) -> str | None:
    """The result of a run's last evaluation, if there was one."""
    from rl_training.core.statistics import headline, summarize

    means = metrics.get("eval_return_means")
    if not means:
        return None
    if len(means) > 1:
        return headline(summarize(means))
    return (
        f"{metrics['eval_return_mean']:.1f} +- {metrics['eval_return_std']:.1f} "
        f"({metrics['eval_episodes']} episodes), best {metrics['best_eval_return_mean']:.1f}"
    )
