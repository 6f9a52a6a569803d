"""The disk cache from outside: a second process finds the code of the first, and nothing in the folder can change a result.

An entry that is compiled anew replaces its file, one that is found stays the same file: so the inodes tell.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import braze

CHILD = """
import json, sys, torch, braze
torch.manual_seed(0)
x = torch.randn(37, 65)
def f(a):
    return torch.softmax(a * 1.5 + 0.25, dim=-1).sum(0) - torch.sigmoid(a).mean(0)
e = braze.explain(f, x)
error = (e.output - f(x)).abs().max().item()
print(json.dumps({"error": error, "kernels": e.kernel_count}))
"""


def start(folder, path=None, code=CHILD):
    env = dict(os.environ, BRAZE_CACHE_DIR=str(folder), BRAZE_STRICT="1")
    if path:
        env["PYTHONPATH"] = str(path)
    return subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    got = json.loads(out.splitlines()[-1])
    assert got["kernels"] > 0 and got["error"] < 1e-5, got
    return got


def objects(folder):
    return sorted(pathlib.Path(folder).glob("*.o"))


def run(folder, path=None):
    """True if all kernels came from the folder."""
    before = {f.name: f.stat().st_ino for f in objects(folder)}
    held = [open(f) for f in objects(folder)]  # so that no inode is used again
    finish(start(folder, path))
    after = {f.name: f.stat().st_ino for f in objects(folder)}
    for f in held:
        f.close()
    return bool(before) and before == after


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache") / "braze"
    assert run(folder) is False
    assert objects(folder)
    return folder


def copy_of(filled, tmp_path):
    return shutil.copytree(filled, tmp_path / "braze")


def test_the_second_process_compiles_nothing(filled):
    assert run(filled) is True


@pytest.mark.parametrize("damage", ["truncate", "zero", "flip", "swap"])
def test_damaged_entries_are_compiled_anew(filled, tmp_path, damage):
    folder = copy_of(filled, tmp_path)
    files = objects(folder)
    contents = [f.read_bytes() for f in files]
    for i, f in enumerate(files):
        b = contents[i]
        if damage == "truncate":
            b = b[: len(b) // 2]
        elif damage == "zero":
            b = bytes(len(b))
        elif damage == "flip":
            b = b[:-100] + bytes([b[-100] ^ 1]) + b[-99:]
        else:  # another kernel's entry under this name
            b = contents[(i + 1) % len(files)] if len(files) > 1 else b"x" * len(b)
        f.write_bytes(b)
    assert run(folder) is False
    assert run(folder) is True  # they were replaced


def test_no_folder_to_write_is_no_error(tmp_path):
    (tmp_path / "file").write_text("x")
    assert run(tmp_path / "file" / "below") is False


def test_another_build_finds_nothing(filled, tmp_path):
    folder = copy_of(filled, tmp_path)
    home, library = pathlib.Path(braze.__file__).parent, pathlib.Path(braze._C.__file__)
    package = tmp_path / "path" / "braze"
    shutil.copytree(home, package, ignore=shutil.ignore_patterns("_C*", "__pycache__"))
    binary = bytearray(library.read_bytes())
    note = binary.index(
        b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
    )  # the build-id's head: name and content sizes, type, name
    binary[note + 16] ^= 1
    (package / library.relative_to(home)).write_bytes(binary)
    before = {f.name for f in objects(folder)}
    finish(start(folder, tmp_path / "path"))
    assert before < {f.name for f in objects(folder)}
    assert run(folder) is True  # and what was there is still there


def test_processes_that_start_at_once(tmp_path):
    folder = tmp_path / "braze"
    children = [start(folder) for _ in range(3)]
    for c in children:
        finish(c)
    assert run(folder) is True
    assert not [f for f in folder.iterdir() if f.name.startswith(".")]


def test_a_note_without_kernels_changes_nothing(filled, tmp_path):
    """Besides kernels the folder holds notes of what was compiled before; they decide only when LLVM is made ready."""
    folder = copy_of(filled, tmp_path)
    kernels = [f for f in objects(folder) if b"\nprogram\n" not in f.read_bytes()]
    assert kernels and len(kernels) < len(objects(folder))
    for f in kernels:
        f.unlink()
    assert run(folder) is False
    assert all(f.exists() for f in kernels)
    assert run(folder) is True


FORKING = """
import json, os, sys, torch, braze
x = torch.randn(37, 65)
torch.set_num_threads(1)  # OpenMP's own threads do not survive a fork
f = braze.compile(lambda a: torch.softmax(a * 1.5, dim=-1) + torch.relu(a), fullgraph=True)
if sys.argv[1:] == ["late"]:
    f(x[:5])
child = os.fork()
error = (f(x) - (torch.softmax(x * 1.5, dim=-1) + torch.relu(x))).abs().max().item()
if child == 0:
    os._exit(0 if error < 1e-5 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(json.dumps({"error": error, "kernels": 1}))
"""


@pytest.mark.parametrize("late", [False, True])
def test_a_forked_child_compiles(tmp_path, late):
    """Whatever was begun beside the program at import and at compile() is over when it forks."""
    finish(start(tmp_path / "braze", code=FORKING.replace("sys.argv[1:]", '["late"]' if late else "[]")))


def test_a_first_call_imports_nothing_large():
    """Knowing torch's functions must not cost the import of modules that the program never named, nor of our own stand-ins."""
    child = """
import json, sys, torch, braze
x = torch.randn(8)
before = set(sys.modules)
f = braze.compile(lambda a: torch.relu(a * 2 + 1), fullgraph=True)
f(x)
late = sorted(set(sys.modules) - before)
import torch.onnx
g = braze.compile(lambda a: a + 1 if torch.onnx.is_in_onnx_export() else a - 1, fullgraph=True)
assert torch.equal(g(x), x - 1)
print(json.dumps({"kernels": 1, "error": 0, "late": late}))
"""
    assert finish(start("/dev/null/none", code=child))["late"] == []
