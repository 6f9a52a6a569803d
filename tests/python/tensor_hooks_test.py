"""Hooks, retained gradients and detached results: what is theirs stays theirs where tensors are written or seen by views."""

import pytest
import torch

import braze


def both(f):
    return f, braze.compile(f)


def seen(t):
    return t.requires_grad, t.grad_fn is not None, t._is_view()


def detached_and_its_part(x):
    y = x * 2
    d = y.detach()
    return y, d, d[:1]


def parts_of_two_that_are_detached(x):
    y = x * 2
    d, e = y.detach(), y.detach()
    return d[1:], d, e, y, e[:1], y[:1]


def written_after_it_was_detached(x):
    with torch.no_grad():
        y = x * 2
    v = y[:2]
    d = y.detach()
    d[0] = x[1]
    return y, v, d


def part_of_a_view_made_without(x):
    y = x * 2
    with torch.no_grad():
        e = y.view(-1)
    return y, e, e[:1]


@pytest.mark.parametrize(
    "f",
    [
        detached_and_its_part,
        parts_of_two_that_are_detached,
        written_after_it_was_detached,
        part_of_a_view_made_without,
    ],
)
def test_views_of_detached_results(f):
    seen_by = []
    for c in both(f):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        results = c(x)
        of_each = []
        for r in results:
            x.grad = None
            if r.requires_grad and (r.grad_fn is not None):
                r.sum().backward(retain_graph=True)
            of_each.append((seen(r)[:2], r.tolist(), None if x.grad is None else x.grad.tolist()))
        seen_by.append((of_each, [[a.data_ptr() == b.data_ptr() for a in results] for b in results]))
    assert seen_by[0] == seen_by[1]


class OfOther(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, x, z):
        return fn[0](x)

    @staticmethod
    def backward(ctx, g):
        return None, g, g * 2


@pytest.mark.parametrize("fullgraph", [False, True])
def test_gradients_of_what_a_function_does_not_read(fullgraph):
    def f(x, z, unused):
        return OfOther.apply([lambda t: t * 3], x, z) + 1

    def non_leaf(x, z, unused):
        return OfOther.apply([lambda t: t * 3], x, z) * x

    for fn in (f, non_leaf):
        gradients = []
        for c in (fn, braze.compile(fn, fullgraph=fullgraph)):
            x, z, unused = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(3))
            c(x, z * 1 if fn is non_leaf else z, unused).sum().backward()
            assert unused.grad is None
            gradients.append((x.grad.tolist(), z.grad.tolist()))
        assert gradients[0] == gradients[1]


def test_a_retained_gradient_is_that_of_what_was_written():
    def alone(y):
        y.mul_(3)

    def read(y):
        return y.mul_(3).sum()

    def read_of_part(y):
        y[0] = y[1]
        return (y * y).sum()

    for fn in (alone, read, read_of_part):
        compiled = braze.compile(fn)
        for retains in (False, True, False):
            gradients = []
            for c in (fn, compiled):
                x = torch.tensor([0.5, 1.5], requires_grad=True)
                y = x * 2
                if retains:
                    y.retain_grad()
                made = c(y)
                (y.sum() if made is None else made).backward()
                gradients.append((x.grad.tolist(), y.grad.tolist() if retains else None))
            assert gradients[0] == gradients[1]


def test_retained_inside():
    def f(x):
        y = x * 2
        y.retain_grad()
        y.mul_(3)
        return y.sum(), y

    gradients = []
    for c in both(f):
        x = torch.tensor([0.5, 1.5], requires_grad=True)
        total, y = c(x)
        total.backward()
        gradients.append((x.grad.tolist(), y.grad.tolist()))
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize(
    "write", [lambda v: v.mul_(3), lambda v: v.__setitem__(0, v[1]), lambda v: v.copy_(v.flip(0) * 2)]
)
def test_a_view_that_is_written_leaves_its_hook_behind(write):
    compiled = braze.compile(write)
    for hooked in (False, True, False):
        gradients = []
        for c in (write, compiled):
            x = torch.tensor([0.5, 1.5, 1.0], requires_grad=True)
            y = x * 2
            v = y[:2]
            if hooked:
                v.register_hook(lambda g: g * 100)
            c(v)
            (y.sum() + v.sum()).backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1]


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("writes", [False, True])
def test_a_hook_on_a_view_that_is_returned(used, breaks, writes):
    def f(x):
        y = x * 2
        v = y[:2]
        v.register_hook(lambda g: g * 100)
        if breaks:
            torch._dynamo.graph_break()
        if writes:
            v[0] = v[1]
        return y, v

    gradients = []
    for c in both(f):
        x = torch.tensor([0.5, 1.5, 1.0], requires_grad=True)
        results = c(x)
        sum(results[i].sum() for i in used).backward()
        gradients.append(x.grad.tolist())
    assert gradients[0] == gradients[1]


def test_hooks_of_a_leaf_run_in_their_order():
    kept = []

    def returned(x):
        x.register_hook(lambda g: g + 1)
        h = x.register_hook(lambda g: g * 3)
        x.register_hook(lambda g: g - 2)
        return x.sum(), h

    def put_away(x):
        x.register_hook(lambda g: g + 1)
        kept.append(x.register_hook(lambda g: g * 3))
        return x.sum(), None

    def over_a_break(x):
        x.register_hook(lambda g: g + 1)
        h = x.register_hook(lambda g: g * 3)
        torch._dynamo.graph_break()
        return x.sum(), h

    for fn in (returned, put_away, over_a_break):
        gradients = []
        for c in both(fn):
            x = torch.ones(2, requires_grad=True)
            c(x)[0].backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1]
