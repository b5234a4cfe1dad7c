"""The package as installed: version, light start-up, shipped files."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rl_training

PACKAGE = Path(rl_training.__file__).resolve().parent
REPOSITORY = Path(__file__).resolve().parents[2]
HELP = ("-m", "rl_training", "--help")


def run_python(*args: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter on the package under test, whether it is installed or only on the path."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def imported_modules(*args: str) -> set[str]:
    """The modules that `python ARGS` imports, from the interpreter's own report."""
    result = run_python("-X", "importtime", *args)
    assert result.returncode == 0, result.stderr[-2000:]
    lines = [line for line in result.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_version_matches_the_installed_distribution() -> None:
    assert isinstance(rl_training.__version__, str)
    try:
        installed = importlib.metadata.version("rl-training")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("rl-training is on the path but not installed")
    assert rl_training.__version__ == installed


def test_version_is_a_literal_that_the_build_can_read_without_importing() -> None:
    tree = ast.parse((PACKAGE / "core" / "version.py").read_text(encoding="utf-8"))
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(values["__version__"]) == rl_training.__version__


def test_the_import_report_does_see_torch() -> None:
    assert "torch" in imported_modules("-c", "import torch")


def test_an_agent_that_only_acts_imports_nothing_that_trains() -> None:
    program = "import sys; from rl_training import SAC; SAC('Pendulum-v1'); print(*sys.modules)"
    found = run_python("-c", program).stdout.split()
    assert "rl_training.algorithms.sac" in found
    loops = ("rl_training.loops", "rl_training.report", "rl_training.run.run", "rl_training.run.session")
    assert not [name for name in found if name.startswith(loops)]


@pytest.mark.parametrize("args", [("-c", "import rl_training"), HELP], ids=["import", "help"])
def test_starting_does_not_import_torch(args: tuple[str, ...]) -> None:
    imported = imported_modules(*args)
    assert "rl_training" in imported
    assert "torch" not in imported


def test_the_installed_command_gives_help_without_importing_torch() -> None:
    command = Path(sys.executable).with_name("rl-training")
    if not command.exists():
        pytest.skip("the rl-training command is not installed beside this interpreter")
    assert "torch" not in imported_modules(str(command), "--help")


def test_help_answers_within_a_second() -> None:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = run_python(*HELP)
        seconds.append(time.perf_counter() - start)
        assert result.returncode == 0, result.stderr
        assert "train" in result.stdout
    assert min(seconds) < 1.0, f"--help took {min(seconds):.2f} s at best"


def test_type_marker_is_shipped() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_every_directory_of_modules_is_a_package() -> None:
    # A directory without __init__.py works in a checkout and is missing from the wheel.
    directories = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(path.relative_to(PACKAGE)) for path in directories if not (path / "__init__.py").is_file()] == []


def test_repository_configs_are_the_packaged_files() -> None:
    packaged = PACKAGE / "assets" / "configs"
    names = sorted(path.relative_to(packaged) for path in packaged.rglob("*.yaml"))
    assert names, f"no config under {packaged}"
    for name in names:
        assert (REPOSITORY / "configs" / name).samefile(packaged / name), name


@pytest.mark.sweep
def test_the_source_distribution_installs_and_trains() -> None:
    """As `make test` does with the wheel."""
    pytest.importorskip("build")
    env = {**os.environ, "PYTHON": sys.executable}
    script = str(REPOSITORY / "scripts" / "wheel_smoke.sh")
    done = subprocess.run(["bash", script, "sdist"], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"rl_training-{rl_training.__version__}.tar.gz installs, lists and trains" in done.stdout
