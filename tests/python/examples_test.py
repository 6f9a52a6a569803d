"""The scripts in examples/ run as they are."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(f.name for f in FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script):
    env = {**os.environ, "BRAZE_STRICT": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(FOLDER / script)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_the_list_is_complete():
    told = re.findall(r"^\| `(\w+\.py)` \|", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(told) == SCRIPTS
