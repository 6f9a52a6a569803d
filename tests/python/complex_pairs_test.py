"""Complex arithmetic between view_as_complex and view_as_real, as rotary embeddings have it, is arithmetic on pairs of real numbers."""

import pytest
import torch

import braze

torch.manual_seed(0)
ANGLES = torch.polar(torch.ones(40, 8), torch.randn(40, 8))
PAIRS = torch.randn(4, 8, 2)


def rotary(q, k, angles):
    def turned(x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * angles.view(1, x.shape[1], 1, -1)).flatten(3).type_as(x)

    return turned(q), turned(k)


def same(fn, *args, **how):
    compiled = braze.compile(fn, fullgraph=True, **how)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), fn(*args), check_stride=True, equal_nan=True)
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("at", [slice(0, 16), slice(5, 21), slice(1, 33, 2)], ids=str)
def test_rotary(dtype, at):
    q, k = torch.randn(2, 16, 4, 16).to(dtype), torch.randn(2, 16, 1, 16).to(dtype)
    for dynamic in (None, True):
        compiled = same(rotary, q, k, ANGLES[at], dynamic=dynamic)
    assert braze.explain(compiled, q, k, ANGLES[at]).extern_count <= 1  # the angles' parts


def test_gradients():
    q, k = torch.randn(1, 16, 2, 16, requires_grad=True), torch.randn(1, 16, 2, 16, requires_grad=True)

    def gradients(fn):
        a, b = fn(q, k, ANGLES[:16])
        return torch.autograd.grad(a.square().sum() + b.exp().sum(), (q, k))

    torch.testing.assert_close(
        gradients(braze.compile(rotary, fullgraph=True)), gradients(rotary), rtol=1e-4, atol=1e-4
    )


CASES = {
    "product": lambda x, f: torch.view_as_real(torch.view_as_complex(x) * f),
    "sum, difference": lambda x, f: torch.view_as_real(2 - (torch.view_as_complex(x) + f - x[..., 0])),
    "real factor": lambda x, f: torch.view_as_real(-torch.view_as_complex(x) * x[..., 1] * 2.5),
    "real factor first": lambda x, f: torch.view_as_real(x[:1, :, 1] * torch.view_as_complex(x)),
    "of parts": lambda x, f: torch.view_as_real(torch.complex(x[..., 0], x[0, :, 1]) * f),
    "polar": lambda x, f: torch.view_as_real(torch.polar(x[..., 0], x[..., 1]) + f),
    "views": lambda x, f: torch.view_as_real((torch.view_as_complex(x) * f).t()[1:, 2][::2] * f[0, :4]),
    "expanded": lambda x, f: torch.view_as_real((torch.view_as_complex(x)[:, None] + f[None]).permute(2, 0, 1)),
    "magnitude beside it": lambda x, f: (
        torch.view_as_real(torch.view_as_complex(x) * f),
        torch.view_as_complex(x).abs(),
    ),
    "complex result": lambda x, f: (torch.view_as_complex(x) * f, torch.view_as_real(f * f)),
    "twice": lambda x, f: torch.view_as_real(
        torch.view_as_complex(torch.view_as_real(torch.view_as_complex(x) * f).sin()) * f
    ),
    "real": lambda x, f: torch.view_as_real(torch.view_as_complex(x).real * f),
}


@pytest.mark.parametrize("name", CASES)
def test_arithmetic(name):
    same(CASES[name], PAIRS, ANGLES[:4])
    same(CASES[name], PAIRS.double(), ANGLES[3:7].to(torch.complex128))


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_finite(name):
    x = PAIRS.clone()
    x[0, 0, 0], x[1, 1, 1], x[2, 2, 0], x[3] = float("inf"), float("nan"), -float("inf"), -0.0
    if name != "polar":  # sines of infinities differ in the sign of NaN alone
        same(CASES[name], x, ANGLES[:4])


def test_an_input_that_is_seen_as_real():
    def f(z):
        parts = torch.view_as_real(z)
        parts.add_(1)
        return z * 2, parts

    a, b = ANGLES[3:7].clone(), ANGLES[3:7].clone()
    torch.testing.assert_close(braze.compile(f)(a), f(b))
    torch.testing.assert_close(a, b)
    view = braze.compile(lambda z: (torch.view_as_real(z * 2), torch.view_as_real(z)))(a)[1]
    view.zero_()
    assert not a.any()
