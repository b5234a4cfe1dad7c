"""The run's config: YAML rules, line numbers, overrides, seeds, and one clear line for every mistake."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rl_training.config.overrides import assign, parse_overrides
from rl_training.config.train_config import TrainConfig, config_from_dict, located, parse_seeds
from rl_training.config.yaml_loading import LoadedYaml, dump_yaml, load_yaml, parse_yaml, parse_yaml_value
from rl_training.core.checks import ConfigError, Problem, UserError


def apply_overrides(values: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    """What the command line makes of several `--set`."""
    assignments, problems = parse_overrides(texts)
    changed, misfits = assign(values, assignments)
    if problems or misfits:
        raise ConfigError([*problems, *misfits])
    return changed


def load_text(text: str | bytes, tmp_path: Path) -> LoadedYaml:
    file = tmp_path / "config.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_yaml(file)


def refusal(text: str | bytes, tmp_path: Path) -> str:
    """The message, with the file's folder taken off."""
    with pytest.raises(UserError) as caught:
        load_text(text, tmp_path)
    return str(caught.value).replace(f"{tmp_path}{os.sep}", "")


def test_scalars(tmp_path: Path) -> None:
    loaded = load_text(
        "a: 3e-4\nb: 1e-3\nc: 1e6\nd: 100_000\ne: -.5\nf: on\ng: no\nh: True\ni: ~\nj:\nk: 010\nl: 1:30\n"
        "m: 2020-01-01\nn: '1e-3'\no: .inf\np: nan\nq: cuda:1\nr: 1.\ns: -0\nt: [1, x]\nu: {v: false}\n",
        tmp_path,
    )
    expected = {"a": 3e-4, "b": 1e-3, "c": 1e6, "d": 100_000, "e": -0.5, "f": "on", "g": "no", "h": True, "i": None}
    expected |= {"j": None, "k": "010", "l": "1:30", "m": "2020-01-01", "n": "1e-3", "o": float("inf"), "p": "nan"}
    expected |= {"q": "cuda:1", "r": 1.0, "s": 0, "t": [1, "x"], "u": {"v": False}}
    assert loaded.values == expected
    assert isinstance(loaded.values["c"], float)
    assert isinstance(loaded.values["h"], bool)


def test_line_of_a_key_or_its_nearest_parent(tmp_path: Path) -> None:
    loaded = load_text("# comment\nalgo: sac\nalgo_kwargs:\n  gamma: 1\n  sizes:\n    - 1\n    - 2\n", tmp_path)
    assert loaded.source == str(tmp_path / "config.yaml")
    assert loaded.line(("algo",)) == 2
    assert loaded.line(("algo_kwargs", "gamma")) == 4
    assert loaded.line(("algo_kwargs", "sizes", "1")) == 7
    assert loaded.line(("algo_kwargs", "missing", "deeper")) == 3
    assert loaded.line(("missing",)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "config.yaml:3: duplicate key 'a', first on line 1"),
        ("x:\n  a: 1\n  a: 1\n", "config.yaml:3: duplicate key 'a', first on line 2"),
        ("a: &x 1\nb: *x\n", "config.yaml:2: aliases are not supported, write out the value of *x"),
        ("a: !!python/object:os.system {}\n", "config.yaml:1: tags are not supported, got '!!python/object:os.system'"),
        ("\na: !!set {x}\n", "config.yaml:2: tags are not supported, got '!!set'"),
        ("", "config.yaml:1: the file is empty; expected a mapping of settings"),
        ("# nothing\n", "config.yaml:1: the file is empty; expected a mapping of settings"),
        ("\n- a\n", "config.yaml:2: expected a mapping of settings, got ['a']"),
        ("hello\n", "config.yaml:1: expected a mapping of settings, got 'hello'"),
        ("a: 1\nb: c: d\n", "config.yaml:2: not valid YAML: mapping values are not allowed here"),
        (
            "a: 1\n---\nb: 2\n",
            "config.yaml:2: not valid YAML: expected a single document in the stream, but found another document",
        ),
        ("a: 1\nb: \x07\n", "config.yaml:2: not valid YAML: special characters are not allowed"),
        (b"a: 1\nb: \xff\n", "config.yaml:2: is not UTF-8 text (byte 0xff)"),
        ("a: 1\n2: b\n", "config.yaml:2: keys must be text, got 2"),
        ("? [a]\n: b\n", "config.yaml:1: keys must be text, got ['a']"),
        ("a: " + "[" * 60 + "]" * 60, "config.yaml:1: nested more than 50 levels deep"),
        ("a: " + "9" * 5000, "config.yaml:1: not a number: '" + "9" * 76 + "..."),
        (b"a: 1\n" + b"#" * 2**20, "config.yaml: is larger than 1 MiB, too large for a config"),
    ],
)
def test_bad_yaml_gets_one_line(text: str | bytes, message: str, tmp_path: Path) -> None:
    assert refusal(text, tmp_path) == message


def test_unreadable_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    messages = {
        str(tmp_path): f"{tmp_path}: is a directory, not a YAML file",
        str(tmp_path / "none.yaml"): f"{tmp_path / 'none.yaml'}: no such file",
        str(tmp_path / "pipe"): f"{tmp_path / 'pipe'}: is not a regular file",
        "a\0b": "'a\\x00b': is not a file name: embedded null byte",
    }
    for path, message in messages.items():
        with pytest.raises(UserError) as caught:
            load_yaml(path)
        assert str(caught.value) == message
    with pytest.raises(UserError, match=r"cannot be read: File name too long$"):
        load_yaml("x" * 5000)


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert load_text(b"\xef\xbb\xbfa: 1\n", tmp_path).values == {"a": 1}


def test_dump_comes_back_exactly() -> None:
    words = ["1e-3", "1", "1.", "on", "No", "null", "~", "", "true", "010", "0x1F", "1:30", "2020-01-01", ".inf", "<<"]
    words += ["- a", "a: b", "a #b", "*a", "&a", "!t", "%x", "@", "`", " lead", "trail ", "é😀", "\ud800", "=", "?"]
    words += [
        "line\nbreak",
        "\n\n a\n",
        "\t",
        "\r\n",
        "\0\x07",
        "\x85\u2028\ufeff",
        "'",
        '"',
        "\\",
        "x" * 3000,
        "a: \n b",
    ]
    values = {
        "words": words,
        "keys": {word: index for index, word in enumerate(words)},
        "floats": [3e-4, 1e-05, 0.1, 1e22, 1e300, 5e-324, -0.0, 1.0, float("inf"), 100000.0],
        "others": [0, -1, 2**70, True, False, None, [], {}, [[1], [2, {"a": [None]}]]],
    }
    text = dump_yaml(values)
    back = parse_yaml(text, "dump").values
    assert back == values
    assert repr(back) == repr(values)  # 1 and 1.0 and True are equal, but not the same
    assert "'on'" in text
    assert "'null'" in text


def test_dump_writes_tuples_as_lists_and_paths_as_strings() -> None:
    shared = (64, 64)
    text = dump_yaml({"lr": 3e-4, "hidden_sizes": shared, "again": shared, "output_dir": Path("runs/a")})
    assert text == "lr: 0.0003\nhidden_sizes: [64, 64]\nagain: [64, 64]\noutput_dir: runs/a\n"


def test_dump_refuses_what_has_no_plain_form() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    with pytest.raises(UserError, match=r"is nested more than 50 levels deep$"):
        dump_yaml(cycle)
    with pytest.raises(UserError, match=r"^env_kwargs\.f cannot be saved in a config: <built-in function print>$"):
        TrainConfig("sac", "Pendulum-v1", env_kwargs={"f": print}).to_dict()
    with pytest.raises(UserError, match=r"^a must be a mapping with text keys, got the key 1$"):
        dump_yaml({"a": {1: 2}})


def test_config_defaults_and_positional_order() -> None:
    config = TrainConfig("sac", "Pendulum-v1", 3, 1e4, "out", "cpu", 2, 0, 10, 20, ["a"], {"gamma": 1}, {})  # type: ignore[arg-type]
    expected = {"algo": "sac", "env_id": "Pendulum-v1", "seed": 3, "total_timesteps": 10_000, "output_dir": "out"}
    expected |= {"device": "cpu", "num_envs": 2, "eval_episodes": 0, "log_interval": 10, "checkpoint_interval": 20}
    expected |= {"tags": ["a"], "algo_kwargs": {"gamma": 1}, "env_kwargs": {}, "eval_interval": None}
    expected |= {"keep_checkpoints": 2, "seeds": [], "compile": "auto", "threads": None, "env_timeout": 300.0}
    expected |= {"workers": None}
    expected |= {"video": True, "report": True, "tensorboard": False, "started_from": None}
    expected |= {"eval_episode_limit": 10_000, "run_name": None, "writers": {}, "info_metrics": ["is_success"]}
    expected |= {"schedule_steps": None}
    assert config.to_dict() == expected
    assert list(config.to_dict()) == list(expected)
    assert config.output_dir == Path("out")
    assert config.seed_list == (3,)
    assert TrainConfig("sac", "x", seeds=(4, 1)).seed_list == (4, 1)


def test_resolved_config_is_itself_a_valid_input() -> None:
    config = TrainConfig("redq", "Hopper-v5", seeds=(0, 1), tags=("on",), algo_kwargs={"lr": 1e-05, "sizes": [8]})
    loaded = parse_yaml(dump_yaml(config.to_dict()), "config.yaml")
    assert config_from_dict(loaded.values, loaded) == config
    assert config_from_dict(config.to_dict()) == config


def test_all_problems_at_once_with_file_and_line(tmp_path: Path) -> None:
    loaded = load_text(
        "algo: sac\ntotal_timesteps: lots\nnum_envs: 0\nlog_intervall: 5\nvideo: yes\nseed: -1\ndevice: cuda:x\n"
        "compile: onn\nseeds: [1, 2, 2147483648]\nkeep_checkpoints: .nan\n",
        tmp_path,
    )
    with pytest.raises(ConfigError) as caught:
        config_from_dict(loaded.values, loaded)
    assert str(caught.value).replace(f"{tmp_path}{os.sep}", "").splitlines() == [
        "config.yaml:1: env_id is required",
        "config.yaml:2: total_timesteps must be an integer, got 'lots'",
        "config.yaml:3: num_envs must be >= 1, got 0",
        "config.yaml:4: unknown key 'log_intervall'; did you mean log_interval?",
        "config.yaml:5: video must be true or false, got 'yes'",
        "config.yaml:6: seed must be >= 0 and < 2**31, got -1",
        "config.yaml:7: device must be one of auto, cpu, cuda, cuda:N, got 'cuda:x'; did you mean cuda?",
        "config.yaml:8: compile must be one of auto, on, off, got 'onn'; did you mean on?",
        "config.yaml:9: seeds must be >= 0 and < 2**31 in every entry, got [1, 2, 2147483648]",
        "config.yaml:10: keep_checkpoints must be >= 1 and finite, got nan",
    ]


def test_overridden_value_is_not_blamed_on_the_file() -> None:
    loaded = parse_yaml("algo: sac\nenv_id: x\nseed: 1\nnum_envs: 0\nalgo_kwargs:\n  tau: 2\n  gamma: 1\n", "c.yaml")
    values = apply_overrides(loaded.values, ["seed=-5", "algo_kwargs.gamma=7"])
    with pytest.raises(ConfigError) as caught:
        config_from_dict(values, loaded)
    assert str(caught.value) == "seed must be >= 0 and < 2**31, got -5\nc.yaml:4: num_envs must be >= 1, got 0"
    problems = [Problem(("gamma",), "gamma is bad"), Problem(("tau",), "tau is bad")]
    error = located(problems, loaded.with_values(values), ("algo_kwargs",))
    assert str(error) == "gamma is bad\nc.yaml:6: tau is bad"


def test_located_adds_the_base_path() -> None:
    loaded = parse_yaml("algo: sac\nalgo_kwargs:\n  gamma: 7\n", "c.yaml")
    error = located([Problem(("gamma",), "gamma must be in [0, 1], got 7")], loaded, ("algo_kwargs",))
    assert error.problems == [Problem(("algo_kwargs", "gamma"), "c.yaml:3: gamma must be in [0, 1], got 7")]
    assert str(located([Problem(("gamma",), "no")], None, ("algo_kwargs",))) == "no"


def test_module_environment_only_from_the_command_line() -> None:
    loaded = parse_yaml("algo: sac\nenv_id: evil:Env-v0\nnum_envs: 0\n", "c.yaml")
    with pytest.raises(ConfigError) as caught:
        config_from_dict(loaded.values, loaded)
    assert str(caught.value).splitlines() == [
        "c.yaml:2: env_id with a module is only allowed on the command line, got 'evil:Env-v0'",
        "c.yaml:3: num_envs must be >= 1, got 0",
    ]
    values = {"algo": "sac", "env_id": "mine:Env-v0"}
    assert config_from_dict(values, allow_module_env=True).env_id == "mine:Env-v0"


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_devices(device: str) -> None:
    assert TrainConfig("sac", "x", device=device).device == device


def test_constructor_refusals_are_value_errors() -> None:
    with pytest.raises(ValueError, match=r"^total_timesteps must be >= 1, got 0$"):
        TrainConfig("sac", "x", total_timesteps=0)
    with pytest.raises(ValueError, match=r"^seeds must be distinct, got \[1, 1\]$"):
        TrainConfig("sac", "x", seeds=(1, 1))
    with pytest.raises(ValueError, match=r"^env_id must be a non-empty string, got ''$"):
        TrainConfig("sac", "")


def test_parse_seeds() -> None:
    assert parse_seeds("0-7") == tuple(range(8))
    assert parse_seeds("0,3,5") == (0, 3, 5)
    assert parse_seeds("0-3, 8") == (0, 1, 2, 3, 8)
    assert parse_seeds("2147483647") == (2**31 - 1,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "seeds must be written like 0-7, 0,3,5 or 0-3,8, got ''"),
        ("1,", "seeds must be written like 0-7, 0,3,5 or 0-3,8, got '1,'"),
        ("-3", "seeds must be written like 0-7, 0,3,5 or 0-3,8, got '-3'"),
        ("a", "seeds must be written like 0-7, 0,3,5 or 0-3,8, got 'a'"),
        ("7-0", "seeds must be ranges from low to high, got '7-0'"),
        ("0-3,2", "seeds must be distinct, got '0-3,2'"),
        ("2147483648", "seeds must be >= 0 and < 2**31, got 2147483648"),
        ("0-2147483647", "seeds must be at most 1024 seeds, got '0-2147483647'"),
    ],
)
def test_bad_seeds(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_seeds(text)
    assert str(caught.value) == message


def test_overrides_follow_the_yaml_rules_and_leave_the_input_alone() -> None:
    values = {"seed": 1, "algo_kwargs": {"gamma": 0.9, "tau": 1}}
    assignments = ["algo_kwargs.gamma=1e-3", "env_kwargs.pixels={stack: 3}", "compile=on", "tags=[a, b]", "x=a=b"]
    expected = {"seed": 1, "algo_kwargs": {"gamma": 0.001, "tau": 1}, "env_kwargs": {"pixels": {"stack": 3}}}
    expected |= {"compile": "on", "tags": ["a", "b"], "x": "a=b"}
    assert apply_overrides(values, assignments) == expected
    assert values == {"seed": 1, "algo_kwargs": {"gamma": 0.9, "tau": 1}}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("gamma", "--set must be key=value or section.key=value, got 'gamma'"),
        ("=3", "--set must be key=value or section.key=value, got '=3'"),
        ("a..b=3", "--set must be key=value or section.key=value, got 'a..b=3'"),
        ("seed.x=3", "--set seed.x: seed is not a section, it is 1"),
        (
            "seed=[1",
            "--set seed: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        ),
        ("seed=*x", "--set seed: aliases are not supported, write out the value of *x"),
    ],
)
def test_bad_overrides(assignment: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        apply_overrides({"seed": 1}, [assignment])
    assert str(caught.value) == message


def test_random_text_never_raises_anything_but_user_errors() -> None:
    generator = random.Random(0)
    pieces = [
        "algo",
        "env_id",
        "seed",
        ":",
        ": ",
        "\n",
        "\n  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a ",
        "*a",
        "!!int ",
        "!",
    ]
    pieces += ["'", '"', "|", ">", "%", "@", "? ", "1e3", "-", ".nan", "\t", "#", "---", "...", "\\x", "é", "\0", "<<"]
    pieces += ['"\\UFFFFFFFF"', '"\\ud800"', "%YAML 9.9\n", "!<", "~", "true", "0x", "_", "1_", "._", "+.inf", "1e"]
    for _ in range(3000):
        text = "".join(generator.choices(pieces, k=generator.randint(1, 12)))
        try:
            loaded = parse_yaml(text, "fuzz")
            config_from_dict(loaded.values, loaded)
        except UserError as error:
            assert all(line.startswith("fuzz:") for line in str(error).splitlines()), text
        with contextlib.suppress(UserError):
            parse_yaml_value(text, "fuzz")


@pytest.mark.parametrize("values", [None, 5, "x", [], {1: 2}, {None: None}, {"algo": None}, {"env_id": 5}, {"": ""}])
def test_weird_dicts_give_config_errors(values: Any) -> None:
    with pytest.raises(ConfigError):
        config_from_dict(values)
    with pytest.raises(ConfigError):
        config_from_dict(values, parse_yaml("a: 1", "c.yaml"))
