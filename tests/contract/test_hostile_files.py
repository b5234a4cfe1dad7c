"""Loading executes nothing, whatever the file; what cannot be used is refused in one line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import hostile
import hostile_data
import pytest
from conftest import make_quick_config
from harness import run_program
from hostile import STEP, agent_with, header, plain, sealed_with, state_text, state_with

from rl_training import __version__
from rl_training.checkpoint.read import DamagedCheckpoint, load_checkpoint
from rl_training.checkpoint.schema import find_checkpoint
from rl_training.cli.main import main
from rl_training.core.checks import Note, UserError
from rl_training.run.agent import load_agent
from rl_training.run.resume import resume_training
from rl_training.run.run import train

try:
    import h5py  # noqa: F401  (an extra)

    DATASETS = {**hostile_data.NPZ_CASES, **hostile_data.HDF5_CASES}
    GOOD_DATASETS = [hostile_data.npz(), hostile_data.hdf5(), hostile_data.minari()]
except ImportError:
    DATASETS, GOOD_DATASETS = hostile_data.NPZ_CASES, [hostile_data.npz()]

Builder = Callable[[Path, Path], Path]
FOREIGN = "{path}: not a rl_training agent or checkpoint"
DAMAGED = STEP + " damaged"
HUGE_NETWORK = {"config": {"algo_kwargs": {"hidden_sizes": [1_000_000, 1_000_000]}}}
HUGE_SPACE = {"observation_space": {"kind": "box", "shape": [10**12], "low": ["0"], "high": ["1"], "dtype": "float32"}}
UNFIT = "{path}: its tensors do not fit its configuration"
SEVERAL = {"config": {"seeds": [1, 2]}}

CASES: dict[str, tuple[Builder, str]] = {
    # Checkpoints: a pickle in every slot, with and without digests that agree.
    "pickle as learner": (hostile.replaced("learner*", False), DAMAGED + " (learner.safetensors sha256)"),
    "pickle as envs": (hostile.replaced("envs*", False), DAMAGED + " (envs.safetensors sha256)"),
    "pickle as replay": (
        hostile.replaced("replay*", False),
        DAMAGED + " (replay_{digits}_{digits}.safetensors sha256)",
    ),
    "pickle as state": (hostile.replaced("state.json", False), DAMAGED + " (state.json sha256)"),
    "pickle as manifest": (
        hostile.replaced("manifest.json", False),
        DAMAGED + ": {path}/manifest.json: not valid JSON",
    ),
    "sealed pickle as learner": (
        hostile.replaced("learner*", True),
        "{path}/learner.safetensors: not a safetensors file ({text})",
    ),
    "sealed pickle as state": (hostile.replaced("state.json", True), "{path}/state.json: not valid JSON"),
    # Names and kinds of files.
    "upwards": (hostile.named("../x"), DAMAGED + " (manifest.json names a file '../x')"),
    "absolute": (hostile.named("/etc/passwd"), DAMAGED + " (manifest.json names a file '/etc/passwd')"),
    "pickle by name": (hostile.named("x.pkl"), DAMAGED + " (manifest.json names a file 'x.pkl')"),
    "link": (
        hostile.linked("learner.safetensors"),
        DAMAGED + ": {path}/learner.safetensors: cannot be read (Too many levels of symbolic links)",
    ),
    "linked manifest": (
        hostile.linked("manifest.json"),
        DAMAGED + ": {path}/manifest.json: cannot be read (Too many levels of symbolic links)",
    ),
    "pipe": (hostile.piped("envs.safetensors"), DAMAGED + ": {path}/envs.safetensors: not a regular file"),
    "manifest pipe": (hostile.piped("manifest.json"), DAMAGED + ": {path}/manifest.json: not a regular file"),
    # JSON that is too large, too deep or not JSON.
    "huge manifest": (hostile.huge, DAMAGED + ": {path}/manifest.json: 67108865 bytes, at most 67108864 are expected"),
    "deep manifest": (hostile.manifest_of(b"[" * 10**6), DAMAGED + ": {path}/manifest.json: not valid JSON"),
    "manifest list": (hostile.manifest_of(b"[]"), DAMAGED + " (manifest.json sha256)"),
    "empty manifest": (hostile.manifest_of(b""), DAMAGED + ": {path}/manifest.json: not valid JSON"),
    "deep state": (state_text(lambda text: '{"a":' * 10**5 + text + "}" * 10**5), "{path}/state.json: not valid JSON"),
    "NaN": (state_text(lambda text: text.replace("40", "NaN", 1)), "{path}/state.json: not valid JSON"),
    "overflow": (state_text(lambda text: text.replace("40", "1e999", 1)), "{path}/state.json: not valid JSON"),
    "state list": (state_text(lambda text: "[]"), DAMAGED + " (state.json is not a mapping)"),
    "no state": (sealed_with(files={}), DAMAGED + " (manifest.json is incomplete)"),
    "entry text": (sealed_with(files={"state.json": "x"}), DAMAGED + " (manifest.json is incomplete)"),
    "step text": (sealed_with(step="40"), DAMAGED + " (manifest.json is incomplete)"),
    "other step": (sealed_with(step=41), DAMAGED + " (manifest.json is of step 41)"),
    "newer": (sealed_with(format=hostile.NEWER, library="9.9"), "{path}: written by 9.9, this is " + __version__),
    "newer, lines": (
        sealed_with(format=hostile.NEWER, library="9\n\x1b[31m9"),
        "{path}: written by 9 [31m9, this is " + __version__,
    ),
    # Self-consistent checkpoints that make no sense.
    "shape bomb": (hostile.shape_bomb, "{path}/learner.safetensors: not a safetensors file ({text})"),
    "network bomb": (state_with(**HUGE_NETWORK), UNFIT),
    "space bomb": (state_with(**HUGE_SPACE), "{path}: a space of shape [1000000000000] is not supported"),
    "env bomb": (state_with(config={"num_envs": 10**9}), "{path}: episodes has 1 entries, 1000000000 are expected"),
    "negative counter": (
        state_with(parts={"clock": {"since_training": -1}}),
        "{path}: since_training must be >= 0, got -1",
    ),
    "text counter": (state_with(parts={"replay": {"added": "many"}}), "{path}: added must be an integer, got 'many'"),
    "null config": (state_with(config=None), "{path}: config must be a mapping, got None"),
    "unknown algorithm": (
        state_with(config={"algo": "os.system"}),
        "{path}: algo must be one of {text}, got 'os.system'",
    ),
    # Agent files.
    "pickle": (plain(hostile.canary), FOREIGN),
    "torch zip": (plain(hostile.torch_file, "a.pt"), FOREIGN),
    "torch legacy": (plain(lambda place: hostile.torch_file(place, zipped=False), "a.pt"), FOREIGN),
    "SB3 zip": (plain(hostile.sb3_zip, "a.zip"), FOREIGN),
    "object npz": (plain(hostile.object_npz, "a.npz"), FOREIGN),
    "empty": (plain(lambda place: b""), FOREIGN),
    "agent pipe": (hostile.pipe, "{path}: not a regular file"),
    "long header": (plain(lambda place: (2**62).to_bytes(8, "little") + b"{}"), FOREIGN),
    "deep header": (plain(header(b"[" * 10**6)), FOREIGN),
    "header list": (plain(header([1])), FOREIGN),
    "metadata number": (plain(header({"__metadata__": {"rl_training": 1}})), FOREIGN),
    "deep metadata": (plain(header({"__metadata__": {"rl_training": "[" * 10**6}})), FOREIGN),
    "metadata list": (hostile.agent_file(lambda about: [1]), FOREIGN),
    "newer agent": (agent_with(format=2, library="9.9"), "{path}: written by 9.9, this is " + __version__),
    "agent network bomb": (agent_with(**HUGE_NETWORK), UNFIT),
    "agent space bomb": (agent_with(**HUGE_SPACE), "{path}: a space of shape [1000000000000] is not supported"),
    "agent seeds": (agent_with(**SEVERAL), UNFIT),
    "agent step": (agent_with(step=-1), "{path}: step must be >= 0, got -1"),
    "a link to an agent": (hostile.link_to_a_good_agent, "loaded"),
}
CONFIGS = {
    "object": ("a: !!python/object/apply:os.system [touch executed]", "{path}:1: tags are not supported, got {text}"),
    "alias": ("a: &x [1]\nb: *x", "{path}:2: aliases are not supported, write out the value of *x"),
    "deep": ("[" * 10**5, "{path}:1: nested more than 50 levels deep"),
    "module": (
        "algo: dqn\nenv_id: os:system",
        "{path}:2: env_id with a module is only allowed on the command line, got 'os:system'",
    ),
    "large": ("# " + "x" * 2**21, "{path}: is larger than 1 MiB, too large for a config"),
    "control": ("algo: \x00", "{path}:1: not valid YAML: special characters are not allowed"),
}


EXPECTED = {
    f"{name}{kind}": message
    for kind, cases in (("", CASES), (" config", CONFIGS), (" dataset", DATASETS))
    for name, (_, message) in cases.items()
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    config = make_quick_config("dqn", tmp_path_factory.mktemp("good"), total_timesteps=40, checkpoint_interval=20)
    return train(config, show_progress=False).run_dir


@pytest.fixture(scope="module")
def loaded(run: Path, tmp_path_factory) -> dict[str, dict]:
    """Every case, loaded in one process under the audit hook."""
    home = tmp_path_factory.mktemp("hostile")
    jobs: dict[str, tuple[str, str]] = {}
    for number, (name, (build, _)) in enumerate(CASES.items()):
        place = home / str(number)
        place.mkdir()
        jobs[name] = ("agent", str(build(run, place)))
    for name, (text, _) in CONFIGS.items():
        (home / f"{name}.yaml").write_text(text)
        jobs[f"{name} config"] = ("config", str(home / f"{name}.yaml"))
    for number, (name, (build, _)) in enumerate(DATASETS.items()):
        place = home / f"data_{number}"
        place.mkdir()
        jobs[f"{name} dataset"] = ("dataset", str(build(place)))
    agent = next((run / "agents").glob("*_final.safetensors"))
    (home / "good.yaml").write_text("algo: dqn\nenv_id: CartPole-v1\n")
    good = [("agent", run), ("agent", agent), ("config", home / "good.yaml")]
    for number, build in enumerate(GOOD_DATASETS):
        (home / f"good_{number}").mkdir()
        good.append(("dataset", build(home / f"good_{number}")))
    jobs.update({f"good {kind} {path}": (kind, str(path)) for kind, path in good})
    (home / "control").mkdir()
    (home / "control" / "pickle").write_bytes(hostile.canary(home / "control" / "place"))
    jobs["control"] = ("unpickle", str(home / "control" / "pickle"))
    (home / "jobs.json").write_text(json.dumps(jobs))
    warm = json.dumps([(kind, str(path)) for kind, path in good])
    answer = run_program(str(Path(__file__).parents[1] / "audit_loading.py"), str(home / "jobs.json"), warm)
    assert answer.returncode == 0, answer.stderr
    assert not (home / "executed").exists()
    results = json.loads(answer.stdout)
    return {name: {**results[name], "path": jobs[name][1]} for name in jobs}


def test_loading_only_reads(loaded) -> None:
    control = " ".join(loaded.pop("control")["events"])
    assert "pickle.find_class" in control and "open" in control
    busy = {name: result["events"] for name, result in loaded.items() if result["events"]}
    assert busy == {}
    good = [result["outcome"] for name, result in loaded.items() if name.startswith("good")]
    assert good == ["loaded"] * (3 + len(GOOD_DATASETS))


@pytest.mark.parametrize("name", EXPECTED)
def test_refused_in_one_line(name: str, loaded) -> None:
    result = loaded[name]
    expected = EXPECTED[name]
    pattern = re.escape(expected)
    for word, meaning in {"path": re.escape(result["path"]), "digits": r"\d{12}", "text": "[^\n]*"}.items():
        pattern = pattern.replace(re.escape(f"{{{word}}}"), meaning)
    kind = "" if expected == "loaded" else r"(UserError|ConfigError|DamagedCheckpoint): "
    assert re.fullmatch(kind + pattern, result["outcome"]), result["outcome"]


def test_every_byte_of_a_checkpoint_counts(run: Path, tmp_path: Path) -> None:
    checkpoint = hostile.copy_checkpoint(run, tmp_path)
    for file in sorted(checkpoint.iterdir()):
        data = file.read_bytes()
        step = max(len(data) // 60, 1)
        for position in {*range(0, len(data), step), *range(min(len(data), 40)), len(data) - 1}:
            file.write_bytes(data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :])
            with pytest.raises(DamagedCheckpoint):
                load_checkpoint(checkpoint)
        file.write_bytes(data)
    load_checkpoint(checkpoint)


@pytest.mark.parametrize("damage", [b"", b"{", b"[" * 10**5])
def test_a_damaged_manifest_falls_back_and_says_so(run: Path, tmp_path: Path, damage: bytes, capsys) -> None:
    home = Path(shutil.copytree(run, tmp_path / "run"))
    (home / "checkpoints" / STEP / "manifest.json").write_bytes(damage)
    message = f"{STEP} damaged: .*not valid JSON, using step_000000000020"
    with pytest.warns(Note, match=message):
        assert load_agent(home).step == 20
    assert main(["predict", str(home), "--obs", "[0, 0, 0, 0]"]) == 0
    assert re.fullmatch(message + "\n", capsys.readouterr().err)
    assert main(["resume", str(home), "--quiet"]) == 0
    assert load_agent(home).step == 40


def test_all_damaged_is_exit_1_and_nothing_is_deleted(run: Path, tmp_path: Path, capsys) -> None:
    home = Path(shutil.copytree(run, tmp_path / "run"))
    for checkpoint in (home / "checkpoints").iterdir():
        file = checkpoint / "learner.safetensors"
        data = file.read_bytes()
        file.unlink()
        file.write_bytes(data[:-1] + b"\x7f")
    before = sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*") if path.name != ".lock")
    for words in (["resume", "--quiet"], ["evaluate"]):
        assert main([*words, str(home)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {home / 'checkpoints'}: no checkpoint is intact: ") and error.count("\n") == 1
        assert f"{STEP} damaged (learner.safetensors sha256)" in error
    assert sorted((path, path.stat().st_mtime_ns) for path in home.rglob("*") if path.name != ".lock") == before


def test_a_policy_is_loaded_without_its_replay(run: Path, tmp_path: Path) -> None:
    """Gigabytes are not read to act; what is read is still verified, and a resume verifies all."""
    home = Path(shutil.copytree(run, tmp_path / "run"))
    for file in (home / "checkpoints" / STEP).glob("replay_*"):
        file.write_bytes(b"not what it was")
    assert load_agent(home).step == load_agent(home / "checkpoints" / STEP).step == 40
    assert find_checkpoint(home)[0].step == 20
    learner = home / "checkpoints" / STEP / "learner.safetensors"
    learner.write_bytes(learner.read_bytes()[:-1] + b"\x7f")
    with pytest.warns(Note, match="learner.safetensors sha256"):
        assert load_agent(home).step == 20


def test_metrics_of_another_name_are_refused_before_training(run: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(run, tmp_path / "run"))
    checkpoint = home / "checkpoints" / STEP
    data = (checkpoint / "learner.safetensors").read_bytes()
    (checkpoint / "learner.safetensors").write_bytes(data.replace(b".q.loss", b".q.lass"))
    hostile.seal(checkpoint)
    with pytest.raises(
        UserError, match=r"learner.safetensors: the metrics are .*'lass'.*, this learner's are .*'loss'"
    ):
        resume_training(home, total_timesteps=60, show_progress=False)


def test_a_missing_checkpoint_lists_those_there_are(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file or directory; available: step_0+20, step_0+40"):
        load_agent(run / "checkpoints" / "step_000000000030")
    for words in ([], ["resume"]):
        home = Path(shutil.copytree(run, tmp_path / f"run{len(words)}"))
        newest = home / "checkpoints" / STEP
        (newest / "manifest.json").unlink()
        with pytest.raises(UserError, match=r"not a checkpoint \(no manifest.json\); available: step_0+20, step_0+40"):
            resume_training(newest, show_progress=False) if words else load_agent(newest)


def test_a_linked_step_is_not_a_checkpoint_of_the_run(run: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(run, tmp_path / "run"))
    (home / "checkpoints" / "step_000000000099").symlink_to(run / "checkpoints" / STEP)
    assert load_agent(home).step == 40
