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
