"""__torch_function__: subclasses of Tensor, other objects and modes, captured in one graph with eager's results and effects."""

import pytest
import torch
from harness import Graphs, same
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import braze

x = torch.arange(1.0, 7).reshape(2, 3)


def compare(fn, *args, graphs=1):
    """The same results, twice, by Braze and by a backend that counts graphs."""
    counter = Graphs()
    for backend in ("braze", counter):
        compiled = braze.compile(fn, backend=backend, fullgraph=True)
        for _ in range(2):
            same(fn(*args), compiled(*args))
    assert counter.count == graphs


class Plain(torch.Tensor):
    scale = 3

    @property
    def twice(self):
        return self * 2

    def plus(self, k):
        return self + k * self.scale


class Logged(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Swapped(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.sin, torch.Tensor.sin):
            func = torch.cos
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Wrapper:
    def __init__(self, t, unit):
        self.t, self.unit = t, unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = [a.unit for a in args if isinstance(a, cls)]
        args = [a.t if isinstance(a, cls) else a for a in args]
        return cls(func(*args, **(kwargs or {})), "+".join(units))


def test_plain_subclass():
    compare(lambda t: t.sin() + 1, x.as_subclass(Plain))
    compare(lambda t: (t.twice + t.plus(2)).sum(0), x.as_subclass(Plain))
    compare(lambda t: t.as_subclass(Plain) * 2, x)
    compare(lambda t: t.as_subclass(torch.Tensor) * 2, x.as_subclass(Plain))
    compare(lambda t: (isinstance(t, Plain), type(t + 1) is Plain, t.relu()), x.as_subclass(Plain))
    compare(lambda t: t.sin(), x.as_subclass(Disabled))


def test_subclass_attributes():
    def fn(t):
        return t * t.factor

    t = x.as_subclass(Plain)
    t.factor = 2
    compiled = braze.compile(fn, fullgraph=True)
    same(fn(t), compiled(t))
    t.factor = 5
    same(fn(t), compiled(t))


def test_class_is_guarded():
    compiled = braze.compile(lambda t: t.sin(), fullgraph=True)
    assert type(compiled(x)) is torch.Tensor
    assert type(compiled(x.as_subclass(Plain))) is Plain
    same(torch.cos(x), compiled(x.as_subclass(Swapped)))
    same(torch.sin(x), compiled(x))


def test_own_torch_function():
    compare(lambda t: torch.sin(t) + t.sin(), x.as_subclass(Swapped))
    compare(lambda t: torch.nn.functional.linear(t, torch.ones(2, 3)), x.as_subclass(Swapped))


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_effects_of_torch_functions(backend):
    def fn(t):
        return torch.exp(t) * 2 + t.sum()

    t = x.as_subclass(Logged)
    compiled = braze.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        Logged.calls = []
        want = fn(t)
        expected = Logged.calls
        Logged.calls = []
        got = compiled(t)
        assert Logged.calls == expected
        same(want.as_subclass(torch.Tensor), got.as_subclass(torch.Tensor))


def test_objects_with_a_torch_function():
    def fn(t):
        r = torch.add(Wrapper(t, "m"), Wrapper(t, "s"))
        return r.t, r.unit

    compare(fn, x)


class Count(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        if func is torch.sin:
            func = torch.cos
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_mode_inside(backend):
    def fn(t):
        with Count() as m:
            y = torch.sin(t) + 1
        return torch.sin(y), m.names

    compiled = braze.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        same(fn(x), compiled(x))


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_mode_around(backend):
    def fn(t):
        return torch.sin(t) * 2

    compiled = braze.compile(fn, backend=backend)
    same(fn(x), compiled(x))
    with Count() as m:
        want = fn(x)
    expected = m.names
    for _ in range(2):
        m.names = []
        with m:
            got = compiled(x)
        assert m.names == expected
        same(want, got)
    same(fn(x), compiled(x))


def test_break_inside_of_a_mode():
    def fn(t):
        with Count() as m:
            y = torch.sin(t)
            braze.graph_break()
            y = torch.sin(y)
        return torch.sin(y), m.names

    compiled = braze.compile(fn)
    for _ in range(2):
        same(fn(x), compiled(x))
    assert torch._C._len_torch_function_stack() == 0


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


def test_dispatch_modes_see_every_operator():
    def fn(t):
        return (t @ t.T).sin() + 1

    compiled = braze.compile(fn)
    want = compiled(x)
    for _ in range(2):
        with Seen() as eager:
            fn(x)
        with Seen() as seen:
            got = compiled(x)
        same(want, got)
        assert seen.ops == eager.ops
        with FlopCounterMode(display=False) as flops:
            compiled(x)
        assert flops.get_total_flops() == 2 * 2 * 3 * 2
    assert braze.explain(fn, x).graph_break_count == 0


@pytest.mark.parametrize("backend", ["braze", "eager"])
def test_context_of_a_device(backend):
    def fn(t):
        with torch.device("meta"):
            y = torch.ones(2)
            z = torch.zeros(2, device="cpu")
        return y.device.type, y, z + t[0, 0], torch.ones(2)

    want, got = fn(x), braze.compile(fn, backend=backend)(x)
    assert got[1].device.type == "meta"
    same((want[0], *want[2:]), (got[0], *got[2:]))


def test_break_inside_of_the_context_of_a_device():
    def fn(t):
        with torch.device("meta"):
            y = torch.ones(2)
            braze.graph_break()
            z = torch.ones(2)
        braze.graph_break()
        return y.device.type, z.device.type, torch.ones(2) + t[0, 0]

    compiled = braze.compile(fn)
    for _ in range(3):
        same(fn(x), compiled(x))
    assert torch._C._len_torch_function_stack() == 0
    before = braze._C.compilations(compiled)
    compiled(x)
    assert braze._C.compilations(compiled) == before


class Counted(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_function__(self, f, types, args=(), kwargs=None):
        self.calls.append(getattr(f, "__name__", "?"))
        return f(*args, **(kwargs or {}))


def test_a_mode_hears_nothing_of_what_the_compiler_asks():
    """Of arrays: NumPy asks no mode. Grad mode: set once by the program, and set back by the capture."""
    import numpy as np

    array = np.arange(3.0)

    def fn(x):
        torch.set_grad_enabled(torch.is_grad_enabled())
        return x + 1 if array.dtype == "float64" else x, array.strides, array.ndim

    counter = Graphs()
    compiled = braze.compile(fn, backend=counter)
    for _ in range(2):
        calls = []
        for f in (fn, compiled):
            with Counted() as mode:
                value, *rest = f(x)
            calls.append((mode.calls, value.tolist(), rest))
        assert calls[0] == calls[1]
    assert counter.count


@pytest.mark.parametrize(
    "asks_ndim",
    [
        lambda f: f == torch.Tensor.ndim.__get__,
        lambda f: getattr(f, "__self__", None) is torch.Tensor.ndim,
        lambda f: not f != torch.Tensor.ndim.__get__,
    ],
)
def test_attributes_are_told_by_their_getters(asks_ndim):
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if asks_ndim(func):
                return 10
            return super().__torch_function__(func, types, args, kwargs or {})

    compiled = braze.compile(lambda x: (x.ndim, x + 1), fullgraph=True)
    for _ in range(2):
        ndim, y = compiled(torch.ones(2, 2).as_subclass(Own))
        assert ndim == 10 and type(y) is Own


CALLED = []


class Above(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLED.append((cls.__name__, func.__name__, [t.__name__ for t in types]))
        return super().__torch_function__(func, types, args, kwargs or {})


class Below(Above):
    pass


@pytest.mark.parametrize(
    "f", [torch.mul, lambda a, b: a + b, lambda a, b: a == b, lambda a, b: a < b, lambda a, b: torch.cat([a, b])]
)
@pytest.mark.parametrize("classes", [(Above, Below), (Below, Above), (Below, Below), (torch.Tensor, Below)])
def test_derived_classes_are_asked_first(f, classes):
    args = [torch.rand(2).as_subclass(cls) for cls in classes]
    CALLED.clear()
    want, eager = f(*args), [*CALLED]
    for _ in range(2):
        compiled = braze.compile(f)
        CALLED.clear()
        got = compiled(*args)
        assert type(got) is type(want) and CALLED == eager
        plain = [t.as_subclass(torch.Tensor) for t in (want, got)]
        assert torch.equal(*plain)


class Hands(TorchFunctionMode):
    """Takes plain tensors alone: PyTorch then asks the classes."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if any(t is not torch.Tensor for t in types):
            return NotImplemented
        return func(*args, **(kwargs or {}))


def state():
    return torch._C._get_torch_function_state()


def test_whether_functions_are_on():
    def f(x):
        return x * 2 if torch._C._is_torch_function_enabled() else x * 3

    compiled = braze.compile(f, fullgraph=True)
    for context in (None, torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction, None):
        if context is None:
            same(f(x), compiled(x))
        else:
            with context():
                same(f(x), compiled(x))


def test_the_state_is_as_before_after_an_exception_or_a_break():
    def fails(a):
        raise ValueError("no")

    def breaks(a):
        print(end="")
        if torch.overrides.has_torch_function((a,)):
            return torch.overrides.handle_torch_function(breaks, (a,), a)
        return a * 2

    def caught(a):
        try:
            Plain.__torch_function__(fails, (Plain,), (a,), {})
        except ValueError:
            pass
        return torch.cos(a), torch._C._is_torch_function_enabled()

    def under_a_mode(a):
        with Hands():
            return breaks(a), Plain.__torch_function__(breaks, (Plain,), (a,), {})

    before = state()
    for f in (caught, under_a_mode):
        compiled = braze.compile(f)
        for _ in range(3):
            same(f(x.as_subclass(Plain)), compiled(x.as_subclass(Plain)))
            assert state() == before
