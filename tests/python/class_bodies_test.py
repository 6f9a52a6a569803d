"""Class statements in compiled functions: bodies that only define things stay in the graph, all others run in each call."""

import dataclasses
import gc

import pytest
import torch
from harness import Graphs

import braze

X = torch.ones(3)
k, calls = 1, []


class Holder:
    k = 1


def count():
    calls.append(1)
    return len(calls)


def outcome(f):
    try:
        return f(X)
    except Exception as e:
        return type(e), str(e)


def constant(x):
    class A:
        v = k

    return x * A.v


def attribute(x):
    class A:
        v = Holder.k

    return x * A.v


def default(x):
    class A:
        def m(self, scale=k):
            return scale

    return x * A().m()


def field(x):
    @dataclasses.dataclass
    class A:
        v: int = k

    return x * A().v


def parameter(x):
    class M(torch.nn.Module):
        scale = k

        def forward(self, x):
            return x * self.scale

    return M()(x)


def effect(x):
    class A:
        n = count()

    return x * A.n


def lambda_called(x):
    class A:
        n = (lambda: k)()

    return x * A.n


def own_called(x):
    class A:
        def h():
            return k

        n = h()

    return x * A.n


def raises(x):
    class A:
        if k == 2:
            raise ValueError("body")

    return x + 1


def writes(x):
    n = 0

    class A:
        nonlocal n
        n += k

    return x * n


def inner(x):
    class A:
        class B:
            v = k

    return x * A.B.v


@pytest.mark.parametrize(
    "f",
    [constant, attribute, default, field, parameter, effect, lambda_called, own_called, raises, writes, inner],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_a_body_reads_and_does(f, dynamic):
    global k
    compiled, results = braze.compile(f, dynamic=dynamic), []
    try:
        for run in (f, compiled):
            calls.clear()
            results.append([])
            for k in (1, 2, 3, 3):
                Holder.k = k
                results[-1].append(outcome(run))
    finally:
        k = Holder.k = 1
    for want, got in zip(*results):
        assert torch.equal(want, got) if isinstance(want, torch.Tensor) else want == got


def test_a_write_before_the_body_is_seen():
    def f(x):
        global k
        k = 5

        class A:
            n = k

        k = 1
        return x * A.n

    assert torch.equal(braze.compile(f)(X), X * 5) and k == 1


def test_definitions_stay_in_the_graph():
    def f(x, n):
        class Base:
            scale, names = 2, ("a", "b")
            table: dict = {"c": 3}

            @property
            def double(self):
                return self.scale * 2

            @double.setter
            def double(self, v):
                self.scale = v / 2

            @staticmethod
            def one():
                return 1

            @classmethod
            def named(cls):
                return cls.names[0]

        class Sub(Base):
            def run(self, y):
                return super().double * y + n

        s = Sub()
        s.double = 6
        return s.run(x) + s.one() + len(s.named()) + s.table["c"]

    graphs = Graphs()
    compiled = braze.compile(f, backend=graphs, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X, 3), f(X, 3))
        gc.collect()  # the classes of the capture are gone, and what it compiled is good
    assert graphs.count == 1


def test_except_asks_no_metaclass():
    class Meta(type):
        def __subclasscheck__(cls, other):
            return True

        __instancecheck__ = __subclasscheck__

    class Any(Exception, metaclass=Meta):
        pass

    def f(x):
        try:
            raise KeyError(1)
        except Any:
            return x + 1
        except (ValueError, KeyError):
            return x + 2

    assert torch.equal(braze.compile(f)(X), X + 2)
