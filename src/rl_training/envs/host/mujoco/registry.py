"""The environments that threads can step: Gymnasium's own MuJoCo tasks, with the code that the formulas equal."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import gymnasium as gym

from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.mujoco import arms, planar, spatial
from rl_training.envs.host.mujoco.tasks import Task

PACKAGE = "gymnasium.envs.mujoco"
# By Gymnasium's module of the task: our class, and the digest of the functions that a step calls.
TASKS: dict[str, tuple[type[Task], str]] = {
    "half_cheetah_v5": (planar.HalfCheetah, "1f5069b4e41984a4"),
    "half_cheetah_v4": (planar.HalfCheetahV4, "72c7a83e844f5468"),
    "hopper_v5": (planar.Hopper, "3540bee56e461526"),
    "hopper_v4": (planar.HopperV4, "88f9ae0047a327bf"),
    "walker2d_v5": (planar.Walker2d, "b7ca0df5cd5f4fef"),
    "walker2d_v4": (planar.Walker2dV4, "07e79165f9a89eae"),
    "ant_v5": (spatial.Ant, "28a6f37cde78f272"),
    "ant_v4": (spatial.AntV4, "50b12b897b322a18"),
    "humanoid_v5": (spatial.Humanoid, "ca752cb928caa39a"),
    "humanoid_v4": (spatial.HumanoidV4, "6b6e1912d5ddd72e"),
    "swimmer_v5": (planar.Swimmer, "525b1e658dd66eee"),
    "swimmer_v4": (planar.SwimmerV4, "cfbea52cf2309871"),
    "reacher_v5": (arms.Reacher, "dac8b1e375070925"),
    "reacher_v4": (arms.ReacherV4, "dc4730d8ce15d029"),
    "pusher_v5": (arms.Pusher, "12a40d1021065968"),
    "inverted_pendulum_v5": (arms.InvertedPendulum, "7b88d2ad9863d69c"),
    "inverted_pendulum_v4": (arms.InvertedPendulumV4, "7f82b3e803e64a74"),
    "inverted_double_pendulum_v5": (arms.InvertedDoublePendulum, "055cdf5b87349408"),
    "inverted_double_pendulum_v4": (arms.InvertedDoublePendulumV4, "9b4a67d5adeffc4e"),
}
# Functions that all steps call, by module and class.
SHARED = {
    (f"{PACKAGE}.mujoco_env", "MujocoEnv"): (
        ("_step_mujoco_simulation", "do_simulation", "dt", "get_body_com", "state_vector"),
        "b9e0ebeb60b21f34",
    ),
    ("gymnasium.wrappers.common", "TimeLimit"): (("step",), "c1b3039e0a163c23"),
    ("gymnasium.wrappers.common", "OrderEnforcing"): (("step",), "cb9f75ee752b8d99"),
}
NOT_IN_A_STEP = ("__init__", "reset_model", "_get_reset_info")


def threaded_task(source: EnvSource) -> type[Task] | None:
    """The task whose rows threads can step; None where the environment is another, wrapped, or of other code."""
    if source.factory is not None or source.masked or source.kwargs.get("wrappers") or "render_mode" in source.kwargs:
        return None
    spec = gym.registry.get(source.env_id)
    if spec is None or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    module, _, name = spec.entry_point.partition(":")
    package, _, task = module.rpartition(".")
    if package != PACKAGE or task not in TASKS:
        return None
    found, digest = TASKS[task]
    return found if step_digest(module, name) == digest and _shared_code_is_known() else None


@lru_cache
def _shared_code_is_known() -> bool:
    return all(step_digest(*where, names) == digest for where, (names, digest) in SHARED.items())


@lru_cache
def step_digest(module: str, class_name: str, names: tuple[str, ...] = ()) -> str | None:
    """The digest of functions of a class and of its module, as text: of those named, or all that a step may call."""
    try:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            return None
        text = Path(spec.origin).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (ImportError, gym.error.Error, OSError, ValueError, SyntaxError):  # MuJoCo or the source is missing
        return None
    of_class = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name), None)
    if of_class is None:
        return None
    functions = [*_functions(tree.body), *_functions(of_class.body)]
    chosen = [one for one in functions if (one.name in names if names else one.name not in NOT_IN_A_STEP)]
    lines = text.splitlines()
    parts = ["\n".join(lines[_first_line(one) : one.end_lineno]) for one in chosen]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _functions(body: Iterable[ast.stmt]) -> list[ast.FunctionDef]:
    return [node for node in body if isinstance(node, ast.FunctionDef)]


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)]) - 1
