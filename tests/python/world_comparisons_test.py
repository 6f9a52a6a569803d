"""Small worlds in which it shows whom a comparison asks, in which order, and what it leaves. They stand for what the fuzzer of worlds found."""

import collections
import types

import pytest
import torch
from harness import same
from worlds import World, caught, stay_alike

import braze


def noting(asked, equal):
    """A class whose objects note who was compared with whom, by name."""

    class C:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            asked.append((self.name, other.name))
            return equal(self.name, other.name)

    return C


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.defaultdict])
def test_a_dict_of_a_subclass_is_asked_first(cls):
    def make():
        asked = []
        C = noting(asked, lambda a, b: a == b)
        left, right = {1: C("a"), 2: C("b")}, cls()
        right[2], right[1] = C("b"), C("d")
        w = World(asked=asked)
        w.f = lambda x: (left == right, right == left, left != right, x + len(asked))
        return w

    stay_alike(make, seen=lambda w: w.asked)


@pytest.mark.parametrize("cls", [tuple, list, collections.deque])
def test_items_of_sequences_of_other_lengths(cls):
    def make():
        asked = []

        class C:
            def __eq__(self, other):
                asked.append(other)
                return other == 3

        w = World(asked=asked, a=cls([C(), C(), 1]), b=cls([3, 4]), c=cls([3]), d=cls([torch.ones(2)]))
        w.f = lambda x: (w.a == w.b, w.a != w.b, w.a == w.c, w.c != w.a, w.c == w.b, w.c == w.c, x + len(asked))
        w.g = caught(lambda x: w.d == w.b)
        w.f = lambda x, f=w.f: (f(x), w.g(x))
        return w

    stay_alike(make, seen=lambda w: w.asked)


def test_proxies_of_mappings_ask_the_right_one_first():
    def make():
        asked = []
        C = noting(asked, lambda a, b: True)
        w = World(asked=asked)
        left, right = ({1: C(name)} for name in "ab")
        p, q = map(types.MappingProxyType, (left, right))
        w.f = lambda x: (p == q, p != q, p == right, left == q, [p] == [q], x + len(asked))
        return w

    stay_alike(make, seen=lambda w: w.asked)


def test_an_own_comparison_without_an_answer_is_followed_by_the_others():
    def make():
        counter = collections.Counter({"a": object()})
        other = collections.defaultdict(int, {1: counter, 2: range(3)})
        counter[1] = other
        w = World(counter=counter, other=other)
        w.f = caught(lambda x: w.counter == w.other)
        return w

    stay_alike(make)


@pytest.mark.parametrize("base", [dict, collections.OrderedDict, collections.defaultdict, complex])
def test_types_without_order_leave_it_to_the_reflected_method(base):
    def make():
        class C(base):
            __gt__ = lambda self, other: 2.5

        w = World(a=C(), b=C(), c=base())
        w.f = caught(lambda x: (w.a < w.b, w.c < w.a))
        return w

    stay_alike(make)


def test_what_contains_looks_at_stays_behind_it():
    def make():
        def steps():
            yield from (0, 300, 301)

        w = World(steps=steps(), numbers=iter([1, 2, 3]))
        w.f = caught(lambda x: (False in w.steps, 2 in w.numbers))
        return w

    stay_alike(make, seen=lambda w: (w.steps.gi_frame is None, w.numbers.__length_hint__()))


def test_a_tensor_asks_a_torch_function_before_reflected_methods():
    class C:
        __torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: 5)
        __radd__ = __gt__ = lambda self, other: 3

    f = lambda x, c: (x + c, x < c, x == c)
    assert braze.compile(f)(torch.ones(2), C()) == f(torch.ones(2), C())


def test_a_module_that_is_a_list_compares_as_one():
    class L(list):
        pass

    class M(L, torch.nn.Module):
        pass

    def f(x, a, m):
        return x + 1, m == a, a == m, m != a, a in [m], m in (a,)

    a, m = L(), M.__new__(M)
    same(f(torch.ones(2), a, m), braze.compile(f)(torch.ones(2), a, m))


def test_what_has_no_order_names_what_was_asked_for():
    class C(dict):
        pass

    things = [
        collections.Counter({1: 2}),
        C(),
        collections.OrderedDict(),
        lambda: 3,
        [],
        collections.deque(),
        3,
        object(),
    ]

    def told(f):
        try:
            return f()
        except TypeError as e:
            return str(e)

    def f(x, a, b):
        return x + 1, told(lambda: a < b), told(lambda: b >= a), told(lambda: sorted([a, b]) and None)

    for a in things:
        for b in things:
            same(f(torch.ones(2), a, b), braze.compile(f)(torch.ones(2), a, b))


def test_a_python_module_as_an_operand_of_a_tensor():
    def make():
        w = World(m=types.ModuleType("m"), x=torch.ones(2))
        w.f = lambda x: (caught(lambda x: torch.equal(x, w.m))(x), caught(lambda x: w.x == w.m)(x))
        return w

    stay_alike(
        make,
        lambda w: setattr(w.m, "__getattr__", lambda name: 3.0),
        lambda w: setattr(w.m, "__torch_function__", lambda *a: 5),
        graphs=False,
    )
