#!/usr/bin/env bash
# Build the wheel and use it from an empty directory, so that a file the wheel forgot is noticed.
# The dependencies come from the interpreter in $PYTHON; the package itself must come from the wheel.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
python="${PYTHON:-.venv/bin/python}"
case "$python" in
  /*) ;;
  */*) python="$root/$python" ;;
  *) python="$(command -v "$python")" ;;
esac

tmp="$(mktemp -d)"
tmp="$(cd "$tmp" && pwd -P)"
trap 'rm -rf "$tmp"' EXIT

# Show a step's output only when it fails.
step() {
  if ! "$@" >"$tmp/log" 2>&1 </dev/null; then
    cat "$tmp/log" >&2
    echo "wheel test: failed: $*" >&2
    exit 1
  fi
}

# Built from a copy: a stale build/ or egg-info in the checkout would put deleted files into the wheel.
mkdir "$tmp/tree" "$tmp/empty"
cp -R pyproject.toml README.md LICENSE src "$tmp/tree"
rm -rf "$tmp"/tree/src/*.egg-info
step "$python" -m build --wheel --no-isolation --outdir "$tmp/dist" "$tmp/tree"
step "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$tmp/site" "$tmp"/dist/*.whl

cd "$tmp/empty"
export PYTHONPATH="$tmp/site"
step "$python" -c "
import rl_training, sys
assert rl_training.__file__.startswith(sys.argv[1]), f'{rl_training.__file__} is not the wheel'
from rl_training.runtime.sac_trainer import train_sac  # a module without a file
" "$tmp/site/"
typed() { (cd "$1" && find rl_training -name '*.pyi' -o -name py.typed) | sort; }
step diff <(typed "$root/src") <(typed "$tmp/site")

run_args=(--total-timesteps 300 --eval-episodes 1)
step "$tmp/site/bin/rl-training" --help
step "$python" -m rl_training --help
step "$python" -m rl_training list
step "$python" -m rl_training train dqn CartPole-v1 "${run_args[@]}" --output-dir "$tmp/runs/plain" --set algo_kwargs.learning_starts=100
step "$python" -m rl_training train --config configs/dqn/cartpole.yaml "${run_args[@]}" --output-dir "$tmp/runs/config"

if [ -n "$(ls -A "$tmp/empty")" ]; then
  echo "wheel test: failed: training wrote outside --output-dir: $(ls -A "$tmp/empty")" >&2
  exit 1
fi
wheel=("$tmp"/dist/*.whl)
echo "wheel test: ${wheel[0]##*/} installs, lists and trains away from the checkout"
