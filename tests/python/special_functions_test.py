"""Special functions of compiled kernels: errors against exact values (mpmath), beside eager's own, and where they end."""

import math

import pytest
import torch

import braze

mp = pytest.importorskip("mpmath", reason="exact values of special functions")

# Functions, where their arguments lie, and what they are. No nearer to zeros of the function than its error there.
EXACT = {
    "i0": ((-60, 60), lambda x: mp.besseli(0, x)),
    "i0e": ((-300, 300), lambda x: mp.exp(-abs(x)) * mp.besseli(0, x)),
    "i1": ((-60, 60), lambda x: mp.besseli(1, x)),
    "i1e": ((-300, 300), lambda x: mp.exp(-abs(x)) * mp.besseli(1, x)),
    "modified_bessel_i0": ((-60, 60), lambda x: mp.besseli(0, x)),
    "modified_bessel_i1": ((-60, 60), lambda x: mp.besseli(1, x)),
    "modified_bessel_k0": ((1e-3, 60), lambda x: mp.besselk(0, x)),
    "modified_bessel_k1": ((1e-3, 60), lambda x: mp.besselk(1, x)),
    "scaled_modified_bessel_k0": ((1e-3, 300), lambda x: mp.exp(x) * mp.besselk(0, x)),
    "scaled_modified_bessel_k1": ((1e-3, 300), lambda x: mp.exp(x) * mp.besselk(1, x)),
    "bessel_j0": ((-30, 30), lambda x: mp.besselj(0, x)),
    "bessel_j1": ((-30, 30), lambda x: mp.besselj(1, x)),
    "bessel_y0": ((1e-3, 30), lambda x: mp.bessely(0, x)),
    "bessel_y1": ((1e-2, 30), lambda x: mp.bessely(1, x)),
    "spherical_bessel_j0": ((-30, 30), lambda x: mp.sinc(x)),
    "erfcx": ((-4, 1e3), lambda x: mp.exp(mp.mpf(x) ** 2) * mp.erfc(x)),
    "log_ndtr": ((-1e3, 6), lambda x: mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2)),
    "ndtri": ((1e-6, 1), lambda x: mp.sqrt(2) * mp.erfinv(2 * mp.mpf(x) - 1)),
    "lgamma": ((-20, 200), lambda x: mp.log(abs(mp.gamma(x)))),
    "digamma": ((-20, 200), lambda x: mp.digamma(x)),
}
# Exact to the last digits over all of the range: no zero to cancel at.
WITHIN = {"i0e": 4, "i1e": 4, "scaled_modified_bessel_k0": 4, "scaled_modified_bessel_k1": 4, "ndtri": 6}
ENDS = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    1e-40,
    -1e-40,
    5.0,
    8.0,
    10.0,
    1e30,
    -1e30,
    50.0,
    -30.0,
    -100.0,
]


def function(name):
    return getattr(torch, name, None) or getattr(torch.special, name)


def exact(name, x):
    mp.mp.dps = 30
    return torch.tensor([float(EXACT[name][1](v)) for v in x.tolist()], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_error(name, dtype):
    low, high = EXACT[name][0]
    x = torch.linspace(low, high, 403, dtype=torch.float64)[1:-1].add(1e-3).to(dtype)
    x = x[(x > low) & (x < high)]
    f, want = function(name), exact(name, x)
    own, eager = braze.compile(f, fullgraph=True)(x).double() - want, f(x).double() - want
    unit = torch.finfo(dtype).eps * want.abs().clamp_min(1e-300)
    assert own.isfinite().all()
    if name in WITHIN:
        assert (own.abs() / unit).max() <= max(WITHIN[name], (eager.abs() / unit).max()), "units in the last place"
    # Nearer than eager's worst of the neighbourhood, or a few units of the largest value there.
    for part in torch.arange(len(x)).split(40):
        bound = 2 * eager[part].abs().max() + 4 * unit[part].max()
        assert own[part].abs().max() <= bound, (x[part][own[part].abs().argmax()], own[part].abs().max(), bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_ends_and_dtypes(name, dtype):
    f = function(name)
    ends = ENDS if dtype.is_floating_point else [0, 1, 2, 3, 11]
    for n in (1, 7):
        x = torch.tensor(ends * n).to(dtype)
        try:
            want = f(x)
        except NotImplementedError as e:
            with pytest.raises(NotImplementedError):
                braze.compile(f)(x)
            assert "not implemented" in str(e)
            continue
        explained = braze.explain(f, x)
        assert explained.graph_count == 1 and explained.extern_count == 0
        rtol = {torch.bfloat16: 4 * torch.finfo(torch.bfloat16).eps, torch.float32: 1e-4, torch.float64: 1e-9}[
            want.dtype
        ]
        torch.testing.assert_close(explained.output, want, rtol=rtol, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("n", [0, 1])
def test_polygamma(n):
    x = torch.cat([torch.linspace(-5.3, 20, 97), torch.tensor([0.0, 0.5, 1.0, 100.0])])
    f = lambda x: torch.special.polygamma(n, x) * 2
    explained = braze.explain(f, x)
    assert explained.extern_count == 0
    torch.testing.assert_close(explained.output, f(x), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_gradients_stay_in_kernels():
    def f(x):
        return torch.lgamma(x) + torch.special.i0e(x) * torch.digamma(x) + torch.special.i1(x)

    x = torch.linspace(0.1, 3.5, 50).requires_grad_()
    explained = braze.explain(f, x)
    assert explained.extern_count == 0
    (want,) = torch.autograd.grad(f(x).sum(), x)
    (got,) = torch.autograd.grad(explained.output.sum(), x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert not explained.backward_extern_count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_steps_and_parts_of_floats(dtype):
    f = torch.finfo(dtype)
    v = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f.max,
        -f.max,
        f.tiny,
        -f.tiny,
        f.smallest_normal * f.eps,
        math.inf,
        -math.inf,
        math.nan,
        3.7,
        1e-3,
    ]
    x, y = (
        t.flatten().clone()
        for t in torch.meshgrid(torch.tensor(v, dtype=dtype), torch.tensor(v, dtype=dtype), indexing="ij")
    )

    def call(x, y):
        return torch.nextafter(x, y), *torch.frexp(x), torch.hypot(x, y), torch.angle(x)

    explained = braze.explain(call, x, y)
    assert explained.extern_count == 0
    for got, want in zip(explained.output, call(x, y)):
        assert got.dtype == want.dtype
        if want.dtype.is_floating_point:
            torch.testing.assert_close(got, want, rtol=2 * f.eps, atol=0, equal_nan=True)
            assert torch.equal(got.signbit() | got.isnan(), want.signbit() | want.isnan())
        else:
            assert torch.equal(got, want)
