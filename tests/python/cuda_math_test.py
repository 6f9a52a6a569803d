"""Elementary functions on the GPU over all of float32: within 2 units in the last place (of what a function needs of others
4), special values as eager's."""

import pytest
import torch
import torch.nn.functional as F

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, 2.0, 0.5]


def numbers(n):
    generator = torch.Generator("cuda").manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (n,), device="cuda", generator=generator).to(torch.int32).view(torch.float32)
    near = torch.randn(n, device="cuda", generator=generator)
    return torch.cat([bits, near, near * 1e-3, torch.tensor(SPECIAL, device="cuda")])


def units_off(got, want):
    rounded = want.float()
    normal = torch.isfinite(rounded) & (rounded.abs() > 1.2e-38)
    unit = torch.pow(2.0, torch.frexp(rounded[normal])[1].double() - 24)
    return float(((got[normal].double() - want[normal]).abs() / unit).max())


def same_special(got, want):
    normal = want.abs() > 1.2e-38
    zeros = want == 0
    return (
        torch.equal(got.isnan(), want.isnan())
        and torch.equal(got[want.isinf()], want[want.isinf()])
        and torch.equal(got[zeros].signbit(), want[zeros].signbit())
        and bool((got[normal] != 0).all())
    )


@pytest.mark.parametrize("name", ["log", "log1p", "tanh", "rsqrt", "erf"])
def test_functions_of_one_number(name):
    f, x = getattr(torch, name), numbers(1 << 20)
    got = braze.compile(lambda x: f(x), fullgraph=True)(x)
    assert units_off(got, f(x.double())) <= 2
    assert same_special(got, f(x))


def test_angles():
    y, x = numbers(1 << 20), numbers(1 << 20).roll(12345)
    pairs = torch.tensor(SPECIAL, device="cuda")
    y, x = torch.cat([y, pairs.repeat_interleave(len(SPECIAL))]), torch.cat([x, pairs.repeat(len(SPECIAL))])
    got = braze.compile(lambda y, x: torch.atan2(y, x), fullgraph=True)(y, x)
    assert units_off(got, torch.atan2(y.double(), x.double())) <= 2
    assert same_special(got, torch.atan2(y, x))


@pytest.mark.parametrize("f", [torch.fmod, torch.remainder, lambda x, y: x % 2.0, lambda x, y: x // y])
def test_remainders(f):
    x, y = numbers(1 << 20), numbers(1 << 20).roll(54321)
    compiled = braze.compile(lambda x, y: f(x, y), fullgraph=True)
    for a, b in ((x, y), (x, x.roll(1)), (y.clamp(-9, 9) * 1e6, x.clamp(-3, 3)), (x, x)):
        want, got = f(a, b), compiled(a, b)
        assert torch.equal(want.isnan(), got.isnan()) and torch.equal(want.nan_to_num(), got.nan_to_num())


@pytest.mark.parametrize("f", [F.softplus, F.logsigmoid, F.mish])
def test_activations(f):
    x = numbers(1 << 20).clamp(-80, 80)
    got = braze.compile(lambda x: f(x), fullgraph=True)(x)
    torch.testing.assert_close(got.double(), f(x.double()), rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_by_itself_stays_in_its_layout(dtype, last):
    x = torch.randn(4, 16, 32, 32, device="cuda", dtype=dtype)
    w = torch.randn(32, 16, 1, 1, device="cuda", dtype=dtype)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    compiled = braze.compile(lambda x, w: F.conv2d(x, w), fullgraph=True)
    want, got = F.conv2d(x, w), compiled(x, w)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert got.stride() == want.stride()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        compiled(x, w)
    assert not [e.name for e in profile.events() if e.name.startswith("braze_")]
