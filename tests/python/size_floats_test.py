"""Floats computed from sizes: one code for all sizes, as long as nobody looks at the float."""

import math

import pytest
import torch
from dynamic_test import Counted
from harness import outcome, same

FLOATS = {
    "half": lambda n, m: n / 2,
    "over an odd number": lambda n, m: n / 3,
    "of two sizes": lambda n, m: n / m,
    "inverse": lambda n, m: 1 / n,
    "root": lambda n, m: math.sqrt(n),
    "root of a product": lambda n, m: math.sqrt(n * m),
    "root of a quotient": lambda n, m: math.sqrt(n / m),
    "inverse root": lambda n, m: 1.0 / math.sqrt(n),
    "power": lambda n, m: n**0.5,
    "inverse power": lambda n, m: n**-0.5,
    "power of a float": lambda n, m: (n / 4) ** 1.5,
    "float": lambda n, m: float(n),
    "prod": lambda n, m: 1.0 / math.prod((n, m, 2)),
    "logarithm": lambda n, m: math.log(n) + math.log2(m) - math.log10(n),
    "least and greatest": lambda n, m: min(n, 40) / max(m, 1),
    "least of floats": lambda n, m: min(n / 2, 100.0) + max(n / 4, 0.5),
    "sums": lambda n, m: 0.5 * n - 0.25 + n / 8,
    "negative": lambda n, m: -(n / 2),
    "in place": lambda n, m: [s := n / 2, s := s * 3, s][-1],
}

USES = {
    "operand": lambda x, s: x * s,
    "divisor": lambda x, s: x / s,
    "divided": lambda x, s: s / (x.abs() + 1),
    "bfloat16": lambda x, s: x.bfloat16() * s,
    "double": lambda x, s: x.double() + s,
    "ints": lambda x, s: torch.arange(3) * s,
    "scalar tensor": lambda x, s: x.sum() - s,
    "full": lambda x, s: torch.full((2, 2), s),
    "tensor": lambda x, s: x + torch.tensor(s),
    "clamp": lambda x, s: x.clamp(min=-s),
    "softmax": lambda x, s: torch.softmax(x @ x.mT * s, -1),
    "result": lambda x, s: (x + 1, s, [s]),
}


def sweep(f, most, sizes=None, **kw):
    counted = Counted(f, **kw)
    for i in range(20):
        x = torch.randn(*(sizes(i) if sizes else (i + 4, 2 * i + 5)))
        want, got = outcome(f, (x,), {}), outcome(counted, (x,), {})
        assert want[0] == got[0], (want, got)
        same(want[1], got[1])
    assert not counted.breaks and counted.count <= most, counted.count


@pytest.mark.parametrize("name", FLOATS)
def test_each_float(name):
    sweep(lambda x: (x * FLOATS[name](*x.shape), FLOATS[name](*x.shape)), 3, fullgraph=True)


@pytest.mark.parametrize("name", USES)
def test_each_use(name):
    sweep(lambda x: USES[name](x, math.sqrt(x.shape[0]) / 3), 3, fullgraph=True)


INTEGERS = {
    "ceil": lambda n: math.ceil(n / 2),
    "ceil of thirds": lambda n: math.ceil(n / 3),
    "floor": lambda n: math.floor(n / 7),
    "int": lambda n: int(n / 3),
    "int of a product": lambda n: int(n * 1.5),
    "trunc": lambda n: math.trunc(n * 0.25 + 0.5),
    "ceil of a negative": lambda n: -math.ceil(n / -4),
    "int of a negative": lambda n: 50 + int(-n / 4),
    "int of a size": lambda n: int(n) + 1,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    sweep(lambda x: (x.new_zeros(INTEGERS[name](x.shape[0])), INTEGERS[name](x.shape[0])), 3, fullgraph=True)


def test_integers_that_depend_on_rounding_are_fixed():
    sweep(lambda x: x.new_zeros(int(x.shape[0] * 0.1)), 20, fullgraph=True)
    sweep(lambda x: x.new_zeros(round(x.shape[0] / 2)), 20, fullgraph=True)


@pytest.mark.parametrize(
    "compare",
    [lambda s: s > 6, lambda s: s >= 6.5, lambda s: s < 5.25, lambda s: s == 7, lambda s: 6 != s, lambda s: 6 < s <= 9],
    ids=range(6),
)
@pytest.mark.parametrize("by", [2, 3, -2])
def test_comparisons(compare, by):
    """One code per outcome, not per size."""
    sweep(lambda x: x + 1 if compare(x.shape[0] / by) else x - 1, 6, fullgraph=True)


def test_what_looks_at_the_float_fixes_the_size():
    sweep(lambda x: x + len(str(x.shape[0] / 2)), 20, fullgraph=True)
    sweep(lambda x: x + {2.0: 1, 3.0: 2}.get(x.shape[0] / 2, 5), 20, fullgraph=True)


def test_a_divisor_that_may_be_zero():
    def f(x):
        return x.sum() * (1 / (x.shape[0] - 6)) if x.shape[0] != 6 else x.sum()

    sweep(f, 5)
    sweep(lambda x: x.sum() * (1 / (x.shape[0] - 6)), 20)  # raises where it is zero


def test_roots_and_logarithms_of_what_is_not_positive():
    sweep(lambda x: x * math.sqrt(x.shape[0] - 8), 20)
    sweep(lambda x: x * math.log(x.shape[0] - 8), 20)


def test_an_int_argument():
    counted = Counted(lambda x, n: x * (n / 8) / math.sqrt(n), fullgraph=True)
    for n in range(2, 22):
        same(torch.ones(3) * (n / 8) / math.sqrt(n), counted(torch.ones(3), n))
    assert counted.count <= 3


def test_beside_a_float_that_varies():
    def f(x, s):
        return x * (s * x.shape[0]) + s / 2

    counted = Counted(f, fullgraph=True)
    for n in range(2, 22):
        x = torch.randn(n)
        same(f(x, 0.1 * n), counted(x, 0.1 * n))
    assert counted.count <= 4


def test_gradients():
    counted = Counted(lambda x: torch.tanh(x / math.sqrt(x.shape[-1])).sum() * (1 / x.shape[0]), fullgraph=True)
    for n in range(3, 23):
        x = torch.randn(n, n + 1, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        counted(x).backward()
        (torch.tanh(y / math.sqrt(y.shape[-1])).sum() * (1 / y.shape[0])).backward()
        same(y.grad, x.grad)
    assert counted.count <= 3


def test_across_a_break():
    import braze

    def f(x):
        s = x.shape[0] / 2
        x = x * s
        braze.graph_break()
        return x + s, s

    fast = braze.compile(f)
    for n in range(3, 9):
        x = torch.randn(n)
        same(f(x), fast(x))
