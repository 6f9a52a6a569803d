"""Reductions of many elements to few results are made in pieces: variances, and indices of the largest and smallest, of fixed and of open
lengths, with what lies on the edge of a piece, NaN, infinities and equal values."""

import pytest
import torch
from harness import same

import braze

REDUCTIONS = {
    "argmax": lambda x: x.argmax(),
    "argmin of rows": lambda x: x.argmin(-1),
    "argmax of columns": lambda x: x.argmax(0),
    "max of rows": lambda x: tuple(x.max(-1)),
    "min of columns": lambda x: tuple(x.min(0)),
    "var": lambda x: x.float().var(),
    "var_mean": lambda x: torch.var_mean(x.float()),
    "std of columns": lambda x: x.float().std(0),
    "var of rows": lambda x: x.float().var(-1, correction=0),
    "several": lambda x: (x.float().var() + x.float().sum(), x.argmax(), x.float().mean()),
}
SHAPES = [(70_001,), (131_072,), (3, 50_000), (20_000, 5), (40_000, 8), (33, 7, 999), (1100, 1000)]
SHORT = [(2,), (5,), (40,), (2, 3)]


def values(shape, kind):
    g = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=g) * 3 + 5
    flat = x.view(-1)
    if kind == "equal":
        x.fill_(2)
    elif kind == "nan":
        flat[flat.numel() // 3] = float("nan")
        flat[-1] = float("nan")
    elif kind == "infinite":
        x.fill_(-float("inf"))
    elif kind == "far from zero":
        x = x * 1e-3 + 1000
    return x


@pytest.mark.parametrize("kind", ["random", "equal", "nan", "infinite", "far from zero"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_in_pieces(name, dynamic, kind):
    fn = REDUCTIONS[name]
    compiled = braze.compile(fn, dynamic=dynamic)
    for shape in SHAPES + SHORT * dynamic:
        x = values(shape, kind)
        same(fn(x), compiled(x), tol=1e-3 if kind == "far from zero" else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.uint8, torch.bfloat16])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_other_dtypes(name, dtype):
    fn = REDUCTIONS[name]
    compiled = braze.compile(fn)
    for shape in SHAPES:
        x = (values(shape, "random").clamp(0, 9) * 20).to(dtype)
        same(fn(x), compiled(x), tol=1e-4)
