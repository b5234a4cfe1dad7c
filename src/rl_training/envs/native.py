"""The exact state of environments that can give it: MuJoCo and ALE. Others are brought back by replaying their episode.

A state is plain bytes. Only environments without wrappers that hold state of their own qualify; the time limit counts
along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from rl_training.envs.factory import Env

Bytes = NDArray[np.uint8]
KNOWN_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)


def native_state(env: Env) -> Bytes | None:
    """None if this environment must be replayed instead."""
    time_limit, kind = _look(env)
    if kind is None:
        return None
    elapsed = np.int64(time_limit._elapsed_steps or 0 if time_limit is not None else 0)
    inner: Any = env.unwrapped
    body = _mujoco_state(inner).tobytes() if kind == "mujoco" else inner.clone_state(include_rng=True).serialize()
    state: Bytes = np.frombuffer(elapsed.tobytes() + body, np.uint8).copy()
    return state


def restore_native(env: Env, state: Bytes) -> bool:
    """Put a freshly reset environment into `state`. True if it then says it is in that state, bit for bit."""
    time_limit, kind = _look(env)
    inner: Any = env.unwrapped
    data = state.tobytes()
    if time_limit is not None:
        time_limit._elapsed_steps = int(np.frombuffer(data[:8], np.int64)[0])
    if kind == "mujoco":
        _restore_mujoco(inner, np.frombuffer(data[8:], np.float64))
    elif kind == "ale":
        from ale_py import ALEState

        inner.restore_state(ALEState(data[8:]))
    now = native_state(env)
    return now is not None and now.tobytes() == data


def _look(env: Env) -> tuple[Any, str | None]:
    """The time-limit wrapper, if any, and which kind of native state is inside."""
    time_limit = None
    while isinstance(env, KNOWN_WRAPPERS):
        time_limit = env if isinstance(env, TimeLimit) else time_limit
        env = env.env
    module, inner = type(env).__module__, env
    if module.startswith("gymnasium.envs.mujoco."):
        return time_limit, "mujoco"
    # With sticky actions an emulator's state lacks the action it may repeat: one restore in four went wrong.
    if module == "ale_py.env" and inner.ale.getFloat("repeat_action_probability") == 0:  # type: ignore[attr-defined]
        return time_limit, "ale"
    return time_limit, None


def _mujoco_state(inner: Any) -> NDArray[np.float64]:
    """The integration state, and the positions of bodies: rewards of some environments read last step's."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(inner.model, kind), np.float64)
    mujoco.mj_getState(inner.model, inner.data, state, kind)
    return np.concatenate([state, inner.data.xpos.ravel(), inner.data.xipos.ravel()])


def _restore_mujoco(inner: Any, state: NDArray[np.float64]) -> None:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    size = mujoco.mj_stateSize(inner.model, kind)
    body = inner.data.xpos.size
    if len(state) != size + 2 * body:
        raise ValueError("the state is of another model")
    mujoco.mj_setState(inner.model, inner.data, state[:size], kind)
    mujoco.mj_forward(inner.model, inner.data)  # derived quantities; it also moves the warm start, hence once more:
    mujoco.mj_setState(inner.model, inner.data, state[:size], kind)
    inner.data.xpos[...] = state[size : size + body].reshape(inner.data.xpos.shape)
    inner.data.xipos[...] = state[size + body :].reshape(inner.data.xipos.shape)
