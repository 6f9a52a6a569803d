"""Inputs that vary without end: what can stay open does, a branch compiles once per outcome, all else is compiled anew, and memory is bounded."""

import gc
import math
import weakref

import pytest
import torch
from dynamic_test import Counted, r
from harness import outcome, same

import braze
from braze import _C

MANY = 300
NUMBERS = tuple(i / 10 for i in range(-20, 40))


def sweep(f, inputs, most, **kw):
    c = braze.compile(f, **kw)
    for args in inputs:
        want, got = outcome(f, args, {}), outcome(c, args, {})
        assert want[0] == got[0], f"{args}: {got}, expected {want}"
        same(want[1], got[1], f"{args}", 1e-6)
    assert 1 <= _C.compilations(c) <= most, _C.compilations(c)
    return c


X = r(4, 3)

INTEGER_BRANCHES = {
    "parity": (lambda x, n: x * n if n % 2 else x + n, 4),
    "range": (lambda x, n: x * n if n > 7 else x + n, 4),
    "remainder": (lambda x, n: x * n if n % 3 == 1 else x + n, 5),
    "remainders and a range": (
        lambda x, n: x * n if n % 3 == 1 else x - n if n % 4 == 3 else x + n if n < 20 else x,
        12,
    ),
    "remainder of a sum": (lambda x, n: x * n if (n + 2) % 5 == 3 else x - n if (7 - n) % 5 == 1 else x, 8),
}


@pytest.mark.parametrize("name", INTEGER_BRANCHES)
@torch.no_grad()
def test_an_integer_under_a_branch_compiles_once_per_outcome(name):
    f, most = INTEGER_BRANCHES[name]
    sweep(f, [(X, n) for n in range(2, 90)], most)
    sweep(f, [(X, n) for n in range(-60, 90)], 3 * most + 3)


FLOAT_BRANCHES = {
    "greater": (lambda x, s: x * s if s > 0.3 else x + s, 3),
    "each comparison": (lambda x, s: [x * s, s < 1, s <= 1.0, s == 2, s != 2.5, s > -1, s >= -1.0], 8),
    "reflected": (lambda x, s: x * s if 1 < s else x + s, 3),
    "chain": (lambda x, s: x * s if -1.0 < s <= 2.5 else x - s, 4),
    "arithmetic": (lambda x, s: x * s if s * 2 + 1 > 3 - s / 4 else x + s, 3),
    "truth": (lambda x, s: x * s if s else x, 3),
    "not": (lambda x, s: x if not s else x / s, 3),
    "bool": (lambda x, s: (x * s, bool(s)), 3),
    "extremes": (lambda x, s: x * max(s, 1.0) + min(s, 0.5), 5),
    "negated": (lambda x, s: x * s if -s > 1 else x, 3),
    "loop": (lambda x, s: [x := x + s for i in range(3) if s > i], 6),
    "assert": (lambda x, s: x / (s - 9) if s - 9 else x, 3),
}


@pytest.mark.parametrize("name", FLOAT_BRANCHES)
@torch.no_grad()
def test_a_float_under_a_branch_compiles_once_per_outcome(name):
    f, most = FLOAT_BRANCHES[name]
    sweep(f, [(X, s) for s in NUMBERS + (0.0, -0.0, math.inf, -math.inf, 1e300)], most)


@torch.no_grad()
def test_two_floats_compared():
    f = lambda x, s, t: x * s if s < t else x + t if s == t else x - s * t
    sweep(f, [(X, s, t) for s in NUMBERS[::7] for t in NUMBERS[::5]], 6)


@torch.no_grad()
def test_comparisons_at_the_edges():
    f = lambda x, s: (x + 1, s < 2**53, s <= -(2**53), s == 2**60, s > 2**70, s == "a", s == None, s in (1.5, 2))  # noqa: E711
    c = braze.compile(f)
    for s in (0.5, 1.5, 2.0, float(2**53), float(2**53) + 2, float(2**60), 2.0**71, math.nan, -(2.0**53), 3.5):
        same(f(X, s), c(X, s), f"{s}")
    g = braze.compile(lambda x, s: x + 1 if s == s else x - 1)
    for s in (0.5, 1.5, math.nan, 2.5, math.nan):
        same(X + 1 if s == s else X - 1, g(X, s), f"{s}")


def test_a_branch_on_a_float_with_gradients():
    f = lambda x, s: (x * s).sin() if s > 0.5 else x.cos() * s
    c = Counted(f)
    for s in NUMBERS[15:40]:
        a = X.clone().requires_grad_()
        b = X.clone().requires_grad_()
        f(a, s).sum().backward(), c(b, s).sum().backward()
        same(a.grad, b.grad, f"{s}")
    assert c.count <= 3


@torch.no_grad()
def test_an_attribute_that_is_compared():
    class M(torch.nn.Module):
        def forward(self, x):
            return x * self.rate if self.rate > 0.5 else x

    m = M()
    m.rate = 1.0
    c = Counted(m)
    for s in NUMBERS:
        m.rate = s
        same(X * s if s > 0.5 else X, c(X), f"{s}")
    assert c.count <= 3


TEXTS = {
    "strings": (lambda x, s: x + len(s) if s.endswith("7") else x * 2, lambda i: (r(3), f"text {i}")),
    "keys": (lambda x, d: x + len(d) if "k7" in d else x * next(iter(d.values())), lambda i: (r(3), {f"k{i}": 2.0})),
    "shapes": (lambda x: torch.relu(x) * x.shape[0], lambda i: (r(1 + i % 20, 1 + i // 20),)),
    "ranks and dtypes": (
        lambda x: x.sum() + x.dim(),
        lambda i: (r(*([2] * (i % 6))).to((torch.float32, torch.float64, torch.float16)[i % 3]),),
    ),
    "tuples of strings": (lambda x, t: x * len(t[0]) + len(t), lambda i: (r(3), ("a" * i, "b"))),
    "numbers that are needed": (lambda x, n: x + len(f"{n:b}"), lambda i: (r(3), i * 17)),
    "floats that are needed": (lambda x, s: x + len(f"{s}"), lambda i: (r(3), i / 7)),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("dynamic", [None, False])
@torch.no_grad()
def test_many_values_are_all_compiled(name, dynamic, capfd):
    f, make = TEXTS[name]
    c = braze.compile(f, fullgraph=True, dynamic=dynamic)  # what ran uncompiled would raise
    for i in list(range(MANY)) + [0, 1, MANY - 1]:
        args = make(i)
        same(f(*args), c(*args), f"{i}", 1e-3)
    assert "uncompiled" not in capfd.readouterr().err


@torch.no_grad()
def test_entries_leave_in_the_order_of_use():
    f = lambda x, s: x + len(s)
    c = braze.compile(f)
    c(X, "kept")
    for i in range(MANY):
        c(X, f"{i}")
        c(X, f"{i}")  # what serves one call is not compiled for ever
        c(X, "kept")
    before = _C.compilations(c)
    c(X, "kept")
    c(X, f"{MANY - 1}")
    c(X, f"{MANY - 30}")
    assert _C.compilations(c) == before == MANY + 1
    same(f(X, "0"), c(X, "0"))
    assert _C.compilations(c) == before + 1


class Named(str):
    """A string that can be watched."""


@torch.no_grad()
def test_entries_that_left_keep_nothing():
    f = lambda x, s, g: x + len(s) if g else x
    c = braze.compile(f)
    alive = []
    for i in range(100):

        def g(x=i):
            return x

        c(X, f"{i}", g)
        alive.append(weakref.ref(g))
        del g
    gc.collect()
    assert sum(a() is not None for a in alive) == 0


def test_no_collection_while_compiling():
    f = lambda x, s: x + len(s)
    c = braze.compile(f)
    collections = []
    callback = lambda phase, info: collections.append(info["generation"]) if phase == "start" else None
    gc.collect()
    gc.disable()
    gc.callbacks.append(callback)
    try:
        for i in range(200):
            c(X, f"{i}")
    finally:
        gc.callbacks.remove(callback)
        gc.enable()
    assert not collections


@torch.no_grad()
def test_strides_that_vary_where_sizes_do_not():
    """Of an operator that takes neither open sizes nor open strides."""
    f = lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0)
    sweep(f, [(torch.rand(2, 2, 2, 2 * k)[..., ::k],) for k in range(1, 5)], 4, fullgraph=True)


def test_not_of_a_float_compiles_once_per_outcome():
    def f(x, scale):
        return x * scale, not scale

    compiled, x = braze.compile(f), torch.ones(3)
    braze.counters(clear=True)
    for scale in (1.5, 2.5, 3.5, 0.0, 4.5, -0.0):
        (want, off), (got, said) = f(x, scale), compiled(x, scale)
        assert torch.equal(got, want) and said is off
    assert braze.counters()["captures"] <= 3
