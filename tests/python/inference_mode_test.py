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
