#!/usr/bin/env bash
# All wheels, in build/wheels/out: one for each CPython, with an extension for each PyTorch.
#   PYTHONS  interpreters (default: python3.11 python3.12 python3.13, those that are there)
#   TORCHES  versions of PyTorch (default: the newest of each minor version of src/trace/pytorch/versions.def)
# Fetches PyTorch's wheels by pip, whose settings apply, into build/wheels/torch: for their headers.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/wheels/torch
read -ra torches <<<"${TORCHES:-$(sed -nE 's/^BRAZE_PYTORCH_VERSION\((.*)\)/\1.*/p' src/trace/pytorch/versions.def | paste -sd' ')}"
read -ra pythons <<<"${PYTHONS:-$(for v in 3.11 3.12 3.13; do command -v python$v || true; done | paste -sd' ')}"
((${#pythons[@]})) || { echo "no python3.11, python3.12 or python3.13 here: say PYTHONS=..." >&2; exit 1; }
for python in "${pythons[@]}"; do
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  wheels=()
  for version in "${torches[@]}"; do
    found=$(compgen -G "build/wheels/torch/torch-${version}[-+]*$tag-$tag-*.whl" || true)
    if [[ -z $found ]]; then
      "$python" -m pip download -q --no-deps --only-binary :all: -d build/wheels/torch "torch==$version"
      found=$(compgen -G "build/wheels/torch/torch-${version}[-+]*$tag-$tag-*.whl")
    fi
    wheels+=("$(head -1 <<<"$found")")
  done
  tools/wheel.sh "$python" "${wheels[@]}"
done
