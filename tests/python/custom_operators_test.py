"""Operators that a library defines and that write to their arguments: part of one graph, with eager's results and writes."""

import weakref

import numpy as np
import pytest
import torch
from dynamic_test import Counted
from harness import same

import braze

LIB = torch.library.Library("braze_custom", "FRAGMENT")


def define(schema, kernel, fake=None):
    name = schema.split("(")[0]
    LIB.define(schema)
    LIB.impl(name, kernel, "CompositeExplicitAutograd")
    if fake:
        torch.library.register_fake(f"braze_custom::{name}", fake, lib=LIB)
    return getattr(torch.ops.braze_custom, name)


def add_to(a, parts, n, *, d=None, e=2):
    a.add_(parts[0] * n * e)
    if d is not None:
        d.add_(parts[1])


def add_and_give(a, parts, n, d):
    a.add_(parts[0] * n)
    d.add_(parts[1])
    return parts[0] + 1, parts[1] * 2


def fill_all(a, outs):
    for o in outs:
        o.add_(a)


def sin_and_cos(x, y):
    x.sin_()
    y.cos_()


ADD_TO = define("add_to(Tensor(a!) a, Tensor[] parts, SymInt n, *, Tensor(b!)? d=None, SymInt e=2) -> ()", add_to)
GIVE = define(
    "give(Tensor(a!) a, Tensor[] parts, SymInt n, Tensor(b!) d) -> (Tensor, Tensor)",
    add_and_give,
    lambda a, p, n, d: (p[0] + 1, p[1] * 2),
)
FILL_ALL = define("fill_all(Tensor a, Tensor(a!)[] outs) -> ()", fill_all)
BOTH = define("both(Tensor(a!) x, Tensor(b!) y) -> ()", sin_and_cos)


@torch.library.custom_op("braze_custom_op::sin_to", mutates_args={"out"})
def sin_to(x: torch.Tensor, out: torch.Tensor) -> None:
    np.sin(x.numpy(), out=out.numpy())


def on_an_input(x, y):
    ADD_TO(x, [y, y], 3)
    return x * 2


def on_two_inputs(x, y):
    z = x + 1
    ADD_TO(x, [z, z], x.shape[0], d=y)
    return x + y, z


def on_an_intermediate(x, y):
    z = x * 2
    a, b = GIVE(z, (x, x), 2, y)
    return z + a, b, y


def on_a_list(x, y):
    outs = [torch.zeros_like(x), y]
    FILL_ALL(x, outs)
    return outs[0] * 3, outs[1]


def on_views(x, y):
    z = x.clone()
    BOTH(z[0], z[1])
    BOTH(y[:, 1], x[2])
    return z.sum(0), y + x


def on_a_transposed_view(x, y):
    ADD_TO(x.t(), [y.t(), y.t()], 1)
    return x


def twice(x, y):
    ADD_TO(x, [y, y], 1)
    z = x * 1
    ADD_TO(x, [z, y], 1)
    return z, x.sum()


def by_the_decorator(x, y):
    out = torch.empty_like(x)
    sin_to(x, out)
    sin_to(out + 1, y[:])
    return out * y


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        on_an_input,
        on_two_inputs,
        on_an_intermediate,
        on_a_list,
        on_views,
        on_a_transposed_view,
        twice,
        by_the_decorator,
    ],
)
@torch.no_grad()
def test_in_one_graph(f, dynamic):
    c = Counted(f, fullgraph=True, dynamic=dynamic)
    for n in (4, 4, 6):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        a, b = x.clone(), y.clone()
        same(f(x, y), c(a, b))
        same([x, y], [a, b])
        assert [bool(t._version) for t in (x, y)] == [bool(t._version) for t in (a, b)]
    assert c.count == (1 if dynamic else 2) and not c.breaks


def test_arguments_on_one_memory_are_written_as_in_eager():
    def f(x):
        BOTH(x, x)
        return x + 1

    def overlapping(x):
        BOTH(x[:3], x[1:])
        return x + 1

    for g in (f, overlapping):
        x = torch.randn(4)
        y = x.clone()
        same(g(x), braze.compile(g)(y))
        same(x, y)


def test_beside_gradients():
    def f(x, seen):
        ADD_TO(seen, [x.detach(), x.detach()], 1)
        return (x * seen).sum()

    found = []
    for g in (f, braze.compile(f, fullgraph=True)):
        x, seen = torch.arange(3.0, requires_grad=True), torch.ones(3)
        g(x, seen).backward()
        found.append([x.grad, seen])
    same(*found)


def test_a_library_that_is_made_anew():
    for times in (2, 3):
        with torch.library._scoped_library("braze_scoped", "FRAGMENT") as lib:
            lib.define("scale(Tensor(a!) x) -> ()")
            lib.impl("scale", make_scale(times), "CPU")

            def f(x):
                torch.ops.braze_scoped.scale(x)
                return x + 1

            x = torch.ones(3)
            assert (
                braze.compile(f, fullgraph=True)(x).tolist() == [times + 1.0] * 3 and x.tolist() == [float(times)] * 3
            )


def make_scale(n):
    def scale(x):
        x.mul_(n)

    return scale


def test_overloads_are_tried_by_turns():
    def f(x, m, v):
        aten = torch.ops.aten
        return aten.fill(x, v), aten.masked_fill(x, m, v), aten.masked_fill(x, m, torch.tensor(3.5)), aten.add(x, v)

    x, v = torch.randn(3, 4), torch.tensor(2.5)
    c = Counted(f, fullgraph=True)
    same(f(x, x > 0, v), c(x, x > 0, v))
    assert c.count == 1 and not c.breaks and repr(x).startswith("tensor(")


@torch.library.custom_op("braze_custom_op::grow", mutates_args=())
def grow(x: torch.Tensor) -> torch.Tensor:
    out = torch.from_numpy(x.numpy() + 1)
    seen.append((x.data_ptr(), out.data_ptr(), weakref.ref(x), x if keeps else None))
    return out


@grow.register_fake
def _(x):
    return torch.empty_like(x)


seen, keeps = [], False


def test_what_python_code_saw_is_not_copied():
    compiled = braze.compile(lambda x: grow(grow(x * 2)), fullgraph=True)
    for _ in range(2):
        seen.clear()
        got = compiled(torch.ones(1000))
        (_, first, argument, _), (second, result, _, _) = seen
        assert second == first and result == got.data_ptr() and argument() is None
        assert torch.equal(got, torch.full((1000,), 4.0))


def test_an_argument_that_is_kept(monkeypatch):
    monkeypatch.setitem(globals(), "keeps", True)
    compiled = braze.compile(lambda x: grow(x * 2), fullgraph=True)
    kept = []
    for i in range(3):
        compiled(torch.full((1000,), float(i)))
        kept.append(seen[-1][3])
    assert [k[0].item() for k in kept] == [0.0, 2.0, 4.0]
    seen.clear()


def test_strides_of_dimensions_of_one_element():
    strides_of = define(
        "strides_of(Tensor x) -> Tensor",
        lambda x: torch.tensor(x.stride()),
        lambda x: torch.empty(x.dim(), dtype=torch.long),
    )

    def f(x):
        padded = torch.nn.functional.pad(x, (0, 7))[..., :1]
        return strides_of(padded.expand(2, 4, 1, 1)), strides_of(x.mT + 1), strides_of((x * 2)[:, :, None, 0])

    x = torch.rand(2, 1, 1, 1)
    for got, want in zip(braze.compile(f, fullgraph=True)(x), f(x), strict=True):
        assert got.tolist() == want.tolist()


SCHEMAS = ["(Tensor(a!) x) -> ()", "(Tensor x) -> Tensor", "(Tensor(a!) x, Tensor y) -> (Tensor, Tensor)"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_an_operator_that_is_defined_anew(order):
    kernels = [lambda x: x.add_(1) and None, lambda x: x + 2, lambda x, y: (x.add_(y).clone(), y * 3)]
    calls = [
        lambda x: torch.ops.braze_scoped.anew(x),
        lambda x: torch.ops.braze_scoped.anew(x),
        lambda x: torch.ops.braze_scoped.anew(x, torch.ones(1)),
    ]
    for at in order:
        with torch.library._scoped_library("braze_scoped", "FRAGMENT") as lib:
            lib.define("anew" + SCHEMAS[at])
            lib.impl("anew", kernels[at], "CPU")
            if at:
                lib._register_fake(
                    "anew", (lambda x: x.new_empty(x.shape)) if at == 1 else (lambda x, y: (x + 0, y + 0))
                )
            x, given = torch.zeros(1), torch.zeros(1)
            want = calls[at](given)
            got = braze.compile(lambda v: calls[at](v), fullgraph=True)(x)
            same((want, given), (got, x))


@torch.library.custom_op("braze_custom_op::image", mutates_args=())
def make_image(coded: torch.Tensor) -> torch.Tensor:
    return torch.full((2, 3, 4), float(coded.sum()))


@torch.library.register_fake("braze_custom_op::image")
def _(coded):
    return torch.empty([torch.library.get_ctx().new_dynamic_size() for _ in range(3)])


def test_a_fake_kernel_that_names_no_device():
    c = Counted(lambda x: make_image(x) * 2, fullgraph=True)
    assert torch.equal(c(torch.ones(5, dtype=torch.int64)), torch.full((2, 3, 4), 10.0))
    assert c.count == 1


@torch.library.custom_op("braze_test::bump_and_raise", mutates_args={"x"})
def bump_and_raise(x: torch.Tensor) -> None:
    x.add_(1)
    raise ValueError("after the write")


def test_an_operator_that_writes_and_raises_runs_once():
    def fn(x):
        bump_and_raise(x)
        return x * 2

    x = torch.zeros(3)
    with pytest.raises(ValueError, match="after the write"):
        braze.compile(fn)(x)
    assert x.tolist() == [1, 1, 1]
