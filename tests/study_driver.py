"""`rl-training` whose studies start the stand-in program instead of training."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import rl_training.studies.process as process
from rl_training.cli import entry_point

process.PROGRAM = (sys.executable, str(Path(__file__).with_name("stand_in_program.py")))
signal.signal(signal.SIGINT, signal.default_int_handler)  # however we were started
entry_point()
