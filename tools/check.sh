#!/usr/bin/env bash
# Checks that are no tests of their own: tools/check.sh [STEP...], all of them without a name. Each step says "ok" or "FAILED" with its time,
# and leaves what it printed in build/check/STEP.log; the sanitizers' reports are build/check/STEP.report.*.
#   FILES   of asan-python, test files (default: all that need no GPU); of tidy, sources (default: those that differ from BASE)
#   BASE    a commit (default: where this branch left main)
#   JOBS    how many programs at a time (default: the number of cores)
#   SECONDS_OF_STRESS, SEED   of tsan-stress
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD logs=$PWD/build/check
python=$("${BRAZE_PYTHON:-python3}" -c 'import sys; print(sys.executable)')
jobs=${JOBS:-$(nproc)}
export BRAZE_STRICT=1 BRAZE_VERIFY=1 HF_HUB_OFFLINE=1
mkdir -p "$logs"

# A new step is a row here and a function of its name, with _ for -, that fails if the step does.
steps=(
  style           # format, lint, lengths
  tidy            # clang-tidy on C++ files, whose rules are .clang-tidy; warnings are errors
  asan-build      # the extension, braze-opt and the unit tests with AddressSanitizer and UBSan, in build/asan
  asan-unit       # the C++ unit tests, leaks included
  asan-text       # the golden text tests, leaks included
  asan-python     # the Python tests, one process for each file
  tsan-build      # the same with ThreadSanitizer, in build/tsan
  tsan-unit       # the C++ unit tests
  tsan-stress     # eight threads that compile, call and forget
)

# Preloaded, since Python itself was not built with it; the C++ library too, whose functions it looks up as the process starts.
runtime_of() { echo "$(g++ -print-file-name="lib$1.so"):$(g++ -print-file-name=libstdc++.so.6)"; }

# Options of the sanitizers for a step: reports go to files of that name. What is off:
#   detect_leaks in Python   the interpreter itself leaves much to the end of the process
#   allocator_may_return_null   asking for too much memory is an error of PyTorch's that tests expect
options_for() {
  export ASAN_OPTIONS="detect_leaks=${2:-0}:detect_stack_use_after_return=1:allocator_may_return_null=1:log_path=$1"
  export LSAN_OPTIONS="suppressions=$root/tools/sanitizers/leaks.supp:print_suppressions=0"
  export UBSAN_OPTIONS="print_stacktrace=1:log_path=$1"
  export TSAN_OPTIONS="suppressions=$root/tools/sanitizers/threads.supp:history_size=4:log_path=$1"
  export BRAZE_CACHE_DIR=$root/build/check/cache
}

# No step is well that left a report, whatever its tests say.
no_reports() {
  local found
  found=$(compgen -G "$1.*") || return 0
  echo "reports:" $found
  head -40 $found
  return 1
}

style() { tools/style.sh; }

# Of a build that is configured only: each file alone, where the real one compiles several at a time.
tidy() {
  local base files=${FILES:-}
  base=${BASE:-$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main)} || return 1
  files=${files:-$(git diff --name-only --diff-filter=d "$base"; git ls-files -o --exclude-standard)}
  files=$(printf '%s\n' $files | grep -E '^(src|tools|tests/unit)/.*\.cpp$' | sort -u)
  [[ -n $files ]] || { echo "no C++ file differs from $base"; return 0; }
  cmake -S . -B build/tidy -G Ninja -DBRAZE_TORCH=ON -DBRAZE_UNITY=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPython_EXECUTABLE="$python" || return 1
  printf '%s\n' $files | xargs -P "$jobs" -n 1 "$python" -c 'from clang_tidy import clang_tidy; clang_tidy()' \
    -p build/tidy --quiet --warnings-as-errors='*'
}

build() {  # folder, sanitizer
  local into=build/$1
  cmake -S . -B "$into" -G Ninja -DBRAZE_SANITIZE="$2" -DPython_EXECUTABLE="$python" &&
    cmake --build "$into" -- -j "$jobs" &&
    cmake --install "$into" --prefix "$into/stage" --component extension && cp -r python/braze "$into/stage/"
}

unit() {  # folder, report, leaks
  options_for "$2" "$3"
  local rc=0
  ctest --test-dir "build/$1" --output-on-failure -j "$jobs" || rc=1
  no_reports "$2" && return $rc
}

asan_build() { build asan address; }
asan_unit() { unit asan "$1" 1; }
asan_text() {
  options_for "$1" 1
  local rc=0
  BRAZE_BUILD=build/asan "$python" -c "import lit.main; lit.main.main()" -v tests/filetests || rc=1
  no_reports "$1" && return $rc
}

# AddressSanitizer's allocator may be locked by another thread when a process forks, and is so for ever in the child.
forks='tests/python/threads_test.py::test_threads[forks while threads call]'

# Of Python's objects each has memory of its own, so that a use after its end is seen.
python_file() {  # report, file
  local report=$1.$(basename "$2" .py) start=$SECONDS rc=0
  options_for "$report"
  env LD_PRELOAD="$(runtime_of asan)" PYTHONMALLOC=malloc PYTHONPATH="$root/build/asan/stage" BRAZE_SUITE_LIMIT=400 \
    timeout -k 10 3000 "$python" -m pytest -p no:cacheprovider --deselect "$forks" "$2" >"$report.log" 2>&1 || rc=$?
  ((rc == 5)) && rc=0  # no test in it for this machine
  mv "$report.log" "$logs/asan-python-$(basename "$2" .py).log"
  if no_reports "$report" && ((rc == 0)); then
    echo "ok      $2  $((SECONDS - start)) s"
  else
    echo "FAILED  $2  $((SECONDS - start)) s, exit status $rc"
    return 1
  fi
}
asan_python() {
  local files=${FILES:-$(ls tests/python/*_test.py | grep -vE '/(cuda|cuda_graphs|triton)_test')}
  export -f python_file options_for no_reports runtime_of
  export root logs python forks
  printf '%s\n' $files | xargs -P "$jobs" -I{} bash -c 'python_file "$0" {}' "$1"
}

tsan_build() { build tsan thread; }
tsan_unit() { unit tsan "$1" 0; }
# Without forks: ThreadSanitizer's runtime ends a child that starts a thread whose address one of its parent's had ("dup thread").
tsan_stress() {
  options_for "$1"
  # Where the kernel spreads addresses further than the runtime of this compiler knows, they stay where they are.
  local fixed=()
  (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)) && fixed=(setarch "$(uname -m)" -R)
  local rc=0
  "${fixed[@]}" env LD_PRELOAD="$(runtime_of tsan)" PYTHONPATH="$root/build/tsan/stage" timeout -k 10 1800 \
    "$python" tests/fuzz/threads.py --seconds "${SECONDS_OF_STRESS:-60}" --seed "${SEED:-1}" --threads 8 --no-fork || rc=$?
  no_reports "$1" && return $rc
}

failed=()
for step in "${@:-${steps[@]}}"; do
  [[ " ${steps[*]} " == *" $step "* ]] || { echo "unknown step: $step (${steps[*]})" >&2; exit 2; }
  start=$SECONDS
  rm -f "$logs/$step".report* "$logs/$step".log
  if "${step//-/_}" "$logs/$step.report" >"$logs/$step.log" 2>&1; then
    printf '%-12s ok      %5d s\n' "$step" $((SECONDS - start))
  else
    printf '%-12s FAILED  %5d s  %s\n' "$step" $((SECONDS - start)) "build/check/$step.log"
    failed+=("$step")
  fi
done
((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; exit 1; }
