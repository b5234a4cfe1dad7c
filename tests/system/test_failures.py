"""Runs that fail: exit 1, what reproduces it, and the last good checkpoint intact."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import one_of_a_kind
from fresh_agents import fresh_agent, saved
from harness import run_program

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import load_checkpoint, newest_checkpoint
from rl_training.cli.main import main
from rl_training.envs.host import vector
from rl_training.envs.spaces import space_to_dict
from rl_training.run import run as trainer
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure


class Faulty(gym.Wrapper):
    """Misbehaves at the given step of its life."""

    def __init__(self, env, how: str, at: int) -> None:
        super().__init__(env)
        self.how, self.left = how, at

    def step(self, action):
        self.left -= 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.left == 0:
            if self.how == "raises":
                raise RuntimeError("the robot\nfell over")
            if self.how == "hangs":
                time.sleep(60)
            if self.how == "nan observation":
                obs = np.full_like(obs, np.nan)
            if self.how == "nan reward":
                reward = float("nan")
            if self.how == "no reward":
                reward = None
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "step raised RuntimeError: the robot fell over"),
        ("nan observation", "step returned an observation with NaN or infinity"),
        ("nan reward", "step returned reward nan"),
        ("no reward", "step returned reward nan"),
    ],
)
def test_a_faulty_environment_ends_the_run_with_what_reproduces_it(how, message, quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path, eval_episodes=0, checkpoint_interval=30)
    made = []

    def make_env(**kwargs):
        env = Faulty(gym.make("CartPole-v1", **kwargs), how, at=77 if len(made) == 2 else -1)
        made.append(env)
        return env

    with pytest.raises(
        TrainingFailure, match=f"environment 0 of seed 0, episode .*{message}.*crash.json reproduces it"
    ):
        train(config, env_factory=make_env, show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert json.loads((run_dir / "run.json").read_text())["status"] == "failed"
    assert newest_checkpoint(run_dir / "checkpoints")[0].step == 60
    report = json.loads((run_dir / "crash.json").read_text())
    env = gym.make("CartPole-v1")
    env.reset(seed=report["reset_seed"])
    for action in report["actions"]:
        last = env.step(action)
    assert made[2].env.unwrapped.state == pytest.approx(env.unwrapped.state) and len(last) == 5
    resumed = resume_training(run_dir, env_factory=lambda **kw: gym.make("CartPole-v1", **kw), show_progress=False)
    assert resumed.metrics["global_step"] == 120


@pytest.mark.sweep
def test_a_hanging_environment_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "hang.py"
    script.write_text(
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import gymnasium as gym\n"
        "from pathlib import Path\n"
        "from test_failures import Faulty\n"
        "from rl_training import DQN\n"
        "made = []\n"
        "def make_env(**kwargs):\n"
        "    made.append(Faulty(gym.make('CartPole-v1', **kwargs), 'hangs', 50 if len(made) == 2 else -1))\n"
        "    return made[-1]\n"
        "DQN(make_env, total_timesteps=100, output_dir='runs', env_timeout=1.0, checkpoint_interval=20,\n"
        "    eval_episodes=0, learning_starts=10, threads=1, video=False).learn()\n"
    )
    tests = Path(__file__).parent
    answer = run_program(str(script), str(tests), str(tests.parent), cwd=tmp_path, timeout=60)
    assert answer.returncode == 1
    assert "no answer for 1 s" in answer.stderr and "Traceback" not in answer.stderr
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert len(json.loads((run_dir / "crash.json").read_text())["actions"]) > 0
    assert newest_checkpoint(run_dir / "checkpoints")[0].step == 40


class Poison(Callback):
    """Makes the parameters of one seed NaN at one step."""

    def __init__(self, seed_index: int, step: int) -> None:
        self.seed_index, self.step = seed_index, step

    def on_step(self, session) -> None:
        if session.step == self.step:
            for params in session.learner.engine.groups().values():
                for tensor in params.values():
                    if tensor.is_floating_point():  # not a counter
                        tensor[self.seed_index].fill_(float("nan"))


def update_after(step: int, algo: str) -> int:
    """Online the first 20 steps had none; from every 20 steps, a rollout, there are one or four updates."""
    if issubclass(learner_class(algo), OnPolicyLearner):
        return step // 20 * (1 if algo == "a2c" else 4) + 1
    return step + 1 if learner_class(algo).offline else step - 20 + 1


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", "iql", "ppo"))
def test_a_loss_that_becomes_nan_ends_the_run_and_keeps_the_good_checkpoint(algo, quick_config, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailure, match=f"NaN or infinite at update {update_after(77, algo)}"):
        train(quick_config(algo, tmp_path), callbacks=[Poison(0, 77)], show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    record = json.loads((run_dir / "run.json").read_text())
    failed = record["failed_seeds"]["0"]
    (names,) = re.findall(r"(\S.*) became NaN or infinite", failed["reason"])
    assert record["failure"].startswith(failed["reason"])
    bad = {name for name, value in failed["metrics"].items() if value == "nan"}
    assert set(names.split(", ")) <= bad and any(name.endswith("loss") for name in bad)
    checkpoint = newest_checkpoint(run_dir / "checkpoints")[0]
    assert checkpoint.step == 50
    assert all(t.isfinite().all() for k, t in checkpoint.tensors("learner.safetensors").items() if k[:6] == "params")


def test_a_failure_before_the_first_checkpoint_promises_none(quick_config, tmp_path: Path) -> None:
    config = quick_config("sac", tmp_path, checkpoint_interval=1000)
    with pytest.raises(TrainingFailure, match=r"NaN or infinite at update 58; there is no checkpoint yet in "):
        train(config, callbacks=[Poison(0, 77)], show_progress=False)


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", "iql"))
def test_one_failed_of_several_seeds_does_not_stop_or_change_the_others(algo, quick_config, tmp_path: Path) -> None:
    healthy = train(quick_config(algo, tmp_path / "a", seeds=(1, 2, 3)), show_progress=False)
    with pytest.raises(TrainingFailure, match="failed seeds: 2; the others finished"):
        config = quick_config(algo, tmp_path / "b", seeds=(1, 2, 3))
        train(config, callbacks=[Poison(1, 77)], show_progress=False)
    (run_dir,) = (tmp_path / "b").iterdir()
    record = json.loads((run_dir / "run.json").read_text())
    assert record["failed_seeds"]["2"]["update"] == update_after(77, algo)
    a = load_checkpoint(healthy.checkpoint_path).tensors("learner.safetensors")
    b = newest_checkpoint(run_dir / "checkpoints")[0].tensors("learner.safetensors")
    for name in a:
        if name.startswith("params"):
            assert torch.equal(a[name][[0, 2]], b[name][[0, 2]])


def test_a_changed_environment_is_not_resumed(finished_run, tmp_path: Path) -> None:
    run_dir = shutil.copytree(finished_run("rainbow_dqn").run_dir, tmp_path / "run")

    def other_env(**kwargs):
        return gym.make("Acrobot-v1", **kwargs)

    with pytest.raises(ValueError, match=r"observation_space has changed since the checkpoint: .*shape \[4\] -> \[6\]"):
        resume_training(run_dir, total_timesteps=130, env_factory=other_env, show_progress=False)
    assert space_to_dict(gym.make("Acrobot-v1").action_space)["n"] == 3


@pytest.mark.parametrize(("num_envs", "frequency", "updates", "expected"), [
    (1, 1, 1, 100), (1, 4, 1, 25), (3, 1, 1, 100), (3, 4, 2, 50), (5, 7, 3, 42), (4, 100, 1, 1),
])  # fmt: skip
def test_the_update_to_data_ratio_does_not_depend_on_num_envs(
    num_envs, frequency, updates, expected, quick_config, tmp_path: Path
) -> None:
    settings = {"train_frequency": frequency, "gradient_updates_per_step": updates, "learning_starts": 20}
    config = quick_config(
        "dqn", tmp_path, num_envs=num_envs, total_timesteps=120, eval_episodes=0, algo_kwargs=settings
    )
    result = train(config, show_progress=False)
    assert result.metrics["global_step"] == 120
    assert result.metrics["gradient_steps"] == expected  # (120 - 20) // frequency * updates


def test_learning_starts_at_the_total_is_legal_and_says_so(quick_config, tmp_path: Path, capsys) -> None:
    result = train(quick_config("dqn", tmp_path, algo_kwargs={"learning_starts": 120}))
    assert result.metrics["gradient_steps"] == 0
    assert (
        "learning_starts (120) is not below total_timesteps (120): nothing will be learned" in capsys.readouterr().err
    )


def test_tensorboard_holds_the_same_numbers(quick_config, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(quick_config("dqn", tmp_path, tensorboard=True), show_progress=False)
    events = EventAccumulator(str(result.run_dir / "tensorboard" / "seed_0"))
    events.Reload()
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    expected = [(row["step"], row["train/loss"]) for row in rows if row.get("train/loss") is not None]
    found = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [value for _, value in found] == pytest.approx([value for _, value in expected])


def test_an_endless_episode_makes_the_resume_inexact(quick_config, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(vector, "MAX_LOG", 10)
    config = quick_config("sac", tmp_path, eval_episodes=0, checkpoint_interval=30, total_timesteps=75)
    result = train(config, show_progress=False)  # episodes of 50 steps
    record = json.loads((result.run_dir / "run.json").read_text())
    assert record["resume"] == "inexact" and "on resume it starts again" in record["resume_note"]
    assert capsys.readouterr().err.count("resume: inexact (an episode lasted more than") == 1
    resumed = resume_training(result.run_dir, total_timesteps=270, show_progress=False)
    episodes = load_checkpoint(resumed.checkpoint_path).state["parts"]["environments"]["statistics"]
    assert episodes["lengths"] == [[50] * 4]  # the 25 steps of the lost one are not added to another's
    assert episodes["open_lengths"] == [45]


class KillWorker(Callback):
    def on_step(self, session) -> None:
        if session.step == 76:
            session.envs.rows.stepper.workers[0].process.kill()


def test_an_environment_that_dies_with_its_worker_ends_the_run(quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path, eval_episodes=0, checkpoint_interval=30, num_envs=2, workers=2)
    with pytest.raises(TrainingFailure, match=r"environment 1 of seed 0.*crash.json reproduces it"):
        train(config, callbacks=[KillWorker()], show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    report = json.loads((run_dir / "crash.json").read_text())
    assert report["exit_code"] == -9
    env = gym.make("CartPole-v1")  # what it was doing can be done again
    env.reset(seed=report["reset_seed"])
    ends = [env.step(action)[2] for action in report["actions"][:-1]]
    assert report["run_seed"] == 0 and report["env_index"] == 1 and not any(ends)
    assert json.loads((run_dir / "run.json").read_text())["status"] == "failed"
    assert newest_checkpoint(run_dir / "checkpoints")[0].step == 60
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_a_failing_environment_is_exit_1_on_the_command_line(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "falling_robot.py").write_text(
        "import gymnasium as gym\n"
        "from test_failures import Faulty\n"
        "gym.register('Falling-v0', lambda **kw: Faulty(gym.make('CartPole-v1', **kw), 'raises', 40))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["train", "dqn", "falling_robot:Falling-v0", "--total-timesteps", "100", "--quiet", "--eval-episodes", "0"]
    words += ["--set", "algo_kwargs.learning_starts=10", "--output-dir", str(tmp_path / "runs")]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: environment 0 of seed 0, episode") and error.count("\n") == 1
    assert "step raised RuntimeError: the robot fell over" in error and "crash.json reproduces it" in error


class Unfilmable(gym.Wrapper):
    """One of its methods raises in a video."""

    def __init__(self, env, method: str) -> None:
        super().__init__(env)

        def fails(*_, **__):
            raise RuntimeError("the robot\nfell over")

        setattr(self, method, fails)


@pytest.mark.parametrize(
    ("method", "status", "message"),
    [
        ("step", 1, "environment 'Unfilmable-v0', episode 0, step 1: step raised"),
        ("reset", 1, "environment 'Unfilmable-v0', episode 0, step 0: reset raised"),
        ("render", 2, "Unfilmable-v0 cannot be rendered:"),
    ],
)
def test_an_environment_that_fails_in_a_video_is_one_line(
    method: str, status: int, message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Unfilmable-v0", lambda **kwargs: Unfilmable(gym.make("CartPole-v1", **kwargs), method))
    agent, video = saved(fresh_agent("dqn"), tmp_path), tmp_path / "x.webm"
    video.write_bytes(b"an older one")
    assert main(["record", str(agent), "--env", "Unfilmable-v0", "--output", str(video)]) == status
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message} RuntimeError: the robot fell over") and error.count("\n") == 1
    assert video.read_bytes() == b"an older one" and len(list(tmp_path.iterdir())) == 2


class Restless(gym.Wrapper):
    """Its future does not follow from seed and actions."""

    def step(self, action):
        obs, *rest = self.env.step(action)
        return obs + np.random.default_rng().uniform(0, 1e-3, obs.shape).astype(obs.dtype), *rest


def test_an_environment_that_does_not_repeat_itself_is_told_at_the_start(quick_config, tmp_path: Path, capsys) -> None:
    def make_env(**kwargs):
        return Restless(gym.make("CartPole-v1", **kwargs))

    config = quick_config("dqn", tmp_path, eval_episodes=0, report=True)
    result = train(config, env_factory=make_env, show_progress=False)
    assert capsys.readouterr().err.startswith("resume: inexact (the environment does not repeat itself")
    assert json.loads((result.run_dir / "run.json").read_text())["resume"] == "inexact"
    assert "inexact" in (result.run_dir / "report.html").read_text()
    resume_training(result.run_dir, total_timesteps=130, env_factory=make_env, show_progress=False)
    assert "the open episodes start again" in capsys.readouterr().err


def test_another_machine_is_told_and_half_a_row_is_cut_off(quick_config, tmp_path: Path, capsys) -> None:
    if torch.cuda.is_available():
        pytest.skip("the device would be there")
    result = train(quick_config("dqn", tmp_path, total_timesteps=60), show_progress=False)
    place = result.run_dir / "run.json"
    record = json.loads(place.read_text())
    place.write_text(
        json.dumps(
            {
                **record,
                "execution_plan": {**record["execution_plan"], "device": "cuda"},
                "versions": {**record["versions"], "torch": "0.1"},
            }
        )
    )
    rows = (result.run_dir / "metrics.jsonl").read_text()
    (result.run_dir / "metrics.jsonl").write_text(rows + '{"step": 6')
    resume_training(result.run_dir, total_timesteps=80, show_progress=False)
    line = f"resume: inexact (it will not be bit-identical: torch 0.1 -> {torch.__version__}, device cuda -> cpu)\n"
    assert line in capsys.readouterr().err
    after = (result.run_dir / "metrics.jsonl").read_text()
    assert after.startswith(rows) and [json.loads(row) for row in after.splitlines()][-1]["step"] == 80


def test_no_clock_that_can_jump() -> None:
    sources = (Path(trainer.__file__).parent.parent).rglob("*.py")
    assert [path.name for path in sources if re.search(r"\btime\.time\(|datetime\.now", path.read_text())] == []


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory. Tried\nto allocate"), MemoryError("CUDA out of memory. Tried"),
     RuntimeError("[enforce fail] CUDA out of memory. Tried: DefaultCPUAllocator: can't allocate memory")],
)  # fmt: skip
def test_a_memory_that_is_too_small_is_told_in_one_line(error: Exception, quick_config, tmp_path, monkeypatch) -> None:
    def train_too_much(*_: object) -> None:
        raise error

    config = quick_config("dqn", tmp_path, checkpoint_interval=20)
    monkeypatch.setattr(learner_class("dqn"), "train", train_too_much)
    with pytest.raises(
        TrainingFailure, match=r"^out of memory: .*CUDA out of memory\. Tried.*; a smaller batch"
    ) as told:
        train(config, show_progress=False)
    assert "\n" not in str(told.value)
    (record,) = config.output_dir.glob("*/run.json")
    assert json.loads(record.read_text())["status"] == "failed"


def test_another_runtime_error_keeps_its_traceback(quick_config, tmp_path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(learner_class("dqn"), "train", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        train(quick_config("dqn", tmp_path), show_progress=False)
