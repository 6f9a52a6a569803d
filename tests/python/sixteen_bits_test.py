"""Every value of 16 bits against numbers and tensors that are none of them: comparisons decide as eager's, to the bit."""

import pytest
import torch
import torch.nn.functional as F

import braze

WITH_A_NUMBER = {
    "threshold": lambda x: F.threshold(x, 0.1, 20.3),
    "hardshrink": lambda x: F.hardshrink(x, 0.1),
    "softshrink": lambda x: F.softshrink(x, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.1, 0.3),
    "clamp": lambda x: x.clamp(-0.1, 0.3),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "gt": lambda x: x > 0.1,
    "le": lambda x: x <= 0.1,
    "eq": lambda x: x == 0.1,
    "where": lambda x: torch.where(x > 0.1, x, 0.1),
    "masked_fill": lambda x: x.masked_fill(x > 0.1, 0.3),
}
WITH_A_TENSOR = {
    "gt": lambda x, t: x > t,
    "le": lambda x, t: t >= x,
    "eq": lambda x, t: x == t,
    "ne": lambda x, t: x != t,
    "maximum": lambda x, t: torch.maximum(x, t),
    "minimum": lambda x, t: torch.minimum(x, t),
    "where": lambda x, t: torch.where(x > t, x, t),
    "clamp": lambda x, t: x.clamp(t, t + 1),
    "clamp_min": lambda x, t: x.clamp(min=t),
}


def check(fn, x, *args):
    results = []
    for f in (fn, braze.compile(fn)):
        leaf = x.clone().requires_grad_()
        y = f(leaf, *args)
        if y.requires_grad:
            y.backward(torch.full_like(y, 0.3))
        results.append((y.detach(), leaf.grad))
    for want, got in zip(*results):
        assert (want is None) == (got is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def all_values(request):
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(request.param)


@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_numbers(name, all_values):
    check(WITH_A_NUMBER[name], all_values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", WITH_A_TENSOR)
def test_tensors_without_dimensions(name, dtype, all_values):
    check(WITH_A_TENSOR[name], all_values, torch.tensor(0.1 if dtype.is_floating_point else 3, dtype=dtype))
