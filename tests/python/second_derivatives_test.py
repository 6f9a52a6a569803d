"""Gradients of compiled regions that are differentiated again, or that come in batches: results, errors and random numbers are eager's."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from second_derivatives import MODELS, both, compiled_whole, leaf, penalty
from torch import nn
from torch.autograd import grad
from torch.utils.checkpoint import checkpoint

import braze


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x * 2], ids=["leaf", "activation that nobody else keeps"])
def test_models(name, of):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().double()

    def act(f):
        x = leaf(*shape)
        return penalty(lambda x: f(of(x)), x, [x, *model.parameters()])

    both(model, act)


def test_the_third_derivative():
    def act(f):
        x = leaf(4)
        g = f(x)
        for _ in range(3):
            (g,) = grad(g.sum(), x, create_graph=True)
        return g.detach()

    both(lambda x: torch.sin(x) * x.exp(), act)


@pytest.mark.parametrize("f", [
    lambda x, y: (x * y).tanh(),
    lambda x, y: (x.sin(), (x * y).exp()),
    lambda x, y: (lambda z: (z, z.t(), z[0]))((x * y).sin()),
    lambda x, y: (x * y).exp().split(1),
    lambda x, y: ((x * y).sin(), (x * y).detach(), (x > y)),
    lambda x, y: (x.view(-1), (x * y).cos()),
    lambda x, y: (y * x.detach()).exp() * x,
], ids=["one", "two", "views", "split", "not_differentiable", "view_of_an_input", "detached"])  # fmt: skip
@pytest.mark.parametrize("used", ["all", "last"])
def test_outputs(f, used):
    def act(g):
        x, w = leaf(2, 3), leaf(2, 3, seed=1)
        y = w.exp()
        result = g(x * 2, y)
        out = [t for t in (result if isinstance(result, tuple) else (result,)) if t.requires_grad]
        out = out if used == "all" else out[-1:]
        first = grad(sum(o.pow(2).sum() for o in out), [x, w], create_graph=True)
        return [*(t.detach() for t in first), *grad(sum(t.pow(3).sum() for t in first), [x, w])]

    both(f, act)


def test_one_input_is_a_function_of_another():
    def act(f):
        x = leaf(3)
        h = x.sin()
        (g,) = grad(f(x, h).sum(), x, create_graph=True)
        return [g.detach(), *grad(g.sum(), x)]

    both(lambda x, h: (x * h).tanh() + h.exp(), act)


# ---- what the program does between the forward and the backward ----


def between(f, change, **kwargs):
    def act(g):
        x, w = leaf(3), leaf(3, seed=1)
        a, b = x * 1, w * 1
        y = g(a, b)
        change(a, b, y)
        first = grad(y.sum(), [x, w], create_graph=True)
        return [*(t.detach() for t in first), *grad(sum(t.pow(2).sum() for t in first), [x, w])]

    return both(f, act, **kwargs)


def forget(t):
    with torch.no_grad():
        t.add_(1)


def saved(a, b):
    return (a * b).sin()


def not_saved(a, b):
    return (a + 1) * (b + 2)


def test_a_saved_input_is_written_to():
    assert "modified by an inplace" in str(between(saved, lambda a, b, y: forget(a)))
    assert "modified by an inplace" in str(between(saved, lambda a, b, y: b.mul_(2)))


def test_a_saved_output_is_written_to():
    assert "modified by an inplace" in str(between(lambda a, b: (a * b).exp(), lambda a, b, y: forget(y)))


def test_an_output_that_is_not_saved_is_written_to():
    between(saved, lambda a, b, y: y.mul_(3))
    between(saved, lambda a, b, y: forget(y))


def test_an_input_on_which_no_gradient_depends_is_written_to():
    between(lambda a, b: a + 2 * b, lambda a, b, y: (forget(a), b.mul_(2)))


def test_an_input_that_eager_does_not_save_is_written_to():
    """Plain gradients are right; those with a history are refused, never wrong."""
    x, w = leaf(3), leaf(3, seed=1)
    a, b = x * 1, w * 1
    y = compiled_whole(not_saved)(a, b)
    forget(a)
    with pytest.raises(RuntimeError, match="an input of a compiled region.*modified by an inplace operation"):
        grad(y.sum(), [x, w], create_graph=True)
    torch.testing.assert_close(grad(y.sum(), [x, w]), ((w + 2).detach(), (x + 1).detach()))


def test_parameters_change_after_the_first_gradients():
    def act(f):
        x, w = leaf(3), leaf(3, seed=1)
        (g,) = grad(f(x, w).sum(), x, create_graph=True)
        forget(w)
        return grad(g.sum(), x)

    assert "modified by an inplace" in str(both(saved, act))


@pytest.mark.parametrize("order", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("retain", [False, True])
def test_backwards_one_after_the_other(order, retain):
    def act(f):
        x, w = leaf(3), leaf(3, seed=1)
        y = f(x, w).sum()
        first = grad(y, [x, w], create_graph=order[0], retain_graph=retain)
        second = grad(y, [x, w], create_graph=order[1], retain_graph=retain)
        return [t.detach() for t in (*first, *second)]

    both(saved, act)


def test_two_outputs_one_after_the_other():
    def act(f):
        x, w = leaf(3), leaf(3, seed=1)
        a, b = f(x * 1, w * 1)
        (first,) = grad(a.sum(), x)
        (second,) = grad(b.sum(), w, create_graph=True)
        return first, second.detach(), *grad(second.sum(), w)

    both(lambda x, w: (x.exp(), w.sin()), act)


# ---- regions that write to their inputs ----


@pytest.mark.parametrize("f", [
    lambda a, b: a.mul_(b).tanh(),
    lambda a, b: (a.add_(1) * b).sin(),
    lambda a, b: (a.sin() + b, b.mul_(2))[0] * b.exp(),
    lambda a, b: (a.mul_(2), (a * b).exp())[1],
    lambda a, b: (b.copy_(a.exp()), b * a)[1],
    lambda a, b: (a.detach().mul_(3), (a * b).sin())[1],
])  # fmt: skip
def test_a_region_that_writes_to_its_inputs(f):
    def act(g):
        x, w = leaf(3), leaf(3, seed=1)
        a, b = x * 1, w * 1
        y = g(a, b) + a.sin() + b.exp()
        first = grad(y.sum(), [x, w], create_graph=True)
        return [a.detach(), b.detach(), *(t.detach() for t in first), *grad(sum(t.pow(2).sum() for t in first), [x, w])]

    both(f, act)


def test_buffers_that_count():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.ones((), dtype=torch.float64))

        def forward(self, x):
            y = (x * self.calls.clone()).sin()
            self.calls.add_(1)
            return y

    eager = Counter()
    compiled = compiled_whole(copy.deepcopy(eager))
    for _ in range(3):
        got = []
        for m in (eager, compiled):
            x = leaf(3)
            (g,) = grad(m(x).sum(), x, create_graph=True)
            got.append((g.detach(), *grad(g.sum(), x)))
        torch.testing.assert_close(got[1], got[0])


def test_other_calls_come_before_the_gradients():
    """Running statistics change in between: nothing depends on them."""

    def run(f, m):
        x = leaf(6, 4)
        out = f(x)
        f(leaf(6, 4, seed=1))
        (g,) = grad(out.sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        return [p.grad for p in m.parameters() if p.grad is not None] + [x.grad, *m.buffers()]

    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    other = copy.deepcopy(eager)
    torch.testing.assert_close(run(compiled_whole(other), other), run(eager, eager))


# ---- modes, hooks, random numbers ----


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast(where, backward_inside):
    def plain(x, w):
        return torch.mm(x, w).sin()

    def inside(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.mm(x, w).sin() * (x @ w)

    def act(f):
        x, w = leaf(3, 4, dtype=torch.float32), leaf(4, 2, seed=1, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "outside"):
            y = f(x, w)
            if backward_inside:
                (g,) = grad(y.float().sum(), x, create_graph=True)
        if not backward_inside:
            (g,) = grad(y.float().sum(), x, create_graph=True)
        assert y.dtype == torch.bfloat16
        return g.dtype == torch.float32

    assert both(inside if where == "inside" else plain, act)


def test_autocast_values():
    def f(x, w):
        return torch.mm(x, w).float().sin()

    def act(g):
        x, w = leaf(3, 4, dtype=torch.float32), leaf(4, 2, seed=1, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = g(x, w)
        (first,) = grad(y.sum(), x, create_graph=True)
        (second,) = grad(first.sum(), w)
        return first.detach().bfloat16(), second.bfloat16()

    both(f, act)


@pytest.mark.parametrize("rng", ["eager", "philox"])
def test_dropout_keeps_its_mask(rng):
    options = {"options": {"rng": rng}} if rng == "eager" else {}
    f = compiled_whole(lambda x: F.dropout(x.pow(3), 0.5), **options)
    x = leaf(40)
    y = f(x * 1)
    mask = (y != 0).double() * 2
    (g,) = grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(g.detach(), (3 * x**2 * mask).detach())
    (gg,) = grad(g.sum(), x)
    torch.testing.assert_close(gg, (6 * x * mask).detach())


def test_hooks():
    def act(f):
        x, w = leaf(3), leaf(3, seed=1)
        seen = []
        a = x * 1
        a.register_hook(lambda g: (seen.append(g.detach().clone()), g * 2)[1])
        y = f(a, w)
        y.register_hook(lambda g: (seen.append(g.detach().clone()), g * 3)[1])
        (g,) = grad(y.sum(), x, create_graph=True)
        return g.detach(), *grad(g.sum(), [x, w]), *seen

    both(saved, act)


def test_saved_tensors_hooks():
    def act(f):
        x, w = leaf(3), leaf(3, seed=1)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            y = f(x * 1, w * 1)
        (g,) = grad(y.sum(), x, create_graph=True)
        return (g.detach(),)

    both(saved, act)


def test_checkpoint_inside():
    def inner(x, w):
        return (x * w).sin().exp()

    def f(x, w):
        return checkpoint(inner, x, w, use_reentrant=False) * x

    def act(g):
        x, w = leaf(3), leaf(3, seed=1)
        first = grad(g(x, w).sum(), [x, w], create_graph=True)
        return [*(t.detach() for t in first), *grad(sum(t.pow(2).sum() for t in first), [x, w])]

    both(f, act)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


class Once(Cube):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2


@pytest.mark.parametrize("function", [Cube, Once])
def test_functions_of_the_user(function):
    def act(f):
        x = leaf(3)
        (g,) = grad(f(x * 1).sum(), x, create_graph=True)
        return g.detach(), *grad(g.sum(), x)

    both(lambda x: function.apply(x) * x.sin(), act)


def test_a_graph_break_inside():
    def f(x, w):
        y = (x * w).sin()
        braze.graph_break()
        return y.exp() * x

    def act(g):
        x, w = leaf(3), leaf(3, seed=1)
        first = grad(g(x * 1, w * 1).sum(), [x, w], create_graph=True)
        return [*(t.detach() for t in first), *grad(sum(t.pow(2).sum() for t in first), [x, w])]

    compiled = braze.compile(f)
    for _ in range(2):
        torch.testing.assert_close(act(compiled), act(f))
    assert len(braze.explain(f, leaf(3), leaf(3)).graphs) == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_open_sizes(dynamic):
    compiled = compiled_whole(lambda x, w: (x.flatten() * w[: x.numel()]).sin().view(x.shape), dynamic=dynamic)
    for n in (3, 4, 5, 7):
        got = []
        for f in (lambda x, w: (x.flatten() * w[: x.numel()]).sin().view(x.shape), compiled):
            x, w = leaf(n, 2), leaf(40, seed=1)
            first = grad(f(x * 1, w * 1).sum(), [x, w], create_graph=True)
            got.append([*(t.detach() for t in first), *grad(sum(t.pow(2).sum() for t in first), [x, w])])
        torch.testing.assert_close(got[1], got[0])


# ---- what is kept ----


def test_what_is_held_dies_with_the_backward():
    f = compiled_whole(lambda x, w: (x + 1) * w.sin())
    x, w = leaf(3), leaf(3, seed=1)
    a = x * 1
    storage = weakref.ref(a.untyped_storage())
    y = f(a, w)
    del a
    y.sum().backward()
    gc.collect()
    assert storage() is None, "held after its backward"


def test_a_history_that_leads_back_is_no_cycle():
    f = compiled_whole(not_saved)
    x, w = torch.ones(3, dtype=torch.float64), leaf(3)
    y = f(x, w)
    x.add_(y)
    ref = weakref.ref(x.untyped_storage())
    del x, y
    assert ref() is None
