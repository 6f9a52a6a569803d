"""What differs between versions of CPython is as in the interpreter at hand: locals(), frames, generators, exceptions, classes."""

import dataclasses
import sys
import traceback

import pytest
import torch
from harness import check

import braze

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Plain:
    """An object.

    Its text is indented.
    """

    def __init__(self, scale):
        self.scale = scale


def test_a_store_to_an_instance_is_seen():
    fast, o = braze.compile(lambda x, o: x * o.scale), Plain(2)
    for scale in (2, 3, 3, 4.5):
        o.scale = scale
        torch.testing.assert_close(fast(X, o), X * scale)
    o.other = 1
    assert list(vars(o)) == ["scale", "other"]
    vars(o)["scale"] = 7
    torch.testing.assert_close(fast(X, o), X * 7)
    del o.scale
    with pytest.raises(AttributeError):
        fast(X, o)


def test_an_instance_without_attributes_is_watched():
    class Empty:
        pass

    fast, o = braze.compile(lambda x, o: x + len(vars(o)) if not hasattr(o, "a") else x * o.a), Empty()
    torch.testing.assert_close(fast(X, o), X)
    assert vars(o) == {}
    o.a = 2
    torch.testing.assert_close(fast(X, o), X * 2)


def test_locals():
    def f(x):
        y = x + 1
        before = locals()
        before["more"] = 1
        return y, list(before), [sorted(locals()) for _ in range(1)] if sys.version_info >= (3, 13) else 0

    check(f, X)


def test_a_function_that_writes_to_its_callers_frame():
    def write():
        sys._getframe(1).f_locals["k"] = 5

    def f(x):
        k = 1
        y = x + k
        write()
        return y * k

    check(f, X, graphs=None)


@pytest.mark.parametrize("value", [None, 7])
def test_what_close_gives(value):
    def f(x):
        def g():
            try:
                yield x
            except GeneratorExit:
                return value

        it = g()
        return next(it) + 1, it.close(), it.close()

    check(f, X)


def test_a_generator_waits_in_another():
    def f(x):
        def inner():
            got = yield x
            yield got * 2

        def outer():
            yield from inner()

        it = outer()
        a = next(it)
        if a.sum() > 100:  # a break
            a = a + 1
        waits = it.gi_yieldfrom is not None
        return a, waits, it.send(a + 1), list(it)

    check(f, X, graphs=None)


def raised_lines(fn, *args):
    with pytest.raises(Exception) as e:
        fn(*args)
    entry = [t for t in traceback.extract_tb(e.value.__traceback__) if t.filename == __file__][-1]
    return type(e.value), str(e.value), entry.lineno, entry.name


def breaks_then_raises(x):
    y = x + 1
    try:
        if y.sum() > 100:  # a break
            y = y * 2
    finally:
        y = y + 1
    {}["a"]
    return y


def breaks_then_raises_over_lines(x):
    y = x + 1
    if y.sum() > -100:
        raise ValueError(
            "a",
        )
    return y


def breaks_in_a_try(x):
    try:
        y = x + 1
        if y.sum() > -100:
            raise ValueError("a")
    except ValueError as e:
        return x * 3, e.__traceback__.tb_lineno, e.__traceback__.tb_lasti
    return y


@pytest.mark.parametrize("fn", [breaks_then_raises, breaks_then_raises_over_lines], ids=lambda f: f.__name__)
def test_lines_of_tracebacks(fn):
    fast = braze.compile(fn)
    for _ in range(2):
        assert raised_lines(fast, X) == raised_lines(fn, X)


def test_a_traceback_in_a_handler():
    check(breaks_in_a_try, X, graphs=None)


@dataclasses.dataclass
class Pair:
    a: int
    b: int = 2


@pytest.mark.skipif(sys.version_info < (3, 13), reason="since 3.13")
def test_replace():
    import copy

    check(lambda x, p: x + copy.replace(p, b=5).b, X, Pair(1))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="since 3.13")
def test_what_classes_say_of_their_source():
    check(lambda x: (x + 1, Plain.__static_attributes__, Plain.__firstlineno__, Plain.__doc__), X)


class Slots:
    __slots__ = ("a",)


class SlotsWithSetattr(Slots):
    __slots__ = ()

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Slots().a,
        lambda: setattr(Slots(), "b", 1),
        lambda: setattr(SlotsWithSetattr(), "b", 1),
        lambda: list[int].__bases__,
        lambda: list[int].nothing,
    ],
    ids=["empty", "no_dict", "own_setattr", "bases_of_alias", "of_alias"],
)
def test_texts_of_exceptions_that_are_caught(ask):
    def f(x):
        try:
            return x + 1, ask()
        except AttributeError as e:
            return x + 2, str(e)

    check(f, X)


def test_a_name_like_super():
    class Base:
        def scale(self):
            return 3

    class Derived(Base):
        def scale(self):
            return super().scale() + 1

    def f(x):
        return x * Derived().scale()

    check(f, X)
