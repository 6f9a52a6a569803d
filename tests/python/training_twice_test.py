"""Derivatives of derivatives, batched gradients and dual numbers through compiled functions, as eager gives them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training_test import leaf, tensors_of

import braze


def test_second_derivatives_run_uncompiled():
    def fn(x, w):
        return (x @ w).sin().pow(2).sum(1)

    compiled, x, w = braze.compile(fn), torch.randn(5, 4), leaf(4, 3)
    results = []
    for f in (fn, compiled):
        (g,) = torch.autograd.grad(f(x, w).sum(), w, create_graph=True)
        (gg,) = torch.autograd.grad(g.pow(2).sum(), w)
        results.append((g.detach(), gg))
    torch.testing.assert_close(results[1], results[0])


def twice_differentiated(fn, args, leaves, of=None):
    torch.manual_seed(3)
    out = tensors_of(fn(*args))
    first = torch.autograd.grad(sum(o.pow(2).sum() for o in out if o.requires_grad), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.pow(2).sum() for g in first), leaves)
    return [o.detach() for o in out], [g.detach() for g in first], list(second)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (lambda y: (y.view(-1), y.t()))(x.sin()),
        lambda x: (lambda y: (y, y[0], y.detach()))(x.exp()),
        lambda x: (x * 3).split(2),
        lambda x: x + (x.round() - x.sin()).detach() * x,
        lambda x: F.dropout(x.sin(), 0.5) * F.dropout(x, 0.2),
        lambda x: x.sin() * torch.rand(4, 6) + torch.randn_like(x) * x.pow(3),
        lambda x: x.exp() * torch.empty(4, 6).uniform_(-1, 2) * torch.zeros_like(x).normal_(),
    ],
    ids=["views", "base", "split", "straight_through", "dropout", "rand", "in_place"],
)
def test_second_derivatives_of_shared_memory_and_of_random_numbers(fn):
    x = leaf(4, 6)
    want, got = (twice_differentiated(f, (x,), [x]) for f in (fn, braze.compile(fn, options={"rng": "eager"})))
    torch.testing.assert_close(got, want)


def test_second_derivatives_see_the_random_numbers_of_the_call():
    fn = braze.compile(lambda x, n: F.dropout(x[:n].pow(3), 0.5) + torch.rand(n) * x[:n].sin(), dynamic=True)
    for n in (4, 7, 9):
        x = leaf(n)
        y = fn(x, n)
        after = torch.rand(1)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert not torch.equal(torch.rand(1), after), "the generator was not put back"
        (gg,) = torch.autograd.grad(g.sum(), x)
        # y = a x^3 + b sin x with a and b of the call: from g and y they are known, and with them the second derivative.
        v = x.detach()
        m = torch.stack([torch.stack([v**3, v.sin()], -1), torch.stack([3 * v**2, v.cos()], -1)], -2).double()
        a, b = torch.linalg.solve(m, torch.stack([y.detach(), g.detach()], -1).double()).unbind(-1)
        torch.testing.assert_close(gg.double(), a * 6 * v.double() - b * v.double().sin(), rtol=1e-3, atol=1e-3)


def test_a_gradient_penalty_on_a_network_with_batch_norm():
    def run(compiled):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
        f = braze.compile(m) if compiled else m
        x = leaf(6, 4)
        for _ in range(2):
            (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            (f(x).mean() + (g.norm(dim=1) - 1).pow(2).mean()).backward()
        return [p.grad for p in m.parameters()], list(m.buffers())

    want, got = run(False), run(True)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_batched_gradients_of_a_compiled_function():
    w = torch.randn(3, requires_grad=True)
    f = lambda x: (x * w).sin()
    compiled, x = braze.compile(f), torch.randn(3, requires_grad=True)
    for create_graph in (False, True):
        want, got = (
            torch.autograd.grad(g(x), x, torch.eye(3), is_grads_batched=True, create_graph=create_graph)[0]
            for g in (f, compiled)
        )
        assert want.requires_grad == got.requires_grad == create_graph
        torch.testing.assert_close(got, want)
    for strategy in ("reverse-mode", "forward-mode"):
        want, got = (
            torch.autograd.functional.jacobian(g, x.detach(), vectorize=True, strategy=strategy) for g in (f, compiled)
        )
        torch.testing.assert_close(got, want)


def test_dual_numbers_reach_a_compiled_function():
    import torch.autograd.forward_ad as forward

    w = torch.randn(3, requires_grad=True)
    f = lambda x: (x * w).sin()
    compiled, x, t = braze.compile(f), torch.randn(3), torch.ones(3)
    compiled(x)
    for _ in range(2):
        with forward.dual_level():
            want, got = (forward.unpack_dual(g(forward.make_dual(x, t))) for g in (f, compiled))
        torch.testing.assert_close(tuple(got), tuple(want))
        torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.parametrize(
    "f",
    [lambda d: d * 2, lambda d: 3 - d, lambda d: d + True, lambda d: (d * 2 + 1).sin() / 4, lambda d: d * 0.5 - d],
    ids=["times", "from", "and_true", "chain", "difference"],
)
def test_dual_numbers_and_numbers(f):
    import torch.autograd.forward_ad as forward

    def tangent(x):
        with forward.dual_level():
            return tuple(forward.unpack_dual(f(forward.make_dual(x, torch.ones_like(x)))))

    for x in (torch.randn(3), torch.tensor([float("inf"), 0.0, 1e30])):
        torch.testing.assert_close(braze.compile(tangent)(x), tangent(x), equal_nan=True)
        product = lambda x: torch.func.jvp(f, (x,), (x.sign(),))
        torch.testing.assert_close(braze.compile(product)(x), product(x), equal_nan=True)
