"""What Python does in the corners: subclasses of builtin classes, special methods, order, exceptions and their tracebacks."""

import collections
import contextlib
import sys
import types

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
        return (
            q.norm() + p.x,
            q.note,
            q[1],
            len(d),
            list(d),
            tuple(d),
            [*q][1],
            p._replace(y=5).y,
            tuple.__new__(Doubled, (1, 2))[0],
        )

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
        return (
            x + len(names),
            same,
            type(names) is Names,
            type(made) is Names,
            made[-1],
            repr(made),
            Count(3).more() + x,
            str(Count(4)),
            Table(a=1)["a"],
        )

    check(f, X, Names("a"))


def test_copies_of_immutable_objects():
    def f(x, s, t):
        u = frozenset([1])
        return (
            x + 1,
            frozenset(u) is u,
            type(s.copy()) is frozenset,
            s.copy() is s,
            type(t * 1) is tuple,
            s == frozenset([2]),
        )

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
        return (
            x + isinstance(Claims(), str),
            isinstance(3, Three),
            isinstance(4, Three),
            isinstance(Derived(), Three),
            isinstance(Delegates(Plain()), Plain),
            divmod(Divides(), 2),
            divmod(2, Divides()),
        )

    check(f, X)


def test_comparisons():
    def f(x):
        items = [1]
        a, b = collections.OrderedDict([(1, 2), (3, 4)]), collections.OrderedDict([(3, 4), (1, 2)])
        return (
            x + 1,
            a == b,
            a == dict(b),
            items.append == items.append,
            items.append == [1].append,
            slice(items, 2) == slice([1], 2),
            slice(x, 1) == slice(x, 2),
        )

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
        return (
            x * p["a"] + q["k"],
            repr(p),
            type(q) is types.MappingProxyType,
            dict(q),
            "a" in p,
            len(p),
            list(p.items()),
            p.get("z", 5),
            isinstance(q, dict),
            p == {"a": 2},
            p | {"b": 1},
        )

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


def test_a_generator_has_nothing_of_what_its_maker_handled():
    def numbers(log):
        try:
            yield 1
            log.append(sys.exc_info()[0])
            yield 2
        finally:
            log.append("end")

    def f(x, log):
        try:
            raise OSError(2)
        except OSError:
            g, h = numbers(log), numbers(log)
            next(g), next(h)
            try:
                g.throw(ValueError(1))
            except ValueError as e:
                log.append(type(e.__context__).__name__)
        next(h)
        h.close()
        return x + 1, log

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        want, got = f(X, []), compiled(X, [])
        assert torch.equal(want[0], got[0]) and want[1] == got[1] == ["end", "NoneType", None, "end"]


def test_a_variable_is_unbound_once():
    """The code after an iteration is compiled where the variable is bound, and comes to the same place where it is not."""

    @braze.disable
    def each(n):
        yield from range(n)

    def local(x, n):
        v = x
        for _ in each(n):
            del v
        return x + 1

    def cell(x, n):
        v = x
        for _ in each(n):
            held = lambda: v  # noqa: F821
            del v
        return x + 1

    for f in (local, cell):
        compiled = braze.compile(f)
        for n in (1, 2, 1):
            want, got = outcome(f, n), outcome(compiled, n)
            assert want == got and ("UnboundLocalError" in want) == (n == 2)


def outcome(f, n):
    try:
        return f(X, n).tolist()
    except UnboundLocalError as e:
        return type(e).__name__, str(e)


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
