"""Triton's interpreter: cases of a script in a process of their own, as Triton decides at its import whether it interprets."""

import json
import os
import pathlib
import subprocess
import sys
import traceback


def interpreted_by(script, *names):
    """What is wrong with each case of a script beside this file that ends with `report`: "" where nothing is."""
    here = pathlib.Path(__file__).parent
    path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(here / script), *names],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def report(cases, check):
    """Prints what `check` says or raises of the cases that the command line names, or of all."""
    found = {}
    for case in sys.argv[1:] or cases:
        try:
            found[case] = check(case) or ""
        except Exception:
            found[case] = traceback.format_exc()
    print(json.dumps(found))
