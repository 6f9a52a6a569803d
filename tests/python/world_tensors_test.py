"""Small worlds that change between calls: tensors, their classes and gradients, modes. They stand for what the fuzzer of worlds found."""

import copy
import enum
import types
import weakref

import numpy as np
import pytest
import torch
from harness import same
from worlds import World, caught, stay_alike

import braze


@pytest.mark.parametrize(
    "name, use",
    [
        ("__len__", lambda p: torch.ones(3) * len(p)),
        ("__getitem__", lambda p: p[0]),
        ("__add__", lambda p: p + 1),
        ("__radd__", lambda p: torch.ones(3) + p),
        ("__neg__", lambda p: -p),
        ("__lt__", lambda p: p < 2),
    ],
)
def test_operators_of_a_subclass_of_tensor(name, use):
    p = torch.nn.Parameter(torch.ones(3))
    compiled = braze.compile(use)
    compiled(p)
    setattr(torch.nn.Parameter, name, lambda self, *a: 1 if name == "__len__" else torch.zeros(1))
    try:
        same(use(p), compiled(p))
    finally:
        delattr(torch.nn.Parameter, name)
    same(use(p), compiled(p))


def test_arrays_after_a_method_of_tensors_was_replaced():
    a = np.arange(3.0)
    f = lambda x: (x + 1, a.sum() + 1)
    compiled, own = braze.compile(f), torch.Tensor.sum
    compiled(torch.ones(2))
    torch.Tensor.sum = lambda self, *a: own(self, *a) + 1
    try:
        same(f(torch.ones(2)), compiled(torch.ones(2)))
    finally:
        torch.Tensor.sum = own


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_detach_in_a_mode(mode):
    def f(x):
        with mode():
            return x.detach() + 1, x.detach().is_inference()

    x = torch.ones(2, 3)
    same(f(x), braze.compile(f, fullgraph=True)(x))
    with mode():
        same(f(x), braze.compile(f, fullgraph=True)(x))


def test_members_of_an_enumeration_in_a_graph():
    def make():
        class Small(enum.IntEnum):
            A = 1
            B = 2

        w = World(Small=Small)
        w.f = lambda x: x * 2 + w.Small["A"]
        return w

    stay_alike(
        make, lambda w: type.__setattr__(w.Small, "A", w.Small.B), lambda w: setattr(w.Small["A"], "_name_", "other")
    )


@pytest.mark.parametrize("compare", [lambda a, b: a < b, lambda a, b: b >= a, lambda a, b: a == b, lambda a, b: b != a])
def test_comparisons_of_tensors_with_what_has_a_torch_function(compare):
    def make():
        class C:
            __torch_function__ = classmethod(lambda cls, f, types, args=(), kwargs=None: 300)

        w = World(c=C())
        w.f = caught(lambda x: compare(w.c, x))
        return w

    stay_alike(make)


def test_a_weak_reference_to_a_buffer_that_is_replaced():
    def make():
        m = torch.nn.BatchNorm1d(3)
        w = World(m=m, r=weakref.ref(m.running_mean))

        def f(x):
            m.running_mean = x.mean(0)
            return x + 1, w.r() is None

        w.f = f
        return w

    stay_alike(make)


def test_a_gradient_that_is_no_more_of_its_tensors_kind():
    def make():
        w = World(t=torch.zeros(3))
        w.f = caught(lambda x: x * 2 if w.t.grad is None else w.t.grad * 3)
        return w

    def change(w):
        w.t.grad = torch.ones(3)
        w.t.data = w.t.data.double()

    stay_alike(make, change)


def test_messages_name_sizes_as_they_are():
    compiled = braze.compile(caught(lambda x: x[2]), dynamic=True)
    for n in (2, 1):
        same(caught(lambda x: x[2])(torch.ones(n, 3)), compiled(torch.ones(n, 3)))


def test_a_deep_copy_of_a_tensor_with_attributes():
    def make():
        w = World(t=torch.ones(3))
        w.f = lambda x: (x + 1, vars(copy.deepcopy(w.t)))
        return w

    stay_alike(make, lambda w: setattr(w.t, "tag", [1, 2]), lambda w: w.t.tag.append(3), lambda w: delattr(w.t, "tag"))


def test_what_an_operation_in_place_refuses():
    def make():
        w = World(t=torch.tensor([True, False]))

        def f(x):
            w.t += 1
            return x

        w.f = caught(f)
        return w

    stay_alike(make, graphs=False)


@pytest.mark.parametrize(
    "put",
    [
        lambda t, v: object.__setattr__(t, "a", v),
        lambda t, v: torch.Tensor.__setattr__(t, "a", v),
        lambda t, v: t.__setattr__("a", v),
        lambda t, v: setattr(t, "a", v),
    ],
)
def test_attributes_of_a_tensor(put):
    def make():
        w = World(t=torch.ones(3), n=1)

        def f(x):
            put(w.t, (w.n, x))
            return x + 1, object.__getattribute__(w.t, "a")[0]

        w.f = f
        return w

    stay_alike(
        make, lambda w: delattr(w.t, "a"), lambda w: setattr(w, "n", 2), seen=lambda w: (list(vars(w.t)), w.t.a[0])
    )


def test_names_of_parameters_under_a_mode():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            return f(*args, **(kwargs or {}))

    m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    f = lambda x: (x + len(dict(m.named_parameters())) + len([*m.buffers()]), [k for k, _ in m.named_parameters()])
    compiled = braze.compile(f)
    with Mode():
        same(f(torch.ones(3)), compiled(torch.ones(3)))
    same(f(torch.ones(3)), compiled(torch.ones(3)))


@pytest.mark.parametrize(
    "put",
    [
        lambda t: setattr(t, "data", t.data + 1),
        lambda t: t.data.add_(1),
        lambda t: setattr(t, "data", torch.ones(2)),
        lambda t: t.unsqueeze_(0),
    ],
)
@pytest.mark.parametrize("read", [lambda t: t.grad is None, lambda t: 1])
def test_a_tensor_keeps_its_gradient_with_other_data(put, read):
    def make():
        w = World(t=torch.ones(3))

        def f(x):
            y = x + read(w.t)
            put(w.t)
            return y, w.t.grad if w.t.grad is None else w.t.grad.clone()

        w.f = f
        return w

    def change(w):
        w.t = torch.ones(3)
        w.t.grad = torch.full((3,), 2.0)

    stay_alike(
        make,
        change,
        lambda w: setattr(w, "t", torch.ones(3)),
        seen=lambda w: (w.t.tolist(), None if w.t.grad is None else w.t.grad.tolist()),
    )


@pytest.mark.parametrize("ask, change, back", [
    (torch.is_warn_always_enabled, lambda: torch.set_warn_always(True), lambda: torch.set_warn_always(False)),
    (torch.get_num_threads, lambda: torch.set_num_threads(3), None),
    (torch.are_deterministic_algorithms_enabled, lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
    (lambda: torch.get_default_dtype(), lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
])  # fmt: skip
def test_the_state_of_the_process_under_a_mode(ask, change, back):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            return f(*args, **(kwargs or {}))

    threads = torch.get_num_threads()
    f = lambda x: (x + 1, ask())
    compiled = braze.compile(f)
    try:
        with Mode():
            assert f(torch.ones(2))[1] == compiled(torch.ones(2))[1]
            change()
            assert f(torch.ones(2))[1] == compiled(torch.ones(2))[1]
        assert f(torch.ones(2))[1] == compiled(torch.ones(2))[1]
    finally:
        (back or (lambda: torch.set_num_threads(threads)))()


def test_a_leaf_that_is_a_view_is_written():
    def make():
        w = World(t=torch.ones(1, 3).expand(2, 3).requires_grad_(), u=torch.ones(3, requires_grad=True))
        w.f = lambda x: (caught(lambda x: w.t.add_(1))(x), caught(lambda x: w.u.add_(1))(x), x + 1)
        return w

    stay_alike(make)


@pytest.mark.parametrize("put", [lambda t, v: t.__dict__.__setitem__("c", v), lambda t, v: setattr(t, "c", v)])
def test_what_the_dict_of_a_tensor_was_given(put):
    def make():
        w = World(t=types.SimpleNamespace(c=1))

        def f(x):
            put(w.t, x + 1)
            return w.t.c * 2, [w.t.c + 1]

        w.f = f
        return w

    stay_alike(make, lambda w: setattr(w, "t", torch.ones(3)), lambda w: None)


def test_results_of_inference_mode_beside_others():
    def f(x):
        before = x * 2
        with torch.inference_mode():
            inside = before + 1
        return before, inside, x.detach()

    for x in (torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)):
        want, got = f(x), braze.compile(f)(x)
        assert [t.is_inference() for t in want] == [t.is_inference() for t in got]
        same(want, got)


def test_a_tensor_compared_with_what_is_no_number():
    def make():
        w = World(i=iter([1]))
        w.f = lambda x: (x + 1, x == w.i, x != w.i, x == None)  # noqa: E711
        return w

    own = torch.Tensor.__eq__
    try:
        stay_alike(make, lambda w: setattr(torch.Tensor, "__eq__", lambda self, other: 5))
    finally:
        torch.Tensor.__eq__ = own


def test_messages_name_tensors_as_they_are():
    def make():
        w = World(t=torch.tensor([True, False]))
        w.f = lambda x: (x + 1, caught(lambda x: w.t.expand(()))(x)[1], caught(lambda x: w.t.view(3))(x)[1])
        return w

    stay_alike(make)


@pytest.mark.parametrize(
    "t", [torch.arange(6)[::2], torch.ones(2, 3).t(), torch.ones(3, 1).expand(3, 2), torch.ones(2, 3)]
)
def test_a_deep_copy_has_the_strides(t):
    def make():
        w = World(t=copy.deepcopy(t))
        w.f = lambda x: (x + 1, copy.deepcopy(w.t))
        return w

    stay_alike(make, lambda w: setattr(w, "t", copy.deepcopy(w.t)))


@pytest.mark.parametrize("use", [lambda x, a: x + a[0], lambda x, a: a[0] + x, lambda x, a: x * 2 + a.sum()])
def test_operators_of_tensors_and_arrays_that_are_replaced(use):
    a = np.arange(3.0)
    f = lambda x: use(x, a)
    x = torch.ones(3)
    compiled, own = braze.compile(f), torch.Tensor.__add__
    same(f(x), compiled(x))
    torch.Tensor.__add__ = lambda self, other: own(self, other) * 2
    try:
        same(f(x), compiled(x))
    finally:
        torch.Tensor.__add__ = own


def test_a_property_put_on_tensors_after_one_was_set():
    def make():
        w = World(t=torch.ones(2, 3))

        def f(x):
            w.t.noted = 3
            return x + 1

        w.f = f
        return w

    def refuse(w):
        torch.Tensor.noted = property(lambda self: 3.0)

    try:
        stay_alike(make, refuse)
    finally:
        del torch.Tensor.noted


@pytest.mark.parametrize("of_inference", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_views_are_inference_tensors_where_what_they_show_is(of_inference, inside, dynamic):
    def f(x):
        rows = [row.is_inference() for row in x]
        return (
            rows,
            x.t(),
            x.t().is_inference(),
            x[0].is_inference(),
            x.split(1)[1].is_inference(),
            (x + 1).is_inference(),
        )

    def told(f):
        with torch.inference_mode(of_inference):
            x = torch.nn.Parameter(torch.ones(2, 3))
        with torch.inference_mode() if inside else torch.no_grad():
            rows, view, *rest = f(x)
        return rows, view.is_inference(), view._is_view(), rest

    assert told(f) == told(braze.compile(f, dynamic=dynamic))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_refused_write_to_an_expanded_tensor_is_caught_where_it_is(dynamic):
    def f(x, to):
        try:
            to += x
        except RuntimeError as e:
            return x + 1, str(e)
        return x - 1

    x, to = torch.ones(2, 3), torch.ones(1, 3).expand(2, 3)
    same(f(x, to), braze.compile(f, dynamic=dynamic)(x, to))


def test_the_length_of_a_scalar_of_numpy():
    def make():
        w = World(a=np.arange(2.0))
        w.f = caught(lambda x: len(w.a[0]))
        return w

    stay_alike(make)


def test_a_tensor_as_a_key_after_its_class_hashes_otherwise(monkeypatch):
    f = lambda x, key: (x + 1, {1: "a"}.get(key))
    compiled = braze.compile(f)
    x, key = torch.ones(2), torch.ones(2, 3)
    same(f(x, key), compiled(x, key))
    monkeypatch.setattr(torch.Tensor, "__hash__", lambda self: 1)
    for g in (f, compiled):
        with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
            g(x, key)
