"""The command line as a user meets it: what it prints, what it exits with, what it leaves behind."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import one_of_a_kind, settings_of, small_env
from harness import decode, run_cli, run_program

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.cli import load_config, main
from rl_training.core.checks import UserError
from rl_training.run.agent import load_agent

SMALL_RUN = ["--set", "video=false", "--set", "threads=1", "--quiet"]
SETTINGS = {"learning_starts": 20, "batch_size": 8, "hidden_sizes": [16]}
SMALL = [*SMALL_RUN, *(word for name, one in SETTINGS.items() for word in ("--set", f"algo_kwargs.{name}={one}"))]


def small_run(algo: str) -> list[str]:
    """`ALGO ENV` and what makes the run small."""
    cls = learner_class(algo)
    env_id, env_kwargs = small_env(cls)
    pixels = env_kwargs.get("wrappers", {}).get("pixels", {})
    sets = [f"env_kwargs.wrappers.pixels.{name}={json.dumps(value)}" for name, value in pixels.items()]
    if "max_episode_steps" in env_kwargs:
        sets.append(f"env_kwargs.max_episode_steps={env_kwargs['max_episode_steps']}")
    if cls.offline:
        sets.append("algo_kwargs.dataset_size=200")
    sets.append("num_envs=1")  # a packaged config may have more
    sets += [f"algo_kwargs.{name}={value}" for name, value in settings_of(algo, SETTINGS).items()]
    return [algo, env_id, *SMALL_RUN, *(word for one in sets for word in ("--set", one))]


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn", "iql"))
def test_train_evaluate_predict_resume_record(algo: str, tmp_path: Path, capsys) -> None:
    words = [
        "train",
        *small_run(algo),
        "--total-timesteps",
        "90",
        "--eval-episodes",
        "1",
        "--output-dir",
        str(tmp_path),
    ]
    assert main([*words, "--json"]) == 0
    trained = answer_of(capsys)
    assert trained["metrics"]["global_step"] == 90
    run_dir = trained["run_dir"]
    assert (Path(run_dir) / "report.html").exists()

    assert main(["eval", "--checkpoint", trained["checkpoint_path"], "--num-episodes", "2", "--json"]) == 0
    by_option = answer_of(capsys)
    assert by_option["eval_episodes"] == 2
    assert main(["evaluate", run_dir, "--num-episodes", "2", "--json"]) == 0
    assert answer_of(capsys) == by_option

    obs = np.ones(load_agent(run_dir).observation.shape)
    assert main(["predict", run_dir, "--obs", json.dumps(obs.tolist())]) == 0
    action = json.loads(capsys.readouterr().out)
    assert action in (0, 1) if ("discrete" in learner_class(algo).actions) else -2 <= action[0] <= 2

    assert main(["resume", run_dir, "--quiet"]) == 0
    assert "finished at step 90; extend it with --total-timesteps" in capsys.readouterr().out
    assert (
        main(["resume", "--checkpoint", trained["checkpoint_path"], "--total-timesteps", "100", "--quiet", "--json"])
        == 0
    )
    assert answer_of(capsys)["metrics"]["global_step"] == 100

    video = tmp_path / "film" / "agent.webm"
    assert main(["record", run_dir, "--output", str(video), "--json"]) == 0
    assert answer_of(capsys)["video"] == str(video) and len(decode(video)[1]) > 1


@pytest.mark.parametrize("algo", one_of_a_kind("qr_dqn", "td3_bc"))
def test_several_seeds_have_a_summary_and_an_agent_each(algo: str, tmp_path: Path, capsys) -> None:
    words = [
        "train",
        *small_run(algo),
        "--total-timesteps",
        "60",
        "--eval-episodes",
        "1",
        "--output-dir",
        str(tmp_path),
    ]
    assert main([*words, "--seeds", "0-2"]) == 0
    shown = capsys.readouterr().out  # fewer than four seeds: a mean, without an interval
    assert "(mean and spread of 3 seeds)" in shown and "interquartile" not in shown and "interval" not in shown
    (run_dir,) = tmp_path.iterdir()
    assert main(["evaluate", str(run_dir), "--num-episodes", "3", "--json"]) == 0
    together = answer_of(capsys)
    assert set(together["seeds"]) == {"0", "1", "2"} and together["summary"]["n"] == 3
    assert together["summary"]["statistic"] == "mean"
    for seed in ("0", "1", "2"):
        assert (
            main(
                [
                    "evaluate",
                    str(run_dir / "agents" / f"seed_{seed}_final.safetensors"),
                    "--num-episodes",
                    "3",
                    "--json",
                ]
            )
            == 0
        )
        assert answer_of(capsys)["eval_return_mean"] == pytest.approx(together["seeds"][seed], rel=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean train?"),
        (["train"], "train needs --config FILE, or ALGO and ENV"),
        (["train", "dqq", "CartPole-v1"], "algo must be one of dqn, c51_dqn"),
        (["train", "dqn", "CartPol-v1"], "Did you mean: `CartPole`?"),
        (["train", "sac", "CartPole-v1"], "sac needs Box actions; CartPole-v1 has Discrete(2); use dqn, c51_dqn"),
        (["train", "dqn", "Pendulum-v1"], "dqn needs Discrete actions; Pendulum-v1 has Box(1,); use ppo, a2c, sac"),
        (["train", "dqn", "CartPole-v1", "--sed", "3"], "did you mean --seed?"),
        (["train", "dqn", "CartPole-v1", "--total-timesteps", "many"], "'many' is not a whole number"),
        (["train", "dqn", "CartPole-v1", "--total-timesteps", "0"], "total_timesteps must be >= 1"),
        (["train", "dqn", "CartPole-v1", "--seeds", "5-2"], "seeds must be ranges from low to high"),
        (["train", "dqn", "CartPole-v1", "--device", "cuda:77"], "device cuda:77 is not available here"),
        (["train", "dqn", "CartPole-v1", "--set", "algo_kwargs.gamma=1.5"], "gamma must be in [0, 1], got 1.5"),
        (["train", "dqn", "CartPole-v1", "--set", "algo_kwargs.learning_rate=nan"], "learning_rate must be"),
        (["train", "dqn", "CartPole-v1", "--set", "algo_kwargs.batch_size=9999999"], "must be <= buffer_capacity"),
        (["train", "dqn", "CartPole-v1", "--set", "env_kwargs.nonsense=1"], "rejected env_kwargs"),
        (["train", "sac", "Pendulum-v0"], "is deprecated. Please use `Pendulum-v1` instead\n"),
        (["train", "sac", "Pendulum-v1", "--device", "gpu"], "auto, cpu, cuda, cuda:N, got 'gpu'\n"),
        (["train", "sac", "Pendulum-v1", "gamma=0.9"], "gamma=0.9; here it is algo_kwargs.gamma; settings are"),
        (["train", "sac", "Pendulum-v1", "more"], "unrecognized arguments: more\n"),
        (["train", "bc"], "train needs --config FILE, or ALGO and ENV"),
        (["train", "dqn", "nomodule:Env-v0"], "nomodule"),
        (["train", "--config", "configs/dqn/cartpol.yaml"], "did you mean configs/dqn/cartpole.yaml?"),
        (["evaluate"], "exactly one path is needed"),
        (["evaluate", "nowhere"], "nowhere: no such file or directory"),
        (["resume", "nowhere"], "nowhere: no such run or checkpoint"),
        (["predict", "nowhere", "--obs", "[1"], "--obs must be JSON"),
        (["predict", "nowhere", "--obs", "[1]", "--action-mask", "1,0"], "--action-mask must be JSON, e.g. [1, 0, 1]"),
        (["train", "sac", "Pendulum-v1", "--set", "algo_kwargs.buffer_capacity=1e12",
          "--total-timesteps", "1000000000000"], "GiB are free; at most"),
        (["train", "redq", "Pendulum-v1", "--set", "algo_kwargs.num_critics=1000000000000"],
         "networks of 4545000000004546 weights, 1 seed, need"),
        (["train", "sac", "Pendulum-v1", "--set", f"algo_kwargs.hidden_sizes=[{10**18}, {10**18}]"],
         "networks of these sizes cannot be made"),
        (["train", "sac", "Pendulum-v1", "--set", "algo_kwargs.batch_size=1e12", "--set",
          "algo_kwargs.buffer_capacity=1e12"], "batches of 1000000000000 rows, 1 seed, need"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_exit_2(words: list[str], message: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []  # nothing half-made is left


def test_a_broken_config_tells_everything_at_once_before_any_environment(tmp_path: Path, capsys) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(
        "algo: dqn\nenv_id: NoSuchEnv-v0\ntotal_timesteps: lots\nalgo_kwargs:\n  learnng_rate: 1e-3\nnum_env: 2\n"
    )
    assert main(["train", "--config", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [f"{path}:3", f"{path}:5", f"{path}:6"]
    assert "total_timesteps must be an integer, got 'lots'" in lines[0]
    assert "unknown key 'learnng_rate'; did you mean learning_rate?" in lines[1]
    assert "unknown key 'num_env'; here it is num_envs" in lines[2]
    path.write_text("algo: dqn\nenv_id: NoSuchEnv-v0\nalgo_kwargs:\n  learnng_rate: 1e-3\n  gamma: 7\n")
    assert main(["train", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:4: unknown key 'learnng_rate'; did you mean learning_rate?" in said
    assert f"{path}:5: gamma must be in [0, 1], got 7" in said


def test_every_problem_of_several_sets_is_reported_at_once(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["gamma=7", "seed=-1", "novalue", "seed.x=1", "net_arch=[8]", "algo_kwargs.tua=1", "seeds=[1",
             "env_kwargs.wrappers.pixel=1", "algo_kwargs.policy_noise=1"]  # fmt: skip
    words = [word for one in given for word in ("--set", one)]
    assert main(["train", "sac", "Pendulum-v1", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    assert [line.removeprefix("error: ") for line in lines] == [
        "--set must be key=value or section.key=value, got 'novalue'",
        "--set seeds: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        "--set seed.x: seed is not a section, it is -1",
        "unknown key 'net_arch'; here it is algo_kwargs.hidden_sizes",
        "seed must be >= 0 and < 2**31, got -1",
        "unknown key 'tua'; did you mean tau?",
        "unknown key 'policy_noise'; it is a setting of other algorithms, not of sac",
        "gamma must be in [0, 1], got 7",
        "unknown wrapper 'pixel'; did you mean pixels?",
    ]
    assert main(["train", "sca", "Pendulum-v1", "--set", "gamma=7", "--set", "seed=-1"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "got 'sca'; did you mean sac?" in lines[0] and "seed must be" in lines[2] and len(lines) == 3
    assert lines[1] == "error: unknown key 'gamma'; here it is algo_kwargs.gamma"


def test_set_takes_a_setting_of_the_algorithm_by_its_name() -> None:
    config = load_config("configs/sac/pendulum.yaml", ["gamma=0.9", "seed=3", "algo_kwargs.tau=0.5", "tau=0.25"])
    assert (config.algo_kwargs["gamma"], config.seed, config.algo_kwargs["tau"]) == (0.9, 3, 0.25)
    assert load_config("configs/dqn/cartpole.yaml", ["algo=td3", "env_id=Pendulum-v1", "algo_kwargs={}",
                                                     "policy_delay=3"]).algo_kwargs == {"policy_delay": 3}  # fmt: skip


@pytest.mark.sweep
def test_an_environment_in_a_module_of_the_current_folder(tmp_path: Path) -> None:
    """As the console script starts: the current folder is not on the path. Two worker processes find it too."""
    start = "import sys; sys.path.pop(0); from rl_training.cli import main; sys.exit(main(sys.argv[1:]))"
    (tmp_path / "helper_of_mine.py").write_text("LENGTH = 5\n")
    (tmp_path / "yaml.py").write_text("raise RuntimeError('a file of the user that has the name of a package')\n")
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium as gym\n"
        "def make():\n"
        "    from helper_of_mine import LENGTH\n"
        "    return gym.make('Pendulum-v1', max_episode_steps=LENGTH)\n"
        "gym.register('Mine-v0', entry_point=make)\n"
    )
    words = ["sac", "my_envs:Mine-v0", "--total-timesteps", "30", "--num-envs", "2", "--eval-episodes", "1", *SMALL]
    answer = run_program("-c", start, "train", *words, "--set", "workers=2", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert json.loads((run_dir / "run.json").read_text())["execution_plan"]["workers"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--buffer-size", "100"], "--buffer-size 100; here it is algo_kwargs.buffer_capacity; settings are given as"),
        (["--set", "video=false", "compile=off"], "compile=off; each setting needs its own --set: --set compile=off"),
        (["--gamma=0.9"], "--gamma=0.9; here it is algo_kwargs.gamma; settings are given as --set NAME=VALUE"),
        (["--use-sde"], "--use-sde; state-dependent exploration is not supported"),
        (["--total-steps", "2"], "--total-steps 2; did you mean --total-timesteps?"),
    ],
)
def test_a_setting_given_as_an_option_is_answered_with_set(words: list[str], message: str, capsys) -> None:
    assert main(["train", "sac", "Pendulum-v1", *words]) == 2
    said = capsys.readouterr().err
    assert f"unrecognized arguments: {message}" in said and said.count("\n") == 1


def test_a_module_in_a_config_file_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    path = tmp_path / "config.yaml"
    path.write_text("algo: dqn\nenv_id: evil:Env-v0\n")
    answer = run_cli("train", "--config", "config.yaml", cwd=tmp_path)
    assert answer.returncode == 2 and "only allowed on the command line" in answer.stderr
    assert not (tmp_path / "ran").exists()


def test_packaged_configs_are_found_from_anywhere_and_valid(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load_config("configs/dqn/cartpole.yaml")
    assert (config.algo, config.env_id, config.total_timesteps) == ("dqn", "CartPole-v1", 50_000)
    assert config.algo_kwargs["learning_rate"] == 2.3e-3


def test_the_resolved_config_is_valid_input(tmp_path: Path, capsys) -> None:
    words = [
        "train",
        "dqn",
        "CartPole-v1",
        "--total-timesteps",
        "40",
        "--eval-episodes",
        "0",
        "--output-dir",
        str(tmp_path),
    ]
    assert main([*words, "--json"]) == 0
    run_dir = Path(answer_of(capsys)["run_dir"])
    resolved = load_config(run_dir / "config.yaml")
    assert resolved.to_dict() == yaml.safe_load((run_dir / "config.yaml").read_text()) | {"output_dir": str(tmp_path)}
    assert main(["train", "--config", str(run_dir / "config.yaml"), "--quiet", "--json"]) == 0
    again = Path(answer_of(capsys)["run_dir"])
    strip = ("time/fps", "time/time_elapsed")
    rows = [
        [{k: v for k, v in json.loads(line).items() if k not in strip} for line in (d / "metrics.jsonl").open()]
        for d in (run_dir, again)
    ]
    assert rows[0] == rows[1]


def test_list_and_doctor_answer_programs(capsys) -> None:
    assert main(["list", "--json"]) == 0
    listing = answer_of(capsys)
    assert [one["name"] for one in listing["algorithms"]] == list(algorithm_names())
    assert "configs/dqn/cartpole.yaml" in listing["configs"]
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"] for check in answer_of(capsys)}
    assert {"python", "torch", "device", "compile", "gymnasium", "video", "disk"} <= checks


def test_piped_progress_is_plain_text(tmp_path: Path) -> None:
    words = [word for word in SMALL if word != "--quiet"]
    answer = run_cli("train", "dqn", "CartPole-v1", "--total-timesteps", "60", "--output-dir", str(tmp_path), *words)
    assert answer.returncode == 0, answer.stderr
    assert "60/60" in answer.stderr and "\x1b" not in answer.stderr + answer.stdout
    assert "report" in answer.stdout


def test_few_frames_between_main_and_the_training_function(monkeypatch, capsys) -> None:
    """main and the command: nothing else to step through on the way into training."""
    seen: list[list[str]] = []

    def record(*args, **keywords):
        own = [one for one in inspect.stack()[1:] if "/rl_training/" in one.filename]
        seen.append([one.function for one in own])
        raise UserError("enough")

    monkeypatch.setattr("rl_training.run.run.train", record)
    monkeypatch.setattr("rl_training.run.resume.resume", record)
    assert main(["train", "sac", "Pendulum-v1"]) == main(["resume", "RUN"]) == 2
    assert seen == [["run_train", "main"], ["run_resume", "main"]]


def test_without_a_command_the_help_is_printed(capsys) -> None:
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out
    assert main(["data"]) == 0
    assert "convert" in capsys.readouterr().out


def test_an_environment_that_exits_is_a_failure_in_one_line(monkeypatch, capsys) -> None:
    def leave(args) -> int:
        raise SystemExit("no licence")

    monkeypatch.setattr("rl_training.cli.list_command.run_list", leave)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "error: the environment ended the program (SystemExit: no licence)\n"
    assert main(["--version"]) == 0
