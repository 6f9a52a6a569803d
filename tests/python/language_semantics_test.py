"""What Python does in the corners: subclasses of builtin classes, special methods, order, exceptions and their tracebacks."""

import bisect
import collections
import contextlib
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


class Point(collections.namedtuple("Point", "x y")):
    def norm(self):
        return self.x * self.x + self.y * self.y


class Doubled(tuple):
    __slots__ = ()

    def __iter__(self):
        return iter([2 * v for v in tuple.__iter__(self)])

    def __len__(self):
        return 7


def test_subclasses_of_tuple():
    def f(x, p, d):
        q = Point(x, 2)
        q.note = "mine"
        return q.norm() + p.x, q.note, q[1], len(d), list(d), tuple(d), [*q][1], p._replace(y=5).y, tuple.__new__(Doubled, (1, 2))[0]

    check(f, X, Point(3, 4), Doubled((1, 2)))


class Names(list):
    pass


class Table(dict):
    pass


class Frozen(frozenset):
    pass


class Count(int):
    def more(self):
        return self + 1


def test_subclasses_of_containers_change_in_place():
    def f(x, names):
        before = names
        names += ["b"]
        names *= 2
        made = Names([1, 2])
        made += [3]
        same = names is before
        return x + len(names), same, type(names) is Names, type(made) is Names, made[-1], repr(made), Count(3).more() + x, str(Count(4)), Table(a=1)["a"]

    check(f, X, Names("a"))


def test_copies_of_immutable_objects():
    def f(x, s, t):
        u = frozenset([1])
        return x + 1, frozenset(u) is u, type(s.copy()) is frozenset, s.copy() is s, type(t * 1) is tuple, s == frozenset([2])

    check(f, X, Frozen([2]), Doubled((1,)))


class NoTruth:
    __bool__ = None


class NoReverse(collections.abc.Mapping):
    def __getitem__(self, key):
        return 1

    def __iter__(self):
        return iter([1])

    def __len__(self):
        return 1


class Shy:
    def __format__(self, spec):
        return 3


class Twice:
    __match_args__ = ("a",)
    a = 1


def test_errors_of_special_methods():
    def f(x):
        seen = []
        for act in (
            lambda: bool(NoTruth()),
            lambda: reversed(NoReverse()),
            lambda: format(Shy(), ""),
            lambda: collections.defaultdict(1),
            lambda: type({}.keys())(),
            lambda: divmod(NoTruth(), 1),
            lambda: sum([], bytearray()),
            lambda: (1, 2)(),
            lambda: types.MappingProxyType({}).__setitem__("a", 1),
        ):
            try:
                act()
                seen.append(None)
            except (TypeError, AttributeError) as e:
                seen.append(type(e))
        a, b = (1, 2)
        try:
            a, b = NoTruth()
        except TypeError as e:
            seen.append(str(e))
        try:
            try:
                raise ValueError
            except str:
                pass
        except TypeError as e:
            seen.append(str(e))
        return x + a + b, seen

    check(f, X, graphs=None)


class Divides:
    def __divmod__(self, other):
        return ("divmod", other)

    def __rdivmod__(self, other):
        return ("rdivmod", other)


class Claims:
    __class__ = str


class Anything(type):
    def __instancecheck__(cls, instance):
        return instance == 3


class Three(metaclass=Anything):
    pass


class Derived(Three):
    pass


class Plain:
    pass


class Delegates:
    """In front of another object, whose class it claims."""

    def __init__(self, inner):
        self.inner = inner

    def __getattribute__(self, name):
        if name == "inner":
            return object.__getattribute__(self, name)
        return getattr(self.inner, name)


def test_classes_that_decide_for_themselves():
    def f(x):
        return x + isinstance(Claims(), str), isinstance(3, Three), isinstance(4, Three), isinstance(Derived(), Three), isinstance(Delegates(Plain()), Plain), divmod(Divides(), 2), divmod(2, Divides())

    check(f, X)


def test_comparisons():
    def f(x):
        items = [1]
        a, b = collections.OrderedDict([(1, 2), (3, 4)]), collections.OrderedDict([(3, 4), (1, 2)])
        return x + 1, a == b, a == dict(b), items.append == items.append, items.append == [1].append, slice(items, 2) == slice([1], 2), slice(x, 1) == slice(x, 2)

    check(f, X)


def test_ordered_dicts_notice_changes():
    def f(x):
        d, seen = collections.OrderedDict.fromkeys("abc") if False else collections.OrderedDict(a=1, b=2, c=3), []
        try:
            for k in d:
                seen.append(k)
                d.move_to_end("a")
        except RuntimeError as e:
            seen.append(str(e))
        e = {1: 1}
        try:
            e.update(collections.ChainMap({2: 2}))
            seen.append(len(e))
        except RuntimeError as error:
            seen.append(str(error))
        return x + 1, seen, list(d)

    check(f, X)


def test_mapping_proxies():
    p = types.MappingProxyType({"a": 2})

    def f(x, d):
        q = types.MappingProxyType(d)
        with contextlib.suppress(TypeError):
            q["a"] = 1
        return x * p["a"] + q["k"], repr(p), type(q) is types.MappingProxyType, dict(q), "a" in p, len(p), list(p.items()), p.get("z", 5), isinstance(q, dict), p == {"a": 2}, p | {"b": 1}

    check(f, X, {"k": 3})


def test_contexts_of_exceptions():
    def f(x):
        try:
            try:
                raise ValueError(1)
            finally:
                raise OSError(2)
        except Exception as e:
            found = e
        return x + 1, type(found).__name__, type(found.__context__).__name__

    check(f, X, graphs=None)


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.log.append((kind, trace is None, sys.exc_info()[0]))
        return True


def test_tracebacks_are_there():
    def f(x):
        log = []
        with Manager(log):
            raise KeyError("k")
        with Manager(log):
            pass
        try:
            raise ValueError("v")
        except ValueError as e:
            log.append((e.__traceback__ is not None, e.with_traceback(e.__traceback__) is e, sys.exc_info()[1] is e))
        log.append(sys.exc_info())
        return x + 1, log

    check(f, X)


def test_tracebacks_of_exceptions_that_are_kept():
    error = ValueError("before")

    def f(x):
        try:
            raise error
        except ValueError:
            pass
        return x + 1

    assert torch.equal(braze.compile(f)(X), X + 1)
    assert error.__traceback__.tb_frame.f_code is f.__code__


def test_exit_stacks():
    def f(x, flag):
        log = []
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "called back")
            stack.enter_context(Manager(log))
            if flag:
                stack.enter_context(torch.no_grad())
            y = x * 2
        return y, log, torch.is_grad_enabled()

    check(f, X.clone().requires_grad_(), True)
    check(f, X.clone().requires_grad_(), False)


class Counted:
    total = 0

    def bump(self):
        Counted.total += 1
        return self.total


def test_attributes_of_classes_and_functions_are_set():
    def helper(x):
        helper.calls += 1
        return x + helper.calls

    def f(x):
        return helper(x) + Counted().bump()

    Counted.total = helper.calls = 0
    compiled = braze.compile(f, fullgraph=True)
    for i in range(1, 5):
        assert torch.equal(compiled(X), X + 2 * i)
        assert (Counted.total, helper.calls) == (i, i)


def test_attributes_of_tensors_are_set():
    def f(x, y):
        x.note = y + 1
        return x.note * 2

    x = X.clone()
    assert torch.equal(braze.compile(f, fullgraph=True)(x, X), (X + 1) * 2)
    assert torch.equal(x.note, X + 1)


def test_data_is_assigned():
    def f(x, p):
        p.data = x * 2
        p.add_(1)
        return p * 3

    p, q = torch.zeros(4), torch.zeros(4)
    compiled = braze.compile(f, fullgraph=True)
    for i in range(2):
        assert torch.equal(compiled(X + i, p), f(X + i, q))
        assert torch.equal(p, q)


def test_data_is_assigned_another_shape():
    def f(x, p):
        p.data = x.repeat(2)
        return p.shape[0] + p

    p = torch.zeros(3)
    assert torch.equal(braze.compile(f, fullgraph=True)(X, p), X.repeat(2) + 8)
    assert p.shape == (8,)


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
        return x * c["a"], c.most_common(1), heapq.heappop(heap), heap, heapq.nlargest(2, heap), bisect.bisect([1, 3], 2), list(d + collections.deque([3, 4])), list(d * 2), slice(1, 9).indices(4)

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
