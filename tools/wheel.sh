#!/usr/bin/env bash
# Builds a wheel against a PyTorch and a CPython that need not be installed: tools/wheel.sh TORCH_WHEEL PYTHON [OUT]
#   TORCH_WHEEL  torch-*.whl, only unpacked: headers, and the libraries as names to link to
#   PYTHON       an interpreter of the version that the wheel is for, with its headers
#   OUT          folder for the wheel (default: build/wheels)
# The folders without PyTorch and Python are taken from build/, which must be built; the others are compiled in build/wheel-*.
set -euo pipefail
cd "$(dirname "$0")/.."
torch_wheel=$(readlink -f "$1") python=$(readlink -f "$2") out=${3:-build/wheels}
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
name=$(basename "$torch_wheel" | cut -d- -f2 | cut -d+ -f1)
build=build/wheel-$tag-torch$name
torch=$build/torch
if [ ! -f "$torch/lib/libtorch_python.so" ]; then
  mkdir -p "$build"
  unzip -q -o "$torch_wheel" 'torch/include/*' torch/lib/libc10.so torch/lib/libtorch.so torch/lib/libtorch_cpu.so torch/lib/libtorch_python.so -d "$build"
fi
[ -f build/build.ninja ] || { echo "build/ is not configured" >&2; exit 1; }
core=$(ninja -C build -t targets all | grep -oE '^libbraze_[a-z]+\.a' | grep -vE 'trace|capture' | sort -u)
nice -n 19 ninja -C build -j"${JOBS:-1}" $core
[ -f "$build/build.ninja" ] || cmake -S . -B "$build" -G Ninja -DBRAZE_TESTS=OFF -DBRAZE_CORE_BUILD="$PWD/build" \
  -DBRAZE_TORCH_ROOT="$PWD/$torch" -DPython_EXECUTABLE="$python" >"$build/configure.log"
nice -n 19 ninja -C "$build" -j"${JOBS:-1}" braze_C
# The wheel: the package, the stripped extension, its metadata.
"$python" - "$build" "$out" "$tag" <<'EOF'
import base64, hashlib, pathlib, re, subprocess, sys, zipfile
build, out, tag = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
version = re.search(r'version = "(.*)"', pathlib.Path("pyproject.toml").read_text())[1]
files = {str(p.relative_to("python")): p.read_bytes() for p in pathlib.Path("python/braze").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
library = next(build.glob("_C.*.so"))
stripped = build / "stripped.so"
subprocess.run(["strip", "-o", stripped, library], check=True)
files[f"braze/{library.name}"] = stripped.read_bytes()
files["braze/_built.py"] = (build / "_built.py").read_bytes()
info = f"braze-{version}.dist-info"
files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: braze\nVersion: {version}\n".encode()
files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tools/wheel.sh\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-linux_x86_64\n".encode()
files[f"{info}/entry_points.txt"] = b"[torch_dynamo_backends]\nbraze = braze._backend:backend\n"
digest = lambda b: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b"=").decode()
record = "".join(f"{n},{digest(b)},{len(b)}\n" for n, b in files.items()) + f"{info}/RECORD,,\n"
files[f"{info}/RECORD"] = record.encode()
out.mkdir(parents=True, exist_ok=True)
wheel = out / f"braze-{version}-{tag}-{tag}-linux_x86_64.whl"
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
    for n, b in files.items():
        z.writestr(n, b)
print(wheel, wheel.stat().st_size >> 20, "MiB")
EOF
