"""torch.inference_mode() entered inside of what is compiled."""

import pytest
import torch

import braze


def told_after_a_break(x):
    with torch.inference_mode():
        y = x * 2
        braze.graph_break()
        return torch.is_inference_mode_enabled(), y.is_inference(), (y * 2).is_inference()


def told_by_the_function(x):
    with torch.inference_mode():
        y = x * 2
        told = torch.is_inference(y), torch.is_inference(x)
    return told, torch.is_inference(y)


def views_of_what_was_there(x):
    out = []
    for t in (x, torch.ones(2, 3), torch.ones(2, requires_grad=True)):
        with torch.inference_mode():
            v = t.view(-1)
            out += [v.is_inference(), v.requires_grad, v._is_view(), torch.is_inference_mode_enabled()]
    return out


def leaves(x):
    with torch.inference_mode():
        a = torch.zeros(3, requires_grad=True)
    return a.is_inference(), a.requires_grad, a.is_leaf


def decorated(x):
    @torch.inference_mode()
    def inner(x):
        braze.graph_break()
        return torch.is_inference_mode_enabled(), (x * 2).is_inference()

    return inner(x), torch.is_inference_mode_enabled()


@pytest.mark.parametrize("fn", [told_after_a_break, told_by_the_function, views_of_what_was_there, leaves, decorated])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_what_the_program_is_told(fn, needs_grad):
    x, compiled = torch.randn(2, 3, requires_grad=needs_grad), braze.compile(fn)
    for _ in range(2):
        assert compiled(x) == fn(x)


def test_a_leaf_of_the_mode_leaves_the_graph():
    def fn():
        with torch.inference_mode():
            return torch.zeros(3, requires_grad=True)

    got = braze.compile(fn)()
    assert got.requires_grad and got.is_inference() and got.tolist() == [0.0, 0.0, 0.0]


def written_after(view):
    def fn(x):
        y = view(x)
        x.add_(1)
        return y, x * 1

    return fn


def written_through(view):
    def fn(x):
        y = view(x)
        y.mul_(3)
        return y, x * 1

    return fn


def made_inside(view):
    def fn(x):
        z = x * 2
        y = view(z)
        z.add_(1)
        return y, y * 1

    return fn


# Operators that give their operand, or a view of it, and whose schemas do not say so.
VIEWS = {
    "type_as": lambda x: x.type_as(x),
    "atleast_1d": lambda x: torch.atleast_1d(x),
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, False),
    "diagonal": lambda x: torch.einsum("ii->i", x),
    "transpose": lambda x: torch.einsum("ij->ji", x),
    "meshgrid": lambda x: torch.meshgrid(x[0], indexing="ij")[0],
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.zeros(2))[0],
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0]),
    "sum_to_size": lambda x: x.sum_to_size(2, 2),
}


@pytest.mark.parametrize("outside", [False, True], ids=["of the mode", "plain"])
@pytest.mark.parametrize("use", [written_after, written_through, made_inside])
@pytest.mark.parametrize("view", VIEWS)
def test_memory_is_shared(view, use, outside):
    fn = use(VIEWS[view])

    def observe(f):
        with torch.inference_mode(not outside):
            x = torch.arange(4.0).view(2, 2)
        with torch.inference_mode():
            y, z = f(x)
        told = [t.is_inference() for t in (y, z)], y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        return x.tolist(), y.tolist(), z.tolist(), y.stride(), y is x, told

    compiled = braze.compile(fn)
    for _ in range(2):
        assert observe(compiled) == observe(fn)


def test_a_tensor_of_the_mode_outside_of_it():
    def fn(x):
        return x.type_as(x), torch.atleast_1d(x), torch.nn.functional.linear(x, x)

    with torch.inference_mode():
        x = torch.ones(2, 2)
    want, got = fn(x), braze.compile(fn)(x)
    assert [t is x for t in got] == [t is x for t in want] == [True, True, False]
    assert torch.equal(got[2], want[2])


@pytest.mark.parametrize("autocast", [False, True])
def test_operators_that_are_taken_apart(autocast):
    layer = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.Flatten(2))
    attention = torch.nn.MultiheadAttention(9, 3, batch_first=True)

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = layer(x)
            y = torch.nn.functional.layer_norm(y, (9,))
            return attention(y, y, y)[0], torch.matmul(y, y.mT)

    with torch.inference_mode():
        x = torch.randn(2, 2, 3, 3)
        want = fn(x)
        mean = layer[1].running_mean.clone()
        layer[1].reset_running_stats()
        got = braze.compile(fn)(x)
        torch.testing.assert_close(layer[1].running_mean, mean)
    for w, g in zip(want, got):
        assert w.dtype == g.dtype
        torch.testing.assert_close(g, w, rtol=2e-2 if autocast else 1e-5, atol=2e-2 if autocast else 1e-5)
