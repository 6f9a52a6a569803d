"""Worlds that change between calls: texts, comparisons, numbers of own classes, and what weak references tell."""

import collections
import enum
import functools
import types
import weakref

import numpy as np
import pytest
import torch
from worlds import World, caught, stay_alike

import braze


def test_a_class_of_strings_that_learns_to_round():
    def make():
        class C(str):
            pass

        w = World(C=C, c=C("a"))

        def f(x):
            try:
                return x + round(w.c)
            except TypeError as e:
                return x, str(e)

        w.f = f
        return w

    stay_alike(make, lambda w: setattr(w.C, "__round__", lambda self: 2.0))


def test_an_item_that_is_not_equal_to_itself():
    def make():
        class C(int):
            pass

        w = World(C=C, c=C(1))
        w.f = lambda x: x + 1 if w.c in (w.c, 2) else x
        return w

    stay_alike(make, lambda w: setattr(w.C, "__eq__", lambda self, other: False))


def test_a_module_of_another_class():
    def make():
        class Own(types.ModuleType):
            pass

        w = World(m=Own("m"))
        w.f = lambda x: (x + 1, type(w.m).__name__)
        return w

    stay_alike(make, lambda w: setattr(w.m, "__class__", types.ModuleType))


def test_truth_of_a_dtype_of_numpy():
    def make():
        w = World(t=torch.ones(2))
        w.f = lambda x: x + 1 if w.t.dtype else x - 1
        return w

    stay_alike(make, lambda w: setattr(w, "t", np.arange(3.0)))


def test_a_dict_of_a_tensor():
    def make():
        w = World(t=[(1, 2)])

        def f(x):
            try:
                return x, dict(w.t)
            except TypeError as e:
                return x, str(e)

        w.f = f
        return w

    stay_alike(make, lambda w: setattr(w, "t", torch.zeros(3)))


def test_a_weak_dictionary_whose_value_is_let_go_of():
    def make():
        w = World(t=torch.ones(2))
        w.known = weakref.WeakValueDictionary({0: w.t})

        def f(x):
            w.t = [1]
            return x + 1, len(w.known)

        w.f = f
        return w

    stay_alike(make)


@pytest.mark.parametrize("dynamic", [None, True])
def test_identity_of_large_integers(dynamic):
    large = [int("300"), int("300")]

    def f(x, a, b):
        return x + 1, a is b, a is a, a is b

    fast, x = braze.compile(f, dynamic=dynamic), torch.ones(2)
    for i, j in ((0, 0), (0, 1), (1, 1), (1, 0)):
        for a, b in zip(fast(x, large[i], large[j]), f(x, large[i], large[j])):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a is b


def test_a_weak_reference_whose_object_is_let_go_of():
    def make():
        class C:
            pass

        w = World(c=C())
        w.known = weakref.ref(w.c)

        def f(x):
            w.c = None
            return x + 1 if w.known() else x - 1

        w.f = f
        return w

    stay_alike(make)


def test_order_of_tuples_of_own_classes():
    class P(collections.namedtuple("Pair", "a b")):
        pass

    def make():
        w = World(p=P(torch.Size([2, 3]), 1))
        w.f = caught(lambda x: w.p < w.p[0])
        return w

    stay_alike(make, lambda w: setattr(w, "p", P((1, 2), 3)))


def test_an_object_met_by_an_instruction_that_is_left_to_the_interpreter():
    def make():
        w = World(p=functools.partial(functools.partial(int, base=10), base=8))

        def f(x):
            met = [w.p.__dict__]
            w.p = True
            return x + 1, met

        w.f = f
        return w

    stay_alike(make, graphs=False)


@pytest.mark.parametrize("text", [str, repr, "{}".format])
def test_the_text_of_a_weak_reference(text):
    def make():
        w = World(t=[torch.ones(2)])
        w.r = weakref.ref(w.t[0])
        w.f = lambda x: (x + 1, "dead" in text(w.r))
        return w

    stay_alike(make, lambda w: w.t.clear())


@pytest.mark.parametrize("text", [str, repr, "{}".format])
def test_the_text_of_a_class(text):
    def make():
        class Meta(type):
            pass

        class C:
            pass

        class D(metaclass=Meta):
            pass

        w = World(C=C, D=D, Meta=Meta)
        w.f = lambda x: (x + 1, text(w.C), text(w.D))
        return w

    stay_alike(
        make,
        lambda w: setattr(w.C, "__qualname__", "other"),
        lambda w: setattr(w.C, "__module__", "other"),
        lambda w: setattr(w.Meta, "__repr__", lambda cls: "mine"),
    )


def test_an_attribute_that_is_set_on_a_text_of_its_own_class():
    class C(str):
        pass

    def f(x, c):
        try:
            x = x + c.a
        except AttributeError:
            x = x - 1
        object.__setattr__(c, "a", 2)
        return x

    fast = braze.compile(f)
    for make in (lambda: C("a"), lambda: C("b")):
        a, b = make(), make()
        for _ in range(3):
            torch.testing.assert_close(fast(torch.ones(2), a), f(torch.ones(2), b))
            assert vars(a) == vars(b)


@pytest.mark.parametrize("base", [tuple, list, int, dict])
def test_own_comparisons_without_an_answer(base):
    def make():
        class C(base):
            __eq__ = lambda self, other: NotImplemented
            __lt__ = __gt__ = __eq__
            __hash__ = None

        w = World(a=C(), b=C())
        w.f = caught(lambda x: (w.a == w.b, w.a in [w.b], w.a != w.b, w.a == base(), w.a < w.b))
        return w

    stay_alike(make)


def test_a_class_of_integers_that_learns_to_be_gone_through():
    def make():
        class C(int):
            pass

        w = World(C=C, c=C(3))
        w.f = caught(lambda x: [v for v in w.c])
        return w

    def learn(w):
        w.C.__getitem__ = lambda self, i: [4, 5][i]

    stay_alike(make, learn)


def test_a_class_of_numbers_that_learns_to_be_called():
    def make():
        class C(float):
            pass

        w = World(C=C, c=C(3))
        w.f = caught(lambda x: w.c())
        return w

    stay_alike(make, lambda w: setattr(w.C, "__call__", lambda self: 2.5))


def test_a_missing_attribute_names_the_class_as_it_is_called_now():
    def make():
        class Number(enum.Enum):
            A = 1

        w = World(N=Number)
        w.f = caught(lambda x: w.N.A.b)
        return w

    stay_alike(make, lambda w: setattr(w.N, "__name__", "other"))


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, collections.defaultdict])
@pytest.mark.parametrize("pairs", [[1], [[]], ["a"], ["abc"], 3])
def test_pairs_that_are_none(cls, pairs):
    def make():
        class D(cls):
            pass

        w = World(made=lambda C: C(int, pairs) if cls is collections.defaultdict else C(pairs))
        w.f = lambda x: (caught(lambda x: w.made(cls))(x), caught(lambda x: w.made(D))(x))
        return w

    stay_alike(make)


def test_a_method_that_is_called_at_once_names_its_class():
    def make():
        w = World(s={1}, union=lambda s: s.union)
        calls = [
            lambda w: w.s.update(a=True),
            lambda w: w.union(w.s)(a=True),
            lambda w: w.s.union(**{"a": 1}),
            lambda w: set.union({1}, a=3),
        ]
        w.f = lambda x: [caught(lambda x: call(w))(x) for call in calls]
        return w

    stay_alike(make)
