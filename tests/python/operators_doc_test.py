"""docs/operators.md says what the table and the rules say."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_is_current():
    result = subprocess.run([sys.executable, ROOT / "tools" / "operators.py", "--check"])
    assert result.returncode == 0, "run tools/operators.py"
