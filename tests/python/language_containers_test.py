"""Containers, iteration, strings and numbers inside compiled functions: same results as the interpreter, in one graph unless a case says otherwise."""

import collections
import functools
import itertools
import math
import operator
import typing

import pytest
import torch
from cases import P, X, run, x, y
from harness import Cases, check

import braze

case = Cases()


@pytest.mark.parametrize("fn, args, kw", case)
def test_language(fn, args, kw):
    run(fn, args, kw)


# ---- containers ----


@case(x, y)
def lists(a, b):
    v = [a]
    v.append(b)
    v.extend([a * 2, b * 2])
    v.insert(0, a + b)
    v.reverse()
    last = v.pop()
    v[0] = v[0] + 1
    del v[1]
    return v, last, len(v), v[::2], v + [last], v * 2


@case(x)
def list_methods(a):
    v = [3, 1, 2]
    v.sort()
    w = sorted([5, 4], reverse=True)
    return a * v[0], v, w, v.index(2), v.count(1), 3 in v, v == [1, 2, 3]


@case(x, y)
def dicts(a, b):
    d = {"a": a, "b": b}
    d["c"] = d["a"] + d["b"]
    d.update(e=a * 2, **{"f": b * 2})
    got = d.get("zzz", a)
    popped = d.pop("e")
    d.setdefault("g", popped)
    return d, got, list(d), [k for k, _ in d.items()], "a" in d, len(d), {**d, "h": a}


@case(x)
def dict_order_and_delete(a):
    d = dict(one=1, two=2)
    del d["one"]
    d["one"] = 3
    out = a
    for k, v in d.items():
        out = out * v + len(k)
    return out


@case(x)
def sets(a):
    s = {1, 2, 3} & {2, 3, 4}
    s.add(7)
    return a * len(s), sorted(s | {9}), 2 in s, frozenset([1]) <= s


@case(x, y)
def tuples(a, b):
    t = (a, b) + (a,)
    p, *rest = t
    return p + rest[-1], t[1:], t.index(a) if False else 0, len(t)


@case(x)
def unpacking(a):
    (p, q), [r, *s] = (a, 2), [3, 4, 5]
    return p * q + r + sum(s)


@case(x)
def comprehensions(a):
    v = [a * i for i in range(3) if i != 1]
    d = {i: r for i, r in enumerate(v)}
    s = {i % 2 for i in range(4)}
    return v, d, sorted(s), sum(t.sum() for t in v)


@case(x)
def nested_comprehension(a):
    return [[a[i, j] for j in range(2)] for i in range(2)]


@case(x)
def named_tuple(a):
    Pair = collections.namedtuple("Pair", "left right")
    p = Pair(a, 2)
    return p.left * p.right + p[1], p._replace(right=3).right


class Point(typing.NamedTuple):
    x: torch.Tensor
    y: int = 2


@case(x)
def typed_named_tuple(a):
    p = Point(a)
    return Point(p.x * p.y, y=5)


@case(x)
def ordered_dict(a):
    d = collections.OrderedDict()
    d["b"] = a
    d["a"] = a + 1
    d.move_to_end("b")
    return d


@case(x)
def default_dict(a):
    d = collections.defaultdict(list)
    d["k"].append(a)
    d["k"].append(a + 1)
    return d["k"], len(d)


@case(x)
def default_dict_stored_by_its_factory(a):
    count = 0

    def factory():
        nonlocal count
        count += 1
        mine = count
        if mine == 1:
            d["k"]
        return mine

    d = collections.defaultdict(factory)
    return d["k"], count, dict(d), a + d["k"]


@case(x, graphs=0)
def deques(a):
    d = collections.deque([1, 2], maxlen=3)
    d.append(a)
    d.appendleft(5)
    return d.pop() if False else list(d)[1:]


@case(x, [1, 2, 3], {"k": 2.0})
def containers_in(a, v, d):
    return a * v[1] + d["k"] + len(v)


@case([P(X).make(), P(X).make()])
def list_of_tensors(v):
    return torch.cat(v) + torch.stack(v).sum()


@case({"a": X(), "b": {"c": X()}})
def nested_dict_of_tensors(d):
    return {"sum": d["a"] + d["b"]["c"], "same": d["b"]}


@case(x, [])
def argument_list_mutated(a, out):
    out.append(a + 1)
    out.append(3)
    return a


@case(x, {"n": 1})
def argument_dict_mutated(a, d):
    d["n"] += 1
    d["t"] = a * 2
    return a * d["n"]


# ---- iteration ----


@case(x, y)
def zips(a, b):
    return [p * q for p, q in zip([a, b], (b, a), strict=True)], dict(zip("ab", [1, 2]))


@case(x)
def enumerates(a):
    out = a
    for i, (k, v) in enumerate({"p": 1, "q": 2}.items(), start=1):
        out = out * i + v
    return out


@case(x)
def maps(a):
    return list(map(lambda t, n: t * n, [a, a], [1, 2])), list(filter(None, [0, 1, 2])), list(reversed([1, 2]))


@case(x)
def itertools_(a):
    pairs = list(itertools.product([1, 2], [3]))
    chained = list(itertools.chain([1], (2, 3), itertools.repeat(4, 2)))
    grouped = list(itertools.islice(itertools.count(5, 2), 3))
    firsts = [
        type(next(itertools.count(*of))).__name__
        for of in ((True,), (True, 1), (True, True), (True, 2), (1.5,), (False, 1.5))
    ]
    acc = list(itertools.accumulate([1, 2, 3]))
    return (
        a * len(pairs) + sum(chained) + sum(grouped) + sum(acc),
        list(itertools.zip_longest([1], [2, 3])),
        list(itertools.pairwise([1, 2, 3])),
        firsts,
    )


@case(x)
def generators(a):
    def gen(n):
        for i in range(n):
            got = yield a * i
            assert got is None

    g = gen(3)
    first = next(g)
    return first, list(g)


@case(x)
def generator_expression(a):
    return max(i * 2 for i in range(4)), torch.stack(tuple(a + i for i in range(2)))


@case(x)
def yield_from(a):
    def inner():
        yield a
        yield a + 1
        return 5

    def outer():
        r = yield from inner()
        yield a * r

    return list(outer())


@case(x)
def iterators(a):
    it = iter([1, 2, 3])
    next(it)
    return a * sum(it), next(it, "end")


@case(x)
def functools_reduce(a):
    return functools.reduce(operator.add, [a, a * 2, a * 3]), functools.reduce(lambda p, q: p + q, [1, 2, 3])


@case(x, graphs=0)
def any_all(a):
    return a if any(n > 2 for n in a.shape) and all([1, True]) else -a


# ---- strings and numbers ----


@case(x)
def f_strings(a):
    return a + 1, f"{a.shape[0]}x{a.shape[1]:>4}|{3.14159:.2f}|{'s'!r}|{a.dtype}"


@case(x)
def strings(a):
    parts = "a,b,c".split(",")
    return a * len(parts), "-".join(parts), "abc".upper().startswith("AB"), "x%d" % 3, "{:03d}".format(7), "ab"[::-1]


@case(x)
def numbers(a):
    return (
        a * math.sqrt(16) + 7 // 2 + 7 % 4 + 2**5 + (-7) // 2,
        divmod(7, 3),
        round(2.567, 1),
        abs(-3),
        int("5"),
        float("1.5"),
        5 / 2,
    )


@case(x, graphs=0)
def bools(a):
    return a, not a.shape, 1 and 2, 0 or "b", bool([]), True + True, None is None, a is a


@case(x)
def int_methods(a):
    return a * (6).bit_length(), 3 & 6, 3 | 6, 3 ^ 6, ~3, 1 << 4, min(3, 1, 2), max([4, 9]), pow(2, 5, 7)


# ---- the order of sets, which depends on how they came to be ----

WORDS = ["gallahad", "robin", "bors", "bedivere", "lancelot", "arthur", "kay", "ector"]


def displays(a):
    s = {"a", "b", "c", "d", "e", "f"}
    t = {"x", *"gallahad", *s}
    return a + 1, list(s), list(t), str(t), s, t, frozenset(t)


def sets_that_shrank(a):
    s = set(range(0, 700, 7))
    for i in range(0, 700, 14):
        s.discard(i)
    t = set(s)
    u = s.copy()
    return a + 1, list(s), list(t), list(u), s, t, u, s.pop()


def sets_of_the_caller(a, s, d, t):
    old = list(t)
    u = s | d.keys()
    v = d.keys() | t
    w = d.keys() & {"kay", "ector", "bors", "nobody"}
    t.update(WORDS)
    t -= {"kay", "s"}
    return a + 1, list(s), old, u, v, w, d.keys() - {"kay"}, d.keys() ^ t, t


def sets_over_a_break(a):
    s = set("gallahad")
    s.discard("g")
    t = {(1, 2), (3, "four"), *WORDS, 5, 6.5}
    braze.graph_break()
    u = s | t
    s.add("zz")
    return a + len(u), list(s), list(t), list(u), s, t, frozenset(u)


def few_of_many(keep):
    s = set(range(0, 2000, 37)) | {"a", "b"}
    for v in list(s)[keep:]:
        s.discard(v)
    return s


@pytest.mark.parametrize("fn", [displays, sets_that_shrank, sets_of_the_caller, sets_over_a_break])
def test_the_order_of_sets(fn):
    args = lambda: (few_of_many(5), {w: i for i, w in enumerate(WORDS)}, set("collisions of hashes"))[
        : fn.__code__.co_argcount - 1
    ]
    e = braze.explain(fn, torch.ones(2), *args())
    assert e.graph_count == 1, e
    given, taken = args(), args()
    want, got = fn(torch.ones(2), *given), braze.compile(fn)(torch.ones(2), *taken)
    listed = lambda values: [list(v) if isinstance(v, (set, frozenset)) else v for v in values]
    assert listed(got[1:]) == listed(want[1:])
    assert listed(taken) == listed(given)


def test_state_dict_inside():
    m = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    def fn(x):
        state = m.state_dict()
        return x @ state["0.weight"].t(), list(state), hasattr(state, "_metadata")

    got = braze.compile(fn, fullgraph=True)(torch.ones(2, 3))
    torch.testing.assert_close(got[0], fn(torch.ones(2, 3))[0])
    assert got[1:] == fn(torch.ones(2, 3))[1:]
    state = braze.compile(lambda x: (m.state_dict(), x + 1), fullgraph=True)(torch.ones(2))[0]
    assert state._metadata == m.state_dict()._metadata


def test_attributes_of_an_ordered_dict_from_outside():
    state = torch.nn.Linear(2, 2).state_dict()
    fn = lambda x, d: (x + 1, hasattr(d, "_metadata"), len(d))
    want, got = fn(torch.ones(2), state), braze.compile(fn)(torch.ones(2), state)
    assert want[1:] == got[1:]


@pytest.mark.parametrize(
    "take",
    [
        lambda l, g: l.extend(g),
        lambda l, g: l.__iadd__(g),
        lambda l, g: collections.deque.extend(l, g),
        lambda l, g: dict.update(l, g),
    ],
)
def test_items_are_added_as_they_come(take):
    """A generator sees what was added before, and an exception of its leaves that there."""
    deque, mapping = "deque" in take.__code__.co_names, "update" in take.__code__.co_names

    def fn(x):
        held = collections.deque() if deque else {} if mapping else []
        seen = []

        def items():
            for i in range(3):
                seen.append(len(held))
                yield (i, i) if mapping else i
            raise ValueError(i)

        try:
            take(held, items())
        except ValueError:
            seen.append("raised")
        return x + len(held), seen, list(held)

    compiled = braze.compile(fn, fullgraph=True)
    want, got = fn(torch.ones(2)), compiled(torch.ones(2))
    assert want[1:] == got[1:] and torch.equal(want[0], got[0])
    assert want[1] == [0, 1, 2, "raised"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: operator.itemgetter(1),
        lambda: operator.itemgetter(0, 1),
        lambda: operator.attrgetter("a"),
        lambda: operator.methodcaller("m"),
    ],
)
def test_functions_of_operator_take_one_argument(make):
    def fn(x):
        said = []
        for args, named in (((), {}), ((1, 2), {}), ((1,), {"k": 2})):
            try:
                made(*args, **named)
            except TypeError as e:
                said.append(str(e))
        return x + len(said), said

    for made in (make(),):
        want, got = fn(torch.ones(2)), braze.compile(fn, fullgraph=True)(torch.ones(2))
        assert want[1] == got[1] and len(got[1]) == 3


def keys_put_back(x):
    d, out = {0: 0, 1: 1, 2: 2}, []
    try:
        for i in d:
            out.append(i)
            if i == 0:
                del d[1]
                d[5] = 5
            if i == 5:
                del d[0]
                d[0] = 1
    except RuntimeError as e:
        out.append(str(e))
    return out, x + len(d)


def the_last_key_put_back(x):
    d = {0: 0}
    try:
        for _ in d.values():
            del d[0]
            d[0] = 0
    except RuntimeError as e:
        return str(e), x + 1
    return "nothing", x + 1


def put_back_behind_a_reversed_iterator(x):
    d = {0: 0, 1: 1, 2: 2}
    out = []
    for i in reversed(d):
        out.append(i)
        if i == 2:
            d[5] = d.pop(1)
    return out, x + 1


def place_of_what_popitem_took(x):
    d, out = {0: 0, 1: 1}, []
    for k, v in d.items():
        out.append((k, v))
        if k < 7:
            d.popitem()
            d[7 + k] = 7
        if len(out) > 5:
            break
    return out, x + 1


def mapping_of_views(x):
    d = collections.OrderedDict(a=1)
    e = {"b": 2}
    shown = d.keys().mapping, e.values().mapping, e.items().mapping
    d["c"], e["c"] = 3, 4
    return [dict(m) for m in shown], shown[1]["c"], "c" in shown[0], len(shown[2]), x + 1


@pytest.mark.parametrize(
    "fn",
    [
        keys_put_back,
        the_last_key_put_back,
        put_back_behind_a_reversed_iterator,
        place_of_what_popitem_took,
        mapping_of_views,
    ],
)
def test_keys_exchanged_while_a_dict_is_iterated_over(fn):
    check(fn, torch.ones(2))


def test_keys_of_a_given_dict_exchanged():
    def f(x, d):
        out = []
        for k in d:
            out.append(k)
            if k == 0:
                d[0] = 5
                d[1] = d.pop(1)
        return out, list(d.items()), x + 1

    check(f, torch.ones(2), {0: 1, 1: 2, 2: 3})
