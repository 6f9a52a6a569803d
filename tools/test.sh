#!/usr/bin/env bash
# Tests: tools/test.sh [KIND...], by default all but sweeps.
#   style    format, lint, lengths
#   unit     C++
#   text     golden files
#   python   against eager PyTorch
#   sweeps   against eager PyTorch on more of what is drawn or listed: random programs, samples and dtypes of each operator
# JOBS: how many processes at a time (default: the number of cores, no more than 8, since each loads PyTorch).
set -uo pipefail
cd "$(dirname "$0")/.."
python=${BRAZE_PYTHON:-python3}
export BRAZE_STRICT=1 BRAZE_VERIFY=1 HF_HUB_OFFLINE=1 BRAZE_CACHE_DIR=$PWD/build/test-cache
jobs=${JOBS:-$(($(nproc) < 8 ? $(nproc) : 8))}
kinds=(${@:-style unit text python})
failed=()
# A test of any file goes to the process that is idle; each test begins with empty caches of its own process.
pytest() { "$python" -m pytest -n "$jobs" --dist worksteal "$@"; }
# Twice as many samples and more dtypes of each operator, and ten times as many random programs, by seeds that `python` has not.
sweeps() {
  BRAZE_OPINFO_SAMPLES=4 BRAZE_RANDOM_FIRST=100000 BRAZE_RANDOM_COUNT=1500 \
    pytest tests/python/{opinfo,random_tensors,random_programs,random_world}_test.py
}
for kind in "${kinds[@]}"; do
  case $kind in
    style) tools/style.sh || failed+=(style) ;;
    unit) ctest --test-dir build --output-on-failure -j "$jobs" || failed+=(unit) ;;
    text) "$python" -c "import lit.main; lit.main.main()" -v tests/filetests || failed+=(text) ;;
    python) pytest tests/python || failed+=(python) ;;
    sweeps) sweeps || failed+=(sweeps) ;;
    *) echo "unknown kind of test: $kind (style, unit, text, python, sweeps)" >&2; exit 2 ;;
  esac
done
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all tests passed: ${kinds[*]}"
