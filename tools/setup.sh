#!/usr/bin/env bash
# Installs what building and testing need on Debian 12: LLVM 19, a build tool chain, PyTorch (CPU) if no torch is there.
# Leaves the name of the Python to use in build/python.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
python=${PYTHON:-python3}

packages=(llvm-19-dev llvm-19-tools lld-19 libzstd-dev zlib1g-dev libgtest-dev libcli11-dev ccache g++ git)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if ((${#missing[@]})); then
  echo "installing: ${missing[*]}"
  sudo=""
  [[ $(id -u) == 0 ]] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# A Python that the system manages takes no packages: use a virtual environment beside the build.
if "$python" -c 'import os, sys, sysconfig; sys.exit(not (sys.prefix == sys.base_prefix and os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))))'; then
  [[ -x build/venv/bin/python ]] || "$python" -m venv --system-site-packages build/venv
  python=$PWD/build/venv/bin/python
fi
have() { "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }
have torch || "$python" -m pip install -q torch==2.13.0
wanted=()
for pair in scikit_build_core:scikit-build-core ninja:ninja cmake:cmake pytest:pytest xdist:pytest-xdist lit:lit transformers:transformers \
            matplotlib:matplotlib rich:rich numpy:numpy expecttest:expecttest ruff:ruff==0.14.5 clang_format:clang-format==19.1.7 \
            clang_tidy:clang-tidy==19.1.0.1; do
  have "${pair%%:*}" || wanted+=("${pair##*:}")
done
if ((${#wanted[@]})); then
  before=$("$python" -c 'import torch; print(torch.__version__)')
  "$python" -m pip install -q "${wanted[@]}"
  after=$("$python" -c 'import torch; print(torch.__version__)')
  [[ $before == "$after" ]] || { echo "torch changed from $before to $after while installing ${wanted[*]}" >&2; exit 1; }
fi
# Triton alone: PyTorch for the CPU wants none, and its tests need no more than NumPy beside it.
have triton || "$python" -m pip install -q --no-deps triton==3.6.0 || echo "no triton package here: the tests of its kernels are skipped" >&2
command -v "$python" >build/python
