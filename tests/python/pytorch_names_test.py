"""What PyTorch keeps for itself and Braze relies on is there, and where it is not a sentence says so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from braze._built import PYTORCH

ROOT = Path(__file__).parents[2]
DOOR = ROOT / "src/trace/pytorch"
VERSIONS = re.findall(r"^BRAZE_PYTORCH_VERSION\(([\d.]+)\)", (DOOR / "versions.def").read_text(), re.M)
NAMES = re.findall(r'^BRAZE_PYTORCH_NAME\(\w+, "([\w.]+)", "([\w.]*)", (\w+)\)', (DOOR / "names.def").read_text(), re.M)
ATTRIBUTES = re.findall(r'^BRAZE_PYTORCH_ATTRIBUTE\(\w+, "(\w+)", (\w+)\)', (DOOR / "attributes.def").read_text(), re.M)
BUILT = r"(?:\d+\.\d+, )*(\d+\.\d+)"  # a wheel may have extensions for several, of which the last is named


def run(program):
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)


def test_nothing_lacks_once_every_module_is_imported():
    modules = sorted({module for module, _, _ in NAMES})
    done = run(
        f"import importlib, torch, braze\nfor m in {modules}: importlib.import_module(m)\n"
        "print(braze._C._pytorch_lacks())"
    )
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_what_lacks_is_named():
    done = run(
        "import torch, torch._functorch.utils as u\ndel torch._C._get_warnAlways, u.unwrap_dead_wrappers\n"
        "import braze; print(braze._C._pytorch_lacks())"
    )
    assert done.stdout == "['torch._functorch.utils.unwrap_dead_wrappers', 'torch._C._get_warnAlways']\n", done.stderr


@pytest.mark.parametrize("name", ["_TorchFunctionState", "_get_torch_function_state"])
def test_without_a_needed_name_the_extension_does_not_load(name):
    assert ("torch._C", name, "Needed") in NAMES
    done = run(f"import torch; del torch._C.{name}; import braze")
    assert done.returncode
    assert re.search(
        rf"ImportError: braze: built for PyTorch (\d+\.\d+\.\d+), but this is \S+, which has no torch._C.{name}: "
        r"install torch==\1\n",
        done.stderr,
    ), done.stderr


def test_without_an_attribute_the_extension_does_not_load():
    done = run("import torch; del torch.nn.modules.module._global_forward_hooks; import braze")
    assert "where torch.nn.modules.module has no _global_forward_hooks" in done.stderr


@pytest.mark.parametrize("version", ["2.10.0", "2.99.1+cpu", "3.13.0"])
def test_a_version_that_this_source_is_not_for(version):
    done = run(f"import torch; torch.__version__ = {version!r}; import braze")
    assert re.search(
        rf"ImportError: braze was built for PyTorch {BUILT}, but this is {re.escape(version)}: install torch==\1\.\*, "
        rf"or build braze against a version from {VERSIONS[0]} to {VERSIONS[-1]}, which it is for\n",
        done.stderr,
    ), done.stderr


@pytest.mark.parametrize("version", [(3, 10, 2), (3, 14, 0)], ids=lambda v: "%d.%d" % v[:2])
def test_another_python(version):
    done = run(f"import sys; sys.version_info = {version + ('final', 0)!r}; import braze")
    here, there = "%d.%d" % sys.version_info[:2], "%d.%d" % version[:2]
    assert f"ImportError: braze was built for CPython {here}, but this is cpython {there}: build braze" in done.stderr


def test_a_python_without_the_lock():
    done = run("import sys; sys.abiflags += 't'; import braze")
    assert "ImportError: braze does not run on free-threaded builds of Python" in done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_another_version_that_this_source_is_for(version):
    done = run(f"import torch; torch.__version__ = '{version}.7+cpu'; import braze; print(braze.__name__)")
    if torch.__version__.startswith(version + "."):
        assert done.stdout == "braze\n", done.stderr
        return
    if version in PYTORCH:
        pytest.skip("this build has an extension for it")
    assert re.search(
        rf"ImportError: braze was built for PyTorch {BUILT}, but this is {re.escape(version)}\.7\+cpu: "
        r"install torch==\1\.\*, or build braze against this PyTorch\n",
        done.stderr,
    ), done.stderr


def test_the_build_takes_no_version_that_this_source_is_not_for(tmp_path):
    (tmp_path / "torch/include/torch/headeronly").mkdir(parents=True)
    (tmp_path / "torch/include/torch/headeronly/version.h").write_text(
        "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 99\n"
    )
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path / "build", f"-DBRAZE_TORCH_ROOT={tmp_path}/torch",
         f"-DPython_EXECUTABLE={sys.executable}"],
        capture_output=True, text=True,
    )  # fmt: skip
    said = " ".join(done.stderr.split())
    assert f"but this is 2.99: install torch=={VERSIONS[-1]}.*" in said and done.returncode, done.stdout + done.stderr


def test_marks_of_torch_compile():
    marks = {text for text, holder in ATTRIBUTES if holder == "Mark"}
    done = run(
        """
import torch, torch._dynamo
x, y, z, w = (torch.ones(4, 4) for _ in range(4))
torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
torch._dynamo.maybe_mark_dynamic(y, 0)
torch._dynamo.mark_static(z, 0)
torch._dynamo.decorators.mark_unbacked(w, 0)
torch._dynamo.mark_static_address(w)
off = torch.compiler.disable(lambda x: x, reason="why")
constant = torch.compiler.assume_constant_result(lambda: 1)
script = torch.jit.script(torch.nn.functional.relu)
print(*{n for o in (x, y, z, w, off, constant, script) for n in (*vars(o), *(n for n in dir(o) if "_torchdynamo" in n))})
"""
    )
    assert marks - set(done.stdout.split()) <= {"_wrapped_number"}, (marks, done.stdout, done.stderr[-2000:])
