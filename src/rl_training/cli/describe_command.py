"""`rl-training describe`: the settings of an algorithm, with type, default, meaning and source."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Args, add_command, print_answer
from rl_training.config.foreign_names import explain_unknown
from rl_training.core.checks import UserError

if TYPE_CHECKING:
    from rl_training.config.meanings import FieldMeaning

WIDTH = 100


def add_describe(subparsers: Any) -> None:
    text = "the settings of an algorithm: type, default, meaning, source of the default"
    describe = add_command(subparsers, "describe", run_describe, text)
    describe.add_argument("algo", metavar="ALGO", help="an algorithm (see `list`)")
    describe.add_argument("setting", nargs="?", metavar="SETTING", help="one setting, or one field of the config")


def run_describe(args: Args) -> int:
    from rl_training.algorithms.registry import learner_class
    from rl_training.config.meanings import describe
    from rl_training.config.train_config import TrainConfig

    learner = learner_class(args.algo)
    settings, fields = describe(learner.settings_type), describe(TrainConfig)
    if args.setting is not None:
        found = settings.get(args.setting) or fields.get(args.setting)
        if found is None:
            hint = explain_unknown(args.setting, fields, settings, args.algo, in_settings=False)
            hint = hint.replace("algo_kwargs.", "")
            raise UserError(f"{args.algo} has no setting {args.setting!r}{hint}")
        print_answer(args, as_dict(found), one_text(found))
        return 0
    answer = {
        "algo": args.algo,
        "title": learner.title,
        "settings": [as_dict(one) for one in settings.values()],
        "config": [as_dict(one) for one in fields.values()],
    }
    lines = [learner.title, "", f"settings of {args.algo}", *_lines(settings)]
    lines += ["", "fields of the config", *_lines(fields)]
    print_answer(args, answer, "\n".join(lines))
    return 0


def as_dict(one: FieldMeaning) -> dict[str, Any]:
    """A setting for JSON; `default` is null where there is none and `required` says so."""
    from dataclasses import MISSING, is_dataclass

    from rl_training.config.meanings import changed_fields
    from rl_training.config.yaml_loading import plain_values

    required = one.default is MISSING
    default = changed_fields(one.default) if is_dataclass(one.default) else one.default
    return {
        "name": one.name,
        "type": one.type_text,
        "default": None if required else plain_values({"default": default})["default"],
        "required": required,
        "allowed": one.allowed,
        "meaning": one.meaning,
        "source": one.source,
    }


def one_text(one: FieldMeaning) -> str:
    """One setting, line by line, with the settings that it has itself."""
    from rl_training.config.meanings import describe

    about = {
        "type": one.type_text,
        "default": one.default_text,
        "allowed": one.allowed,
        "meaning": one.meaning,
        "source": one.source,
    }
    indent = " " * 10
    lines = [
        textwrap.fill(f"  {name:8s}{text}", WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        for name, text in about.items()
        if text
    ]
    inner = _lines(describe(one.section)) if one.section is not None else []
    return "\n".join([one.name, *lines, *inner])


def _lines(described: Mapping[str, FieldMeaning]) -> list[str]:
    """A line for each setting, under a line for each source of defaults."""
    lines, source = [], ""
    for one in sorted(described.values(), key=lambda one: one.source):
        if one.source != source:
            source = one.source
            lines.append(textwrap.fill(f"  defaults: {source}", WIDTH, subsequent_indent="    "))
        head = f"    {one.name} ({one.type_text}) = {one.default_text}"
        lines.append(head)
        lines.append(textwrap.fill(one.explanation, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return [line for line in lines if line]
