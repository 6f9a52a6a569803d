"""Kernels on an NVIDIA GPU whose parts need more of a block's memory than there is. Skipped where there is none."""

import pytest
import torch
from cuda_test import error, rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [3136, 260])
def test_sums_of_many_columns(dtype, rows):
    def f(x, *ys):
        return [g for y in ys for g in ((x * y).float().sum(0), (y + 1).amax(0))]

    args = [rand(rows, 384, seed=i).to(dtype) for i in range(14)]
    for g, e in zip(braze.compile(f, fullgraph=True)(*args), f(*args), strict=True):
        assert error(g, e) < (1e-2 if dtype == torch.bfloat16 else 1e-4)  # products are rounded in eager


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_moments_and_indices_of_many_columns(dtype):
    def f(*xs):
        return [g for x in xs for g in (*torch.var_mean(x.float(), 0), x.argmax(0), (x > 2).any(0))]

    args = [rand(1000, 256, seed=i).to(dtype) for i in range(9)]
    for g, e in zip(braze.compile(f, fullgraph=True)(*args), f(*args), strict=True):
        if e.is_floating_point():
            assert error(g, e) < 1e-4
        else:
            assert torch.equal(g, e)


@pytest.mark.parametrize("count", [11, 12, 30])
def test_reads_of_many_matrices_the_other_way(count):
    def f(start, *xs):
        out = start
        for x in xs:
            out = torch.sin(out) + x.t()
        return out

    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    args = [rand(520, 300, seed=i).to(dtypes[i % 3]) for i in range(count)]
    start = rand(300, 520)
    assert error(braze.compile(f, fullgraph=True)(start, *args), f(start, *args)) < 1e-5


@pytest.mark.parametrize("width", [197, 2000, 9001, 20001, 31001])
def test_rows_that_later_passes_need(width):
    def f(x):
        for k in range(5):
            x = torch.softmax(x * 3, -1) * (k + 1)
        return x, x.sum(-1)

    x = rand(300, width)
    for g, e in zip(braze.compile(f, fullgraph=True)(x), f(x), strict=True):
        assert error(g, e) < 1e-4


def test_rows_of_other_lengths():
    """Rows whose stages have axes of their own: what they share lies in the block's memory, of as many rows as it holds."""

    def f(x, w):
        outs = []
        for k in range(8):
            y = torch.erf(x * (k + 1)) + torch.tanh(x - k)
            outs.append(torch.softmax(y, -1) * torch.log_softmax(y.flatten(1), -1).view_as(y).sigmoid())
        return outs, (outs[0] * w).sum((1, 2))

    x, w = rand(500, 4, 128), rand(4, 128)
    got, expected = braze.compile(f, fullgraph=True)(x, w), f(x, w)
    for g, e in zip((*got[0], got[1]), (*expected[0], expected[1]), strict=True):
        assert error(g, e) < 1e-4
