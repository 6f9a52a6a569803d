"""Triton kernels of the program's in compiled functions: by Triton's interpreter, and what is known of what they write."""

import importlib.util
import os
import subprocess
import sys

import pytest
from interpreter import interpreted_by

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton package", allow_module_level=True)

import triton
import triton.language as tl
from triton.language.extra import libdevice

from braze._kernel_writes import written

CASES = [
    "result_of_a_grid_function", "grid_of_numbers", "constants", "sizes_stay_open", "writes_an_input", "writes_a_view",
    "writes_a_view_of_an_input", "views_beside_each_other", "strided_views_beside_each_other", "one_tensor_twice",
    "one_memory_twice", "overlapping_views_run_as_they_are", "two_in_a_row", "order_by_data",
    "launched_once_in_each_call", "hooks_run", "unused_launches", "writes_nothing", "autotuner",
    "autotuner_that_resets", "heuristics", "backward", "versions_are_eagers", "raises", "another_kernel",
    "graph_for_another_backend", "inference_mode",
]  # fmt: skip


@pytest.fixture(scope="module")
def interpreted():
    return interpreted_by("user_kernel_cases.py")


@pytest.mark.parametrize("name", CASES)
def test_interpreted(interpreted, name):
    assert interpreted[name] == "", interpreted[name]


def test_all_cases_are_named(interpreted):
    assert sorted(interpreted) == sorted(CASES)


def test_triton_is_not_imported_to_look():
    program = "import sys, torch, braze; braze.compile(lambda x: x + 1)(torch.ones(3)); print('triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# ---- what a kernel writes ----


@triton.jit
def store_through(pointer, offsets, value):
    tl.store(pointer + offsets, value)


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def moved(pointer, by):
    return pointer + by


@triton.jit
def plain(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, libdevice.tanh(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


@triton.jit
def by_helper(x_ptr, y_ptr, z_ptr):
    x = larger(tl.load(x_ptr), tl.load(y_ptr))
    store_through(moved(z_ptr, 1), 0, x)


@triton.jit
def in_loops(x_ptr, y_ptr, z_ptr, n):
    a, b = x_ptr, y_ptr
    for i in range(n):
        tl.store(a, i)
        a, b = b, a
    pointer = z_ptr
    pointer += 1
    tl.load(pointer)


@triton.jit
def rebound(x_ptr, y_ptr, n):
    pointer = x_ptr + n
    x = tl.load(pointer)
    pointer = y_ptr + n
    tl.store(pointer, x)


@triton.jit
def atomics(x_ptr, y_ptr, z_ptr):
    tl.atomic_add(x_ptr, tl.load(y_ptr))
    tl.atomic_cas(z_ptr, 0, 1)


@triton.jit
def blocks(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(base=y_ptr, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    tl.store(tl.advance(target, (BLOCK,)), tl.load(source))
    descriptor = tl.make_tensor_descriptor(z_ptr, [n], [1], [BLOCK])
    descriptor.store([0], tl.zeros((BLOCK,), tl.float32))


@triton.jit
def by_method(x_ptr, y_ptr):
    x_ptr.store(y_ptr.load())


@triton.jit
def chosen(x_ptr, y_ptr, z_ptr, WHICH: tl.constexpr, flag):
    if WHICH == "x" and not flag:
        tl.store(x_ptr, 1)
    elif z_ptr is not None:
        tl.store(z_ptr, 1)
    target = x_ptr if WHICH == "both" else y_ptr
    tl.store(target, 1)


@triton.jit
def indices(index_ptr, y_ptr):
    tl.store(y_ptr + tl.load(index_ptr), 1)


@triton.jit
def by_unknown(x_ptr, y_ptr, FN: tl.constexpr):
    FN(x_ptr)
    tl.load(y_ptr)


@triton.jit
def in_assembly(x_ptr, y_ptr):
    tl.inline_asm_elementwise("st.global $1, 0;", "=r,l", [x_ptr], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def not_understood(x_ptr, y_ptr):
    values = [x_ptr for _ in range(2)]
    tl.store(values[0], 1)


@pytest.mark.parametrize(
    "kernel, known, expected",
    [
        (plain, {}, {"y_ptr"}),
        (by_helper, {}, {"z_ptr"}),
        (in_loops, {}, {"x_ptr", "y_ptr"}),
        (rebound, {}, {"y_ptr"}),
        (atomics, {}, {"x_ptr", "z_ptr"}),
        (blocks, {}, {"y_ptr", "z_ptr"}),
        (by_method, {}, {"x_ptr"}),
        (chosen, {}, {"x_ptr", "y_ptr", "z_ptr"}),
        (chosen, {"WHICH": "x", "flag": False}, {"x_ptr", "y_ptr"}),
        (chosen, {"WHICH": "x", "flag": True}, {"y_ptr", "z_ptr"}),
        (chosen, {"WHICH": "none", "z_ptr": None}, {"y_ptr"}),
        (chosen, {"WHICH": "both", "z_ptr": None}, {"x_ptr"}),
        (indices, {}, {"y_ptr"}),
        (by_unknown, {}, {"x_ptr"}),
        (by_unknown, {"FN": moved}, set()),
        (in_assembly, {}, {"x_ptr"}),
        (not_understood, {}, None),
    ],
)
def test_written(kernel, known, expected):
    found = written(kernel, known)
    tensors = {"x_ptr", "y_ptr", "z_ptr", "index_ptr"}
    assert found is None if expected is None else found & tensors == expected
