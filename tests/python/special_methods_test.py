"""Special methods of the program's that functions in C would come to: on members of enumerations, numbers and texts of the
program's classes, classes with a metaclass. They run in each call, with their effects, and what they read may change."""

import abc
import collections
import copy
import copyreg
import enum
import functools
import inspect
import math
import operator
import sys

import pytest
import torch

import braze

X = torch.ones(1)
STATE = {"k": 1}


def calls(f, change, *args, undo=lambda: None):
    """Results and log of f before and after a change, eager and compiled."""
    out = []
    for g in (f, braze.compile(f)):
        LOG.clear()
        STATE["k"] = 1
        results = []
        for step in range(4):
            if step == 2:
                change()
            try:
                results.append(g(X, *args))
            except Exception as e:
                results.append((type(e), str(e)))
        out.append((results, list(LOG)))
        undo()
    eager, compiled = out
    assert str(compiled) == str(eager)
    return compiled


LOG = []


def noted(name, value=lambda self, *a: STATE["k"]):
    def method(self, *args):
        LOG.append(name)
        return value(self, *args)

    return method


def raise_k():
    STATE["k"] = 5


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"]
METHODS = {n: f"__{n.strip('_')}__" for n in BINARY}
REFLECTED = {n: f"__r{n.strip('_')}__" for n in BINARY}


class Level(enum.Enum):
    A = 1

    __neg__ = noted("neg")
    __invert__ = noted("invert")
    __round__ = noted("round")


for _n in BINARY:
    setattr(Level, METHODS[_n], noted(_n))
    setattr(Level, REFLECTED[_n], noted("r" + _n))


@pytest.mark.parametrize("name", BINARY)
def test_operators_of_members(name):
    function = getattr(operator, name)
    calls(lambda x: x * function(Level.A, 1), raise_k)
    calls(lambda x: x * function(3, Level.A), raise_k)


def test_other_operators_of_members():
    calls(lambda x: x * -Level.A, raise_k)
    calls(lambda x: x * ~Level.A, raise_k)
    calls(lambda x: x * round(Level.A), raise_k)
    calls(lambda x: x * sum([Level.A, 1]), raise_k)
    calls(lambda x: x * functools.reduce(operator.add, [Level.A, 1]), raise_k)


def test_a_member_and_a_tensor():
    class Mode(enum.Enum):
        A = 1

        def __mul__(self, t):
            LOG.append("mul")
            return t * STATE["k"]

        def __rmul__(self, t):
            LOG.append("rmul")
            return t * (STATE["k"] + 1)

    calls(lambda x: Mode.A * x, raise_k)
    calls(lambda x: x * Mode.A, raise_k)


@pytest.mark.parametrize("left", [1, 2.5, "text", b"bytes", 1j])
@pytest.mark.parametrize("base", [int, float, str])
def test_members_that_are_numbers_or_texts_on_the_right(base, left):
    class Both(base, enum.Enum):
        A = base(2)

    Both.__radd__ = noted("radd")
    calls(lambda x: (x + 1, left + Both.A), raise_k)
    if base is not str:
        calls(lambda x: x + Both.A, raise_k)


def test_what_the_code_wrote_before_is_seen():
    def f(x):
        STATE["k"] = 50
        return x * (Level.A + 1)

    calls(f, lambda: None)


def test_an_operator_that_comes_later():
    class Number(enum.IntEnum):
        A = 2

    def later():
        Number.__add__ = lambda self, other: 1000

    def undo():
        if "__add__" in vars(Number):
            del Number.__add__

    calls(lambda x: x * (Number.A + 1), later, undo=undo)
    calls(lambda x: x * -Number.A, lambda: None)


class Int(int):
    for _n in ("abs", "divmod", "pow", "ceil", "floor", "trunc"):
        locals()[f"__{_n}__"] = noted(_n)
    del _n


class Text(str):
    __fspath__ = noted("fspath", lambda self: "at" + str(STATE["k"]))
    __repr__ = noted("repr", lambda self: "text" + str(STATE["k"]))
    __str__ = noted("str", lambda self: "str" + str(STATE["k"]))
    __format__ = noted("format", lambda self, spec: "format" + str(STATE["k"]))


NUMBER = {
    "abs": abs,
    "divmod": lambda n: divmod(n, 2),
    "pow": lambda n: pow(n, 2, 7),
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}


@pytest.mark.parametrize("name", NUMBER)
def test_numbers_of_a_class(name):
    n, f = Int(3), NUMBER[name]
    calls(lambda x: (x + 1, f(n)), raise_k)


TEXTS = {
    "list": lambda t: str([t]),
    "dict": lambda t: repr({1: t}),
    "format": lambda t: "{}".format(t),
    "repr in a format": lambda t: "{!r}".format(t),
    "percent": lambda t: "%s" % (t,),
    "f-string": lambda t: f"{t} {t!r}",
    "ascii": ascii,
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_a_class(name):
    t, f = Text("a"), TEXTS[name]
    calls(lambda x: (x + 1, f(t)), raise_k)


def test_metaclasses():
    class Meta(type):
        def __subclasscheck__(cls, other):
            LOG.append("subclasscheck")
            return STATE["k"] > 1

        def __index__(cls):
            LOG.append("index")
            return STATE["k"]

        def __repr__(cls):
            LOG.append("repr")
            return "M" + str(STATE["k"])

    class C(metaclass=Meta):
        pass

    calls(lambda x: (x + 1, issubclass(int, C)), raise_k)
    calls(lambda x: (x + 1, issubclass(int, (str, C))), raise_k)
    calls(lambda x: (x + 1, list(range(C)), hex(C)), raise_k)
    calls(lambda x: (x + 1, str([C])), raise_k)


def test_plain_members_stay_in_the_graph():
    class Kind(str, enum.Enum):
        A = "a"

        def describe(self):
            return self.value

    def f(x):
        return x + len("a-%s" % Kind.A.value) + math.floor(2.5) + len(Kind.A.describe())

    compiled = braze.compile(f, fullgraph=True)
    assert torch.equal(compiled(X), f(X))


def target(a, n=3, *, m: int = 4):
    pass


@pytest.mark.parametrize(
    "what", ["__defaults__", "__kwdefaults__", "kwdefault", "__annotations__", "__code__", "__signature__"]
)
def test_signatures_change(what):
    def h(a, n=3, *, m: int = 4):
        pass

    kept = {k: getattr(h, k) for k in ("__defaults__", "__kwdefaults__", "__annotations__", "__code__")}

    def change():
        if what == "__defaults__":
            h.__defaults__ = (9,)
        elif what == "__kwdefaults__":
            h.__kwdefaults__ = {"m": 10}
        elif what == "kwdefault":
            h.__kwdefaults__["m"] = 11
        elif what == "__annotations__":
            h.__annotations__ = {"a": str}
        elif what == "__code__":
            h.__code__ = (lambda b, k=3, *, m=4: None).__code__
        else:
            h.__signature__ = inspect.signature(lambda q: None)

    def undo():
        h.__kwdefaults__["m"] = 4
        for k, v in kept.items():
            setattr(h, k, v)
        h.__kwdefaults__ = {"m": 4}
        if hasattr(h, "__signature__"):
            del h.__signature__

    calls(lambda x: (x + 1, str(inspect.signature(h)), list(inspect.signature(h).parameters)), change, undo=undo)


def test_signatures_of_wrapped_functions_methods_and_classes():
    def inner(a, n=3):
        pass

    @functools.wraps(inner)
    def outer(*args):
        pass

    class C:
        def __init__(self, a, n=3):
            pass

        def method(self, a, n=3):
            pass

    c = C(1)
    for change, undo, f in (
        (lambda: setattr(inner, "__defaults__", (9,)), lambda: setattr(inner, "__defaults__", (3,)), lambda: outer),
        (
            lambda: setattr(C.method, "__defaults__", (9,)),
            lambda: setattr(C.method, "__defaults__", (3,)),
            lambda: c.method,
        ),
        (
            lambda: setattr(C.__init__, "__defaults__", (9,)),
            lambda: setattr(C.__init__, "__defaults__", (3,)),
            lambda: C,
        ),
    ):
        calls(lambda x: (x + 1, str(inspect.signature(f()))), change, undo=undo)


def test_a_class_is_registered_with_an_abstract_one():
    class Shape(abc.ABC):
        pass

    @functools.singledispatch
    def area(v):
        return 0

    @area.register
    def _(v: Shape):
        return 1

    for g in (lambda x, s: x + area(s), braze.compile(lambda x, s: x + area(s))):

        class Square:
            pass

        assert g(X, Square()).item() == 1
        assert g(X, Square()).item() == 1
        Shape.register(Square)
        assert g(X, Square()).item() == 2


class Object:
    def __init__(self):
        self.n = 1


@pytest.mark.parametrize(
    "item",
    [torch.ones(1), len, Object(), lambda: 0, type("T", (tuple,), {})((1,)), frozenset([1]), 3, None, [torch.ones(1)]],
)
def test_what_is_no_text_is_in_no_text(item):
    calls(lambda x: (x, item in "abc"), lambda: None)
    calls(lambda x, i: (x, i in "abc"), lambda: None, item)


def test_deques_have_no_slices():
    def write(x, d):
        d[0:1] = [7]
        return x

    def delete(x, d):
        del d[0:1]
        return x

    def beyond(x, d):
        d[5] = 1
        return x

    for f in (write, delete, beyond):
        calls(f, lambda: None, collections.deque([1, 2]))


def test_copies_by_copyreg():
    def register():
        copyreg.pickle(Object, lambda o: (dict, ()))

    def undo():
        copyreg.dispatch_table.pop(Object, None)

    o = Object()
    for f in (copy.copy, copy.deepcopy):
        calls(lambda x: (x + 1, type(f(o)).__name__), register, undo=undo)


def test_callers_locals_are_there_for_who_asks():
    def interpolate(t):
        return t.format(**sys._getframe(1).f_locals)

    def label(name, n):
        return interpolate("{name}:{n}")

    def f(x):
        v = 3
        return x + 1, label("a", 3), interpolate("{v}")

    calls(f, lambda: None)


@pytest.mark.parametrize("wrap", [enumerate, lambda g: zip(range(5), g), lambda g: map(str, g), lambda g: g])
def test_a_generator_in_an_iterator_ends_when_the_loop_is_left(wrap):
    def gen(n):
        try:
            for i in range(n):
                yield i
        finally:
            LOG.append("end")

    def f(x):
        for _ in wrap(gen(3)):
            break
        return x + len(LOG)

    calls(f, LOG.clear)


@pytest.mark.parametrize("best", [min, max])
def test_keys_are_asked_for_in_turn(best):
    def gen():
        for i in range(3):
            LOG.append(i)
            yield i

    def key(v):
        LOG.append(("key", v))
        if v == 1 and STATE["k"] > 1:
            raise ValueError("key")
        return -v

    calls(lambda x: x + best(gen(), key=key), raise_k)


@pytest.mark.parametrize("number", [-2, -1, -2.5, 2, -0.0])
def test_powers_of_negative_numbers(number):
    x = torch.tensor([2.0, 3.0, 0.5, 0.0])
    for backend in ("eager", None):
        compiled = braze.compile(lambda x: number**x, **({"backend": backend} if backend else {}))
        torch.testing.assert_close(compiled(x), number**x, equal_nan=True)


def test_as_strided_of_a_part():
    x = torch.arange(12.0).reshape(3, 4)
    for f in (
        lambda x: (x * 2)[1:].as_strided((2, 2), (2, 1), 3),
        lambda x: (x + 1)[1].unfold(0, 2, 1).as_strided((3,), (1,), 2),
        lambda x: torch.as_strided((x + 1).flatten()[2:], (3,), (1,), 1),
        lambda x: (x + 1).t()[1:].as_strided((2, 3), (3, 1)),
        lambda x: (x + 1)[:, 1:].reshape(-1)[2:].as_strided((3,), (2,), 0),
        lambda x: (x + 1).unsqueeze(0).expand(2, 3, 4)[1].as_strided((4, 3), (1, 4), 0),
    ):
        assert torch.equal(braze.compile(f, fullgraph=True)(x), f(x))
        given = [x.clone().requires_grad_() for _ in range(2)]
        for g, y in zip((f, braze.compile(f)), given):
            g(y).square().sum().backward()
        assert torch.equal(given[0].grad, given[1].grad)


def test_deterministic_algorithms_fill_what_is_uninitialised():
    def f(x):
        return torch.empty(2), x.new_empty(2), torch.empty_like(x), torch.empty(2, dtype=torch.long), x + 1

    before = torch.are_deterministic_algorithms_enabled()
    compiled = braze.compile(f)
    try:
        compiled(X)
        torch.use_deterministic_algorithms(True)
        for got, want in zip(compiled(X), f(X)):
            torch.testing.assert_close(got, want, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(before)


def test_a_copy_of_a_compiled_module_has_state_of_its_own():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 1

        def forward(self, x):
            return x * self.n

    compiled = braze.compile(M())
    other = copy.copy(compiled)
    other.n = 50
    assert compiled.n == 1 and compiled(X).item() == 1 and other(X).item() == 50
    assert type(other) is not M and isinstance(other, M)
