"""Kernels in Triton's language: each kind of them run by Triton's interpreter against eager, and compiled to machine code."""

import importlib.util
import pathlib
import sys

import pytest
import torch
from interpreter import interpreted_by
from triton_cases import CASES, kernels

import braze
from braze import _triton

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton package")


@pytest.fixture(scope="module")
def interpreted():
    return interpreted_by("triton_cases.py")


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(interpreted, name):
    assert interpreted[name] == "", interpreted[name]


# One of each shape of kernel: all would take a minute.
COMPILED = ["pointwise", "transposed", "softmax", "softmax_in_turns", "columns", "positions_in_turns", "layer_norm_in_turns", "scatter_add",
            "integer_division", "float8_read", "float8_rounded", "open_sizes_transposed", "extremes_nan", "embedding"]  # fmt: skip


@needs_triton
@pytest.mark.parametrize("name", COMPILED)
def test_compiles(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made, _ = kernels(name)
    for step in made["steps"]:
        cubin, threads, shared = _triton.compile_kernel(step["text"], "kernel", step["arguments"], step["warps"], 90)
        assert cubin.startswith(b"\x7fELF") and b"kernel" in cubin
        assert threads == 32 * step["warps"] and shared >= 0


def test_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(_triton.Missing, match="pip install triton"):
        _triton.compile_kernel("", "kernel", [], 4, 90)


def test_cpu_kernels_stay():
    x = torch.randn(64, 32)
    f = lambda x: torch.softmax(x * 2, -1)
    explained = braze.explain(braze.compile(f, options={"codegen": "triton"}), x, code=True)
    assert explained.kernel_count == 1 and explained.graph_break_count == 0
    assert "import triton" not in explained.code[0] and "define" in explained.code[0]
    torch.testing.assert_close(braze.compile(f, options={"codegen": "triton"})(x), f(x))


def test_explain_shows_code():
    def f(x):
        return torch.softmax(x * 2, -1)  # this line

    x = torch.randn(64, 32)
    assert braze.explain(f, x).code == [""]
    explained = braze.explain(f, x, code=True)
    assert "this line" in explained.code[0] and pathlib.Path(__file__).name in explained.code[0]
    assert explained.code[0] in str(explained)
    # A backward's kernels, too.
    explained = braze.explain(f, x.requires_grad_(), code=True)
    assert explained.code[0].count("; nest") == explained.kernel_count
