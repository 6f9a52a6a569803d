"""Classes and objects inside compiled functions: same results as the interpreter, in one graph unless a case says otherwise."""

import contextlib
import dataclasses
import enum
import functools
import types
import typing

import pytest
import torch
from cases import run, x
from harness import Cases

import braze

case = Cases()


@pytest.mark.parametrize("fn, args, kw", case)
def test_language(fn, args, kw):
    run(fn, args, kw)


# ---- objects ----


class Counter:
    total = 0

    def __init__(self, start):
        self.n = start

    def step(self, t):
        self.n += 1
        return t * self.n

    @property
    def double(self):
        return self.n * 2

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def plus(p, q):
        return p + q

    def __call__(self, t):
        return t + self.n

    def __getitem__(self, i):
        return self.n + i

    def __len__(self):
        return self.n

    def __contains__(self, v):
        return v == self.n

    def __enter__(self):
        self.n += 10
        return self

    def __exit__(self, *exc):
        self.n -= 10
        return False

    def __add__(self, other):
        return Counter(self.n + (other.n if isinstance(other, Counter) else other))

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Counter) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __iter__(self):
        return iter(range(self.n))


class Child(Counter):
    def step(self, t):
        return super().step(t) + 1

    def __getattr__(self, name):
        if name == "virtual":
            return 42
        raise AttributeError(name)


@case(x)
def new_object(a):
    c = Counter(1)
    return c.step(a) + c.double, c


@case(x)
def object_protocols(a):
    c = Counter.make(3)
    with c as d:
        inside = d.n
    return (
        c(a) + c[2] + len(c),
        inside,
        c.n,
        3 in c,
        (c + 1).n,
        (2 + c).n,
        c == Counter(3),
        Counter.plus(1, 2),
        list(c),
        bool(c),
    )


@case(x)
def inheritance(a):
    c = Child(2)
    return (
        c.step(a),
        c.virtual,
        isinstance(c, Counter),
        issubclass(Child, Counter),
        hasattr(c, "nope"),
        getattr(c, "nope", 7),
        type(c) is Child,
    )


@case(x, Counter(4))
def argument_object(a, c):
    r = c.step(a)
    c.extra = a + 1
    return r + c.n


@case(x)
def class_attribute(a):
    return a + Counter.total


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.names = self.names + ["post"]


@case(x)
def dataclass_made(a):
    s = Settings(scale=3.0)
    s.names.append("more")
    return a * s.scale, s, [f.name for f in dataclasses.fields(s)], dataclasses.replace(s, scale=1.0).scale


@case(x, Settings())
def dataclass_argument(a, s):
    return a * s.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    t: torch.Tensor


@case(x)
def frozen_dataclass(a):
    f = Frozen(2, a)
    return f.t * f.n


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case(x, Colour.BLUE)
def enums(a, c):
    return (
        a * c.value + (1 if c is Colour.RED else 5),
        c.name,
        Colour("1") if False else Colour(1),
        [m.name for m in Colour],
    )


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a, self.b = a, 2


@case(x)
def slots(a):
    s = Slots(a)
    s.b += 1
    return s.a * s.b


@contextlib.contextmanager
def doubled(log):
    log.append("in")
    try:
        yield 2
    finally:
        log.append("out")


@case(x)
def context_manager(a):
    log = []
    with doubled(log) as k:
        a = a * k
    with contextlib.nullcontext(3) as n, contextlib.suppress(KeyError):
        a = a + n
    return a, log


@functools.lru_cache
def cached(n):
    return n * 2


@case(x)
def lru_cache(a):
    return a * cached(3)


@case(x)
def typing_cast(a):
    t = typing.cast(torch.Tensor, a)
    v: typing.Optional[int] = 3
    return t * v


def test_methods_are_keys_by_the_object_that_they_are_of():
    """Also where its class has an equality and no hash."""

    class Equal:
        def __eq__(self, o):
            return True

        def m(self): ...

    a, b = Equal(), Equal()
    m, n = a.m, b.m

    def fn(x):
        d = {m: 1}
        return x + d.get(a.m, 5) + d.get(n, 7)

    compiled = braze.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2)), fn(torch.zeros(2)))
    m = b.m
    assert torch.equal(compiled(torch.zeros(2)), fn(torch.zeros(2)))


def test_words_of_errors_of_classes_made_inside():
    def fn(x):
        class Inner:
            @property
            def p(self):
                return 1

            def __enter__(self):
                return self

        said = []
        for act in (lambda o: setattr(o, "p", 2), lambda o: o.__enter__().p + enter(o)):
            try:
                act(Inner())
            except (AttributeError, TypeError) as e:
                said.append(str(e))
        return x + len(said), said

    def enter(o):
        with o as v:
            return v

    want, got = fn(torch.zeros(2)), braze.compile(fn, backend="eager", fullgraph=True)(torch.zeros(2))
    assert want[1] == got[1] and len(got[1]) == 2 and torch.equal(want[0], got[0])


def test_a_key_that_comes_back_is_the_one_it_comes_back_by():
    held = {}

    def fn(x):
        held.pop(True, None)
        held[1] = 5
        return x + len(held)

    compiled = braze.compile(fn, backend="eager", fullgraph=True)
    for f in (fn, compiled):
        held.clear()
        held.update({1.0: 2, "c": 3})
        f(torch.zeros(2))
        assert list(held) == ["c", 1] and [type(k) for k in held] == [str, int]


@case(x)
def class_of_parts(x):
    C = type("C", (Counter,), {"total": 3, "__doc__": "made"})
    c = C(2)
    return c.step(x) + C.total, C.__name__, C.__doc__, C.__mro__[1] is Counter, isinstance(c, Counter), c.double


@case(x)
def comparisons_by_name(x):
    a, b = [1, 2], [1, 3]
    return x + 1, a.__lt__(b), a.__ge__(b), a.__le__((1, 2)), (1,).__gt__((0, 5))


def test_a_class_of_parts_is_another_in_each_call():
    def fn(x):
        C = type("C", (), {"a": 2})
        return x * C.a, C, C()

    compiled = braze.compile(fn, backend="eager")
    first, second = compiled(torch.ones(2)), compiled(torch.ones(2))
    assert first[1] is not second[1] and type(first[2]) is first[1] and second[1].__module__ == __name__


@case(x)
def dict_of_a_namespace(x):
    o = types.SimpleNamespace(a=1)
    o.__dict__["b"] = 2
    o.c = 3
    return x + vars(o)["c"] + o.b, list(vars(o).items())
