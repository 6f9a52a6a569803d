"""Identity and lifetime: which objects are one, which are still there, and whose code runs when."""

import array
import collections
import functools
import gc
import pickle
import weakref

import pytest
import torch

import braze


def stop(*_):
    braze.graph_break()


class Plain:
    def method(self):
        return self


class Valued:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Valued) and self.value == other.value

    def __hash__(self):
        return hash(self.value)


class Deque(collections.deque):
    pass


class Number(int):
    count = 0

    def step(self):
        self.count += 1
        return self + 1

    @functools.lru_cache(2)
    def kept(self, n):
        self.count += 1
        return self * 10 + n


def reference_is_shared():
    o = Plain()
    first, second = weakref.ref(o), weakref.ref(o)
    return first is second, first() is o


def references_compare_by_content():
    a, b = Valued(1), Valued(1)
    return weakref.ref(a) == weakref.ref(b), weakref.ref(a) == weakref.ref(Valued)


def reference_in_dict():
    d = weakref.WeakKeyDictionary()
    a, b = Valued("a"), Valued("b")
    d[a], d[b] = 1, 2
    stop()
    return d.get(a), d.get(Valued("b")), d.get(Valued("c")), len(d)


def finalizer_waits_for_the_local():
    o = Valued(1)
    f = weakref.finalize(o, lambda: "done")
    stop()
    return f.alive, f()


def object_in_a_dead_list():
    several = [Valued(i) for i in range(3)]
    seen = [weakref.ref(o) for o in several]
    stop()
    return [r() is not None for r in seen]


def method_stays_itself():
    m = Plain().method
    stop(m)
    other = m
    stop(other)
    return m is other, weakref.ref(m)() is m


def partial_shares_its_keywords():
    p = functools.partial(dict, a=1)
    keywords = p.keywords
    keywords["b"] = 2
    stop(p)
    keywords["c"] = 3
    return p(), p.keywords is keywords


def dict_that_is_its_own():
    class Own(dict):
        def __init__(self):
            self.__dict__ = self

    o = Own()
    o.attribute = 3
    return o["attribute"], list(o)


def number_with_attributes():
    n = Number(5)
    stop(n)
    return n.step(), n.step(), n.count


def full_cache():
    Number.kept.cache_clear()
    a, b = Number(5), Number(5)
    stop(a, b)
    results = [a.kept(i) for i in (1, 2, 2, 3, 1, 1, 2, 3, 3)]
    return results, a.count, b.count, Number.kept.cache_info()


def deque_that_holds_itself():
    lengths = []
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for d in Deque("abc"), Deque("abc", 3):
            d.append(d)
            copy = pickle.loads(pickle.dumps(d, protocol))
            assert copy is not d and type(copy) is Deque and copy.maxlen == d.maxlen
            assert d.pop() is d and copy.pop() is copy and copy == d
            d.me = d
            d.extend([1, d])
            stop(d)
            lengths.append(len(d))
    return lengths


def key_with_an_equality_of_its_own():
    d = {Valued(1): "one", (Valued(2), 0): "two"}
    stop(d)
    return d[Valued(1)], d.get(Valued(3)), d[(Valued(2), 0)], (Valued(4), 0) in d


log = []


class Meta(type):
    def __new__(cls, name, bases, namespace):
        log.append(name)
        return super().__new__(cls, name, bases, namespace)


class Told:
    def __init_subclass__(cls):
        log.append(cls.__name__)


class Indexed:
    asked = None

    def __class_getitem__(cls, item):
        cls.asked = item
        return item


def code_of_metaclasses_runs_once():
    log.clear()
    Indexed.asked = None
    before = Indexed.asked

    class A(metaclass=Meta):
        pass

    class B(Told):
        pass

    return before, Indexed[int], Indexed.asked, list(log)


@pytest.mark.parametrize(
    "fn",
    [
        f
        for f in list(globals().values())
        if getattr(f, "__module__", None) == __name__ and callable(f) and not isinstance(f, type) and f is not stop
    ],
    ids=lambda f: f.__name__,
)
def test_as_in_plain_python(fn):
    want = fn()
    compiled = braze.compile(fn)
    for _ in range(2):
        assert compiled() == want


def same_result_and_log(f):
    """f(x, log), compiled, gives and logs what it does uncompiled, in two calls."""
    compiled = braze.compile(f)
    for _ in range(2):
        want, got = [], []
        assert torch.equal(f(torch.ones(2), want), compiled(torch.ones(2), got))
        assert want == got


def test_a_key_of_the_capture_is_not_in_a_guard():
    # The guard outlives the capture, which compared keys by running their code.
    d = {Valued(1): "one"}

    def fn(d):
        return d.get(Valued(2), "none")

    compiled = braze.compile(fn, fullgraph=True)
    assert compiled(d) == compiled(d) == "none"
    d[Valued(2)] = "two"
    assert compiled(d) == "two"


def test_an_int_that_varies_is_the_small_int():
    def fn(n, k):
        return n is k, n is None, n == k

    compiled = braze.compile(fn)
    for n in (1, 2, 3, 4):
        assert compiled(n, n) == fn(n, n) and compiled(n, 2) == fn(n, 2)


class Holder:
    def __init__(self):
        self.items = []
        self.table = {}


@pytest.mark.parametrize("backwards", [False, True])
def test_an_iterator_over_a_list_that_grew(backwards):
    # The list was there before; what it was given and how far its iterator came are brought back together.
    def fn(h):
        h.items.append("a")
        h.items.append("b")
        return [stop(i) or i for i in (reversed(h.items) if backwards else h.items)], list(h.items)

    compiled = braze.compile(fn)
    for _ in range(2):
        assert compiled(Holder()) == fn(Holder())


def test_an_iterator_over_a_dict_that_grew():
    def fn(h):
        h.table["a"] = 1
        h.table["b"] = 2
        return [(k, stop(k)) for k in h.table], [stop(v) or v for v in h.table.values()]

    compiled = braze.compile(fn)
    for _ in range(2):
        assert compiled(Holder()) == fn(Holder())


def test_an_iterator_over_a_set_that_grew():
    def fn(s):
        s.add(3)
        return sorted(stop(i) or i for i in s), sorted([stop(i) or i for i in s]), s

    compiled = braze.compile(fn)
    for _ in range(2):
        assert compiled({1, 2}) == fn({1, 2})


def test_a_guard_keeps_no_buffer_alive():
    def fn(x, a, b):
        return x + (1 if a is b else 2), a

    c = braze.compile(fn)
    x = torch.ones(2)
    one, other = array.array("i", [1]), array.array("i", [2])
    for a, b in ((one, one), (one, other), (other, one), (other, other), (one, one)):
        got = c(x, a, b)
        assert got[0].tolist() == fn(x, a, b)[0].tolist() and got[1] is a
    gone = weakref.ref(one)
    del one, a, b, got
    gc.collect()
    assert gone() is None
    for _ in range(20):  # some of them lie where the first one was
        fresh = array.array("i", [3])
        assert c(x, fresh, other)[0].tolist() == [3.0, 3.0] and c(x, fresh, fresh)[1] is fresh
        del fresh


@pytest.mark.parametrize(
    "take",
    [
        lambda g: next(g),
        lambda g: [v for v in g if v][:1] and None,
        lambda g: any(g),
        lambda g: next(iter(g), 5),
        lambda g: dict(zip([1], g)),
    ],
)
@pytest.mark.parametrize("through", [False, True])
def test_a_generator_that_is_dropped_runs_to_its_end(take, through):
    """What stands in finally runs when nobody holds the generator any more, before what comes after."""

    def numbers(log):
        try:
            yield 0
            yield 1
            yield 2
        finally:
            log.append("end")

    def delegating(log):
        yield from numbers(log)

    def f(x, log):
        log.append(take((delegating if through else numbers)(log)))
        log.append("after")
        return x * 2

    same_result_and_log(f)


def ending(log, n=3):
    try:
        yield from range(n)
    finally:
        log.append("end")


def after_break(x, log):
    for v in ending(log):
        x = x + v
        break
    log.append("after")
    return x * 2


def after_an_exception(x, log):
    try:
        for v in ending(log):
            x = x + v
            raise ValueError(v)
    except ValueError:
        log.append("caught")
    return x * 2


def beside_an_exception_that_was_handled(x, log):
    try:
        raise ValueError(1)
    except ValueError as e:
        g = ending(log)
        log.append(next(g))
        for v in g:
            log.append(v)
            break
    return x * 2


@pytest.mark.parametrize("fn", [after_break, after_an_exception, beside_an_exception_that_was_handled])
def test_a_generator_that_a_loop_leaves_ends_as_in_plain_python(fn):
    """Such generators are the interpreter's: an instruction that drops one is, too."""
    counts = []

    def backend(gm, inputs):
        counts.append(gm)
        return gm

    compiled = braze.compile(fn, backend=backend)
    for _ in range(3):
        want, got = [], []
        assert torch.equal(fn(torch.ones(2), want), compiled(torch.ones(2), got))
        assert want == got and want[-1:] == got[-1:]
    assert counts


def test_a_generator_comes_where_another_iterator_was():
    """What lies on the stack below a loop that is left is looked at even if no instruction asks what it is."""

    def fn(x, it, log):
        for v in iter(it):
            braze.graph_break()
            x = x + v
            break
        log.append("after")
        return x

    compiled = braze.compile(fn, backend="eager")
    for make in (lambda log: [1, 2], lambda log: ending(log), lambda log: [1, 2], lambda log: ending(log)):
        want, got = [], []
        a, b = fn(torch.ones(2), Taken(make, want), want), compiled(torch.ones(2), Taken(make, got), got)
        assert torch.equal(a, b) and want == got


class Taken:
    """Its iterators are held by nobody else."""

    def __init__(self, make, log):
        self.make, self.log = make, log

    def __iter__(self):
        return iter(self.make(self.log))


def test_guards_keep_no_namespace_alive():
    import types

    holder = {"a": types.SimpleNamespace(t=torch.ones(3))}
    ref = weakref.ref(holder["a"].t)
    count = 0

    def backend(gm, inputs):
        nonlocal count
        count += 1
        return gm

    compiled = braze.compile(lambda x: x + holder["a"].t, backend=backend)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0)) and count == 1
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0)) and count == 1
    holder.clear()
    assert ref() is None
    holder["a"] = types.SimpleNamespace(t=torch.zeros(3))
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))


def test_a_generator_of_the_last_turn_of_a_loop_ends_when_its_name_is_bound_anew():
    """Also where the turn began in code that was compiled while the name was not bound yet."""

    def numbers(log):
        try:
            yield from range(3)
        finally:
            log.append("end")

    @braze.disable
    def probe(log):
        log.append("probe")

    def fn(x, log):
        for _ in numbers(log):
            x = x + 1
            probe(log)
            g = numbers(log)
            log.append(next(g))
            for v in g:
                log.append(v)
                break
        return x * 2

    log, eager_log = [], []
    x = torch.ones(2)
    compiled = braze.compile(fn)
    for _ in range(2):
        assert torch.equal(compiled(x, log), fn(x, eager_log))
        assert log == eager_log
    assert braze.explain(fn, x, []).graph_count >= 1


class Noticed:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


def left_by_an_exception(log):
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("end")

    def through():
        yield from numbers()

    def with_local():
        noticed = Noticed(log)
        return len(noticed.log) / 0

    return {
        "any": lambda: any(v / 0 for v in numbers()),
        "zip": lambda: [a / 0 for a, b in zip(through(), numbers())],
        "map": lambda: [*map(lambda v: v / 0, through())],
        "nested": lambda: sum(v / 0 for v in (w + 1 for w in numbers())),
        "object": with_local,
    }


@pytest.mark.parametrize("which", ["any", "zip", "map", "nested", "object"])
@pytest.mark.parametrize("named", [False, True])
def test_what_an_exception_holds_ends_with_it(which, named):
    """A generator that a function left unfinished by an exception runs to its end as the exception is dropped, before what comes after."""

    def f(x, log):
        y = x + 1
        take = left_by_an_exception(log)[which]
        braze.graph_break()
        if named:
            try:
                take()
            except ZeroDivisionError as e:
                log.append(str(e))
        else:
            try:
                take()
            except ZeroDivisionError:
                log.append("caught")
        log.append("after")
        return y * 2

    same_result_and_log(f)


def test_an_exception_whose_context_has_no_traceback():
    def fails():
        try:
            raise KeyError(1)
        except KeyError as e:
            e.with_traceback(None)
            raise ZeroDivisionError

    def f(x):
        y = x + 1
        braze.graph_break()
        try:
            braze.disable(fails)()
        except ZeroDivisionError as e:
            return y * 2, type(e.__context__).__name__

    want, got = f(torch.ones(2)), braze.compile(f)(torch.ones(2))
    assert torch.equal(want[0], got[0]) and want[1] == got[1]
