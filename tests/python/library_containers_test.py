"""Containers of the library and of subclasses, and what PyTorch hands on to functions of the user's: as in eager."""

import collections
import copy
from collections import OrderedDict, defaultdict

import pytest
import torch

import braze

X = torch.ones(2)


class List(list):
    pass


class Dict(dict):
    pass


class Defaults(defaultdict):
    pass


def grown_in_place(values, x):
    values += values
    return list(values), x + 1


def added_to_the_left(x):
    d = collections.deque([1])
    d.extendleft(d[0] + z for z in range(3))
    return x + 1, list(d)


def asked_for_no_more_than_needed(x):
    seen = []

    def numbers():
        for i in (5, 1, 2):
            seen.append(i)
            yield i

    rest = iter([1, 2, 3])
    first = {1}.isdisjoint(rest), next(rest, "end")
    return (
        x + 1,
        first,
        {1}.isdisjoint(numbers()),
        list(seen),
        {5}.issuperset(numbers()),
        list(seen),
        {9}.isdisjoint([1, 2]),
    )


CASES = {
    "a list that extends itself": (lambda v, x: (v.extend(v), x + 1, list(v)), List([1, 2]), X),
    "a list that is added to itself": (grown_in_place, List([1, 2]), X),
    "extendleft": (added_to_the_left, X),
    "sets and iterators": (asked_for_no_more_than_needed, X),
    "a deque's pop": (lambda x: (x + 1, collections.deque("abc").pop(1)), X),
    "a deque's remove": (lambda x: (x + 1, collections.deque("abc").remove("z")), X),
    "or of subclasses": (lambda x: (x + 1, Dict(a=1).__or__(Dict(b=2)), dict.__or__({"a": 1}, Dict(b=2))), X),
    "copies of a defaultdict's subclass": (
        lambda x, d: (type(d.copy()), type(copy.copy(d)), type(d | {}), type({} | d), d.copy()["q"], x + 1),
        X,
        Defaults(int, a=1),
    ),
    "dict's copy of an OrderedDict": (lambda x: (type(dict.copy(OrderedDict(a=1))), x + 1), X),
}


def outcome(f, args):
    try:
        return repr(f(*copy.deepcopy(args)))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name):
    f, *args = CASES[name]
    assert outcome(braze.compile(f), args) == outcome(f, args)


def test_exceptions_that_are_returned_keep_their_fields():
    made = braze.compile(lambda x: (x + 1, StopIteration(5), SystemExit(3), ImportError("a")), fullgraph=True)(X)
    assert (made[1].value, made[2].code, made[3].msg) == (5, 3, "a")


@pytest.mark.parametrize("dynamic", [None, True])
def test_rows_that_are_changed_in_place(dynamic):
    def f(x):
        for row in x:
            row.add_(1.0)
        first, *_ = x
        first[0] = 9
        return x

    compiled = braze.compile(f, dynamic=dynamic, fullgraph=True)
    for n in (3, 4, 2, 5):
        x, y = torch.zeros(n, 2), torch.zeros(n, 2)
        torch.testing.assert_close(compiled(x), f(y))
        torch.testing.assert_close(x, y)


class Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, items, names, seen, pair):
        items.append(1)
        names["a"] = 2
        seen.add(3)
        ctx.items = items
        return x * 2 + pair[0]

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * len(ctx.items), None, None, None, None


@pytest.mark.parametrize("gradients", [False, True])
def test_containers_that_a_function_is_handed(gradients):
    def f(x, items, names, seen):
        return Handed.apply(x, items, names, seen, (x.detach(),)), items, names, seen

    found = []
    for run in (f, braze.compile(f, fullgraph=True)):
        items, names, seen, x = [], {}, set(), torch.ones(2, requires_grad=gradients)
        y, *same = run(x, items, names, seen)
        assert same[0] is items and same[1] is names and same[2] is seen
        if gradients:
            y.sum().backward()
        found.append((items, names, seen, y.tolist(), gradients and x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [{}, {"guard_speed": True}])
def test_containers_beside_missing_gradients(options):
    """The graph runs as PyTorch's calls, or beside them."""

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factors):
            ctx.set_materialize_grads(False)
            return x * factors[0], x.clone()

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 if b is None else a + b, None

    compiled, x = (
        braze.compile(lambda x, factors: Both.apply(x, factors), options=options),
        torch.ones(2, requires_grad=True),
    )
    compiled(x, [3.0])[0].sum().backward()
    assert x.grad.tolist() == [2, 2]


class Unmaterialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 if b is None else a + b


def test_gradients_that_are_none():
    x = torch.ones(2, requires_grad=True)
    braze.compile(lambda x: Unmaterialized.apply(x))(x)[0].sum().backward()
    assert x.grad.tolist() == [2, 2]
