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


# ---- results of one region, differentiated one after the other ----


def apart(x, y):
    return (x * y).sum(), (y * y * y * x).sum()


def through_a_shared_node(x, y):
    z = x.exp()
    return (z * y).sum(), (z * z).sum()


def through_a_node_that_keeps_nothing(x, y):
    z = x + y
    return (z * y).sum(), (z * x).sum()


def three(x, y):
    z = x.exp()
    return (z * y).sum(), (y * y).sum(), (z * x).sum()


def backwards(fn, order):
    x, y = torch.full((2,), 1.5, requires_grad=True), torch.full((2,), 0.5, requires_grad=True)
    results, told = fn(x, y), []
    for i in order:
        try:
            results[i].backward()
            told.append(([None if t.grad is None else t.grad.clone() for t in (x, y)]))
        except RuntimeError as e:
            told.append(str(e)[:60])
    return told


@pytest.mark.parametrize("fn", [apart, through_a_shared_node, through_a_node_that_keeps_nothing, three])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0), (1, 1, 0), (0, 1, 0, 1), (2, 1, 0), (1, 2, 0)])
def test_backwards_from_one_result_after_the_other(fn, order):
    if max(order) >= (3 if fn is three else 2):
        pytest.skip("it has fewer results")
    want, got = backwards(fn, order), backwards(braze.compile(fn), order)
    assert [isinstance(w, str) for w in want] == [isinstance(g, str) for g in got]
    for w, g in zip(want, got):
        if isinstance(w, str):
            assert w == g
            continue
        for a, b in zip(w, g):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(b, a)


def test_what_another_result_shares_is_freed():
    """Memory that eager frees with the first backward is not held for a second one, which would be an error."""

    def fn(x):
        h = (x * x).sin()
        return h.square().sum(), h

    x = torch.randn(1000, 1000, requires_grad=True)
    loss, h = braze.compile(fn)(x)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        h.sum().backward()


# ---- random numbers that no generator gives again ----


def drawn_by_values(x):
    return torch.bernoulli(x.detach().abs().clamp(0, 1)) * x**2


def drawn_with_a_generator(x):
    return torch.rand(3, generator=torch.Generator().manual_seed(3), dtype=x.dtype) * x**2


def slopes(x):
    return F.rrelu(x, 0.1, 0.3, True) * x


def two_kinds(x):
    return torch.poisson(torch.full((3,), 3.0)) * F.dropout(x) * x


def picked(x):
    return torch.multinomial(torch.ones(5), 3) * x**2


@pytest.mark.parametrize("fn", [drawn_by_values, drawn_with_a_generator, slopes, two_kinds, picked])
def test_second_derivatives_see_what_was_drawn(fn):
    """Each is c * x^2 with a random c."""
    x = torch.randn(3, dtype=torch.double, requires_grad=True)
    y = braze.compile(fn)(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad(g.sum(), x)
    torch.testing.assert_close(g.detach(), 2 * y.detach() / x.detach())
    torch.testing.assert_close(gg, 2 * y.detach() / x.detach() ** 2)


# ---- gradients of other kinds ----


def test_a_gradient_without_memory():
    """PyTorch's zeros that take none."""
    x = torch.randn(3, requires_grad=True)
    for n in (1, 2):
        (g,) = torch.autograd.grad(braze.compile(lambda x: x**3)(x), x, torch._efficientzerotensor(3))
        assert g.tolist() == [0.0, 0.0, 0.0]
        assert torch.equal(
            braze.compile(lambda x: x * 2 + n)(torch._efficientzerotensor(3)), torch.full((3,), float(n))
        )


def test_a_gradient_of_a_class_that_handles_operators():
    two = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    x = torch.randn(3, requires_grad=True)
    (g,) = torch.autograd.grad(braze.compile(lambda x: x**3)(x), x, two(torch.ones(3), torch.full((3,), 2.0)))
    assert type(g) is two
    torch.testing.assert_close(g.a, 3 * x.detach() ** 2)
    torch.testing.assert_close(g.b, 6 * x.detach() ** 2)


def test_below_autograd_nothing_has_a_history():
    """What __torch_dispatch__ calls is compiled without gradients, whatever its operands ask for."""
    two = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor

    def fn(x, i, y):
        return (x.sin() + i.sin() + y.sin()) * x.shape[0]

    def grads(fn):
        torch.manual_seed(0)
        i = torch.randn(2, 2, requires_grad=True)
        x = two(i, i.clone())
        y = two(x.clone(), x.clone())
        args = [t.detach().clone().requires_grad_(True) for t in (x, i, y)]
        fn(*args).sum().backward()
        return [t.grad for t in args]

    for got, want in zip(grads(braze.compile(fn)), grads(fn)):
        assert type(got) is type(want)
        while isinstance(want, two):
            got, want = got.a, want.a
        torch.testing.assert_close(got, want)


def test_a_backward_that_is_not_compiled_runs_as_pytorchs_calls():
    def fn(x):
        y = x.to(torch.complex128).sum()
        braze.graph_break()
        return y.abs()

    grads = []
    for f in (fn, braze.compile(fn)):
        x = torch.arange(6.0, dtype=torch.double).reshape(3, 2).requires_grad_()
        f(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
