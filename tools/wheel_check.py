"""Installs wheels in fresh virtual environments, one for each (Python, PyTorch), and runs the smoke tests there.

    tools/wheel_check.py [--wheels FOLDER] [--find-links FOLDER] [--table FILE] PYTHON:TORCH...    as python3.12:2.11.0

Each pair prints a row of the table in docs/wheels.md; --table puts it there. An environment is deleted after its run.
"""

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/wheels"
FIRST = """
import time, torch
start = time.perf_counter()
import braze
model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
x = torch.randn(8, 32, 64)
with torch.no_grad():
    assert torch.allclose(braze.compile(model)(x), model(x), atol=1e-5)
print(time.perf_counter() - start)
"""


def run(*command, **kwargs):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **kwargs)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(python, torch, wheels, find_links):
    """The cells of a row."""
    version = run(python, "-c", "import platform; print(platform.python_version())").strip()
    tag = "cp" + "".join(version.split(".")[:2])
    (wheel,) = wheels.glob(f"braze-*-{tag}-{tag}-*.whl")
    folder = BUILD / "check" / f"{tag}-torch{torch}"
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder / "venv")
    own = folder / "venv/bin/python"
    # With uv, since it unpacks NVIDIA's libraries once for all environments.
    uv = [BUILD / "venv/bin/uv", "pip", "install", "-q", "--no-config", "--python", own]
    links = ["--find-links", find_links] if find_links else []
    run(*uv, *links, f"torch=={torch}", "numpy", "pytest", "llvmlite", "triton")
    run(own, "-c", "import torch")  # its bytecode is compiled once
    start = time.perf_counter()
    run(own, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    # Nothing of this checkout, no compiler and no kernels of before.
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests/python/smoke_test.py", tests)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BRAZE", "PYTHON", "LD_", "CC", "CXX"))}
    environment = kept | {"BRAZE_STRICT": "1", "BRAZE_CACHE_DIR": str(folder / "cache"), "PATH": str(own.parent)}
    installed = time.perf_counter() - start
    first = installed + float(run(own, "-c", FIRST, cwd=tests, env=environment))
    done = subprocess.run(
        [own, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tests, tests],
        capture_output=True, text=True, cwd=tests, env=environment,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
    result = re.sub(r" in [\d.]+s.*| =+|=+ ", "", done.stdout.strip().splitlines()[-1]).strip()
    built_for = run(own, "-c", "import torch; print(torch.__version__)").strip()
    shutil.rmtree(folder)
    return [version, built_for, result, f"{first:.1f} s", datetime.date.today().isoformat()], done.returncode


def put(row, table):
    """Replaces the row of the same versions, or adds one; the rows stay in order."""
    text = table.read_text()
    head, _, rest = text.partition("| --- | --- | --- | --- | --- |\n")
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in re.match(r"(?:\|.*\n)*", rest)[0].splitlines()]
    after = rest[len(re.match(r"(?:\|.*\n)*", rest)[0]) :]
    rows = [r for r in rows if r[:2] != row[:2]] + [row]
    number = lambda text: [int(n) for n in re.findall(r"\d+", text)[:3]]
    rows.sort(key=lambda r: (number(r[0]), number(r[1])))
    lines = "".join("| " + " | ".join(r) + " |\n" for r in rows)
    table.write_text(head + "| --- | --- | --- | --- | --- |\n" + lines + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=BUILD / "out")
    parser.add_argument("--find-links", type=Path, help="folder with torch-*.whl that need not be fetched")
    parser.add_argument("--table", type=Path)
    parser.add_argument("pairs", nargs="+", metavar="PYTHON:TORCH")
    args = parser.parse_args()
    if not (BUILD / "venv/bin/uv").exists():
        run(sys.executable, "-m", "venv", BUILD / "venv")
        run(BUILD / "venv/bin/python", "-m", "pip", "install", "-q", "uv")
    failed = 0
    for pair in args.pairs:
        python, _, torch = pair.rpartition(":")
        row, code = check(python, torch, args.wheels.resolve(), args.find_links)
        print("| " + " | ".join(row) + " |", flush=True)
        failed |= code
        if args.table and not code:
            put(row, args.table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
