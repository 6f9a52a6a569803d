"""Dual numbers of torch.autograd.forward_ad made inside of what is compiled; gradcheck and its kin run compiled."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from harness import same
from torch.autograd import gradcheck, gradgradcheck

import braze


def a_break_after(x, t):
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, t).square()
        braze.graph_break()
        return forward_ad.unpack_dual(y).tangent


def a_break_before(x, t):
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, t)
        braze.graph_break()
        return forward_ad.unpack_dual(d * d).tangent


def no_break(x, t):
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, t)
        e = d.clone()
        e.add_(forward_ad.make_dual(x, t * 2))
        return forward_ad.unpack_dual(e).tangent, forward_ad.unpack_dual(d.view(-1)).tangent


@pytest.mark.parametrize("fn", [a_break_after, a_break_before, no_break])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_tangents(fn, needs_grad):
    x, t = torch.randn(3, requires_grad=needs_grad), torch.randn(3)
    compiled = braze.compile(fn)
    for _ in range(2):
        same(fn(x, t), compiled(x, t))


CHECKS = {
    "plain": lambda f, args: gradcheck(f, args),
    "batched": lambda f, args: gradcheck(f, args, check_batched_grad=True),
    "forward": lambda f, args: gradcheck(f, args, check_forward_ad=True),
    "fast": lambda f, args: gradcheck(f, args, fast_mode=True),
    "second": lambda f, args: gradgradcheck(f, args),
    "second_batched": lambda f, args: gradgradcheck(f, args, check_batched_grad=True),
    "forward_over_reverse": lambda f, args: gradgradcheck(f, args, check_fwd_over_rev=True),
}


@pytest.mark.parametrize("name", CHECKS)
def test_gradcheck_compiled(name):
    """It perturbs `.data` in place between a forward and its backward, which no version tells, and draws from a generator of its own."""

    def fn(x, w):
        return CHECKS[name](lambda x, w: torch.nn.functional.linear(x, w).tanh(), (x, w))

    x, w = (torch.randn(*s, dtype=torch.double, requires_grad=True) for s in ((2, 3), (4, 3)))
    assert braze.compile(fn)(x, w)
