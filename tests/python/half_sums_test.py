"""Sums of bfloat16 and float16 are added up in float32, wherever they stand: within twice of eager's error against float64, and far
below what adding in 16 bits would give."""

import pytest
import torch
import torch.nn.functional as F

import braze

HALVES = [torch.bfloat16, torch.float16]


def values(*shape, dtype, seed=0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))) + 1).to(dtype)


def rms(x, w):
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


def attention(q, k, v):
    return (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v


# name: (function, shapes)
CASES = {
    "sum": (lambda x: x.sum(), [(70_000,)]),
    "sum of rows": (lambda x: x.sum(-1), [(9, 5000)]),
    "sum of columns": (lambda x: x.sum(0), [(5000, 9)]),
    "sum of many columns": (lambda x: x.sum(0), [(3000, 300)]),
    "sum in pieces": (lambda x: x.sum(), [(600, 700)]),
    "mean": (lambda x: x.mean((0, 2)), [(40, 3, 500)]),
    "of a producer": (lambda x, y: (x * y + 1).sum(-1), [(16, 4096), (16, 4096)]),
    "of a producer, all": (lambda x: F.silu(x).mean(), [(300, 1000)]),
    "of a difference": (lambda x, y: ((x - y) ** 2).mean(0), [(3000, 64), (3000, 64)]),
    "two of one": (lambda x: (x.sum(-1) + (x * x).sum(-1)), [(8, 6000)]),
    "cumsum": (lambda x: (x * 0.5).cumsum(-1), [(5, 3000)]),
    "cumsum of columns": (lambda x: x.cumsum(0), [(3000, 5)]),
    "norm": (lambda x: x.norm(dim=-1), [(12, 5000)]),
    "norm of all": (lambda x: torch.linalg.vector_norm(x), [(400, 500)]),
    "1-norm": (lambda x: torch.linalg.vector_norm(x, 1, dim=0), [(4000, 16)]),
    "variance": (lambda x: x.var(-1), [(12, 5000)]),
    "deviation": (lambda x: x.std(0), [(4000, 12)]),
    "softmax": (lambda x: x.softmax(-1), [(12, 9000)]),
    "softmax of columns": (lambda x: x.softmax(0), [(4000, 12)]),
    "log_softmax": (lambda x: (x * 2).log_softmax(-1), [(12, 9000)]),
    "logsumexp": (lambda x: x.logsumexp(-1), [(12, 9000)]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4096,), w, b), [(6, 4096), (4096,), (4096,)]),
    "rms norm": (rms, [(6, 4096), (4096,)]),
    "group norm": (lambda x: F.group_norm(x, 2), [(3, 8, 30, 30)]),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.arange(64) % 700), [(64, 700)]),
    "mse": (lambda x, y: F.mse_loss(x, y), [(300, 400), (300, 400)]),
    "scatter_add": (lambda x: torch.zeros(4, dtype=x.dtype).scatter_add(0, torch.arange(400) % 4, x), [(400,)]),
    "index_add": (
        lambda x: torch.zeros(4, 8, dtype=x.dtype).index_add(0, torch.arange(400) % 4, x, alpha=2),
        [(400, 8)],
    ),
    "scatter_reduce": (lambda x: x[:4].scatter_reduce(0, torch.arange(400) % 4, x, "sum"), [(400,)]),
    "attention": (attention, [(2, 50, 64), (2, 300, 64), (2, 300, 64)]),
}


def error(got, want):
    return ((got.double() - want).abs() / (want.abs() + want.abs().mean() * 1e-2)).max().item()


def compare(eager, got, want, where):
    # As good as eager, or rounded once from what is as good as exact.
    assert got.dtype == eager.dtype
    once = error(want.to(got.dtype), want)
    e, g = error(eager, want), error(got, want)
    assert g <= 2 * e + 1.1 * once, f"{where}: {g}, eager {e}, rounded once {once}"


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_sums(name, dtype, dynamic):
    fn, shapes = CASES[name]
    args = [values(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
    if dtype == torch.float16 and name in ("sum", "sum in pieces"):  # what float16 holds
        args = [a / 16 for a in args]
    eager, got = fn(*args), braze.compile(fn, dynamic=dynamic)(*args)
    compare(eager, got, fn(*(a.double() for a in args)), name)


NORMS = {
    "rms norm": (rms, [(200, 512), (512,)]),
    "rms norm and neighbours": (lambda x, w: F.silu(rms(x + 1, w)) * x, [(200, 512), (512,)]),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (512,), w, b), [(200, 512), (512,), (512,)]),
    "softmax": (lambda x: (x.softmax(-1) * x).sum(-1), [(200, 512)]),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_gradients(name, dtype):
    fn, shapes = NORMS[name]
    args = [values(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]

    def run(f, of):
        leaves = [a.detach().to(of, copy=True).requires_grad_() for a in args]
        y = f(*leaves)
        y.backward(values(*y.shape, dtype=dtype, seed=9).to(of))
        return [y.detach(), *(a.grad for a in leaves)]

    results = zip(run(fn, dtype), run(braze.compile(fn), dtype), run(fn, torch.float64))
    for i, (eager, got, want) in enumerate(results):
        compare(eager, got, want, f"{name}, {i}")
