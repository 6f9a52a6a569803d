"""Code as models and libraries are written: same results as eager, in the stated number of graphs."""

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import math
import os
import types
import typing

import pytest
import torch
import torch.nn.functional as F
from harness import Graphs, check, same
from torch import nn

import braze

CASES = []


def case(*args, **kw):
    def add(fn):
        CASES.append(pytest.param(fn, args, kw, id=fn.__name__))
        return fn

    return add


class P:
    def __init__(self, *shape, make=torch.randn):
        self.make = lambda: make(*shape)


x = P(3, 4)


@pytest.mark.parametrize("fn, args, kw", CASES)
def test_case(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)


# ---- PyTorch's contexts ----


@case(x)
def no_grad_inside(a):
    with torch.no_grad():
        b = a * 2
        inside = torch.is_grad_enabled()
    return b, inside, torch.is_grad_enabled()


@torch.no_grad()
def not_recorded(t):
    return t * 2, torch.is_grad_enabled()


@case(x)
def no_grad_decorator(a):
    return not_recorded(a), torch.is_grad_enabled()


@case(x)
def enable_grad_nested(a):
    with torch.no_grad():
        with torch.enable_grad():
            one = torch.is_grad_enabled()
        two = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        three = torch.is_grad_enabled()
    return a + 1, one, two, three


@case(P(4, 4))
def autocast_inside(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a
    return b, b.dtype, (a @ a).dtype


@case(x)
def factories_like_inputs(a):
    m = torch.finfo(a.dtype).min
    z = torch.zeros(a.shape[0], 2, device=a.device, dtype=a.dtype)
    return torch.full_like(a, m).isinf(), z, torch.arange(a.size(1), device=a.device) + 1, a.new_ones((2, 2)), torch.tensor(3.0) * a


@case(x)
def device_and_dtype_tests(a):
    if a.device.type == "cpu" and a.dtype.is_floating_point and not a.is_cuda and a.dtype in (torch.float32, torch.float64):
        return a.to("cpu") + 1, a.to(torch.float64), str(a.dtype), a.element_size()
    return a


@case(x)
def functional_calls(a):
    return F.gelu(a), F.layer_norm(a, (4,)), F.pad(a, (1, 1)), F.normalize(a, dim=-1), F.silu(a, inplace=False), F.cosine_similarity(a, a)


@case(x)
def tensor_tests(a):
    if torch.is_tensor(a) and isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter) and a is not None:
        return a * 2
    return None


@case(P(2, 3, 4))
def shapes(a):
    b, s, d = a.shape
    *lead, last = a.shape
    q = a.view(b, s, 2, d // 2).transpose(1, 2)
    return q.reshape(b, -1, *lead[1:2]), math.prod(a.shape), a.size()[:-1] + (7,), a.shape.numel(), len(a.shape), torch.Size([1, 2]) == (1, 2), a.shape[-1:] == (4,)


# ---- modules ----


def module_case(make, *args, graphs=1, train=False, id=None):
    CASES_M.append(pytest.param(make, args, graphs, train, id=id or make.__name__))


CASES_M = []


@pytest.mark.parametrize("make, args, graphs, train", CASES_M)
def test_module(make, args, graphs, train):
    torch.manual_seed(0)
    m = make().train(train).requires_grad_(False)
    counter = Graphs()
    g = braze.compile(m, backend=counter)
    inputs = [a.make() if isinstance(a, P) else a for a in args]
    for _ in range(2):
        same(m(*inputs), g(*inputs))
    assert counter.count == graphs


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for name, act in self.table.items():
            x = act(x)
        for layer in self.layers[1:]:
            x = layer(x)
        for w in self.weights:
            x = x * w
        return self.table["a"](x) + len(self.layers), self.layers[-1](x)


class Inherit(Stack):
    scale = 3

    def forward(self, x):
        out, _ = super().forward(x)
        return out * self.scale

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 1


class Walks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        total = sum(p.sum() for p in self.parameters())
        names = [n for n, _ in self.named_parameters()]
        kinds = [type(m).__name__ for m in self.modules()]
        return self.body(x) + total + len(names) + len(kinds) + len(list(self.children())), self.training


class WithProperty(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self._k = 2

    @property
    def k(self):
        return self._k

    @functools.cached_property
    def cached(self):
        return 7

    def helper(self, x, *, by=1):
        return self.inner(x) * by

    def forward(self, x):
        f = getattr(self, "helper")
        return f(x, by=self.k) + self.cached + hasattr(self, "nope")


module_case(Stack, x)
module_case(Inherit, x)
module_case(Walks, x)
module_case(WithProperty, x)
module_case(lambda: nn.MultiheadAttention(8, 2, batch_first=True), P(2, 3, 8), P(2, 3, 8), P(2, 3, 8), id="mha")
module_case(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), P(2, 3, 8), id="encoder_layer")
module_case(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), P(2, 3, 8, 8), id="conv")
module_case(lambda: nn.Sequential(nn.Embedding(10, 4), nn.GroupNorm(1, 5), nn.Linear(4, 2)), P(make=lambda: torch.arange(5)[None]), id="embedding")


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.last = None

    def forward(self, x):
        self.seen += 1
        self.last = x * 2
        return x + self.seen


def test_module_state_changes_are_replayed():
    m, c = Counts(), Counts()
    g = braze.compile(c, backend="eager")
    for k in range(3):
        t = torch.randn(2)
        same(m(t), g(t))
        same(m.seen, c.seen)
        same(m.last, c.last)


def test_forward_hooks_are_inlined():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    m[0].register_forward_hook(lambda mod, i, o: o * 2)
    m[1].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    m.register_forward_hook(lambda mod, i, o: (o, 1))
    m.requires_grad_(False)
    counter = Graphs()
    g = braze.compile(m, backend=counter)
    t = torch.randn(2, 4)
    for k in range(2):
        same(m(t), g(t))
    assert counter.count == 1


# ---- Python as libraries use it ----


class Base(abc.ABC):
    registry: dict = {}

    @abc.abstractmethod
    def run(self, t): ...

    def __init_subclass__(cls, **kw):
        Base.registry[cls.__name__] = cls


class Doubler(Base):
    def run(self, t):
        return t * 2


@case(x)
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


@case(x)
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


@case(x)
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


@case(x)
def ordered_dict_dataclass(a):
    o = Output(value=a * 2)
    return o, list(o.keys()), o["value"] is o.value


class Mode(str, enum.Enum):
    FAST = "fast"
    SLOW = "slow"


@case(x, "fast")
def string_enum(a, mode):
    if mode == Mode.FAST and Mode(mode) is Mode.FAST and Mode.FAST.value in {"fast"}:
        return a + 1
    return a - 1


class Flag(enum.IntFlag):
    A = 1
    B = 2


@case(x)
def int_flags(a):
    f = Flag.A | Flag.B
    return a * int(f), bool(f & Flag.B)


def variadic(*args, scale=1, **rest):
    return sum(args) * scale + sum(rest.values())


@case(x)
def wrappers_and_partials(a):
    f = functools.partial(variadic, a, scale=2)
    g = functools.partial(f, 1, z=3)
    return g(2, y=4), g.keywords["scale"], f.func is variadic


@functools.lru_cache(maxsize=None)
def table(n):
    return tuple(i * i for i in range(n))


@case(x)
def cached_table(a):
    return a * table(4)[3]


class Suppress:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        return kind is not None and issubclass(kind, KeyError)


@case(x)
def exit_swallows(a):
    with Suppress():
        a = a + 1
        {}["k"]
        a = a + 100
    return a


@case(x)
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


@case(x)
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


@case(x)
def exit_stack(a):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        stack.enter_context(contextlib.nullcontext())
        a = a + 1
    return a, log


@case(x)
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


@case(x)
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


@case(x)
def closures_in_loops(a):
    fs = [lambda t, i=i: t * i for i in range(3)]
    gs = []
    for i in range(3):

        def g(t):
            return t + i

        gs.append(g)
    return [f(a) for f in fs], [g(a) for g in gs]


@case(x)
def sorting(a):
    pairs = [("b", 2), ("a", 3), ("c", 1)]
    pairs.sort(key=lambda p: p[1])
    return a * pairs[0][1], sorted(pairs), sorted(pairs, key=lambda p: p[0], reverse=True), max(pairs, key=lambda p: p[1]), min([3, 1], default=0)


@case(x)
def string_building(a):
    parts = [f"{k}={v!r:>6}" for k, v in {"x": 1, "y": "s"}.items()]
    return a + 1, ", ".join(parts), "%s-%d" % ("a", 3), "{0}{n}".format(1, n=2), "a" in "cat", "A,b".lower().split(",")


@case(x)
def environment(a):
    return a + 1 if os.environ.get("NO_SUCH_VARIABLE", "0") == "0" else a


@case(x)
def counters(a):
    c = collections.Counter("hello")
    d = collections.defaultdict(int)
    d["q"] += 2
    return a * d["q"], c["l"], dict(d)


@case(x, {"w": torch.ones(4), "n": {"k": [1, 2]}})
def tree_utilities(a, tree):
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(tree)
    doubled = pytree.tree_map(lambda v: v * 2, tree)
    return a + doubled["w"], len(leaves), doubled["n"]


@case(x)
def slices_and_stars(a):
    v = list(range(10))
    v[2:4] = [20, 30, 40]
    v[::5] = [0, 0, 0]
    del v[-2:]
    first, *middle, last = v
    return a[..., :2], v, middle, (*v[:2], *"ab"), {**{"a": 1}, "b": 2}, [*v, last]


@case(x)
def set_operations(a):
    s = set()
    for k in ("b", "a", "b"):
        s.add(k)
    s |= {"z"}
    s.discard("nope")
    return a * len(s), s == {"a", "b", "z"}, s - {"a"}, {"a"} < s, s.isdisjoint({"q"}), frozenset(s) == s


@case(x)
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


@case(x)
def type_queries(a):
    return a + 1, type(a) is torch.Tensor, type(1) == int, isinstance(True, int), isinstance([], collections.abc.Sequence), issubclass(bool, int), callable(len), isinstance(3, int | str)


@case(x, types.SimpleNamespace(scale=3, names=["n"]))
def namespaces(a, config):
    config.seen = 5
    made = types.SimpleNamespace(k=2)
    return a * config.scale * made.k, config.names[0], hasattr(config, "nope"), made


@case(x)
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
