#!/usr/bin/env bash
# All tests, or one kind of: style (format, lint, lengths), unit (C++), text (golden files), python (against eager PyTorch).
set -uo pipefail
cd "$(dirname "$0")/.."
python=${BRAZE_PYTHON:-python3}
export BRAZE_STRICT=1 BRAZE_VERIFY=1 HF_HUB_OFFLINE=1 BRAZE_CACHE_DIR=$PWD/build/test-cache
kinds=(${@:-style unit text python})
failed=()
for kind in "${kinds[@]}"; do
  case $kind in
    style) tools/style.sh || failed+=(style) ;;
    unit) ctest --test-dir build --output-on-failure -j2 || failed+=(unit) ;;
    text) "$python" -c "import lit.main; lit.main.main()" -v tests/filetests || failed+=(text) ;;
    python) "$python" -m pytest tests/python || failed+=(python) ;;
    *) echo "unknown kind of test: $kind (style, unit, text, python)" >&2; exit 2 ;;
  esac
done
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all tests passed: ${kinds[*]}"
