"""The public surface: compile's forms and what stays visible of what was compiled."""

import copy
import functools
import inspect
import pickle
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from harness import Graphs, same
from torch import nn

import braze

X = torch.arange(6.0).reshape(2, 3)


class Net(nn.Module):
    """A module."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.requires_grad_(False)

    def forward(self, x, k=1, *rest, w=2, **kw):
        return self.fc(x) * k + w + len(rest) + len(kw)

    def extra(self, x):
        return self.fc(x) + 1


# ---- functions ----


def test_forms():
    def f(a):
        """Doc."""
        return a + 1

    for g in (
        braze.compile(f),
        braze.compile(f, backend="eager"),
        braze.compile()(f),
        braze.compile(fullgraph=True)(f),
    ):
        same(f(X), g(X))
        assert g.__name__ == "f" and g.__doc__ == "Doc." and g.__wrapped__ is f
        assert inspect.signature(g) == inspect.signature(f)
        assert g.__module__ == f.__module__ and "f" in repr(g)


def test_as_decorator_of_methods():
    class C:
        k = 2

        @braze.compile
        def m(self, a):
            return a * self.k

        @staticmethod
        @braze.compile
        def s(a):
            return a + 1

        @classmethod
        @braze.compile(backend="eager")
        def c(cls, a):
            return a * cls.k

    o = C()
    for _ in range(2):
        same(X * 2, o.m(X))
        same(X * 2, C.m(o, X))
        same(X + 1, o.s(X))
        same(X * 2, C.c(X))
    bound = o.m
    same(X * 2, bound(a=X))
    same(X * 2, braze.compile(C().m.__func__)(o, X))


def test_bound_methods_callable_objects_and_partials():
    class C:
        def __init__(self, k):
            self.k = k

        def m(self, a):
            return a * self.k

        def __call__(self, a, b=1):
            return a + self.k + b

    o = C(3)
    same(X * 3, braze.compile(o.m)(X))
    same(X + 5, braze.compile(o)(X, b=2))
    same(torch.sin(X), braze.compile(torch.sin)(X))
    same(X * 2, braze.compile(functools.partial(torch.mul, other=2))(X))


SIGNATURES = [
    (lambda a, b=2: a * b, [((X,), {}), ((X, 3), {}), ((X,), {"b": 4}), ((), {"a": X})]),
    (lambda a, /, b, *, c=1: a * b + c, [((X, 2), {}), ((X,), {"b": 2, "c": 5})]),
    (lambda *args: sum(args), [((X, X), {}), ((X, X, X), {})]),
    (lambda a, **kw: a * kw.get("k", 7) + len(kw), [((X,), {}), ((X,), {"k": 2}), ((X,), {"z": 2, "k": 1})]),
    (lambda a, *r, k, **kw: (a, r, k, kw), [((X, 1, 2), {"k": 3, "z": 4})]),
]


@pytest.mark.parametrize("f, calls", SIGNATURES)
def test_arguments(f, calls):
    g = braze.compile(f)
    for args, kw in calls * 2:
        same(f(*args, **kw), g(*args, **kw))


@pytest.mark.parametrize(
    "args, kw", [((), {}), ((1, 2, 3, 4), {}), ((X,), {"a": X}), ((X,), {"nope": 1}), ((X, 1), {"b": 1})]
)
def test_wrong_arguments_raise_as_eager(args, kw):
    def f(a, b=1):
        return a + b

    with pytest.raises(TypeError) as want:
        f(*args, **kw)
    with pytest.raises(TypeError) as got:
        braze.compile(f)(*args, **kw)
    assert str(want.value) == str(got.value)


def test_results_keep_identity():
    def f(a, l):
        b = a + 1
        return a, l, b, [b, b], (l, a)

    a, l = X.clone(), [1]
    for backend in ("eager", "braze"):
        g = braze.compile(f, backend=backend)
        for _ in range(2):
            r = g(a, l)
            assert r[0] is a and r[1] is l and r[3][0] is r[2] and r[3][1] is r[2] and r[4][0] is l and r[4][1] is a


# ---- modules ----


def test_module_is_seen_through():
    m = Net()
    c = braze.compile(m)
    assert isinstance(c, Net) and type(c).__name__ == "Net" and c.__doc__ == "A module."
    assert list(c.state_dict()) == list(m.state_dict()) == ["fc.weight", "fc.bias"]
    assert c.fc is m.fc and list(c.parameters())[0] is m.fc.weight and c.extra(X).shape == (2, 3)
    same(m(X), c(X))
    same(m(X, 2, 3, w=1, z=2), c(X, 2, 3, w=1, z=2))
    c.eval()
    assert not m.training and not c.training
    c.train()
    assert m.training
    c.fc.weight.add_(1)
    same(m(X), c(X))
    c.load_state_dict({k: torch.zeros_like(v) for k, v in m.state_dict().items()})
    same(m(X), c(X))
    c.note = 3
    assert m.note == 3
    c.double()
    same(m(X.double()), c(X.double()))
    assert "Linear" in repr(c)


def test_original_stays_eager():
    m, counter = Net(), Graphs()
    c = braze.compile(m, backend=counter)
    m(X)
    assert counter.count == 0
    c(X)
    assert counter.count == 1 and type(m) is Net


def test_module_copies_and_pickles():
    m = Net()
    c = braze.compile(m)
    c(X)
    d = copy.deepcopy(c)
    d.fc.weight.add_(1)
    same(m(X), c(X))
    same(m(X) + X.sum(1, keepdim=True), d(X), tol=1e-4)
    p = pickle.loads(pickle.dumps(c))
    assert type(p) is Net
    same(m(X), p(X))


def test_compiled_inside_of_another():
    inner = braze.compile(Net())
    outer = nn.Sequential(inner, nn.ReLU())
    same(outer(X), braze.compile(outer)(X))
    same(outer(X), braze.compile(lambda a: inner(a).relu())(X))
    assert list(outer.state_dict()) == ["0.fc.weight", "0.fc.bias"]
    same(inner(X), braze.compile(inner)(X))


# ---- backends, options ----


def test_user_backend():
    seen = []

    def backend(gm, inputs):
        assert isinstance(gm, torch.fx.GraphModule)
        seen.append((gm, inputs))
        return lambda *args: tuple(t * 10 for t in gm.forward(*args))

    w = torch.ones(3)
    g = braze.compile(lambda a: (a + w, a * 2), backend=backend)
    for _ in range(2):
        same((X + 1) * 10, g(X)[0])
    assert len(seen) == 1 and all(isinstance(t, torch.Tensor) for t in seen[0][1])


def test_a_graph_calls_the_functions_that_were_recorded(monkeypatch):
    own = types.SimpleNamespace(sin=torch.sin, relu=F.relu)
    g = braze.compile(lambda a: own.relu(own.sin(a)), backend="eager")
    want = g(X)
    monkeypatch.setattr(torch, "sin", torch.cos)
    monkeypatch.setattr(F, "relu", torch.neg)
    same(want, g(X))


def test_backend_that_fails():
    def backend(gm, inputs):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        braze.compile(lambda a: a + 1, backend=backend)(X)
    with pytest.raises(TypeError, match="callable"):
        braze.compile(lambda a: a + 1, backend=lambda gm, inputs: 3)(X)
    with pytest.raises(RuntimeError, match="outputs"):
        braze.compile(lambda a: a + 1, backend=lambda gm, inputs: lambda *a: ())(X)


def test_bad_arguments_of_compile():
    for bad in (3, None if False else "text", X, int):
        with pytest.raises(TypeError):
            braze.compile(bad)
    with pytest.raises(TypeError, match="fuse"):
        braze.compile(lambda a: a, options={"fuse": 3})
    with pytest.raises(TypeError, match="dict"):
        braze.compile(lambda a: a, options=[1])
    with pytest.raises(TypeError):
        braze.compile(lambda a: a, backend=3)
    with pytest.raises(TypeError):
        braze.compile(lambda a: a, fullgraph="yes")
    same(X + 1, braze.compile(lambda a: a + 1, options={"fuse": False}, mode="default")(X))


# ---- reset, disable, explain ----


def test_reset_compiles_again():
    counter = Graphs()
    g = braze.compile(lambda a: a + 1, backend=counter)
    g(X)
    g(X)
    braze.reset()
    g(X)
    assert counter.count == 2


def test_disable_as_context_and_decorator():
    counter = Graphs()
    g = braze.compile(lambda a: a + 1, backend=counter)
    with braze.disable():
        same(X + 1, g(X))
    assert counter.count == 0

    @braze.disable
    def outside(a):
        """Doc."""
        return g(a)

    same(X + 1, outside(X))
    assert counter.count == 0 and outside.__doc__ == "Doc."
    same(X + 1, g(X))
    assert counter.count == 1
    d = torch.compiler.disable(lambda a: a * 2)
    same(X * 2 + 1, braze.compile(lambda a: d(a) + 1)(X))


def test_is_compiling():
    f = lambda a: a * (2 if braze.is_compiling() else 3)
    same(X * 2, braze.compile(f)(X))
    assert not braze.is_compiling()


def test_explain():
    def f(a):
        b = a + 1
        sys.stdout.flush()
        return b * 2

    e = braze.explain(f, X)
    assert e.graph_count == 2 and e.graph_break_count == 1 and len(e.breaks) == 1
    b = e.breaks[0]
    assert b.file == __file__ and b.line == f.__code__.co_firstlineno + 2 and "flush" in b.source and b.hint
    assert e.guards and e.times["capture"] > 0 and e.kernel_count == 2
    same(f(X), e.output)
    text = str(e)
    assert "2 graphs" in text and "flush" in text and "api_test.py" in text
    assert braze.explain(Net(), X).graph_count == 1
    assert braze.explain(braze.compile(f), X).graph_count == 2


def test_fullgraph_raises_the_users_own_exception():
    def f(a):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        braze.compile(f, fullgraph=True)(X)


def test_fullgraph_breaks_are_errors_at_every_call():
    def f(a):
        return a * a.sum().__array__()

    g = braze.compile(f, fullgraph=True)
    for _ in range(2):
        with pytest.raises(braze.Unsupported, match="__array__"):
            g(X)


@pytest.mark.parametrize("variable", [None, "BRAZE_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_the_off_switch(variable, monkeypatch):
    if variable:
        monkeypatch.setenv(variable, "1")
    settings = {} if variable else {"disable": True}

    @braze.compile(**settings)
    def f(a):
        return a + braze.is_compiling()

    net = Net()
    assert braze.compile(net, **settings) is net and type(f) is types.FunctionType
    same(X, f(X))
    with pytest.raises(ValueError, match="accepted"):
        braze.compile(net, mode="fast", **settings)
    if variable:
        monkeypatch.setenv(variable, "0")
        same(X + 1, braze.compile(f)(X))
