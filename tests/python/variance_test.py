"""Means and variances of values that lie much farther from zero than from each other, against double: var and std by rows, columns
and over everything, and the normalisations, with their statistics and gradients."""

import pytest
import torch
import torch.nn.functional as F

import braze


def values(rows, n, centre, outlier, dtype=torch.float32):
    g = torch.Generator().manual_seed(rows * n)
    x = torch.randn(rows, n, generator=g, dtype=torch.float64) + centre
    if outlier is not None:
        x[:, {"first": 0, "middle": n // 2, "last": n - 1}[outlier]] += 1e6
    return x.to(dtype)


def error(got, exact):
    return ((got.double() - exact).abs() / exact.abs()).max().item()


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("outlier", [None, "first", "middle", "last"])
@pytest.mark.parametrize("centre", [1e4, 1e5, -1e4, 0.0])
@pytest.mark.parametrize("n", [7, 1000, 4096])
@pytest.mark.parametrize("way", ["rows", "columns", "all"])
def test_variance(threads, way, n, centre, outlier):
    x = values(5 if way == "rows" else 40, n, centre, outlier)
    if way == "columns":
        x = x.t().contiguous()
    dim = {"rows": 1, "columns": 0, "all": None}[way]
    f = lambda x: torch.var_mean(x, dim)
    (var, mean), (eager_var, eager_mean), exact = braze.compile(f)(x), f(x), torch.var_mean(x.double(), dim)
    assert error(var, exact[0]) <= max(2 * error(eager_var, exact[0]), 1e-6)
    off = lambda m: (m.double() - exact[1]).abs().max().item()
    assert off(mean) <= max(2 * off(eager_mean), 2e-7 * x.abs().max().item())
    std = lambda x: x.std(dim, correction=0)
    assert error(braze.compile(std)(x), std(x.double())) <= max(2 * error(std(x), std(x.double())), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "shape,dim", [((3, 100000), 1), ((20000, 40), 0), ((4, 8, 33, 31), (0, 2, 3)), ((2, 1), 1)], ids=str
)
def test_variance_of_many(shape, dim, dtype):
    x = (torch.randn(shape, dtype=torch.float64) + 1e4).to(dtype)
    f = lambda x: torch.var(x, dim, correction=0)
    exact = f(x.double() - 1e4)
    assert ((braze.compile(f)(x).double() - exact).abs() <= (1e-6 if dtype == torch.float32 else 1e-11) * exact).all()


NORMS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm of rows": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalisations(name, channels_last):
    f = NORMS[name]
    x = (torch.randn(8, 4, 16, 16) + 1e4).contiguous(
        memory_format=torch.channels_last if channels_last else torch.contiguous_format
    )
    g = torch.randn(x.shape)

    def run(f, x):
        x = x.clone().requires_grad_()
        y = f(x)
        y.backward(g.to(x.dtype))
        return y.detach().double(), x.grad.double()

    for got, eager, exact in zip(run(braze.compile(f), x), run(f, x), run(f, x.double())):
        assert (got - exact).abs().max() <= max(2 * (eager - exact).abs().max(), 1e-5)


def test_running_statistics():
    x = torch.randn(16, 4, 8, 8) + 1e4
    a, b, exact = (torch.nn.BatchNorm2d(4, momentum=1.0).to(d) for d in (torch.float32, torch.float32, torch.float64))
    braze.compile(a)(x), b(x), exact(x.double())
    assert error(a.running_var, exact.running_var) <= max(2 * error(b.running_var, exact.running_var), 1e-6)
    assert error(a.running_mean, exact.running_mean) <= 2e-7
