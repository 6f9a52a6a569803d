"""What tools/wheel_pack.py refuses, which extension of a package is loaded, and the table of what was tried."""

import ast
import datetime
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import braze
from braze import _C

ROOT = Path(__file__).parents[2]
VERSIONS = re.findall(
    r"^BRAZE_PYTORCH_VERSION\(([\d.]+)\)", (ROOT / "src/trace/pytorch/versions.def").read_text(), re.M
)


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library(folder, name, text):
    (folder / f"{name}.cpp").write_text(text)
    command = ["g++", "-shared", "-fPIC", "-O1", "-o", folder / f"{name}.so", folder / f"{name}.cpp"]
    subprocess.run(command, check=True)
    return folder / f"{name}.so"


CORE = "namespace braze { int f() { return 1; } }"


@pytest.mark.parametrize(
    "core, extension, message",
    [
        (CORE, "namespace braze { int f(); int g() { return f(); } }", None),
        (CORE, "namespace braze { int h(); int g() { return h(); } }", r"not in the core: _ZN5braze1hEv \(1 in all\)"),
        (CORE + "int llvm() { return 1; }", "", r"exported by the core: _Z4llvmv \(1 in all\)"),
        (
            CORE + "namespace braze { int seen = 1; }",
            'namespace braze { __attribute__((visibility("hidden"))) int seen = 1; int* at() { return &seen; } }',
            r"in the core and in the extension: _ZN5braze4seenE \(1 in all\)",
        ),
    ],
    ids=["right", "missing", "exported", "twice"],
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_libraries_of_a_wheel_fit_together(core, extension, message, tmp_path):
    check = tool("wheel_pack").check
    libraries = library(tmp_path, "core", core), library(tmp_path, "extension", extension)
    if message is None:
        return check(*libraries)
    with pytest.raises(SystemExit, match=message):
        check(*libraries)


@pytest.mark.skipif(
    shutil.which("nm") is None or not (ROOT / "build/libbraze_graph.a").exists(), reason="no build of this checkout"
)
def test_no_variable_is_in_the_core_and_in_an_extension():
    pack, written = tool("wheel_pack"), {True: set(), False: set()}
    for archive in (ROOT / "build").glob("libbraze_*.a"):
        of_extension = archive.stem.startswith(("libbraze_capture_", "libbraze_trace", "libbraze_launch"))
        lines = subprocess.run(
            ["nm", "-P", "--defined-only", archive], capture_output=True, text=True, check=True
        ).stdout
        for name, kind in (line.split()[:2] for line in lines.splitlines() if len(line.split()) > 2):
            if kind in "bBdDuV" and pack.of_braze(name):
                written[of_extension].add(name)
    assert written[True] and written[False]
    assert written[True] & written[False] == set()


def of_several(*pytorchs, version):
    """Imports the package as if it held extensions for these versions."""
    program = f"""
import sys, types, torch
built = sys.modules["braze._built"] = types.ModuleType("braze._built")
built.PYTORCH, built.PYTHON, built.VERSIONS = {pytorchs}, "%d.%d" % sys.version_info[:2], {tuple(VERSIONS)}
torch.__version__ = {version!r}
import braze; print(braze._C.__file__)
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_extension_is_that_for_the_pytorch_at_hand():
    here = ".".join(torch.__version__.split(".")[:2])
    folder = "_torch" + here.replace(".", "_")
    assert Path(braze._C.__file__).parent.name == folder
    others = [v for v in VERSIONS if v != here]
    done = of_several(others[0], here, others[-1], version=torch.__version__)
    assert Path(done.stdout.strip()).parent.name == folder, done.stderr


def test_a_pytorch_without_an_extension():
    done = of_several("2.11", "2.13", version="2.12.1+cpu")
    assert done.stderr.splitlines()[-1] == (
        "ImportError: braze was built for PyTorch 2.11, 2.13, but this is 2.12.1+cpu: install torch==2.13.*, "
        "or build braze against this PyTorch"
    )


def test_the_table_says_what_was_tried():
    page = (ROOT / "docs/install.md").read_text()
    rows = re.findall(r"^\| (3\.\d+\.\d+) \| (2\.\d+)\.\d+\S* \| (.*?) \| ([\d.]+) s \| (\S+) \|$", page, re.M)
    assert rows and len({row[:2] for row in rows}) == len(rows)
    tests = sum(
        isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for node in ast.parse((ROOT / "tests/python/smoke_test.py").read_text()).body
    )
    for python, pytorch, result, seconds, date in rows:
        assert python.rpartition(".")[0] in ("3.11", "3.12", "3.13") and pytorch in VERSIONS
        assert (
            re.fullmatch(r"\d+ passed(, \d+ skipped)?", result) and sum(map(int, re.findall(r"\d+", result))) >= tests
        )
        assert float(seconds) < 5 and datetime.date.fromisoformat(date)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_what_llvm_does_as_it_is_loaded_is_kept_apart():
    """So that the loader, which calls what stands in .init_array, does not do it at every import."""
    holder = next(Path(braze.__file__).parent.glob("libbraze_core*.so"), Path(_C.__file__))
    listed = subprocess.run(["readelf", "-SW", holder], check=True, capture_output=True, text=True).stdout
    linker = subprocess.run(["readelf", "-p", ".comment", holder], check=True, capture_output=True, text=True).stdout
    if "LLD" not in linker:
        pytest.skip("linked without lld")
    size = {name: int(n, 16) for name, n in re.findall(r"\] (\S+)\s+\S+\s+\w+ \w+ (\w+) ", listed)}
    assert size["llvm_start"] >= 200 * 8 and size[".init_array"] <= 60 * 8, size
