"""Graph breaks in code whose sizes stay open: what crosses a break, in loops, in callees and in lists of modules."""

import pytest
import torch
from dynamic_test import r
from harness import outcome, same
from torch import nn

import braze

SIZES = [(4, 3), (7, 3), (2, 3), (9, 3), (5, 3)]


def sweep(f, inputs, **kw):
    compiled = braze.compile(f, **kw)
    for args in inputs:
        want, got = outcome(f, args, {}), outcome(compiled, args, {})
        assert want[0] == got[0], f"{[getattr(a, 'shape', a) for a in args]}: {got}, expected {want}"
        same(want[1], got[1], str([getattr(a, "shape", a) for a in args]))


class Layer(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        self.a, self.breaks = nn.Linear(3, 3), breaks

    def forward(self, x, n=0):
        y = torch.relu(self.a(x)) * (n + 1)
        if self.breaks:
            braze.graph_break()
        return y + x[: y.shape[0]] / x.shape[0]


class Stack(nn.Module):
    def __init__(self, breaks):
        super().__init__()
        self.layers = nn.ModuleList(Layer(b) for b in breaks)

    def forward(self, x):
        n = x.shape[0]
        for i, layer in enumerate(self.layers):
            x = layer(x, i)
            x = x + n
        return x, n


@pytest.mark.parametrize(
    "breaks", [(True,), (False, True), (True, False, True), (True, True, True), (False, False, True, False)]
)
@pytest.mark.parametrize("dynamic", [None, True])
@torch.no_grad()
def test_breaks_in_a_list_of_modules(breaks, dynamic):
    sweep(Stack(breaks), [(r(*s),) for s in SIZES], dynamic=dynamic)


def in_a_loop(x):
    n = x.shape[0]
    for i in range(3):
        x = x * n + i
        braze.graph_break()
        x = x.reshape(-1, 3)[: n - 1]
        n = x.shape[0]
    return x, n


def in_a_comprehension(x):
    def one(i):
        y = x[i:] * x.shape[0]
        braze.graph_break()
        return y.sum(0) + y.shape[0]

    return torch.stack([one(i) for i in range(2)])


def in_callees(x):
    def inner(y, m):
        z = y.reshape(m, -1) * m
        braze.graph_break()
        return z.reshape(-1)[: m * 2], m + z.shape[1]

    def outer(y):
        m = y.shape[0]
        a, k = inner(y, m)
        b, j = inner(a.reshape(-1, 2), m)
        return a, b, k + j, m

    a, b, k, m = outer(x)
    return a * k, b + m, k


def of_an_intermediate(x):
    y = torch.cat([x, x * 2])
    braze.graph_break()
    z = y[: y.shape[0] // 2] + y.shape[0]
    braze.graph_break()
    return z.reshape(-1, 3).sum(0) * z.shape[0], z.numel()


def integers_across(x):
    n, m = x.shape[0], x.shape[0] * 2 + 1
    pair, table = (n, m), {"n": n, "text": f"{m}"}
    braze.graph_break()
    y = torch.zeros(m, 3) + x.sum(0) * n
    braze.graph_break()
    return y[:n], pair, table, y.shape[0] - table["n"]


def divisible(x):
    y = torch.cat([x, x])
    n = y.shape[0]
    braze.graph_break()
    z = y.view(2, n // 2, 3)
    if n % 2 == 0:
        z = z * 2
    braze.graph_break()
    return z.view(-1, 6), z.shape[1]


def equal_sizes(x):
    y = x.t().contiguous()
    braze.graph_break()
    z = y @ x
    a, b = y.shape[1], x.shape[0]
    braze.graph_break()
    return (z + a - b if a == b else z), torch.ones(a, b).sum()


def a_tensor_value(x):
    k = int((x > 0).sum())
    y = x[: k + 1] * k
    return y.sum(0), y.shape[0], k


def nonzero(x):
    i = (x.sum(1) > 0).nonzero().squeeze(1)
    y = x[i] * i.shape[0]
    return y, y.shape[0], torch.arange(i.numel())


def mask(x):
    y = x[x > 0]
    return y * y.shape[0], torch.zeros(y.numel() + 1)


def in_with_and_try(x):
    n = x.shape[0]
    with torch.no_grad():
        y = x * n
        braze.graph_break()
        n = n + y.shape[0]
    try:
        braze.graph_break()
        z = y / (n - 2 * x.shape[0] + 1)
        raise ValueError(n)
    except ValueError as e:
        return z, e.args


def generator(x):
    def rows():
        for i in range(2):
            yield x[i:] * x.shape[0]
            braze.graph_break()

    return [y.sum(0) + y.shape[0] for y in rows()]


def state(x):
    seen = []
    for k in (1, 2):
        seen.append((x.shape[0], x.shape[0] * k))
        braze.graph_break()
        x = torch.cat([x, x[:k]])
    return x, seen, sum(a * b for a, b in seen)


PROGRAMS = [
    in_a_loop,
    in_a_comprehension,
    in_callees,
    of_an_intermediate,
    integers_across,
    divisible,
    equal_sizes,
    a_tensor_value,
    nonzero,
    mask,
    in_with_and_try,
    generator,
    state,
]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
@torch.no_grad()
def test_break(f, dynamic):
    sweep(f, [(r(*s),) for s in SIZES], dynamic=dynamic)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_break_in_training(f):
    compiled = braze.compile(f, dynamic=True)
    for s in SIZES:
        x = r(*s).requires_grad_()
        y = x.detach().clone().requires_grad_()
        for fn, leaf in ((f, x), (compiled, y)):
            out = fn(leaf)
            out = [
                t
                for t in (out if isinstance(out, (tuple, list)) else [out])
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            if out:
                sum(t.square().sum() for t in out).backward()
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            same(x.grad, y.grad, str(s), 1e-3)


def test_a_long_loop_in_segments_is_not_compiled_again_by_each_call():
    """Each round finds a longer list: more versions than are kept."""

    def f(x, n):
        out = []
        while len(out) < n:
            x = torch.cos(x) + 1
            out.append(float(x.sum()))
            braze.graph_break()
        return x, out

    compiled, x = braze.compile(f), torch.randn(8)
    for n in (200, 200, 30, 150, 200):
        torch.testing.assert_close(compiled(x, n), f(x, n), rtol=1e-5, atol=1e-5)
    before = braze.counters()["captures"]
    for n in (200, 30, 200):
        torch.testing.assert_close(compiled(x, n), f(x, n), rtol=1e-5, atol=1e-5)
    assert braze.counters()["captures"] == before
