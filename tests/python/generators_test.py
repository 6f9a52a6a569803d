"""Generators that were made before the compiled code, or that outlive it: read where they wait, and left where eager leaves them."""

import collections.abc
import contextlib
import inspect

import pytest
import torch
from dynamic_test import Counted
from given_iterators_test import beyond_the_end, first_two, to_the_end, untouched

import braze


def counting(n, step=1):
    at = 0.5
    while n:
        yield at
        at, n = at + step, n - 1


def over(items):
    for i, item in enumerate(items):
        yield item * i
    return "end"


def delegating(items):
    got = yield from over(items)
    yield 7 if got == "end" else 8


def with_cells(scale):
    total = 0

    def add(v):
        nonlocal total
        total += v * scale
        return total

    for v in range(4):
        yield add(v)


def keywords(*items, first=1, **more):
    yield first
    yield from items
    yield more["last"]


def guarded(items):
    try:
        for item in items:
            yield item
    except ValueError as e:
        yield len(str(e))
    finally:
        items.append(5)


def constant():
    yield 2
    yield 3
    yield from [4, 5]


GENERATORS = {
    "constant": constant,
    "counting": lambda: counting(4),
    "list": lambda: over([1.5, 2.5, 3.5, 4.5]),
    "range": lambda: over(range(4)),
    "delegating": lambda: delegating([1.5, 2.5, 3.5]),
    "cells": lambda: with_cells(3),
    "keywords": lambda: keywords(3, 4, first=2, last=9),
    "expression": lambda: (a * b for a in (1, 2) for b in [3, 4]),
    "finally": lambda: guarded([1, 2, 3, 4]),
    "tensors": lambda: (float(n) for n in range(4)),
}


def alike(a, b):
    """Both wait at the same place with the same, and give the same from there."""
    assert inspect.getgeneratorstate(a) == inspect.getgeneratorstate(b)
    if a.gi_frame is not None:
        assert a.gi_frame.f_lasti == b.gi_frame.f_lasti and a.gi_frame.f_locals.keys() == b.gi_frame.f_locals.keys()
    assert list(a) == list(b)
    assert inspect.getgeneratorstate(a) == inspect.getgeneratorstate(b) == "GEN_CLOSED"


@pytest.mark.parametrize("made", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("behind", [0, 1, 2])
@pytest.mark.parametrize("fn", [first_two, to_the_end, beyond_the_end], ids=lambda f: f.__name__)
def test_it_is_advanced_as_eager_does(made, behind, fn):
    x, a, b = torch.randn(3), made(), made()
    for _ in range(behind):
        next(a), next(b)
    torch.testing.assert_close(braze.compile(fn, fullgraph=True)(x, a), fn(x, b))
    alike(a, b)


@pytest.mark.parametrize("made", GENERATORS.values(), ids=GENERATORS)
def test_what_it_waits_with_is_guarded(made):
    x, a, b = torch.randn(3), made(), made()
    fast = braze.compile(first_two, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(fast(x, a), first_two(x, b))
    alike(a, b)
    torch.testing.assert_close(fast(x, made()), first_two(x, made()))  # code that was compiled before


@pytest.mark.parametrize("made", GENERATORS.values(), ids=GENERATORS)
def test_one_that_has_ended_or_is_left_alone(made):
    x, a, b = torch.randn(3), made(), made()
    y, same = braze.compile(untouched, fullgraph=True)(x, a)
    assert same is a and torch.equal(y, x + 1)
    alike(a, b)
    fast = braze.compile(beyond_the_end, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(fast(x, a), beyond_the_end(x, b))


def test_one_entry_serves_generators_alike():
    counted = Counted(to_the_end)
    for _ in range(4):
        g = over([1, 2, 3])
        counted(torch.ones(2), g)
        assert next(g, None) is None
    assert counted.count == 1 and not counted.breaks


def test_tensors_that_a_generator_holds():
    def running(x):
        total = torch.zeros(3)
        while True:
            total = total + x
            x = yield total * 2

    def f(g, x):
        return g.send(x) + next(iter([1.0]))

    fast, x = braze.compile(f, fullgraph=True), torch.randn(3)
    a, b = running(x), running(x)
    torch.testing.assert_close(next(a), next(b))
    for n in range(4):
        torch.testing.assert_close(fast(a, x * n), f(b, x * n))
        torch.testing.assert_close(a.gi_frame.f_locals["total"], b.gi_frame.f_locals["total"])


def test_throw_and_close():
    def thrown(x, g):
        return x + g.throw(ValueError("four"))

    def closed(x, g):
        x = x + next(g)
        g.close()
        return x + sum(1 for _ in g)

    for f in (thrown, closed):
        ours, theirs = [1, 2, 3], [1, 2, 3]
        a, b = guarded(ours), guarded(theirs)
        assert next(a) == next(b)
        torch.testing.assert_close(braze.compile(f)(torch.ones(2), a), f(torch.ones(2), b))
        alike(a, b)
        assert ours == theirs


def test_a_context_that_was_made_before():
    log = []

    @contextlib.contextmanager
    def managed(n):
        log.append(n)
        try:
            yield n * 2
        finally:
            log.append(-n)

    def f(x, cm):
        with cm as n:
            x = x * n
        return x

    fast = braze.compile(f, fullgraph=True)
    for n in (3, 3, 4):
        want = f(torch.ones(2), managed(n)), log[:]
        log.clear()
        assert torch.equal(fast(torch.ones(2), managed(n)), want[0]) and log == want[1]
        log.clear()


@pytest.mark.parametrize("made", GENERATORS, ids=GENERATORS)
@pytest.mark.parametrize("behind", [0, 1, 2, 9])
def test_one_made_inside_leaves_the_compiled_code(made, behind):
    make = GENERATORS[made]

    def f(x):
        g = make()
        for _ in range(behind):
            x = x + next(g, 1)
        return x, g

    fast = braze.compile(f, fullgraph=True)
    for _ in range(2):
        (x, a), (y, b) = fast(torch.ones(2)), f(torch.ones(2))
        torch.testing.assert_close(x, y)
        assert a.__name__ == b.__name__ and a.__qualname__ == b.__qualname__ and a.gi_code is b.gi_code
        alike(a, b)


@pytest.mark.parametrize("made", GENERATORS, ids=GENERATORS)
def test_a_break_in_the_loop_over_one(made):
    make = GENERATORS[made]

    def f(x):
        for v in make():
            x = x * 2 + v
            braze.graph_break()
            x = x - 1
        return x

    fast = braze.compile(f)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.ones(2)), f(torch.ones(2)))


def test_the_same_object_in_the_generator_and_outside():
    def filling(items):
        while True:
            items.append(len(items))
            yield items

    def f(x, g, items):
        items.append(9)
        got = next(g)
        return x * len(got), got is items

    fast = braze.compile(f, fullgraph=True)
    ours, theirs = [1], [1]
    a, b = filling(ours), filling(theirs)
    for _ in range(3):
        (x, same), (y, equal) = fast(torch.ones(2), a, ours), f(torch.ones(2), b, theirs)
        assert torch.equal(x, y) and same == equal and ours == theirs
    assert next(a) is ours


def test_one_that_runs_is_not_resumed():
    def f(x, g):
        try:
            return x + next(g)
        except ValueError as e:
            return x + len(str(e))

    fast = braze.compile(f)

    def calls(fn):
        yield 1
        own = yield
        yield fn(torch.ones(2), own)

    for fn in (f, fast):
        g = calls(fn)
        next(g), next(g)
        assert torch.equal(g.send(g), torch.ones(2) + len("generator already executing"))


def test_names():
    def f(x, g):
        return x + len(g.__name__), g.__qualname__

    fast = braze.compile(f, fullgraph=True)
    g = counting(2)
    for name in ("a", "ab", "ab", "abc"):
        g.__name__ = name
        assert torch.equal(fast(torch.ones(2), g)[0], torch.ones(2) + len(name))
    assert fast(torch.ones(2), over([]))[1] == "over"


def test_what_an_ended_generator_drops_ends_in_order():
    log = []

    def logged(n):
        try:
            yield from range(n)
        finally:
            log.append("end")

    def f(x, missing=None):
        try:
            sum(1 for v in logged(2) if v > missing)
        except TypeError:
            pass
        log.append("after")
        return x + 1

    fast = braze.compile(f)
    for _ in range(3):
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))
        assert log == ["end", "after"]
        log.clear()


def test_an_operator_that_refuses_it_takes_nothing_from_it():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            return f(*args, **(kwargs or {}))

    def f(x, g):
        try:
            return x + g
        except TypeError:
            return x + 1

    fast = braze.compile(f)
    for made in (lambda: over([1, 2]), lambda: iter([1, 2])):
        g = made()
        with Mode():
            assert torch.equal(fast(torch.ones(2), g), torch.full((2,), 2.0))
        assert len(list(g)) == 2


def test_it_is_not_kept_alive():
    import weakref

    class Held:
        pass

    held = Held()

    def holding(o):
        yield 1
        yield 2
        return o

    g = holding(held)
    fast = braze.compile(first_two, fullgraph=True)
    fast(torch.ones(2), g)
    ref = weakref.ref(held)
    del held, g
    assert ref() is None


def test_one_that_is_not_read_again_ends_with_the_frame():
    def numbers(log):
        try:
            yield 1
            yield 2
        finally:
            log.append("end")

    def delegating(log):
        yield from numbers(log)

    held = []

    def f(x, log):
        v = held[-1]
        g = delegating(log)
        pair = (delegating(log), 1)
        log.append(next(g) + next(pair[0]))
        v = 1
        log.append(2)
        return x + v

    fast = braze.compile(f)
    for g in (f, fast, fast):
        log = []
        held[:] = [numbers([])]
        g(torch.ones(2), log)
        assert log == [2, 2, "end", "end"]


class Squares(collections.abc.Sequence):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


def test_one_whose_clauses_only_compare_ends_without_a_trace():
    def f(x):
        # zip() lets go of the generator of Sequence.__iter__, which waits in a try with an `except IndexError`.
        for a, b in zip([1, 2], Squares(4)):
            x = x * a + b
        return x

    for _ in range(2):
        torch.testing.assert_close(braze.compile(f, fullgraph=True)(torch.ones(2)), f(torch.ones(2)))


@pytest.mark.parametrize("caught", ["IndexError", "BaseException", "GeneratorExit", "Other"])
def test_a_clause_that_may_take_the_end(caught):
    log = []
    names = {"log": log, "Other": BaseException}
    exec(
        f"""
def steps():
    try:
        yield 1
        yield 2
    except {caught}:
        log.append("end")
        raise

def f(x):
    for a, b in zip([1], steps()):
        x = x * a + b
    log.append("after")
    return x
""",
        names,
    )
    torch.testing.assert_close(names["f"](torch.ones(2)), torch.ones(2) * 2)
    want = log.copy()
    fast = braze.compile(names["f"])
    for _ in range(2):
        log.clear()
        fast(torch.ones(2))
        assert log == want
