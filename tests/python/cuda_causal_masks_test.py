"""Masks of positions alone on a GPU: attention takes its causal form there, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def made(n):
    at = torch.arange(n, device="cuda")
    return at[None, :] <= at[:, None]


def masked(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=made(q.shape[-2]))


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def kernels(f):
    f()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        f()
        torch.cuda.synchronize()
    return [e.name for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [128, 200, 1])
def test_results_and_gradients(dtype, n):
    torch.manual_seed(0)
    args = [torch.randn(2, 4, n, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in args]
    compiled = braze.compile(masked, fullgraph=True)

    def run(f, args):
        out = f(*args)
        return [
            out,
            *torch.autograd.grad(out.float().square().sum() if dtype != out.dtype else out.square().sum(), args),
        ]

    got, eager, right = run(compiled, args), run(masked, args), run(masked, exact)
    for a, b, c in zip(got, eager, right):
        bound = 2 * (b.double() - c).abs().max() + 4 * torch.finfo(dtype).eps * c.abs().max()
        assert (a.double() - c).abs().max() <= bound
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(*args), masked(*args), atol=1e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-2
        )


def test_the_kernels_are_those_of_the_causal_form():
    args = [torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    compiled = braze.compile(masked, fullgraph=True)

    def step(f):
        return lambda: torch.autograd.grad(f(*args).float().sum(), args)

    ours, theirs = kernels(step(compiled)), kernels(step(causal))
    attention = [name for name in theirs if "sdpa" in name or "flash" in name or "fmha" in name]
    assert attention and all(name in ours for name in attention), (ours, theirs)
