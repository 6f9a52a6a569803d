#!/usr/bin/env bash
# How the code is written: tools/style.sh says what differs, with --mend it formats. The rules are .clang-format, pyproject.toml and
# CONTRIBUTING.md: no file above 600 lines.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${BRAZE_PYTHON:-python3}
most=600
clang_format=("$python" -c "from clang_format import clang_format; clang_format()")  # its package has no __main__
cpp() { git ls-files -co --exclude-standard '*.cpp' '*.h'; }

if [[ ${1:-} == --mend ]]; then
  cpp | xargs "${clang_format[@]}" -i
  "$python" -m ruff check -q --fix .
  "$python" -m ruff format -q .
  exit
fi

failed=()
cpp | xargs -P "$(nproc)" -n 40 "${clang_format[@]}" --dry-run -Werror || failed+=("clang-format")
"$python" -m ruff format -q --diff . || failed+=("ruff format")
"$python" -m ruff check -q . || failed+=("ruff check")
long=$(git ls-files -co --exclude-standard '*.cpp' '*.h' '*.py' '*.def' | xargs wc -l | awk -v most=$most '$1 > most && $2 != "total"')
[[ -z $long ]] || { echo "more than $most lines:"; echo "$long"; failed+=("lengths"); }
((${#failed[@]} == 0)) || { printf 'style: %s; make format mends what can be\n' "$(IFS=,; echo "${failed[*]}")"; exit 1; }
