"""`rl-training list`: the algorithms and the packaged configs."""

from __future__ import annotations

from typing import Any

from rl_training.cli.arguments import Args, add_command, print_answer


def add_list(subparsers: Any) -> None:
    add_command(subparsers, "list", run_list, "algorithms and packaged configs")


def run_list(args: Args) -> int:
    from rl_training.algorithms.registry import algorithm_names, learner_class
    from rl_training.core.assets import ASSETS, packaged_configs

    learners = {name: learner_class(name) for name in algorithm_names()}
    algorithms = [
        {"name": name, "title": cls.title, "actions": " or ".join(cls.actions), "offline": cls.offline}
        for name, cls in learners.items()
    ]
    configs = [str(path.relative_to(ASSETS)) for path in packaged_configs()]
    lines = ["algorithms"]
    for one in algorithms:
        lines.append(f"  {one['name']:11s} {one['actions']:10s} {one['title']}{' (offline)' if one['offline'] else ''}")
    lines += ["configs", *(f"  {name}" for name in configs)]
    print_answer(args, {"algorithms": algorithms, "configs": configs}, "\n".join(lines))
    return 0
