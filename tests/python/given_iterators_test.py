"""Iterators that were made before the compiled code: read where they stand, guarded, and advanced as eager advances them."""

import collections
import itertools
import sys

import numpy as np
import pytest
import torch
from dynamic_test import Counted
from torch import nn

import braze


def after(n, it):
    for _ in range(n):
        next(it)
    return it


ITERATORS = {
    "list": lambda: iter([1.5, 2.5, 3.5, 4.5]),
    "tuple": lambda: iter((1.5, 2.5, 3.5, 4.5)),
    "range": lambda: iter(range(1, 20, 5)),
    "range down": lambda: iter(range(9, 1, -2)),
    "str": lambda: iter("abcd"),
    "text": lambda: iter("äbcd"),
    "bytes": lambda: iter(b"abcd"),
    "dict": lambda: iter({1: 2, 3: 4, 5: 6, 7: 8}),
    "values": lambda: iter({1: 2, 3: 4, 5: 6, 7: 8}.values()),
    "items": lambda: iter({1: 2, 3: 4, 5: 6, 7: 8}.items()),
    "reversed dict": lambda: reversed({1: 2, 3: 4, 5: 6, 7: 8}),
    "reversed items": lambda: reversed({1: 2, 3: 4, 5: 6, 7: 8}.items()),
    "ordered": lambda: iter(collections.OrderedDict({1: 2, 3: 4, 5: 6, 7: 8}).values()),
    "ordered items back": lambda: reversed(collections.OrderedDict({1: 2, 3: 4, 5: 6, 7: 8}).items()),
    "set": lambda: iter({1, 17, 33, 4}),
    "frozenset": lambda: iter(frozenset({1, 17, 33, 4})),
    "reversed list": lambda: reversed([1.5, 2.5, 3.5, 4.5]),
    "reversed tuple": lambda: reversed((1.5, 2.5, 3.5, 4.5)),
    "enumerate": lambda: enumerate([1.5, 2.5, 3.5, 4.5], 3),
    "zip": lambda: zip([1, 2, 3, 4], (5, 6, 7, 8)),
    "zip strict": lambda: zip([1, 2, 3, 4], (5, 6, 7, 8), strict=True),
    "map": lambda: map(lambda a, b: a * b, [1, 2, 3, 4], range(4)),
    "filter": lambda: filter(lambda a: a % 2, [1, 2, 3, 4, 5, 7, 9]),
    "filter none": lambda: filter(None, [0, 1, 0, 2, 3, 4]),
    "enumerated zip": lambda: enumerate(zip({1: 2, 3: 4, 5: 6, 7: 8}.values(), reversed([1, 2, 3, 4]))),
    "deque": lambda: iter(collections.deque([1.5, 2.5, 3.5, 4.5])),
    "chain": lambda: itertools.chain([1, 2], (), iter([3]), range(4, 6)),
    "chain of an iterator": lambda: itertools.chain.from_iterable(iter([[1], (), [2, 3], [4]])),
    "compress": lambda: itertools.compress(range(8), [1, 0, True, 1, 0.0, 2, 1]),
    "part of a count": lambda: itertools.islice(itertools.count(2, 3), 4),
    "part of a count of floats": lambda: itertools.islice(itertools.count(0.5, 0.25), 4),
    "part of a cycle": lambda: itertools.islice(itertools.cycle([1, 2, 3]), 1, 12, 2),
    "cycle in its second turn": lambda: itertools.islice(after(4, itertools.cycle(iter([1, 2, 3]))), 5),
    "islice": lambda: itertools.islice([1, 2, 3, 4, 5, 6, 7, 8, 9], 1, 8, 2),
    "islice to the end": lambda: itertools.islice((1, 2, 3, 4, 5, 6), 2, None),
    "dropwhile": lambda: itertools.dropwhile(lambda a: a < 3, [1, 2, 3, 2, 1, 5]),
    "takewhile": lambda: itertools.takewhile(lambda a: a < 5, [1, 2, 3, 4, 5, 1, 2]),
    "filterfalse": lambda: itertools.filterfalse(lambda a: a % 3, range(1, 14)),
    "filterfalse none": lambda: itertools.filterfalse(None, [0, 1, 0.0, 2, 3, False, 0]),
    "pairwise": lambda: itertools.pairwise([1, 2, 3, 4, 5]),
    "repeat": lambda: itertools.repeat(3, 4),
    "starmap": lambda: itertools.starmap(pow, [(2, 3), [3, 2], (1, 1), (2, 2)]),
    "accumulate": lambda: itertools.accumulate([1, 2, 3, 4]),
    "accumulate by a function": lambda: itertools.accumulate([1, 2, 3], lambda a, b: a * b, initial=2),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3, 4], [5], (6, 7), fillvalue=9),
    "nested": lambda: itertools.chain(itertools.starmap(pow, zip([2, 3], [3, 2])), enumerate("ab")),
    "subclass": lambda: iter(collections.namedtuple("Point", "a b c d")(1, 2, 3, 4)),
}


def flat(v):
    return [w for e in v for w in flat(e)] if isinstance(v, tuple) else [ord(v) if isinstance(v, str) else v]


def total(x, items):
    for item in items:
        for v in flat(item):
            x = x * 2 + v
    return x


def first_two(x, it):
    return total(x, [next(it), next(it)])


def to_the_end(x, it):
    return total(x, [item for item in it])


def beyond_the_end(x, it):
    y = to_the_end(x, it)
    return y + (1 if next(it, None) is None else 2)


def untouched(x, it):
    return x + 1, it


@pytest.mark.parametrize("made", ITERATORS.values(), ids=ITERATORS)
@pytest.mark.parametrize("behind", [0, 1, 2])
@pytest.mark.parametrize("fn", [first_two, to_the_end, beyond_the_end], ids=lambda f: f.__name__)
def test_it_is_advanced_as_eager_does(made, behind, fn):
    x, a, b = torch.randn(3), made(), made()
    for _ in range(behind):
        next(a), next(b)
    torch.testing.assert_close(braze.compile(fn, fullgraph=True)(x, a), fn(x, b))
    assert list(a) == list(b)


@pytest.mark.parametrize("made", ITERATORS.values(), ids=ITERATORS)
def test_positions_are_guarded(made):
    x, a, b = torch.randn(3), made(), made()
    fast = braze.compile(first_two, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(fast(x, a), first_two(x, b))
    assert next(a, "end") == next(b, "end")
    torch.testing.assert_close(fast(x, made()), first_two(x, made()))  # code that was compiled before
    with pytest.raises(StopIteration):
        first_two(x, b)


def test_one_entry_serves_iterators_alike():
    counted = Counted(to_the_end)
    for _ in range(5):
        it = iter([1, 2, 3])
        counted(torch.ones(2), it)
        assert next(it, None) is None
    assert counted.count == 1 and not counted.breaks


def test_content_is_guarded():
    fast = braze.compile(to_the_end, fullgraph=True)
    for items in ([1, 2, 3], [1, 2, 4], [1, 2], (1, 2), [1.0, 2.0], [], [1, 2, 3]):
        torch.testing.assert_close(fast(torch.ones(2), iter(items)), to_the_end(torch.ones(2), iter(items)))


def test_live_list():
    def f(x, it, items):
        for v in it:
            if v < 3:
                items.append(v + 2)
            x = x + v
        return x

    fast = braze.compile(f, fullgraph=True)
    for _ in range(3):
        ours, theirs = [1, 2], [1, 2]
        a, b = iter(ours), iter(theirs)
        torch.testing.assert_close(fast(torch.zeros(2), a, ours), f(torch.zeros(2), b, theirs))
        assert ours == theirs
        ours.append(9)
        theirs.append(9)
        assert list(a) == list(b) == []  # an iterator that came to its end stays there


def test_end_is_only_reached_when_asked_for():
    items = [1, 2]
    it = iter(items)
    braze.compile(first_two, fullgraph=True)(torch.ones(2), it)
    items.append(3)
    assert list(it) == [3]


@pytest.mark.parametrize(
    "container", [{1: 2, 3: 4}, {1, 2}, collections.OrderedDict({1: 2, 3: 4})], ids=["dict", "set", "ordered"]
)
def test_container_that_changes_meanwhile(container):
    def f(x, it, c):
        x = x + next(it)
        c.pop(3, None) if isinstance(c, dict) else c.discard(2)
        return x

    fast = braze.compile(f)
    a, b = container.copy(), container.copy()
    i, j = iter(a), iter(b)
    torch.testing.assert_close(fast(torch.ones(2), i, a), f(torch.ones(2), j, b))
    assert a == b
    for it in (i, j):
        with pytest.raises(RuntimeError):
            next(it)


def test_two_names_of_one():
    def f(x, a, b):
        return x * next(a) + next(b)

    fast = braze.compile(f, fullgraph=True)
    for same in (True, False, True):
        a = iter([1, 2, 3])
        b = a if same else iter([1, 2, 3])
        c = iter([1, 2, 3])
        d = c if same else iter([1, 2, 3])
        torch.testing.assert_close(fast(torch.ones(2), a, b), f(torch.ones(2), c, d))
        assert list(a) == list(c) and list(b) == list(d)


def test_within_another():
    def f(x, pairs, it):
        return x + total(x, [next(pairs)]) + next(it)

    fast = braze.compile(f, fullgraph=True)
    for _ in range(2):
        i, j = iter([1, 2, 3]), iter([1, 2, 3])
        a, b = enumerate(i), enumerate(j)
        torch.testing.assert_close(fast(torch.ones(2), a, i), f(torch.ones(2), b, j))
        assert list(a) == list(b) == [(1, 3)]


def test_tensors_in_it():
    def f(it):
        return sum(t * (i + 1) for i, t in enumerate(it))

    fast = braze.compile(f, fullgraph=True)
    for n in (2, 3, 2):
        items = [torch.randn(4) for _ in range(n)]
        torch.testing.assert_close(fast(iter(items)), f(iter(items)))


class Stepping(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = iter(range(100))
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.scale + next(self.steps)


def test_found_on_a_module():
    fast, slow = Stepping(), Stepping()
    compiled = braze.compile(fast)
    for _ in range(30):
        torch.testing.assert_close(compiled(torch.ones(2)), slow(torch.ones(2)))
    assert next(fast.steps) == next(slow.steps) == 30


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps, self.turns = itertools.count(), itertools.cycle([0.5, 1.0, 2.0])

    def forward(self, x):
        return x * next(self.turns) + next(self.steps)


def test_counters_of_a_module():
    fast, slow = Counting(), Counting()
    counted = Counted(fast, fullgraph=True)
    for _ in range(12):
        torch.testing.assert_close(counted(torch.ones(2)), slow(torch.ones(2)))
    assert counted.count <= 8
    assert repr(fast.steps) == repr(slow.steps) == "count(12)"
    assert next(fast.turns) == next(slow.turns) == 0.5


@pytest.mark.parametrize("start", [sys.maxsize - 2, -sys.maxsize - 1, 2**80, True])
def test_a_count_beyond_machine_words(start):
    def f(x, it):
        return x + (next(it) - next(it)), it

    fast, a, b = braze.compile(f), itertools.count(start), itertools.count(start)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.ones(2), a)[0], f(torch.ones(2), b)[0])
        assert next(a) == next(b)


@pytest.mark.parametrize("made", ITERATORS.values(), ids=ITERATORS)
def test_one_made_inside_lives_on(made):
    def f(x):
        it = made()
        v = next(it)
        y = x * 2
        braze.graph_break()
        return total(y, [v, next(it)]), it

    fast = braze.compile(f)
    for _ in range(2):
        (y, a), (z, b) = fast(torch.ones(2)), f(torch.ones(2))
        torch.testing.assert_close(y, z)
        # What a set that is made anew would be gone through in may be another order.
        assert (type(a) is type(b) or type(b) is type(iter(set()))) and list(a) == list(b)


def test_what_a_cycle_saves_is_seen_by_it_alone():
    def f(x, it):
        return x + next(it)

    fast, a, b = braze.compile(f, fullgraph=True), itertools.cycle(iter([1, 2])), itertools.cycle(iter([1, 2]))
    for _ in range(7):
        torch.testing.assert_close(fast(torch.ones(2), a), f(torch.ones(2), b))
    assert next(a) == next(b)


def test_an_exception_within():
    def f(x, it):
        try:
            for v in it:
                x = x + 12 // v
        except ZeroDivisionError:
            return x + next(it)

    made = lambda: itertools.islice(map(lambda a: 6 // a if a else a, itertools.chain([1, 2, 0], [3, 1])), 9)
    fast, a, b = braze.compile(f, fullgraph=True), made(), made()
    torch.testing.assert_close(fast(torch.ones(2), a), f(torch.ones(2), b))
    assert list(a) == list(b) == [6]


def test_a_generator_that_a_slice_lets_go_of():
    def f(x, it, log):
        x = x + sum(it)
        log.append("after")
        return x

    def steps(log):
        try:
            yield from range(9)
        finally:
            log.append("end")

    fast = braze.compile(f)
    for _ in range(2):
        logs = [], []
        y, z = [g(torch.ones(2), itertools.islice(steps(log), 3), log) for g, log in zip((fast, f), logs)]
        torch.testing.assert_close(y, z)
        assert logs[0] == logs[1] == ["end", "after"]


def test_a_deque_that_was_changed():
    def f(x, it, items):
        items.append(3)
        return x + next(it)

    for g in (braze.compile(f), f):
        items = collections.deque([1, 2])
        it = iter(items)
        with pytest.raises(RuntimeError, match="deque mutated during iteration"):
            g(torch.ones(2), it, items)
        assert list(items) == [1, 2, 3]


def test_one_that_is_always_elsewhere_is_left_to_the_interpreter():
    counted = Counted(Stepping())
    for _ in range(40):
        counted(torch.ones(2))
    assert counted.count <= 16


class Layers(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(n))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            braze.graph_break()
        return x


def test_a_loop_goes_on_after_a_break():
    model = Layers(4)
    report = braze.explain(model, torch.randn(2, 4))
    assert report.graph_count == 4  # and not one more for each round
    fast = braze.compile(model)
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(fast(x), model(x))


def test_no_reference_is_kept():
    import gc
    import weakref

    class Item:
        value = 2.0

    def f(x, it):
        return x + next(it).value

    item = Item()
    seen = weakref.ref(item)
    it = iter([item])
    braze.compile(f, fullgraph=True)(torch.ones(2), it)
    del it, item
    gc.collect()
    assert seen() is None


# ---- NumPy's random numbers, and arrays that become tensors ----


DRAWS = {
    "uniform": lambda: np.random.uniform(0, 1),
    "rand": lambda: np.random.rand(),
    "normal": lambda: np.random.normal(2.0, 0.5),
    "array": lambda: torch.from_numpy(np.random.rand(3)),
    "sized": lambda: torch.tensor(np.random.uniform(-1, 1, size=(2, 3)), dtype=torch.float32),
    "permutation": lambda: torch.as_tensor(np.random.permutation(3)),
    "two": lambda: np.random.random() - np.random.standard_normal(),
    "written": lambda: torch.from_numpy(_written(np.random.rand(3))),
}


def _written(a):
    a[1] = 7.0
    return a


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_of_numpy(draw):
    def f(x):
        return x * draw()

    fast = braze.compile(f, fullgraph=True)
    for seed in (1, 2):
        for _ in range(2):
            np.random.seed(seed)
            want, next_want = f(torch.ones(3)), np.random.rand()
            np.random.seed(seed)
            torch.testing.assert_close(fast(torch.ones(3)), want)
            assert np.random.rand() == next_want


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_draws_of_another_generator(make):
    def f(x, rng):
        return x * rng.normal() + torch.from_numpy(rng.random(3))

    fast = braze.compile(f, fullgraph=True)
    a, b = make(3), make(3)
    for _ in range(3):
        torch.testing.assert_close(fast(torch.ones(3), a), f(torch.ones(3), b))
    assert a.random() == b.random()


def test_a_run_that_fails_gives_the_numbers_back():
    def f(x, i):
        y = x * np.random.rand()
        return y[i]

    fast = braze.compile(f, fullgraph=True)
    fast(torch.ones(3), torch.tensor([1]))
    np.random.seed(0)
    with pytest.raises(IndexError):
        f(torch.ones(3), torch.tensor([5]))
    want = np.random.rand()
    np.random.seed(0)
    with pytest.raises(IndexError):
        fast(torch.ones(3), torch.tensor([5]))
    assert np.random.rand() == want


def test_array_to_a_device():
    def f(x):
        return x + torch.tensor(np.arange(3), device=x.device, dtype=torch.float32)

    torch.testing.assert_close(braze.compile(f, fullgraph=True)(torch.ones(3)), f(torch.ones(3)))


CONSTRUCTORS = {
    "data": lambda: torch.FloatTensor([[1, 2], [3, 4.5]]),
    "ints": lambda: torch.LongTensor([1, 2]),
    "default": lambda: torch.Tensor([1.5, 2]),
    "truncated": lambda: torch.IntTensor([1.7, 2.2]),
    "bool": lambda: torch.BoolTensor([2, 0]),
    "sizes": lambda: torch.DoubleTensor(2, 2).fill_(3),
    "size": lambda: torch.Tensor(torch.Size([3, 2])).zero_(),
    "none": lambda: torch.Tensor(),
}


@pytest.mark.parametrize("make", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_legacy_constructors(make, dtype):
    def f(x):
        return make(), x + 1

    torch.set_default_dtype(dtype)
    try:
        got, want = braze.compile(f, fullgraph=True)(torch.ones(2)), f(torch.ones(2))
    finally:
        torch.set_default_dtype(torch.float32)
    assert got[0].dtype == want[0].dtype
    torch.testing.assert_close(got, want)


def test_known_values_of_a_legacy_constructor():
    def f(x):
        n = torch.IntTensor([2])
        return x[: n[0]]

    torch.testing.assert_close(braze.compile(f)(torch.arange(4.0)), torch.arange(2.0))
    assert braze.explain(f, torch.arange(4.0)).graph_count == 1


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2), (0, 1), (2, 2, 3)], ids=str)
def test_zip_of_unequal_lengths(lengths):
    """Whether the message is that of eager: what the capture looks at before it leaves the raising to the interpreter stays there."""

    def looped(*lists):
        out = []
        for items in zip(*lists, strict=True):
            out.append(sum(items))
        return out

    def seen_at_the_end(log, *lists):
        it = iter(lists[-1])
        try:
            return [a for a in zip(*lists[:-1], it, strict=True)]
        finally:
            log.append(next(it, "end"))

    compiled = [braze.compile(f) for f in (looped, lambda *lists: [sum(t) for t in zip(*lists, strict=True)])]
    for _ in range(2):
        lists = [[torch.ones(2)] * n for n in lengths]
        with pytest.raises(ValueError) as want:
            looped(*lists)
        for f in compiled:
            with pytest.raises(ValueError) as got:
                f(*lists)
            assert str(got.value) == str(want.value)
        logs = []
        for f in (seen_at_the_end, braze.compile(seen_at_the_end)):
            logs.append([])
            with pytest.raises(ValueError):
                f(logs[-1], *[list(range(n)) for n in lengths])
        assert logs[0] == logs[1]


def test_a_generator_of_pytorch_over_a_break():
    from torch._functorch.eager_transforms import _chunked_standard_basis_for_ as basis

    def first(x, chunks):
        for (chunk,) in chunks:
            return chunk + x

    def all_of_them(x):
        return [chunk[0] * 2 for chunk in basis([x], (4,), chunk_size=2)]

    first_compiled, all_compiled = braze.compile(first), braze.compile(all_of_them)
    jacobian = braze.compile(torch.func.jacrev(torch.sin))
    for _ in range(60):
        x = torch.randn(4)
        chunks, eager = basis([x], (4,), 2), basis([x], (4,), 2)
        assert torch.equal(first_compiled(x, chunks), first(x, eager))
        assert torch.equal(next(chunks)[0], next(eager)[0])
        assert all(map(torch.equal, all_compiled(x), all_of_them(x)))
        torch.testing.assert_close(jacobian(x), torch.diag(x.cos()))
