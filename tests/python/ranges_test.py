"""Numbers whose squares are out of their dtype's range, and what is made of them is not."""

import pytest
import torch
import torch.nn.functional as F

import braze

SMALL_AND_LARGE = torch.tensor([[1e-30], [-1e30], [0.0], [float("inf")], [float("nan")]])


@pytest.mark.parametrize("order", [2, 3, 0.5, 1, 0, -1, -2, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_of_single_elements(order, dtype, keepdim):
    def fn(x):
        return torch.linalg.vector_norm(x, order, dim=1, keepdim=keepdim), x[:1].norm(order), x.norm(order, dim=(1,))

    x = SMALL_AND_LARGE.to(dtype)
    for want, got in zip(fn(x), braze.compile(fn, dynamic=False)(x)):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_normalised_single_elements():
    def fn(x):
        return F.normalize(x, dim=1, eps=1e-38)

    x = SMALL_AND_LARGE[:3]
    torch.testing.assert_close(braze.compile(fn)(x), fn(x))


@pytest.mark.parametrize("of", [torch.var, torch.std, lambda x: torch.std_mean(x)[0], lambda x: torch.std(x, 0)])
@pytest.mark.parametrize("value", [0.1, 1e-25, 3e-39])
@pytest.mark.parametrize("n", [2, 3, 7, 100])
def test_variances_are_not_negative(of, value, n):
    x = torch.arange(1.0, n + 1) * value
    for t in (x, torch.full((n,), value)):
        got = braze.compile(of, dynamic=False)(t)
        assert not torch.signbit(got) and not got.isnan()
