"""What is no object of its own: views and iterators of containers whose class the program wrote, the __dict__ of objects
that the code makes; and containers that change while they are iterated over."""

import collections
import dataclasses

import pytest
import torch

import braze

X = torch.arange(4.0)


class Items(list):
    pass


class Refusing(list):
    def __iter__(self):
        raise AssertionError("only the class in C is asked")


class Table(dict):
    pass


class Group(set):
    pass


class Ordered(collections.OrderedDict):
    pass


class Plain:
    pass


class Failure(Exception):
    pass


class Shown:
    z = 1


@dataclasses.dataclass
class Point:
    a: int = 1


def view_that_leaves(x):
    c = collections.Counter("ab")
    items = c.items()
    c["z"] = 1
    return x * 2, c, items


def view_over_a_break(x):
    c = collections.Counter()
    items = c.items()
    braze.graph_break()
    for letter in "abca":
        c[letter] += 1
    return x * len(items)


def iterator_over_a_break(x):
    items = Items([1])
    it = iter(items)
    braze.graph_break()
    items.append(2)
    items.extend([3])
    return x * sum(it)


def iterator_of_its_class(x):
    items = Refusing([1, 2, 3])
    it = list.__iter__(items)
    next(it)
    braze.graph_break()
    items.append(2)
    return x * sum(it)


def table_that_grows(x):
    table = Table(a=1, b=2)
    for _ in table.items():
        table[len(table)] = 1
    return x * len(table)


def group_that_grows(x):
    group = Group([1, 2])
    it, last = iter(group), reversed(Items([1, 2]))
    braze.graph_break()
    group.add(3)
    try:
        return x * sum(it)
    except RuntimeError as e:
        return repr(e), list(last)


def ordered_values(x):
    table = Ordered(a=1, b=2)
    values = table.values()
    next(iter(values))
    braze.graph_break()
    table["c"] = 5
    return x, list(values)


def dict_that_leaves(x):
    a = Plain()
    a.v = 1
    return x * 2, a, vars(a)


def dict_over_a_break(x):
    p = Point()
    fields = p.__dict__
    braze.graph_break()
    p.a = 5
    fields["a"] += 1
    return x * p.a


def dict_of_two(x):
    a, b = Plain(), Plain()
    a.z = 1
    b.__dict__ = a.__dict__
    a.y = 2
    return x * b.y, a.__dict__ is b.__dict__


def dict_of_two_over_a_break(x):
    a, b = Plain(), Plain()
    a.z = 1
    b.__dict__ = a.__dict__
    braze.graph_break()
    a.y = 2
    return x * b.y, a.__dict__ is b.__dict__


def dict_of_a_function(x):
    def g():
        pass

    fields = g.__dict__
    braze.graph_break()
    g.a = 1
    return x * len(fields)


def dict_of_an_exception(x):
    e = Failure(1)
    fields = e.__dict__
    braze.graph_break()
    e.q = 2
    return x * len(fields)


def dict_that_holds_itself(x):
    a = Plain()
    a.d = a.__dict__
    braze.graph_break()
    a.e = 1
    return x * len(a.d)


def dict_of_a_class(x):
    shown = Shown.__dict__
    Shown.y = 3
    seen = "y" in shown
    del Shown.y
    return x * 2, seen


def set_that_grows(x):
    s = {1, 2}
    for v in s:
        s.add(v + 100)
    return x * len(s)


def set_of_another_element(x):
    s = {1, 2, 3}
    it = iter(s)
    next(it)
    s.discard(3)
    s.add(99)
    return x * 2, list(it)


def set_of_other_elements(x):
    s, n = {1, 2, 3}, 0
    for v in s:
        s.discard(v)
        s.add(v + 10)
        n += 1
        if n > 20:
            break
    return x * n


def deque_that_grows(x):
    q, n = collections.deque([1, 2, 3]), 0
    for _ in reversed(q):
        q.append(0)
        n += 1
    return x * n


def deque_that_is_turned(x):
    q, seen = collections.deque([1, 2, 3]), []
    for v in q:
        q.reverse()
        seen.append(v)
    return x, seen


def deque_that_failed(x):
    q = collections.deque([1, 2, 3])
    it, seen = iter(q), []
    q.append(4)
    for _ in range(2):
        try:
            seen.append(next(it))
        except RuntimeError as e:
            seen.append(str(e))
    return x, seen


def deque_backwards_over_a_break(x):
    it = reversed(collections.deque([1, 2, 3]))
    next(it)
    braze.graph_break()
    return x * 2, list(it), type(it).__name__


def keys_exchanged_before_a_break(x):
    d = {1: 1, 2: 2, 3: 3}
    it = iter(d)
    next(it)
    d.pop(1)
    d[1] = 5
    braze.graph_break()
    try:
        return x * 2, next(it), next(it), next(it)
    except RuntimeError as e:
        return x * 3, repr(e)


PROGRAMS = [f for name, f in globals().items() if callable(f) and not isinstance(f, type)]


def told(f):
    try:
        result = f(X)
    except RuntimeError as e:
        return repr(e)
    if isinstance(result, tuple) and isinstance(result[1], Plain):
        result[1].w = 3
        return sorted(result[2]), result[2] is vars(result[1])
    if isinstance(result, tuple) and isinstance(result[1], collections.Counter):
        result[1]["y"] = 1
    return str(result)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager(f):
    compiled = braze.compile(f)
    for _ in range(2):
        assert told(compiled) == told(f)


def test_a_reversed_deque_leaves():
    def fn(x):
        it = reversed(collections.deque([1, 2, 3]))
        next(it)
        return x * 2, it

    assert list(braze.compile(fn)(X)[1]) == [2, 1]
