"""What capture reads by calling into CPython or PyTorch, instead of by evaluating code: a change of it is seen by the next call."""

import abc
import collections.abc
import enum
import os
import subprocess
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from harness import Graphs

import braze

X = torch.ones(3)


def seen(f, change, *args):
    """Compiled code agrees with eager before and after the change."""
    compiled = [braze.compile(f), braze.compile(f, backend=Graphs())]
    args = args or (X,)
    for _ in range(2):
        want = f(*args)
        for c in compiled:
            assert torch.equal(c(*args), want)
        change()


# ---- modules ----


def test_module_with_getattr():
    module, state = types.ModuleType("computes"), {"k": 2}

    def lookup(name):
        if name == "k":
            return state["k"]
        raise AttributeError(name)

    module.__getattr__ = lookup
    seen(lambda x: x * module.k, lambda: state.update(k=5))


@pytest.mark.parametrize("how", ["__getattr__", "property"])
def test_module_of_a_class_of_its_own(how):
    class Computes(types.ModuleType):
        if how == "property":

            @property
            def k(self):
                return self.store["k"]

        else:

            def __getattr__(self, name):
                if name == "k":
                    return self.__dict__["store"]["k"]
                raise AttributeError(name)

    module = Computes("computes")
    module.store = {"k": 2}
    seen(lambda x: x * module.k, lambda: module.store.update(k=5))


# ---- enumerations ----


class Mode(enum.Enum):
    A = 1

    def number(self):
        return self.value * 10


def test_attribute_of_a_member():
    Mode.A.scale = 3
    seen(lambda x: x * Mode.A.scale, lambda: setattr(Mode.A, "scale", 4))


def test_method_of_an_enumeration_replaced():
    before = Mode.number
    try:
        seen(lambda x: x * Mode.A.number(), lambda: setattr(Mode, "number", lambda self: 7))
    finally:
        Mode.number = before


# ---- functions and classes ----


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__doc__", "__module__"])
@pytest.mark.parametrize("kind", ["function", "class"])
def test_what_a_definition_says_of_itself(kind, name):
    def function():
        "abc"

    class Class:
        "abc"

    o = function if kind == "function" else Class
    seen(lambda x: x * len(getattr(o, name)), lambda: setattr(o, name, "a longer text"))


def test_bases_replaced():
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    seen(lambda x: x * len(C.__mro__) + (1 if C.__bases__[0] is A else 2), lambda: setattr(C, "__bases__", (B,)))


@pytest.mark.parametrize("question", ["isinstance", "issubclass", "one of several"])
@pytest.mark.parametrize("abstract", ["own", "standard"])
def test_registered_later(abstract, question):
    class Own(abc.ABC):
        pass

    class C:
        pass

    cls, c = (Own if abstract == "own" else collections.abc.Sequence), C()
    ask = {
        "isinstance": lambda: isinstance(c, cls),
        "issubclass": lambda: issubclass(C, cls),
        "one of several": lambda: isinstance(c, (int, cls)),
    }[question]
    seen(lambda x: x * (2 if ask() else 3), lambda: cls.register(C))


# ---- what became of a tensor ----


def view():
    return torch.ones(6)[:3]


def retained():
    t = torch.ones(3, requires_grad=True) * 1
    t.retain_grad()
    return t


@pytest.mark.parametrize(
    "read, first, second",
    [(lambda t: t._version, torch.ones(3), torch.ones(3).add_(0).add_(0)), (lambda t: 2 if t._is_view() else 3, torch.ones(3), view()),
     (lambda t: 2 if t._base is not None else 3, torch.ones(3), view()), (lambda t: 2 if t.retains_grad else 3, torch.ones(3, requires_grad=True) * 1, retained()),
     (lambda t: t.output_nr, *torch.ones(2, 3, requires_grad=True).unbind(0))],
    ids=["_version", "_is_view", "_base", "retains_grad", "output_nr"],
)  # fmt: skip
def test_history_of_a_tensor(read, first, second):
    def f(t):
        return t * (read(t) + 2)

    compiled = braze.compile(f)
    for t in (first, second, first):
        assert torch.equal(compiled(t), f(t))


# ---- numbers ----


class Hundredfold(int):
    def __mul__(self, other):
        return other * 100

    __rmul__ = __mul__


class Named(int):
    """Without operators of its own."""


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x * i,
        lambda x, i: i * x,
        lambda x, i: x * type(i)(3),
        lambda x, i: type(i)(3) * x,
        lambda x, i: x + i,
        lambda x, i: i - x,
        lambda x, i: (x < i) | (i > x),
    ],
)
@pytest.mark.parametrize("number", [Hundredfold(2), Named(2)], ids=lambda n: type(n).__name__)
def test_numbers_of_own_classes(f, number):
    """A tensor on the left takes the value; on the right, the number's class is asked first."""
    assert torch.equal(braze.compile(f)(X, number), f(X, number))


def test_integers_that_do_not_fit():
    def f(t, n):
        return t + n * n

    compiled, t = braze.compile(f), torch.ones(1, dtype=torch.int64)
    for n in (3, 4, 5, 2**20):
        assert compiled(t, n) == f(t, n)
    with pytest.raises(OverflowError):
        compiled(t, 2**40)
    assert compiled(t, 6) == 37


@pytest.mark.parametrize("classes", [[5], [-1], [0, 3]])
def test_one_hot_of_no_class(classes):
    f, t = braze.compile(lambda t: F.one_hot(t, 3)), torch.tensor([0, 1, 2])
    assert torch.equal(f(t), F.one_hot(t, 3))
    with pytest.raises(RuntimeError):
        F.one_hot(torch.tensor(classes), 3)
    with pytest.raises(RuntimeError):
        f(torch.tensor(classes))


# ---- what a class of the program's says of its instances ----


def named(base):
    return base("Named", {"A": 1, "B": 2})


def test_the_member_that_an_enum_has_for_a_value():
    cls = named(enum.Enum)
    seen(lambda x: x + (5 if cls(1) is cls.A else 7), lambda: cls._value2member_map_.update({1: cls.B}))


def test_comparison_of_members_of_an_enum():
    cls = named(enum.Enum)
    seen(lambda x: x + (5 if cls.A == 1 else 7), lambda: setattr(cls, "__eq__", lambda self, o: True))


@pytest.mark.parametrize("method", ["__int__", "__index__"])
def test_the_number_that_a_text_of_a_class_of_its_own_is(method):
    class Text(str):
        pass

    text = Text("3")
    seen(lambda x: x + int(text), lambda: setattr(Text, method, lambda self: 1))


# ---- functions that the compiler itself uses ----


REPLACED = """
import operator

import torch

import braze

f = lambda x: x.reshape(-1) * (x.shape[0] * x.shape[1] + 2) + x.sum().item()
g = lambda x: operator.add(x, 1) * 2
seen = []
sizes = braze.compile(f, backend=lambda graph, inputs: seen.append(graph) or graph.forward, dynamic=True)
plain = braze.compile(g)
for name in ("add", "mul"):
    setattr(operator, name, lambda a, b: a - b)
for x in (torch.ones(2, 3), torch.ones(4, 5)):
    torch.testing.assert_close(sizes(x), f(x))
    torch.testing.assert_close(plain(x), g(x))
    torch.testing.assert_close(g(x), (x - 1) * 2)
assert seen
"""


def test_functions_of_operator_that_the_program_replaces():
    """Whatever `operator` has by the time when the process first compiles something, for sizes and for tensors."""
    env = {**os.environ, "BRAZE_STRICT": "1"}
    done = subprocess.run([sys.executable, "-c", REPLACED], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_index_that_a_text_of_a_class_of_its_own_is():
    class Text(str):
        pass

    text = Text("3")

    def f(x):
        try:
            return x + [5, 6][text]
        except TypeError:
            return x

    seen(f, lambda: setattr(Text, "__index__", lambda self: 1))


def test_a_field_of_a_named_tuple_whose_class_gets_another_attribute():
    import collections

    Pair = collections.namedtuple("Pair", "a b")
    pair = Pair(1, 2)
    seen(lambda x: x + pair.a, lambda: setattr(Pair, "a", 5))


def test_call_of_a_method_is_the_methods_own():
    class A:
        def m(self, n):
            return n + 1

    o = A()
    f = lambda x: o.m.__call__(x)
    assert torch.equal(braze.compile(f, backend="eager", fullgraph=True)(X), f(X))
