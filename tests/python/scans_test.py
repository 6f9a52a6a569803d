"""cumsum, cumprod, cummax, cummin and logcumsumexp on the CPU are kernels with what surrounds them, as eager has them."""

import math
import os
import subprocess
import sys

import pytest
import torch
from harness import same

import braze

SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
}
SHAPES = [(1000,), (7, 33), (33, 7), (5, 16, 40), (3, 1, 2), (4, 0), (0, 4), (1, 5), (64, 257), (2, 3, 4, 5)]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def values(*shape, dtype=torch.float32, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return (x * 3).to(dtype) if dtype.is_floating_point else (x * 3).round().to(dtype)


def near(want, got):
    for w, g in zip(*(tuple(r) if isinstance(r, tuple) else (r,) for r in (want, got)), strict=True):
        tol = {torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 4e-3}.get(w.dtype, 1e-5)
        assert w.dtype == g.dtype and w.shape == g.shape and w.stride() == g.stride()
        if w.dtype.is_floating_point:
            torch.testing.assert_close(g, w, rtol=tol, atol=tol, equal_nan=True)
        else:
            assert torch.equal(w, g)


def check(f, *args, kernels=None, **options):
    got, want = braze.compile(f, fullgraph=True, options=options)(*args), f(*args)
    near(want, got)
    if kernels is not None:
        found = braze.explain(f, *args)
        assert (found.kernel_count, found.extern_count) == (kernels, 0)


@pytest.mark.parametrize("codegen", ["llvm", "cpp"])
@pytest.mark.parametrize("name", SCANS)
def test_dimensions(name, codegen):
    for shape in SHAPES if codegen == "llvm" else SHAPES[1:4]:
        for d in range(-len(shape), len(shape)):
            check(lambda x: SCANS[name](x, d), values(*shape), codegen=codegen)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_types(name, dtype):
    if name == "logcumsumexp" and not dtype.is_floating_point:
        pytest.skip("of floats")
    for d in range(2):
        check(lambda x: SCANS[name](x, d), values(12, 50, dtype=dtype))


@pytest.mark.parametrize("to", [torch.float64, torch.float32, torch.int32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_result_types(name, to):
    check(lambda x: SCANS[name](x, 1, dtype=to), values(6, 20, dtype=torch.int64))
    check(lambda x: SCANS[name](x, 0, dtype=to), values(6, 20) * 0.5)


LAYOUTS = {
    "transposed": lambda: values(40, 30).t(),
    "channels last": lambda: values(2, 8, 5, 6).to(memory_format=torch.channels_last),
    "a slice": lambda: values(40, 60)[::2, 3:40:3],
    "expanded": lambda: values(40, 1).expand(40, 20),
    "turned around": lambda: values(30, 40).flip(0).permute(1, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SCANS)
def test_layouts(name, layout):
    x = LAYOUTS[layout]()
    for d in range(x.dim()):
        check(lambda x: SCANS[name](x, d), x)


@pytest.mark.parametrize("name", SCANS)
def test_special_values(name):
    x = values(8, 70)
    x[1, 3], x[2, 40], x[3, 5], x[4, 60], x[5, 0] = math.nan, math.nan, math.inf, -math.inf, math.nan
    x[6, 2], x[6, 9] = math.inf, -math.inf
    x[7] = -math.inf
    check(lambda x: SCANS[name](x, 1), x)
    check(lambda x: SCANS[name](x, 0), x)
    check(lambda x: SCANS[name](x, 1), torch.zeros(3, 40))  # of equals the last


FUSED = {
    "before and after": (lambda x: (x.exp().cumsum(-1) + 1).log(), 1),
    "a scan of a scan": (lambda x: x.cumsum(-1).cumsum(-1), 1),
    "two of one": (lambda x: x.cumsum(-1) + x.cumprod(-1), 1),
    "a sum of a scan": (lambda x: x.cumsum(-1).sum(-1), 1),
    "beside a sum": (lambda x: x.cumsum(-1) / x.abs().sum(-1, keepdim=True), 1),
    "of a softmax": (lambda x: x.softmax(-1).cumsum(-1), 1),
    "columns before and after": (lambda x: (x.abs().cumsum(0) + 1).sqrt(), None),
    "columns and their sum": (lambda x: x.cumsum(0) / x.abs().sum(0), None),
    "a sum of columns of a scan": (lambda x: x.cumsum(0).sum(0), None),
    "columns and their variance": (lambda x: x.cummax(0)[0] * x.var(0), None),
    "backwards": (lambda x: x.flip(-1).cumsum(-1).flip(-1), None),
    "positions": (lambda x: ((x > 0).long().cumsum(-1) - 1).clamp_min(0), 1),
    "shifted": (lambda x: x.cumsum(-1)[:, 1:] - x.cumsum(-1)[:, :-1], None),
    "over different dimensions": (lambda x: x.cumsum(0).cumsum(1), None),
}


@pytest.mark.parametrize("codegen", ["llvm", "cpp"])
@pytest.mark.parametrize("name", FUSED)
def test_with_what_surrounds_it(name, codegen):
    f, kernels = FUSED[name]
    check(f, values(24, 70), kernels=kernels if codegen == "llvm" else None, codegen=codegen)


@pytest.mark.parametrize("name", SCANS)
def test_gradients(name):
    def f(x):
        r = SCANS[name](x, -1)
        return (r if isinstance(r, torch.Tensor) else r[0]).sin().sum()

    x = (values(6, 20, dtype=torch.float64) / 3).requires_grad_()
    y = x.detach().clone().requires_grad_()
    f(x).backward()
    braze.compile(f)(y).backward()
    same(x.grad, y.grad, tol=1e-9)


def test_in_place_and_out():
    def f(x):
        x = x * 1
        x.cumsum_(0)
        return x

    check(f, values(9, 4))
    out = torch.empty(3)
    braze.compile(lambda x, out: torch.cumsum(x, 0, out=out))(values(3), out)
    same(values(3).cumsum(0), out)


def test_sizes_that_vary():
    f = braze.compile(lambda x: (x * 2).cumsum(-1) + x.cumsum(0), dynamic=True, fullgraph=True)
    for shape in ((5, 7), (70, 33), (3, 200), (2, 2)):
        x = values(*shape)
        same((x * 2).cumsum(-1) + x.cumsum(0), f(x), tol=1e-4)


def test_numbers_without_dimensions():
    check(lambda x: x.cumsum(0), torch.tensor(3.0))


def test_on_avx2():
    """Vectors of another length: some of these tests on a CPU that is described."""
    how = ["-q", "-p", "no:cacheprovider", "-k", "(dimensions and llvm) or special", __file__]
    code = f"import sys, pytest; sys.exit(pytest.main({how!r}))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "BRAZE_CPU": "avx2"}, check=True, timeout=600)
