"""The folder of compiled programs: private, whole, and of this machine and these versions alone."""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rl_training.config.train_config import TrainConfig
from rl_training.core import numerics
from rl_training.core.checks import Note
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.engine import compile_cache as cache
from rl_training.run.plan import choose_plan
from rl_training.run.validate import parse_settings


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.TORCH_VARIABLE, raising=False)
    monkeypatch.setenv(cache.CHOSEN_VARIABLE, "")
    monkeypatch.setattr(cache, "has_space", lambda path: "my " in str(path))  # the tests' own folder may have some
    cache._folder.cache_clear()
    yield tmp_path / "cache"
    cache._folder.cache_clear()


def used() -> Path:
    """The folder that torch is given."""
    with cache.compile_cache():
        return Path(os.environ[cache.TORCH_VARIABLE])


def test_the_folder_is_the_user_s_alone_and_used_again(own_cache: Path) -> None:
    folder = used()
    assert folder == own_cache / "compiled" / cache.machine_key()
    assert {stat.S_IMODE(one.stat().st_mode) for one in (own_cache, folder.parent, folder)} == {0o700}
    cache._folder.cache_clear()
    (folder / "program").write_text("")
    assert used() == folder and (folder / "program").exists() and len(list(folder.iterdir())) == 1


def test_headers_are_stored_there_too() -> None:
    from torch._inductor import codecache

    folder = used()
    assert str(folder / "headers") == codecache._HEADER_DIR
    assert codecache._HEADER_LOCK_DIR.startswith(str(folder))


def test_the_default_is_in_the_user_s_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert used().parent == tmp_path / "xdg/rl_training/compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert used().parent == tmp_path / "home/.cache/rl_training/compiled"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started for a user whom it does not know."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv(cache.VARIABLE)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.warns(Note, match=r"~/\.cache/rl_training is not used, so nothing compiled is stored: .*home"):
        assert used().is_dir()


def test_a_folder_that_others_can_write_to_is_not_used(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_cache.mkdir()
    own_cache.chmod(0o777)
    with pytest.warns(Note, match="can be written by other users"):
        folder = used()
    assert own_cache not in folder.parents and stat.S_IMODE(folder.stat().st_mode) == 0o700
    own_cache.chmod(0o755)
    cache._folder.cache_clear()
    assert own_cache in used().parents
    cache._folder.cache_clear()
    monkeypatch.setattr(cache.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(Note, match="belongs to another user"):
        assert own_cache not in used().parents


def test_a_link_or_a_file_is_not_used(own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    own_cache.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(Note, match="is no folder"):
        used()
    own_cache.unlink()
    own_cache.write_text("")
    cache._folder.cache_clear()
    with pytest.warns(Note, match="File exists"):
        used()


def test_a_path_with_spaces_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch splits the commands of the compiler at them."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "my cache"))
    with pytest.warns(Note, match="my cache is not used, .* does not quote spaces"):
        assert tmp_path not in used().parents
    assert not (tmp_path / "my cache").exists()
    with cache.compile_cache("cuda"):
        assert tmp_path / "my cache" in Path(os.environ[cache.TORCH_VARIABLE]).parents


def test_other_places_with_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CXX", cache.TORCH_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "/lib")
    monkeypatch.setattr(torch, "__path__", ["/lib/torch"])
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: f"/{name}")
    assert cache.spaced_place() is None
    monkeypatch.setattr(sysconfig, "get_path", lambda name: f"/my python/{name}")
    assert cache.spaced_place() == "/my python/include"
    monkeypatch.setattr(tempfile, "tempdir", "/my folder")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: f"/{name}")
    assert cache.spaced_place() == "/my folder"
    monkeypatch.setattr(torch, "__path__", ["/my environment/torch"])
    assert cache.spaced_place() == "/my environment/torch"
    monkeypatch.setenv(cache.TORCH_VARIABLE, "/my programs")
    assert cache.spaced_place() == "/my programs"
    monkeypatch.delenv(cache.TORCH_VARIABLE)
    monkeypatch.setenv("CXX", "/my tools/g++")
    assert cache.spaced_place() == "/my tools/g++"


def test_off_and_the_user_s_own_setting_of_torch(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, "off")
    folder = used()
    assert folder.is_dir() and not own_cache.exists()
    monkeypatch.setenv(cache.TORCH_VARIABLE, "mine")
    monkeypatch.setenv(cache.VARIABLE, str(own_cache))
    assert used() == Path("mine") and not own_cache.exists()


def test_a_process_below_one_that_compiled_chooses_again(own_cache: Path, tmp_path: Path) -> None:
    """The folder that it inherits is not the user's: it may be temporary, and is marked while the process compiles."""
    used()
    program = (
        "import os, rl_training\nfrom rl_training.engine import compile_cache as cache\n"
        "with cache.compile_cache(): print(os.environ[cache.TORCH_VARIABLE])\n"
    )
    env = {**os.environ, cache.VARIABLE: str(tmp_path / "other")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).is_relative_to(own_cache)


def test_what_a_killed_process_left_is_discarded(own_cache: Path) -> None:
    folder = used()
    (folder / "half.so").write_text("")
    with pytest.raises(KeyboardInterrupt), cache.compile_cache():
        raise KeyboardInterrupt
    (marker,) = folder.glob(f"{cache.MARKER}*")
    with marker.open() as file:  # its process lives
        fcntl.flock(file, fcntl.LOCK_EX)
        cache._folder.cache_clear()
        assert used() == folder and (folder / "half.so").exists()
    cache._folder.cache_clear()
    assert used() == folder and not list(folder.iterdir())
    assert [one.name for one in folder.parent.iterdir()] == [folder.name]


def test_folders_that_were_not_used_for_long_are_removed(own_cache: Path) -> None:
    parent = own_cache / "compiled"
    for number in range(cache.MAX_FOLDERS + 3):
        folder = parent / f"{number:032x}"
        folder.mkdir(parents=True, mode=0o700)
        os.utime(folder, (number, number))
    own_cache.chmod(0o700), parent.chmod(0o700)
    (parent / "notes").mkdir()
    kept = used()
    left = {one.name for one in parent.iterdir()}
    assert len(left) == cache.MAX_FOLDERS + 1 and {"notes", kept.name} < left and f"{0:032x}" not in left


def test_the_key_changes_with_what_compiled_code_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = [cache.machine_key()]
    assert keys == [cache.machine_key()]
    changes = [
        (cache, "processor_facts", lambda: ["another"]),
        (cache, "libraries", lambda: {"mkl": "another"}),
        (cache, "_compiler", lambda: ["another"]),
        (torch, "__version__", "another"),
        (cache, "source_digest", lambda package: "another"),
    ]
    for owner, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            keys.append(cache.machine_key())
    monkeypatch.setenv(numerics.VARIABLE, "native")
    keys.append(cache.machine_key())
    assert len(set(keys)) == len(changes) + 2


def test_the_digest_of_the_source_has_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    digests = [cache.source_digest(tmp_path)]
    (tmp_path / "a.py").write_text("2")
    digests.append(cache.source_digest(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.append(cache.source_digest(tmp_path))
    assert len(set(digests)) == 3


def test_auto_does_not_look_at_the_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plans() -> list[object]:
        configs = [TrainConfig("sac", "Pendulum-v1", total_timesteps=steps, device="cpu") for steps in (5_000, 10**6)]
        spec = EnvSpec(vector(3), continuous(1))
        return [choose_plan(config, parse_settings(config)[1], spec) for config in configs]

    monkeypatch.setattr("rl_training.run.plan.compile_obstacle", lambda device: None)
    monkeypatch.setattr(cache, "machine_key", lambda: pytest.fail("the cache was looked at"))
    before = plans()
    folder = own_cache / "compiled" / "some"
    folder.mkdir(parents=True)
    (folder / "program").write_text("")
    assert plans() == before
    monkeypatch.setenv(cache.VARIABLE, "off")
    assert plans() == before and [plan.compiled for plan in before] == [False, True]  # type: ignore[attr-defined]
