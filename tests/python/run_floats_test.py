"""Floats that only the run knows: under fullgraph=True they stay in the graph, with Python's arithmetic and Python's errors."""

import math

import pytest
import torch
from dynamic_test import Counted, r
from harness import outcome, same

import braze

T = torch.tensor


def one_graph(fn, args, most=1, tol=1e-5):
    """Each tuple of arguments against eager, by both backends, without breaks; errors of the same class."""
    for backend in ("braze", "eager"):
        c = Counted(fn, fullgraph=True) if backend == "braze" else braze.compile(fn, fullgraph=True, backend="eager")
        for a in args:
            want, got = outcome(fn, tuple(t.clone() for t in a), {}), outcome(c, tuple(t.clone() for t in a), {})
            assert want[0] == got[0], f"{backend}: {got}, expected {want}"
            if want[0] == "returned":
                same(want[1], got[1], backend, tol)
            else:
                assert got[1][0] is want[1][0], f"{backend}: {got}, expected {want}"
        if backend == "braze":
            assert c.count <= most and not c.breaks, (c.count, c.breaks)


def arithmetic(x, y):
    v = y.abs().sum().item()
    w = y[0].item()
    return x * v, x + v * 2 - 1, 3 / v, -v, +v, v - w, v / 4, v**2, v**0.5, sum([v, w]), x / v, v - x, v**x


def functions(x, y):
    v = y.abs().sum().item()
    return (
        math.sqrt(v),
        math.exp(v),
        math.log(v),
        math.tanh(v),
        abs(-v),
        math.fabs(-v),
        math.isnan(v),
        math.isinf(v),
        math.isfinite(v),
        float(v),
        x * math.sqrt(v),
    )


def whole_numbers(x, y):
    v = y.abs().sum().item() * 3
    return int(v), round(v), math.floor(v), math.ceil(v), x + int(v), int(y[1] * 7), float(y[2])


def comparisons(x, y):
    v = y.abs().sum().item()
    torch._check(v > 0)
    return x > v, v < x, x == v, v >= 1.0, v is None, v == None, v == "a", isinstance(v, float), type(v)  # noqa: E711


def operators(x, y):
    v, m = y.abs().sum().item(), x > 0
    return (
        torch.full((2, 2), v), torch.full((2,), v, dtype=torch.int64), torch.full_like(x, v), x.new_full((3,), v),
        torch.where(m, x, v), torch.where(m, v, x), torch.where(m, v, 1.0), x.masked_fill(m, v), x.lerp(x + 1, v),
        torch.tensor(v), torch.tensor([v, 1, 2.5]), torch.tensor([[v], [1.0]]), x.clamp(-v, v), x.clamp_min(v), torch.clamp(x, max=v),
        x.abs().pow(v), x.abs() ** v, torch.add(x, x, alpha=v), x.mul(v), torch.sub(x, v), torch.multiply(x, v),
    )  # fmt: skip


def in_place(x, y):
    v = y.abs().sum().item()
    z, w = x.clone(), x.clone()
    z.mul_(v).add_(v).clamp_(-v, v)
    z += v
    w.masked_fill_(x > 0, v)
    w.lerp_(x, v)
    x.div_(v)
    return z, w, x, x.clone().fill_(v)


def beside_ints(x, y):
    v, i = y.abs().sum().item(), torch.arange(4)
    return i * v, i + v, i > v, i.clamp(0.5, v), torch.where(i > 2, i, v), i / v, i % v


def beside_one_element(x, y):
    v, s = y.abs().sum().item(), x.sum()
    return s * v, s + v, s.clamp(max=v), s > v, v - s, s.double() * v


def lists(x, y):
    a = y.tolist()
    return x * a[0] + a[1], a, {"mean": y.mean().item()}, [[float(y[0])], (y[1].item(),)]


def of_ints(x, y):
    u = (y.abs().sum() * 3).long().item()
    return x * float(u), u / 2, x + u / 3, u * 0.5, x * (u > 2)


@pytest.mark.parametrize(
    "fn",
    [
        arithmetic,
        functions,
        whole_numbers,
        comparisons,
        operators,
        in_place,
        beside_ints,
        beside_one_element,
        lists,
        of_ints,
    ],
)
def test_one_graph_for_all_values(fn):
    one_graph(fn, [(r(4), r(3)) for _ in range(4)])


@pytest.mark.parametrize(
    "fn, value",
    [
        (lambda x, y: x + 1 / y.item(), 0.0),
        (lambda x, y: x + math.sqrt(y.item()), -1.0),
        (lambda x, y: x + math.log(y.item()), 0.0),
        (lambda x, y: x + math.exp(y.item()), 800.0),
        (lambda x, y: x + y.item() ** 2, 1e38),
        (lambda x, y: x + int(y.item()), math.nan),
    ],
)
def test_what_python_refuses(fn, value):
    """The run raises where Python would, and not for values that it takes."""
    x = r(4)
    c = braze.compile(fn, fullgraph=True)
    same(fn(x, T([2.5])), c(x, T([2.5])))
    dtype = torch.float64 if value == 1e38 else torch.float32
    value = 1e200 if value == 1e38 else value
    want, got = outcome(fn, (x, T([value], dtype=dtype)), {}), outcome(c, (x, T([value], dtype=dtype)), {})
    assert want[0] == got[0] == "raised" and want[1] == got[1], (want, got)


def test_no_gradient_goes_to_it():
    def fn(x, w):
        v = (w * x).sum().item()
        return (w * v).sum()

    x, w = r(4), r(4).requires_grad_()
    fn(x, w).backward()
    want, w.grad = w.grad, None
    braze.compile(fn, fullgraph=True)(x, w).backward()
    same(want, w.grad)


def test_decisions_are_refused():
    def fn(x, y):
        return x + 1 if y.item() > 0 else x - 1

    with pytest.raises(braze.Unsupported):
        braze.compile(fn, fullgraph=True)(r(4), r(1))
    same(fn(T([1.0]), T([2.0])), braze.compile(fn)(T([1.0]), T([2.0])))


def raises_for_large(x):
    if x.sum() > 100:
        raise ValueError("too large")
    return x + 1


def raises_unless_finite(x):
    if not torch.isfinite(x).all():
        raise RuntimeError(f"not finite: {tuple(x.shape)}")
    return x * 2


def raises_for_number(x):
    n = x[0].item()
    if n != n or n > 50:
        raise ArithmeticError("bad number")
    return x * n


@pytest.mark.parametrize("fn", [raises_for_large, raises_unless_finite, raises_for_number])
def test_branches_that_raise_are_checked_by_the_run(fn):
    one_graph(fn, [(r(4),), (r(4) * 0 + 60,), (T([math.nan, 1.0, 1.0, 1.0]),), (r(4),)])


def test_a_raise_that_is_caught():
    def fn(x):
        try:
            if x.sum() > 100:
                raise ValueError("too large")
        except ValueError as e:
            return x - 1, str(e)
        return x + 1, ""

    for fullgraph in (False, True):
        compiled = braze.compile(fn, fullgraph=fullgraph)
        for x in (r(4), r(4) + 100, r(4)):
            same(fn(x), compiled(x))


def test_distributions():
    D = torch.distributions

    def fn(x, y):
        d = D.Normal(x, y)
        return (
            d.log_prob(x + 1),
            d.entropy(),
            D.kl_divergence(d, D.Normal(x + 1, y + 1)),
            D.Categorical(logits=x).entropy(),
            D.Uniform(y, y + 1).log_prob(y + 0.5),
        )

    one_graph(fn, [(r(4), r(4).abs() + 1), (r(4), -r(4).abs() - 1)])


def test_assertions_on_tensors_are_checked_by_the_run():
    names = {}  # out of sight of pytest, which rewrites assertions
    exec('def asserts_a_tensor(x):\n    assert (x < 50).all(), "an element is too large"\n    return x + 1', names)
    asserts_a_tensor = names["asserts_a_tensor"]
    one_graph(asserts_a_tensor, [(r(4),), (r(4) + 60,), (r(4),)])
    with pytest.raises(AssertionError, match="an element is too large"):
        braze.compile(asserts_a_tensor, fullgraph=True)(r(4) + 60)
