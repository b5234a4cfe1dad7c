#!/usr/bin/env bash
# Install the library on a CPU into a virtual environment and try it: the steps of the Containerfile, for any machine.
# container_setup.sh PREFIX [EXTRAS]    PYTHON: the interpreter; TORCH_INDEX: a further index that has torch's CPU builds
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
mkdir -p "${1:?the folder to install into}"
prefix="$(cd "$1" && pwd)" extras="${2:-}"
"${PYTHON:-python3}" -m venv "$prefix"
python="$prefix/bin/python"
install=("$python" -m pip install --quiet --no-cache-dir --disable-pip-version-check -c "$root/constraints.txt")
"${install[@]}" torch ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}
if [ "$("$python" -c 'import torch; print(torch.version.cuda)')" != None ]; then
  echo "this torch is built for CUDA, gigabytes too large: set TORCH_INDEX to the index of PyTorch's CPU builds" >&2
  exit 1
fi
"${install[@]}" "$root${extras:+[$extras]}"
runs="$(mktemp -d)"
trap 'rm -rf "$runs"' EXIT
"$root/scripts/use_package.sh" "$python" "$prefix" "$prefix/bin/rl-training" "$runs" >/dev/null
echo "installed: $("$python" -c 'import rl_training; print(rl_training.__version__)') in $prefix"
