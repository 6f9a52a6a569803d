"""Tensors whose sizes, strides, content or place in a storage the compiled code changes or asks for."""

import copy

import pytest
import torch
from harness import same

import braze


def compiled_once(fn, *args):
    """Runs `fn` eagerly and compiled on equal copies; results, arguments after the call and their versions are the same, and it was one graph."""
    for dynamic in (False, True):
        want_args, got_args = copy.deepcopy(args), copy.deepcopy(args)
        want = fn(*want_args)
        explained = braze.explain(braze.compile(fn, dynamic=dynamic), *got_args)
        assert (explained.graph_count, explained.graph_break_count) == (1, 0), explained
        same(want, explained.output)
        same(want_args, got_args, "arguments")
        assert [a._version for a in want_args] == [a._version for a in got_args]


def after(change):
    """A function that changes its argument, computes with it and returns both."""

    def fn(x):
        change(x)
        x.mul_(2)
        return x + 1, x

    return fn


@pytest.mark.parametrize(
    "change, size",
    [
        (lambda x: x.t_(), (3, 4)),
        (lambda x: x.transpose_(0, 1), (3, 4)),
        (lambda x: x.swapaxes_(-1, 0), (3, 4, 5)),
        (lambda x: x.swapdims_(0, 2).squeeze_(1), (3, 1, 5)),
        (lambda x: x.squeeze_(0), (1, 4)),
        (lambda x: x.squeeze_(), (1, 4, 1)),
        (lambda x: x.unsqueeze_(1), (3, 4)),
        (lambda x: x.t_().t_(), (3, 4)),
    ],
)
def test_an_argument_becomes_a_view_of_itself(change, size):
    compiled_once(after(change), torch.randn(size))


def test_such_an_argument_keeps_its_identity_and_memory():
    @braze.compile(fullgraph=True)
    def fn(x):
        return x.t_()

    x = torch.arange(6.0).reshape(2, 3)
    start = x.data_ptr()
    assert fn(x) is x and x.shape == (3, 2) and x.data_ptr() == start
    assert fn(x) is x and x.shape == (2, 3)


def test_data_of_a_tensor_made_inside_is_replaced():
    def fn(x):
        y = x * 2
        before = y.view(-1)
        y.data = x.data + 1
        return y * 3, before, y

    compiled_once(fn, torch.randn(3))


def test_data_shares_memory():
    def fn(x, y):
        x.data = y
        x.add_(1)
        return x * 2

    x, y = torch.zeros(3), torch.zeros(3)
    out = braze.compile(fn, fullgraph=True)(x, y)
    same((out, x, y), (torch.full((3,), 2.0), torch.ones(3), torch.ones(3)))
    assert x.data_ptr() == y.data_ptr()


def test_an_offset_into_the_storage_of_an_argument():
    @braze.compile
    def fn(x):
        return x.as_strided((2, 2), (4, 1), 5) * 2

    base = torch.arange(40.0)
    for x in (base[:16].view(4, 4), base[8:24].view(4, 4), base[:16].view(4, 4)):  # the second starts elsewhere
        same(x.as_strided((2, 2), (4, 1), 5) * 2, fn(x))
    assert braze.explain(fn, base[:16].view(4, 4)).graph_break_count == 0


def test_gradients_through_an_offset():
    def fn(x):
        return (x.as_strided((2, 2), (4, 1), 5) ** 2).sum()

    x, y = (torch.arange(16.0).view(4, 4).requires_grad_() for _ in range(2))
    fn(x).backward()
    explained = braze.explain(fn, y)
    explained.output.backward()
    assert explained.training_graph_count == 1
    same(x.grad, y.grad)


def test_storage_offset_is_guarded():
    @braze.compile(fullgraph=True)
    def fn(x):
        return x[1:] * x[1:].storage_offset(), (x + 1).storage_offset()

    base = torch.randn(20)
    for x in (base[:4], base[3:7], base[5:9]):
        same((x[1:] * x[1:].storage_offset(), 0), fn(x))


def test_gradients_through_a_tensor_that_became_a_view():
    def fn(x):
        y = x * 1
        y.t_()
        return (y * torch.arange(6.0).view(3, 2)).sum()

    x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    fn(x).backward()
    braze.compile(fn, fullgraph=True)(y).backward()
    same(x.grad, y.grad)


@pytest.mark.parametrize(
    "x",
    [
        torch.empty_strided((0, 3), (0, 0)),
        torch.empty_strided((3, 0), (0, 0)),
        torch.zeros(1, 1).expand(4, 3)[:0],
    ],
    ids=["rows", "columns", "expanded"],
)
@pytest.mark.parametrize(
    "fn", [lambda x: x.clone(), lambda x: x * 2 + 1, lambda x: x.sum(0)], ids=["copy", "pointwise", "sum"]
)
def test_tensors_that_have_no_elements_and_do_not_step(fn, x):
    got = braze.compile(fn, dynamic=False, fullgraph=True)(x)
    same(fn(x), got)
    assert got.stride() == fn(x).stride()


BEFORE = {
    "column": lambda y: y[:, 0],
    "rows": lambda y: y[1:],
    "transpose": lambda y: y.t(),
    "sizes": lambda y: y.view(4, 4, 1),
    "dimension": lambda y: y.unsqueeze(0),
    "expanded": lambda y: y.expand(2, 4, 4),
    "windows": lambda y: y.unfold(0, 2, 1),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "all": lambda y: y[...],
}
CHANGES = {
    "t_": lambda y: y.t_(),
    "transpose_": lambda y: y.transpose_(0, 1),
    "swapaxes_": lambda y: y.swapaxes_(0, 1),
    "as_strided_": lambda y: y.as_strided_((4, 4), (1, 4)),
    "unsqueeze_": lambda y: y.unsqueeze_(0),
}


def gradients(fn, *needs_grad):
    """What a function of two matrices gives, and the gradients of those that need one; or what is raised."""
    args = [(torch.arange(16.0).view(4, 4) + i).requires_grad_(n) for i, n in enumerate(needs_grad)]
    try:
        out = fn(*args)
        (out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum().backward()
    except RuntimeError as e:
        return type(e)
    return [out.detach()] + [a.grad for a in args]


def same_gradients(fn, *needs_grad):
    want, got = gradients(fn, *needs_grad), gradients(braze.compile(fn), *needs_grad)
    if isinstance(want, type):
        assert want is got
    else:
        same(want, got)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("view", BEFORE)
def test_gradients_of_a_view_from_before_its_base_changes(view, change, written):
    def fn(x, w):
        y = x * 2
        v = BEFORE[view](y)
        CHANGES[change](y)
        if written:
            y.mul_(w)
        return v

    for needs_grad in ((True, False), (False, written), (True, True)):
        if any(needs_grad):
            same_gradients(fn, *needs_grad)


def changed_view(x, w):
    y = x * 2
    v = y[:]
    v.t_()
    v.mul_(3)
    return v


def changed_part(x, w):
    y = x * 2
    v = y[:2, :2]
    v.t_()
    y.mul_(w)
    return v


def base_of_changed_part(x, w):
    y = x * 2
    v = y[:2, :2]
    v.t_()
    v.mul_(w[:2, :2])
    return y


def changed_without_grad(x, w):
    y = x * 2
    v = y[:, 0]
    with torch.no_grad():
        y.t_()
    y.mul_(w)
    return v


@pytest.mark.parametrize("fn", [changed_view, changed_part, base_of_changed_part, changed_without_grad])
@pytest.mark.parametrize("needs_grad", [(True, False), (False, True), (True, True)])
def test_gradients_where_a_view_itself_changes(fn, needs_grad):
    if fn is changed_view and not needs_grad[0]:
        pytest.skip("has no gradient")
    same_gradients(fn, *needs_grad)


def test_a_view_of_a_tensor_whose_history_ends():
    def fn(x):
        y = x * 2
        v = y.t()
        y.detach_()
        y.mul_(2)
        return v, y

    x = torch.arange(4.0).view(2, 2).requires_grad_()
    same(fn(x), braze.compile(fn)(x))


def test_no_break_where_no_views_are_or_no_gradients_flow():
    def fn(x):
        y = x * 2
        y.t_().unsqueeze_(0)
        z = x + 1
        z.detach_()
        mask = (x > 0)[:2]
        mask.unsqueeze_(0)
        with torch.no_grad():
            part = x[0]
            part.unsqueeze_(0)
            part = part * 2
        m = torch.ones(4, 4)[:, 0]
        m.unsqueeze_(0)
        return y.sum() + z.sum() + mask.sum() + part.sum() + m.sum()

    x, y = (torch.arange(16.0).view(4, 4).requires_grad_() for _ in range(2))
    want, got = fn(x), braze.compile(fn, fullgraph=True)(y)
    same(want, got)
    want.backward()
    got.backward()
    same(x.grad, y.grad)
