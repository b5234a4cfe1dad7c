"""Marks the tests that need a C++ compiler: torch compiles updates with it."""

from __future__ import annotations

import pytest

from rl_training.run.plan import compile_obstacle

_obstacle = compile_obstacle("cpu")
needs_compiler = pytest.mark.skipif(_obstacle is not None, reason=str(_obstacle))
