#!/usr/bin/env bash
# Build the wheel (or with the argument sdist the source distribution), install it and use it from an empty directory, so
# that a file it forgot is noticed. The dependencies come from the interpreter in $PYTHON; the package itself must not.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
kind="${1:-wheel}"
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
    echo "$kind test: failed: $*" >&2
    exit 1
  fi
}

# Built from a copy: a stale build/ or egg-info in the checkout would put deleted files into the wheel.
mkdir "$tmp/tree"
cp -R pyproject.toml README.md LICENSE src "$tmp/tree"
rm -rf "$tmp"/tree/src/*.egg-info
step "$python" -m build "--$kind" --no-isolation --outdir "$tmp/dist" "$tmp/tree"
step "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --target "$tmp/site" "$tmp"/dist/*

export PYTHONPATH="$tmp/site"
besides() { (cd "$1" && find rl_training -name '*.pyi' -o -name py.typed -o -name '*.cpp') | sort; } # no modules
step diff <(besides "$root/src") <(besides "$tmp/site")
step scripts/use_package.sh "$python" "$tmp/site" "$tmp/site/bin/rl-training" "$tmp/runs"
built=("$tmp"/dist/*)
echo "$kind test: ${built[0]##*/} installs, lists and trains away from the checkout"
