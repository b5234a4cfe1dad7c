#!/usr/bin/env bash
# Use an installed package from an empty directory: help, lists and two short trainings, which write nowhere else.
# use_package.sh PYTHON PREFIX COMMAND RUNS    (the package must lie under PREFIX; RUNS gets the runs)
set -euo pipefail
python="$1" prefix="$2" command="$3" runs="$4"
empty="$(mktemp -d)"
trap 'rm -rf "$empty"' EXIT
cd "$empty"

"$python" -c "
import rl_training, sys
assert rl_training.__file__.startswith(sys.argv[1]), f'{rl_training.__file__} is not the installed package'
from rl_training.runtime.sac_trainer import train_sac  # a module without a file
" "$prefix/"
run_args=(--total-timesteps 300 --eval-episodes 1)
"$command" --help
"$python" -m rl_training --help
"$python" -m rl_training list
"$python" -m rl_training train dqn CartPole-v1 "${run_args[@]}" --output-dir "$runs/plain" --set algo_kwargs.learning_starts=100
"$python" -m rl_training train --config configs/dqn/cartpole.yaml "${run_args[@]}" --output-dir "$runs/config"
if [ -n "$(ls -A)" ]; then
  echo "training wrote outside --output-dir: $(ls -A)" >&2
  exit 1
fi
