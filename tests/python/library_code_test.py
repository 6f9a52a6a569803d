"""Python as libraries use it: same results as eager, in the stated number of graphs."""

import abc
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import os
import types
import typing

import pytest
import torch
from harness import Cases, Graphs, P, check, same

import braze

cases = Cases()
x = P(3, 4)


@pytest.mark.parametrize("fn, args, kw", cases)
def test_case(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)


class Base(abc.ABC):
    registry: dict = {}

    @abc.abstractmethod
    def run(self, t): ...

    def __init_subclass__(cls, **kw):
        Base.registry[cls.__name__] = cls


class Doubler(Base):
    def run(self, t):
        return t * 2


@cases(x)
def registry_of_classes(a):
    out = a
    for name, cls in Base.registry.items():
        out = cls().run(out)
    return out, isinstance(Doubler(), Base)


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 5)

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 2)


class HasDescriptor:
    field = Descriptor()


@cases(x)
def descriptors(a):
    o = HasDescriptor()
    before = o.field
    o.field = 4
    return a * o.field + before


class Meta(type):
    @property
    def tag(cls):
        return cls.__name__.lower()

    def shout(cls):
        return cls.tag.upper()


class Tagged(metaclass=Meta):
    pass


@cases(x)
def metaclasses(a):
    return a + 1, Tagged.tag, Tagged.shout()


@dataclasses.dataclass
class Output(collections.OrderedDict):
    value: typing.Any = None
    extra: typing.Any = None

    def __post_init__(self):
        for f in dataclasses.fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v


@cases(x)
def ordered_dict_dataclass(a):
    o = Output(value=a * 2)
    return o, list(o.keys()), o["value"] is o.value


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


@cases(x, "fast")
def string_enum(a, mode):
    if mode == Mode.FAST and Mode(mode) is Mode.FAST and Mode.FAST.value in {"fast"}:
        return a + 1
    return a - 1


class Flag(enum.IntFlag):
    A = 1
    B = 2


@cases(x)
def int_flags(a):
    f = Flag.A | Flag.B
    return a * int(f), bool(f & Flag.B)


def variadic(*args, scale=1, **rest):
    return sum(args) * scale + sum(rest.values())


@cases(x)
def wrappers_and_partials(a):
    f = functools.partial(variadic, a, scale=2)
    g = functools.partial(f, 1, z=3)
    return g(2, y=4), g.keywords["scale"], f.func is variadic


@functools.lru_cache(maxsize=None)
def table(n):
    return tuple(i * i for i in range(n))


@cases(x)
def cached_table(a):
    return a * table(4)[3]


class Suppress:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        return kind is not None and issubclass(kind, KeyError)


@cases(x)
def exit_swallows(a):
    with Suppress():
        a = a + 1
        {}["k"]
        a = a + 100
    return a


@cases(x)
def exception_chain(a):
    try:
        try:
            raise ValueError("inner", 3)
        except ValueError as e:
            raise TypeError("outer") from e
    except (KeyError, TypeError) as e:
        return a * 2, str(e), type(e.__cause__).__name__
    finally:
        a = None


@cases(x)
def raise_in_loop(a):
    out = []
    for i in range(4):
        try:
            if i % 2:
                raise IndexError(i)
            out.append(a * i)
        except IndexError as e:
            out.append(e.args[0])
            continue
        else:
            out.append("fine")
        finally:
            out.append("done")
    return out


@cases(x)
def exit_stack(a):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(contextlib.nullcontext())
        a = a + 1
    return a, log


@cases(x)
def generator_protocol(a):
    def gen():
        total = 0
        try:
            while True:
                got = yield total
                total += got
        except GeneratorExit:
            return
        finally:
            total = -1

    g = gen()
    next(g)
    r = [g.send(2), g.send(3)]
    g.close()
    return a * r[-1], r


@cases(x)
def generator_return_value(a):
    def gen():
        yield 1
        return "end"

    g = gen()
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return a + 1, e.value


@cases(x)
def closures_in_loops(a):
    fs = [lambda t, i=i: t * i for i in range(3)]
    gs = []
    for i in range(3):

        def g(t):
            return t + i

        gs.append(g)
    return [f(a) for f in fs], [g(a) for g in gs]


@cases(x)
def sorting(a):
    pairs = [("b", 2), ("a", 3), ("c", 1)]
    pairs.sort(key=lambda p: p[1])
    return (
        a * pairs[0][1],
        sorted(pairs),
        sorted(pairs, key=lambda p: p[0], reverse=True),
        max(pairs, key=lambda p: p[1]),
        min([3, 1], default=0),
    )


@cases(x)
def string_building(a):
    parts = [f"{k}={v!r:>6}" for k, v in {"x": 1, "y": "s"}.items()]
    return a + 1, ", ".join(parts), "%s-%d" % ("a", 3), "{0}{n}".format(1, n=2), "a" in "cat", "A,b".lower().split(",")


@cases(x)
def environment(a):
    return a + 1 if os.environ.get("NO_SUCH_VARIABLE", "0") == "0" else a


@cases(x)
def counters(a):
    c = collections.Counter("hello")
    d = collections.defaultdict(int)
    d["q"] += 2
    return a * d["q"], c["l"], dict(d)


@cases(x, {"w": torch.ones(4), "n": {"k": [1, 2]}})
def tree_utilities(a, tree):
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(tree)
    doubled = pytree.tree_map(lambda v: v * 2, tree)
    return a + doubled["w"], len(leaves), doubled["n"]


@cases(x)
def slices_and_stars(a):
    v = list(range(10))
    v[2:4] = [20, 30, 40]
    v[::5] = [0, 0, 0]
    del v[-2:]
    first, *middle, last = v
    return a[..., :2], v, middle, (*v[:2], *"ab"), {**{"a": 1}, "b": 2}, [*v, last]


@cases(x)
def set_operations(a):
    s = set()
    for k in ("b", "a", "b"):
        s.add(k)
    s |= {"z"}
    s.discard("nope")
    return a * len(s), s == {"a", "b", "z"}, s - {"a"}, {"a"} < s, s.isdisjoint({"q"}), frozenset(s) == s


@cases(x)
def nested_classes_with_state(a):
    class Acc:
        def __init__(self):
            self.items = []

        def __iadd__(self, v):
            self.items.append(v)
            return self

        def __iter__(self):
            yield from self.items

        def __getattr__(self, name):
            return name.upper()

    acc = Acc()
    acc += a
    acc += a * 2
    return [t + 1 for t in acc], acc.missing


@cases(x)
def type_queries(a):
    return (
        a + 1,
        type(a) is torch.Tensor,
        type(1) == int,
        isinstance(True, int),
        isinstance([], collections.abc.Sequence),
        issubclass(bool, int),
        callable(len),
        isinstance(3, int | str),
    )


@cases(x, types.SimpleNamespace(scale=3, names=["n"]))
def namespaces(a, config):
    config.seen = 5
    made = types.SimpleNamespace(k=2)
    return a * config.scale * made.k, config.names[0], hasattr(config, "nope"), made


@cases(x)
def star_star_merge(a):
    def f(t, **kw):
        return t * kw.pop("by", 1), sorted(kw)

    base = dict(by=3, other=1)
    return f(a, **base), f(a, **{**base, "by": 2}), base


def global_statement(a):
    global STEPS
    STEPS += 1
    return a * 2


STEPS = 0


def test_global_writes_are_replayed():
    counter = Graphs()
    g = braze.compile(global_statement, backend=counter)
    before = STEPS
    t = torch.ones(2)
    g(t), g(t), g(t)
    assert STEPS == before + 3
    assert counter.count == 1, "a counter that nobody reads must not compile again"


# ---- what torch.nn.Module.__setattr__ does ----


def module_state(m):
    own = sorted(k for k in m.__dict__ if not k.startswith("_"))
    return own, list(m._parameters), list(m._buffers), sorted(m._non_persistent_buffers_set), list(m._modules)


def buffers(m):
    m.kept = torch.nn.Buffer(torch.ones(2))
    m.passing = torch.nn.Buffer(torch.ones(3), persistent=False)
    m.plain = torch.ones(4)
    m.kept = torch.zeros(2)
    return m


def replaced(m):
    m.one = torch.nn.Buffer(torch.ones(2))
    m.one = torch.nn.Parameter(torch.ones(2))
    m.two = 3
    m.three = torch.nn.Parameter(torch.ones(2))
    del m.three
    m.four = torch.nn.Parameter(torch.ones(1))
    m.four = None
    return m


def wrong(m):
    m.register_buffer("buffer", torch.ones(2))
    try:
        m.buffer = 3
    except TypeError as e:
        m.told = str(e)
    try:
        m.register_buffer("told", torch.ones(2))
    except KeyError as e:
        m.told += str(e)
    return m


@pytest.mark.parametrize("fn", [buffers, replaced, wrong])
@pytest.mark.parametrize("inside", [False, True])
def test_attributes_of_modules(fn, inside):
    f = (lambda: fn(torch.nn.Module())) if inside else fn
    args = lambda: () if inside else (torch.nn.Module(),)
    want, got = f(*args()), braze.compile(f)(*args())
    assert module_state(got) == module_state(want)
    assert getattr(got, "told", None) == getattr(want, "told", None)
    assert list(got.state_dict()) == list(want.state_dict())


def test_hooks_on_registration_run():
    from torch.nn.modules.module import register_module_buffer_registration_hook

    seen = []
    handle = register_module_buffer_registration_hook(lambda module, name, buffer: seen.append(name))
    try:
        braze.compile(buffers)(torch.nn.Module())
    finally:
        handle.remove()
    assert seen == ["kept", "passing", "kept"]


# ---- copies ----


def views_share(a):
    w = copy.deepcopy([a, a.view(-1), a])
    w[0].add_(1)
    return w[1].sum(), w[2] is w[0]


def a_view_comes_first(a):
    w = copy.deepcopy([a.view(-1), a])
    w[1].add_(1)
    return w[0].sum()


def storages_share(a):
    w = copy.deepcopy([a, a.untyped_storage()])
    w[0].add_(1)
    return w[0].untyped_storage().data_ptr() == w[1].data_ptr(), w[1].tolist()


@pytest.mark.parametrize("fn", [views_share, a_view_comes_first, storages_share])
@pytest.mark.parametrize("inside", [False, True])
def test_copies_share_memory_where_the_originals_do(fn, inside):
    f = (lambda: fn(torch.zeros(2, 3))) if inside else fn
    args = () if inside else (torch.zeros(2, 3),)
    compiled = braze.compile(f)
    for _ in range(2):
        same(f(*args), compiled(*args))
