"""Native states of MuJoCo, dm_control's suite and ALE environments, as bytes.

Other environments are restored by replaying their episode, as are those with unknown wrappers, which may have state.
The counters of time limits and the state of our own wrappers are included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from rl_training.envs.host.control_suite import ControlSuite
from rl_training.envs.host.factory import Env
from rl_training.envs.host.pixels import ActionRepeat, StatefulWrapper

Bytes = NDArray[np.uint8]
KNOWN_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker, ActionRepeat, ControlSuite, StatefulWrapper)


def native_state(env: Env) -> Bytes | None:
    """The native state, or None if the environment must be replayed instead."""
    limits, stateful, kind = _inspect(env)
    if kind is None:
        return None
    counts = np.array([limit._elapsed_steps or 0 for limit in limits] or [0], np.int64).tobytes()
    parts = [wrapper.get_state() for wrapper in stateful]
    inner: Any = env.unwrapped
    if kind == "mujoco":
        body = _mujoco_state(inner.model, inner.data).tobytes()
    elif kind == "suite":
        body = _suite_state(inner._env)
    else:
        body = inner.clone_state(include_rng=True).serialize()
    whole = counts + b"".join(len(part).to_bytes(8, "little") + part for part in parts) + body
    state: Bytes = np.frombuffer(whole, np.uint8).copy()
    return state


def restore_native(env: Env, state: Bytes) -> bool:
    """Restore `state` in a freshly reset environment. True if its state is then the same, bit for bit."""
    limits, stateful, kind = _inspect(env)
    inner: Any = env.unwrapped
    data = state.tobytes()
    at = 8 * max(len(limits), 1)
    for limit, count in zip(limits, np.frombuffer(data[:at], np.int64), strict=False):
        limit._elapsed_steps = int(count)
    for wrapper in stateful:
        length = int.from_bytes(data[at : at + 8], "little")
        wrapper.set_state(data[at + 8 : at + 8 + length])
        at += 8 + length
    if kind == "mujoco":
        _restore_mujoco(inner.model, inner.data, np.frombuffer(data[at:], np.float64))
    elif kind == "suite":
        _restore_suite(inner._env, data[at:])
    elif kind == "ale":
        from ale_py import ALEState

        inner.restore_state(ALEState(data[at:]))
    now = native_state(env)
    return now is not None and now.tobytes() == data


def _inspect(env: Env) -> tuple[list[Any], list[StatefulWrapper], str | None]:
    """The time limits, our wrappers with state, and the kind of native state."""
    limits: list[Any] = []
    stateful: list[StatefulWrapper] = []
    while isinstance(env, KNOWN_WRAPPERS):
        if isinstance(env, TimeLimit):
            limits.append(env)
        elif isinstance(env, StatefulWrapper):
            stateful.append(env)
        env = env.env
    module, inner = type(env).__module__, env
    if module.startswith("gymnasium.envs.mujoco."):
        return limits, stateful, "mujoco"
    if module == "shimmy.dm_control_compatibility" and _in_suite(inner):
        return limits, stateful, "suite"
    # With sticky actions the emulator's state lacks the action that it may repeat: one restore in four was wrong.
    if module == "ale_py.env" and inner.ale.getFloat("repeat_action_probability") == 0:  # type: ignore[attr-defined]
        return limits, stateful, "ale"
    return limits, stateful, None


def _in_suite(inner: Any) -> bool:
    """Whether it is a task of the suite, whose only state is physics, a counter and random numbers.

    Not lqr, which draws its masses and springs when it is made, unseeded: a fresh copy is another system.
    """
    task = type(inner._env.task).__module__
    of_suite = task.startswith("dm_control.suite.") and task != "dm_control.suite.lqr"
    return of_suite and type(inner._env).__module__ == "dm_control.rl.control"


def _suite_state(env: Any) -> bytes:
    """Step count, random numbers and physics; changes of the model at reset are restored by the episode's seed."""
    own = np.array([env._step_count], np.int64).tobytes() + _random_state(env.task.random)
    return own + _mujoco_state(env.physics.model.ptr, env.physics.data.ptr).tobytes()


def _random_state(random: np.random.RandomState) -> bytes:
    state: Any = random.get_state(legacy=False)
    last = np.array([state["state"]["pos"], state["has_gauss"], state["gauss"]], np.float64)
    return state["state"]["key"].astype(np.uint32).tobytes() + last.tobytes()  # type: ignore[no-any-return]


def _restore_suite(env: Any, data: bytes) -> None:
    twister = 624 * 4
    env._step_count = int.from_bytes(data[:8], "little")
    key = np.frombuffer(data[8 : 8 + twister], np.uint32)
    position, has_gauss, gauss = np.frombuffer(data[8 + twister : 32 + twister], np.float64)
    env.task.random.set_state(("MT19937", key, int(position), int(has_gauss), float(gauss)))
    _restore_mujoco(env.physics.model.ptr, env.physics.data.ptr, np.frombuffer(data[32 + twister :], np.float64))


def _mujoco_state(model: Any, data: Any) -> NDArray[np.float64]:
    """The integration state, and the positions of bodies, which some rewards read from the last step."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind), np.float64)
    mujoco.mj_getState(model, data, state, kind)
    return np.concatenate([state, data.xpos.ravel(), data.xipos.ravel()])


def _restore_mujoco(model: Any, data: Any, state: NDArray[np.float64]) -> None:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    size = mujoco.mj_stateSize(model, kind)
    body = data.xpos.size
    if len(state) != size + 2 * body:
        raise ValueError("the state is of another model")
    mujoco.mj_setState(model, data, state[:size], kind)
    mujoco.mj_forward(model, data)  # derived quantities; it also changes the warm start, hence again:
    mujoco.mj_setState(model, data, state[:size], kind)
    data.xpos[...] = state[size : size + body].reshape(data.xpos.shape)
    data.xipos[...] = state[size + body :].reshape(data.xipos.shape)
