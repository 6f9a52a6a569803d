"""torch._scaled_mm and F.scaled_mm in compiled functions: shapes, strides, dtypes, scales of the tensor and of rows, what eager refuses."""

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze

E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2


def factor(*shape, dtype=E4, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def plain(a, b, s, t, dtype):
    return torch._scaled_mm(a, b.t(), scale_a=s, scale_b=t, out_dtype=dtype)


ONE = torch.tensor(0.5)


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16, torch.float16, None], ids=str)
@pytest.mark.parametrize("dtypes", [(E4, E4), (E5, E4), (E4, E5)], ids=str)
def test_dtypes(dtypes, out):
    a, b = factor(16, 32, dtype=dtypes[0]), factor(48, 32, dtype=dtypes[1])
    args = (a, b, ONE, ONE * 3, out)
    try:
        want = plain(*args)
    except (RuntimeError, ValueError) as e:
        with pytest.raises(type(e)) as raised:
            braze.compile(plain)(*args)
        assert str(raised.value).splitlines()[0] == str(e).splitlines()[0]
        return
    got = braze.compile(plain, fullgraph=True)(*args)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    same(want.float(), got.float(), tol=1e-2)


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_rows(rows):
    a, b = factor(rows, 32), factor(48, 32)
    fn = lambda a, b: torch._scaled_mm(a, b.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.bfloat16) + 1  # noqa: E731
    same(fn(a, b), braze.compile(fn, fullgraph=True)(a, b), tol=1e-2)


def test_bias_and_neighbours():
    """Dynamic quantisation before it and an activation after it are kernels around the one call."""

    def fn(x, w, t, bias):
        s = x.abs().max().float() / 448
        q = (x / s).clamp(-448, 448).to(E4)
        return F.gelu(torch._scaled_mm(q, w.t(), scale_a=s, scale_b=t, bias=bias, out_dtype=torch.bfloat16)) * 2

    x, w, bias = torch.randn(16, 64), factor(32, 64), torch.randn(32).bfloat16()
    same(fn(x, w, ONE, bias), braze.compile(fn, fullgraph=True)(x, w, ONE, bias), tol=2e-2)
    said = braze.explain(fn, x, w, ONE, bias)
    assert (said.graph_count, said.extern_count) == (1, 1) and said.kernel_count <= 3, said


def test_scales_of_rows():
    a, b = factor(16, 32), factor(48, 32)
    s, t = torch.rand(16, 1), torch.rand(1, 48)
    fn = lambda a, b, s, t: torch._scaled_mm(a, b.t(), scale_a=s, scale_b=t, out_dtype=torch.bfloat16)  # noqa: E731
    try:
        want = fn(a, b, s, t)
    except (RuntimeError, ValueError) as e:
        with pytest.raises(type(e)) as raised:
            braze.compile(fn)(a, b, s, t)
        assert str(raised.value).splitlines()[0] == str(e).splitlines()[0]
        return
    same(want, braze.compile(fn, fullgraph=True)(a, b, s, t), tol=1e-2)


def test_open_sizes():
    b = factor(48, 32)
    fn = lambda a: torch._scaled_mm(a, b.t(), scale_a=ONE, scale_b=ONE, out_dtype=torch.float32).relu()  # noqa: E731
    compiled = braze.compile(fn, fullgraph=True, dynamic=True)
    for n in (16, 32, 5):
        same(fn(factor(n, 32)), compiled(factor(n, 32)), tol=1e-3)


REFUSED = {
    "sizes": lambda: plain(factor(16, 32), factor(48, 16), ONE, ONE, torch.float32),
    "dtype": lambda: plain(torch.randn(16, 32), factor(48, 32), ONE, ONE, torch.float32),
    "scale": lambda: plain(factor(16, 32), factor(48, 32), torch.rand(3), ONE, torch.float32),
    "scale's dtype": lambda: plain(factor(16, 32), factor(48, 32), ONE.double(), ONE, torch.float32),
    "dimensions": lambda: plain(factor(2, 16, 32), factor(48, 32), ONE, ONE, torch.float32),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name):
    fn = REFUSED[name]
    try:
        fn()
    except Exception as e:
        with pytest.raises(type(e)):
            braze.compile(fn)()
        return
    same(fn(), braze.compile(fn)(), tol=1e-3)


@pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="this PyTorch has no F.scaled_mm")
def test_functional():
    def fn(a, b, s, t):
        kind = F.ScalingType.TensorWise
        return (
            F.scaled_mm(a * 1 if a.dtype == torch.float32 else a, b.t(), s, kind, t, kind, output_dtype=torch.bfloat16)
            + 1
        )

    args = factor(16, 32), factor(48, 32), ONE, ONE * 2
    try:
        want = fn(*args)
    except Exception as e:
        with pytest.raises(type(e)):
            braze.compile(fn)(*args)
        return
    same(want, braze.compile(fn, fullgraph=True)(*args), tol=1e-2)
