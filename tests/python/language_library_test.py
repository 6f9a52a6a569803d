"""The standard library, and objects of PyTorch's, as the language sees them."""

import bisect
import collections
import copy
import dataclasses
import functools
import heapq
import reprlib
import sys
import types
import weakref

import pytest
import torch
from harness import check

import braze

X = torch.arange(4.0)


class Twice:
    __match_args__ = ("a",)
    a = 1


@dataclasses.dataclass(order=True)
class Pair:
    a: int
    b: int = 2


@functools.singledispatch
def kind(value):
    return "other"


@kind.register
def _(value: int):
    return "int"


@kind.register(torch.Tensor)
def _(value):
    return value + 1


class Recursive:
    @reprlib.recursive_repr()
    def __repr__(self):
        return "<" + repr(1) + ">"


class Methods:
    def both(self, a, b):
        return (a, b)

    first = functools.partialmethod(both, 1)


def test_functools_and_friends():
    def f(x):
        order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
        return kind(x), kind(1), kind(""), order, Methods().first(2), repr(Pair(1)), repr(Recursive())

    check(f, X)


def test_counters_heaps_and_deques():
    def f(x):
        c = collections.Counter("abca")
        c.update("a")
        heap = [3, 1, 2]
        heapq.heapify(heap)
        heapq.heappush(heap, 0)
        d = collections.deque([1, 2], maxlen=3)
        return (
            x * c["a"],
            c.most_common(1),
            heapq.heappop(heap),
            heap,
            heapq.nlargest(2, heap),
            bisect.bisect([1, 3], 2),
            list(d + collections.deque([3, 4])),
            list(d * 2),
            slice(1, 9).indices(4),
        )

    check(f, X)


def test_copies():
    class Box:
        def __init__(self, inner):
            self.inner = inner

    def f(x, box):
        other = copy.copy(box)
        other.inner = other.inner + [x]
        items = copy.copy(box.inner)
        return other.inner[-1] * 2, len(box.inner), items, items is box.inner, copy.copy((1,))

    check(f, X, Box([1]))


def test_wrapped_functions_that_were_there_before():
    def base(x: torch.Tensor, y: int = 2) -> torch.Tensor:
        """Doc."""
        return x * y

    def f(x):
        @functools.wraps(base)
        def inner(*args):
            return base(*args) + 1

        return inner(x), inner.__name__, inner.__doc__, sorted(inner.__annotations__), inner.__wrapped__ is base

    check(f, X)


def test_classes_made_inside_see_what_is_around():
    def f(x, k):
        class Base:
            scale = k

            def run(self, y):
                return y * x + k

        class Sub(Base):
            def run(self, y):
                return super().run(y) + self.scale

        return Sub().run(x)

    check(f, X, 3)


def test_weak_references():
    class Node:
        value = 2

    node = Node()
    ref, dead = weakref.ref(node), weakref.ref(Node())

    def f(x):
        return x * ref().value, dead() is None

    compiled = braze.compile(f, fullgraph=True)
    assert torch.equal(compiled(X)[0], X * 2)
    node.value = 3
    got, gone = compiled(X)
    assert torch.equal(got, X * 3) and gone


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers(kind):
    layer = kind(3, 4, num_layers=2, batch_first=True)
    x = torch.randn(2, 5, 3)
    got, want = braze.compile(layer)(x), layer(x)
    torch.testing.assert_close(got, want)


def test_reversed_modules():
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])

    def f(x):
        for layer in reversed(layers):
            x = layer(x)
        return x

    check(f, torch.randn(2, 4))


def test_order_of_sets_is_kept():
    def f(x, words):
        s = set(words)
        s.add("last")
        return x + 1, s, frozenset(words)

    words = [str(i * 7919) for i in range(40)]
    want, got = f(X, words), braze.compile(f)(X, words)
    assert [list(v) for v in want[1:]] == [list(v) for v in got[1:]]


def test_slots_that_come_and_go():
    class Slotted:
        __slots__ = ("a",)

    def f(x, s):
        s.a = x
        del s.a
        return x + 1, hasattr(s, "a")

    def make(full):
        s = Slotted()
        if full:
            s.a = 1
        return s

    compiled = braze.compile(f)
    for full in (False, True, False):
        s = make(full)
        assert compiled(X, s)[1] is False and not hasattr(s, "a")


def test_numbers_of_numpy_in_graphs():
    np = pytest.importorskip("numpy")

    def f(x):
        return x * np.float32(2) + np.float64(0.5)

    check(f, X)


def test_match_statements_that_are_wrong():
    def f(x):
        y = x + 1
        try:
            match Twice():
                case Twice(1, a=1):
                    pass
        except TypeError as e:
            return y, str(e)

    check(f, X, graphs=None)


def test_ranges_beyond_64_bits():
    def f(x):
        big = sys.maxsize - 3
        return x + 1, list(range(big, big + 12, 3)), list(iter(range(big, big + 2)))

    check(f, X)


def test_methods_in_c_of_a_base_class():
    import random

    def f(x):
        state = random.Random(3).getstate()
        return x + 1, len(state), len(state[1])

    assert braze.compile(f)(X)[1:] == (3, 625)


def test_warnings_that_the_code_records():
    import warnings

    def f(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warnings.warn("first")
            n = len(seen)
            warnings.simplefilter("error")
            try:
                warnings.warn("second")
            except UserWarning as e:
                return x + n, str(seen[0].message), str(e)

    check(f, X, graphs=None)


def test_equality_of_namespaces():
    def f(x):
        a = types.SimpleNamespace(v=1)
        return x + 1, a == types.SimpleNamespace(v=1), a == types.SimpleNamespace(v=2), a != types.SimpleNamespace(v=1)

    check(f, X)


def test_iteration_over_a_deque_that_changes():
    def f(x):
        d = collections.deque([1, 2, 3], maxlen=3)
        it = iter(d)
        first = next(it)
        d.append(4)
        try:
            next(it)
        except RuntimeError as e:
            return x + first, str(e), d.maxlen, collections.deque().maxlen

    check(f, X)


def test_dicts_from_what_iterates_in_its_own_way():
    class Backwards(dict):
        def keys(self):
            return reversed(list(dict.keys(self)))

        __iter__ = keys

    def f(x, d):
        return (
            x + 1,
            list(dict(d)),
            list(collections.OrderedDict.fromkeys("ba", 1)),
            type(Backwards.fromkeys("a")) is Backwards,
        )

    check(f, X, Backwards([("a", 1), ("b", 2)]))


def test_errors_of_dicts():
    def f(x):
        seen = []
        for bad in ([1], [(1, 2, 3)], [(1, 2), ""]):
            try:
                dict(bad)
            except (TypeError, ValueError) as e:
                seen.append(str(e))
        return x + 1, seen

    check(f, X)


def test_implementations_that_are_registered_inside():
    def f(x):
        @functools.singledispatch
        def name(value):
            return "other"

        @name.register(int)
        def _(value):
            return "int"

        return x + 1, name(1), name("")

    check(f, X, graphs=None)


def test_small_functions():
    def f(x):
        y = 2
        known = sorted(locals())
        return (
            x + y,
            known,
            int.from_bytes(b"\x01", "big"),
            float.fromhex("0x1p3"),
            str.maketrans("a", "b"),
            "a".translate({97: "z"}),
        )

    check(f, X)


def test_loggers_are_found():
    import logging

    def f(x):
        logging.getLogger("braze.test").debug("a message")
        return x + 1

    check(f, X)


def test_conditions_that_are_known():
    def f(x):
        return torch.cond(x.shape[0] > 2, lambda v: v + 1, lambda v: v - 1, (x,))

    check(f, X)


def test_clipped_gradients():
    def f(layer, x):
        layer(x).sum().backward()
        return torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)

    layers = [torch.nn.Linear(3, 2) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(4, 3)
    torch.testing.assert_close(braze.compile(f)(layers[1], x), f(layers[0], x))
    for a, b in zip(layers[0].parameters(), layers[1].parameters()):
        torch.testing.assert_close(b.grad, a.grad)


def test_weak_references_keep_nothing_alive():
    import gc

    class Node:
        value = 2

    def f(x, ref):
        return x * ref().value

    node = Node()
    ref = weakref.ref(node)
    compiled = braze.compile(f)
    assert torch.equal(compiled(X, ref), X * 2)
    del node
    gc.collect()
    assert ref() is None
