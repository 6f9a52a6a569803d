#!/usr/bin/env bash
# Builds the extension, braze-opt and the unit tests in build/, and installs the package into $PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
start=$SECONDS
log=build/install.log
if ! "$python" -m pip install --no-build-isolation --no-deps --force-reinstall -v . >"$log" 2>&1; then
  grep -E 'error|Error|FAILED' "$log" | head -40 >&2
  echo "the build failed; all of it is in $log" >&2
  exit 1
fi
echo "built and installed in $((SECONDS - start)) s"
