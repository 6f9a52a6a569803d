"""Tensor programs over sizes that coincide. BRAZE_RANDOM_FIRST and BRAZE_RANDOM_COUNT choose the seeds; `make fuzz` runs many."""

import itertools
import os
import pathlib
import sys

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "fuzz"))
import tensors  # noqa: E402

FIRST = int(os.environ.get("BRAZE_RANDOM_FIRST", "0"))
COUNT = int(os.environ.get("BRAZE_RANDOM_COUNT", "400"))
STEP = 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, STEP))
def test_random_tensor_programs(first):
    for seed in range(first, first + STEP):
        wrong = tensors.check(seed)
        assert not wrong, wrong


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT // 4, STEP))
def test_second_derivatives_of_random_tensor_programs(first):
    for seed in range(first, first + STEP):
        wrong = tensors.check(seed, order=2)
        assert not wrong, wrong


@pytest.mark.parametrize(
    "shape", [(2, 8, 4, 4), (2, 512, 32, 32), (16, 16, 16, 16), (4, 2, 8, 1), (3, 3, 3, 3), (2, 2, 2, 2, 4)], ids=str
)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var"])
def test_reductions_over_equal_extents(shape, name):
    """Kept dimensions with as many elements as the reduced ones."""
    x = torch.randn(shape, dtype=torch.float64)
    for k in range(1, len(shape)):
        for dims in itertools.combinations(range(len(shape)), k):
            if name == "var" and all(shape[d] == 1 for d in dims):
                continue

            def f(t):
                return getattr(t, name)(dims), getattr(t * 2, name)(dims, keepdim=True) + t

            same(f(x), braze.compile(f, fullgraph=True)(x), f"{name} over {dims} of {shape}", tol=1e-4)


def test_views_of_a_result_that_is_not_dense():
    """A result with gaps in its memory, and a view of it, are returned on one memory."""

    def f(x):
        y = torch.select_scatter(x, x.select(0, 0) + 1, 0, 3)
        return y.t(), y

    x = torch.randn(4, 16)[:, ::2].requires_grad_()
    want, got = f(x), braze.compile(f, fullgraph=True)(x)
    same(want, got)
    assert got[0].untyped_storage().data_ptr() == got[1].untyped_storage().data_ptr()


def test_scatter_onto_elements_that_share_memory():
    def f(x):
        return torch.select_scatter(x.expand(16, 4), x[0] + 1, 0, 0), torch.slice_scatter(
            x.expand(16, 4), x + 2, 0, 3, 4
        )

    x = torch.randn(1, 4)
    same(f(x), braze.compile(f, fullgraph=True)(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "f",
    [lambda t: torch.fmod(t, torch.full_like(t, 0.3)), lambda t: t * torch.full((8,), 0.3, dtype=t.dtype), lambda t: t.new_full((8,), 0.3) * t, lambda t: t.masked_fill(t > 1, 0.3) * 100,
     lambda t: torch.where(t > 1, 0.3, t) * 100, lambda t: torch.clamp(t, max=0.3) * 100, lambda t: torch.zeros_like(t).fill_(0.3) * 100, lambda t: F.hardtanh(t, -0.1, 0.3) * 100,
     lambda t: F.threshold(t, 0.1, 0.3) * 100],
)  # fmt: skip
def test_numbers_in_16_bit_tensors(f, dtype):
    """A number that becomes an element of such a tensor is rounded to its type before anything reads it."""
    t = torch.randn(8).mul(3).to(dtype)
    same(f(t), braze.compile(f, fullgraph=True)(t), tol=0)
