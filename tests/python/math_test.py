"""Elementary functions of compiled kernels: errors in units in the last place against a wider type, beside eager's own."""

import math

import pytest
import torch

import braze

# Functions and where their arguments lie.
RANGES = {
    "exp": (-103, 88.7),
    "exp2": (-149, 127.9),
    "expm1": (-30, 88.7),
    "log": (1e-38, 3e38),
    "log2": (1e-38, 3e38),
    "log10": (1e-38, 3e38),
    "log1p": (-0.99999, 1e30),
    "sin": (-2e4, 2e4),
    "cos": (-2e4, 2e4),
    "tan": (-2e4, 2e4),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-1e9, 1e9),
    "sinh": (-89.4, 89.4),
    "cosh": (-89.4, 89.4),
    "tanh": (-12, 12),
    "asinh": (-1e30, 1e30),
    "acosh": (1, 1e30),
    "atanh": (-0.99999, 0.99999),
    "erf": (-6, 6),
    "erfc": (-9, 9),
    "sigmoid": (-100, 88),
    "rsqrt": (1e-30, 1e30),
}
SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1e-40,
    -1e-40,
    1e30,
    -1e30,
    100.0,
    -100.0,
    2.0,
    -2.0,
]


def function(name):
    return getattr(torch, name, None) or getattr(torch.special, name)


def arguments(lo, hi, n, dtype):
    """Evenly spaced ones, and ones of every magnitude."""
    top = max(abs(lo), abs(hi))
    magnitudes = torch.exp(torch.linspace(math.log(1e-30), math.log(top), n, dtype=torch.float64))
    x = torch.cat([torch.linspace(lo, hi, n, dtype=torch.float64), magnitudes, -magnitudes])
    return x[(x >= lo) & (x <= hi)].to(dtype)


def ulps(got, want, bits):
    """|got - want| in units of the last of `bits` bits of `want`, which is in double."""
    unit = torch.exp2(torch.frexp(want.abs().clamp_min(2.0**-126))[1].double() - bits)
    return ((got.double() - want).abs() / unit)[torch.isfinite(want) & (want.abs() < 3.4e38)].max().item()


@pytest.mark.parametrize("name", RANGES)
def test_error_in_single_precision(name):
    f = function(name)
    x = arguments(*RANGES[name], 50_003, torch.float32)  # an odd number: the remainder runs under a mask
    want = f(x.double())
    own, eager = ulps(braze.compile(f, fullgraph=True)(x), want, 24), ulps(f(x), want, 24)
    assert own <= eager + 2, f"{own:.2f} units, eager {eager:.2f}"


@pytest.mark.parametrize("name", [n for n in RANGES if n != "rsqrt"])
def test_double_precision(name):
    f = function(name)
    x = arguments(*RANGES[name], 5_003, torch.float64)
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x), f(x), rtol=1e-15, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_special_values(name, dtype):
    f = function(name)
    compiled = braze.compile(f, fullgraph=True)
    # In whole vectors, in a remainder, and alone.
    for x in (
        torch.tensor(SPECIAL * 16, dtype=dtype),
        torch.tensor(SPECIAL, dtype=dtype),
        torch.tensor(SPECIAL, dtype=dtype).view(-1, 1)[3],
    ):
        got, want = compiled(x), f(x)
        torch.testing.assert_close(
            got, want, rtol=5e-7 if dtype == torch.float32 else 1e-15, atol=1e-43, equal_nan=True
        )
        number = ~want.isnan()
        assert torch.equal(got.signbit()[number], want.signbit()[number]), "signs"


@pytest.mark.parametrize(
    "dtype,bound", [(torch.float32, 89.4159), (torch.float64, 710.4758), (torch.bfloat16, 89.0)], ids=str
)
@pytest.mark.parametrize("n", [1, 16, 37])
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_reach_the_largest_numbers(name, n, dtype, bound):
    compiled = braze.compile(function(name), fullgraph=True)
    x = torch.linspace(bound - 1, bound, n, dtype=torch.float64).to(dtype)
    for x in (x, -x):
        want = torch.tensor([getattr(math, name)(v) for v in x.tolist()], dtype=torch.float64)
        torch.testing.assert_close(compiled(x).double(), want, rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("octaves", [2, 20, 100, 240])
def test_fmod_is_exact(octaves, dtype):
    torch.manual_seed(octaves)
    scale = lambda: torch.exp2(
        (torch.rand(20_000, dtype=torch.float64) - 0.5) * octaves * (8 if dtype == torch.float64 else 1)
    )
    x, y = ((torch.randn(20_000, dtype=torch.float64) * scale()).to(dtype) for _ in "xy")
    x[::3] = (y * torch.randint(0, 1 << 23, y.shape))[::3].clamp(-1e38, 1e38)  # multiples, and their neighbours
    x[1::3] = torch.nextafter(x.roll(1), torch.zeros_like(x))[1::3]
    y[y == 0] = 1
    want = torch.tensor([math.fmod(a, b) for a, b in zip(x.tolist(), y.tolist())], dtype=torch.float64).to(dtype)
    got = braze.compile(torch.fmod, fullgraph=True)(x, y)
    assert torch.equal(got, want) and torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [3, 8, 24, 47, 256])
def test_powers_and_remainders(n, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(n, dtype=dtype) * 5, torch.randn(n, dtype=dtype)
    tol = dict(rtol=5e-7 if dtype == torch.float32 else 1e-14, atol=0, equal_nan=True)
    for f in (lambda a, b: a.abs() ** b, lambda a, b: a**4, lambda a, b: a.abs() ** 0.5, torch.atan2):
        torch.testing.assert_close(braze.compile(f, fullgraph=True)(a, b), f(a, b), **tol)
    for f in (torch.fmod, torch.remainder, torch.floor_divide):
        torch.testing.assert_close(braze.compile(f, fullgraph=True)(a, b), f(a, b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("bound", [-(2**40), -300, -7, 3, True, 300, 2**40])
@pytest.mark.parametrize(
    "f",
    [torch.clamp_min, torch.clamp_max, lambda x, b: x.clamp(b, 100), lambda x, b: x.clamp(1, b), lambda x, b: x.clone().clamp_(b),
     lambda x, b: x.clamp(b, 400.5), lambda x, b: torch.nn.functional.hardtanh(x.clone(), b, 2**41)],
    ids=["min", "max", "both", "high", "in_place", "beside_a_float", "hardtanh"],
)  # fmt: skip
def test_integer_bounds_outside_of_the_type(f, bound, dtype):
    x = torch.tensor([0, 1, 2, 100, 127, 253]).to(dtype)
    try:
        want = f(x, bound)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as raised:
            braze.compile(f, dynamic=False)(x, bound)
        assert str(raised.value) == str(error)
        return
    got = braze.compile(f, dynamic=False)(x, bound)
    assert got.dtype == want.dtype and torch.equal(got, want)
