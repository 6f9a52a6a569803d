"""Triton kernels of the program's in compiled functions: by Triton's interpreter, and what is known of what they write."""

import importlib.util
import os
import subprocess
import sys

import pytest
from interpreter import interpreted_by

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton package", allow_module_level=True)

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import braze
from braze._kernel_writes import written
from braze._user_kernels import Launch

CASES = [
    "result_of_a_grid_function", "grid_of_numbers", "constants", "sizes_stay_open", "writes_an_input", "writes_a_view",
    "writes_a_view_of_an_input", "views_beside_each_other", "strided_views_beside_each_other", "one_tensor_twice",
    "one_memory_twice", "overlapping_views_run_as_they_are", "two_in_a_row", "order_by_data",
    "launched_once_in_each_call", "hooks_run", "unused_launches", "writes_nothing", "autotuner",
    "autotuner_that_resets", "heuristics", "backward", "versions_are_eagers", "raises", "another_kernel",
    "graph_for_another_backend", "inference_mode", "triton_op", "triton_op_with_gradients", "triton_op_for_a_device",
    "views_as_inputs",
]  # fmt: skip


@pytest.fixture(scope="module")
def interpreted():
    return interpreted_by("user_kernel_cases.py")


@pytest.mark.parametrize("name", CASES)
def test_interpreted(interpreted, name):
    if name in ("triton_op", "triton_op_with_gradients") and not hasattr(
        importlib.import_module("torch._library.triton"), "_is_interpreted_triton_kernel"
    ):
        pytest.skip("wrap_triton of this PyTorch takes no interpreted kernels")
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


# ---- kernels that are not interpreted: what is captured of them, and how they are launched ----


def captured(f, *args):
    """The launches that a function makes in capture, and their tensors and integers. It returns a tensor like its first argument."""
    found = []

    def backend(module, inputs):
        found.extend((n.target, *n.args) for n in module.graph.nodes if isinstance(n.target, Launch))
        return lambda *values: [torch.zeros_like(args[0])]

    braze.compile(f, fullgraph=True, backend=backend)(*args)
    return found


def test_captured_kernel():
    def f(x, scale):
        out = torch.empty_like(x)
        plain[(x.shape[0], 2)](x, out, n=x.numel(), BLOCK=16, num_warps=2)
        return out

    ((launch, tensors, integers),) = captured(f, torch.ones(7), 0.5)
    assert launch.kernel is plain and launch.is_written == [False, True] and len(tensors) == 2
    assert launch.arguments == [("tensor", 0), ("tensor", 1)]
    assert launch.keywords == [("n", ("constant", 7)), ("BLOCK", ("constant", 16)), ("num_warps", ("constant", 2))]
    assert integers == [7, 2, 1]


def test_captured_autotuner():
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((32, 1), (64, 2), (64, 4))]
    tuned = triton.heuristics({"n": lambda args: 100})(triton.autotune(configs=configs, key=["n"])(plain))

    def f(x):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 3)](x, out)
        return out

    ((launch, _, integers),) = captured(f, torch.ones(100))
    assert launch.kernel is tuned and launch.is_written == [False, True]
    assert integers == [4, 3, 1, 2, 3, 1, 2, 3, 1]
    assert [(c["BLOCK"], c["num_warps"]) for c in launch.choices] == [(32, 1), (64, 2), (64, 4)]


@pytest.mark.parametrize("hook", ["pre_hook", "post_hook", "pre_run_hook", "config"])
def test_what_hooks_write_is_not_known(hook):
    hooks = {hook: lambda *args, **kwargs: None} if hook.endswith("hook") and hook != "pre_run_hook" else {}
    config = triton.Config({"BLOCK": 16}, pre_hook=(lambda args: None) if hook == "config" else None)
    tuned = triton.autotune(configs=[config], key=["n"], **hooks)(plain)

    def f(x):
        out = torch.empty_like(x)
        tuned[(1,)](x, out, 5)
        return out

    if hook == "pre_run_hook":
        plain.add_pre_run_hook(lambda *args, **kwargs: None)
    try:
        ((launch, *_),) = captured(f, torch.ones(5))
    finally:
        plain.pre_run_hooks.clear()
    assert launch.is_written == [True, True]


class Kernel:
    """Stands for one: notes how it is launched."""

    def __init__(self, meta=None):
        self.meta, self.calls = meta, []

    def run(self, *args, grid, warmup, **kwargs):
        assert warmup is False
        self.calls.append((args, grid(self.meta) if callable(grid) else grid, kwargs))


def test_launch():
    kernel, shown = Kernel(), torch.tensor(2.5, dtype=torch.float64)
    how = [("tensor", 1), ("integer", 0), ("constant", None), ("tuple", (("tensor", 0), ("constant", 3))), ("float", 2)]
    launch = Launch(kernel, how, [("FLAG", ("constant", True))], {1}, 3, [{}], 1)
    a, b = torch.ones(2), torch.zeros(2)
    launch.run([b], [a, shown], [9, 4, 1, 1])
    (((tensor, *numbers, pair, scale), grid, keywords),) = kernel.calls
    assert tensor is b and numbers == [9, None] and pair[0] is a and pair[1] == 3 and scale == 2.5
    assert grid == (4, 1, 1) and keywords == {"FLAG": True}


def test_launch_of_the_chosen_configuration():
    kernel = Kernel({"BLOCK": 64, "x_ptr": 0})
    choices = [{"BLOCK": 32, "num_warps": 1}, {"BLOCK": 64, "num_warps": 2}]
    Launch(kernel, [], [], set(), 0, choices, 0).run([], [], [4, 1, 1, 2, 1, 1])
    assert kernel.calls == [((), (2, 1, 1), {})]
    kernel.meta["BLOCK"] = 128
    with pytest.raises(RuntimeError, match="not there when it was captured"):
        Launch(kernel, [], [], set(), 0, choices, 0).run([], [], [4, 1, 1, 2, 1, 1])


def test_a_launch_that_is_gone():
    braze.compile(lambda x: x + 1)(torch.ones(2))  # the operator is there from the first capture on
    with pytest.raises(RuntimeError, match="outlived"):
        torch.ops.braze.launch_kernel([torch.ones(2)], [], [1, 1, 1], [], 2**40)
