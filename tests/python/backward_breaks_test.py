"""Calls whose backward cannot be traced: they are graph breaks, and what is around them is compiled, in training too."""

import pytest
import torch
from torch import nn

import braze


def scaled(x, ends):
    """Rows up to each end, times its number."""
    out, begin = torch.empty_like(x), 0
    for i, end in enumerate(ends.tolist()):
        out[begin:end], begin = x[begin:end] * (i + 1), end
    return out


@torch.library.custom_op("braze_backward_breaks::scaled", mutates_args=())
def grouped(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return scaled(x, ends)


@grouped.register_fake
def _(x, ends):
    return torch.empty_like(x)


grouped.register_autograd(
    lambda ctx, g: (scaled(g, ctx.saved_tensors[0]), None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)


class Asks(torch.autograd.Function):
    """Reads a number at once: no operator ran in its backward before."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 if ctx.saved_tensors[0].tolist()[0][0] > 0 else g * 3


class Layer(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.linear, self.call = nn.Linear(8, 8), call

    def forward(self, x, ends):
        return nn.functional.gelu(self.call(self.linear(x).relu(), ends)) * 2 + x


class Layers(nn.Module):
    def __init__(self, call, count):
        super().__init__()
        self.layers = nn.ModuleList(Layer(call) for _ in range(count))

    def forward(self, x, ends):
        for layer in self.layers:
            x = layer(x, ends)
        return x


CALLS = {
    "operator": grouped,
    "function": lambda x, ends: Asks.apply(x),
    "number": lambda x, ends: Reads.apply(x),
}


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * (2 if (g.sum() * 0).item() == 0 else 3)


def step(model, x, ends):
    x = x.clone().requires_grad_()
    model.zero_grad()
    model(x, ends).square().sum().backward()
    return [x.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("call", CALLS)
def test_the_rest_is_compiled(call):
    torch.manual_seed(0)
    model = Layers(CALLS[call], 3).double()
    fast = braze.compile(model)
    for rows in (10, 12, 14, 16, 10):
        x, ends = torch.randn(rows, 8, dtype=torch.double), torch.tensor([3, rows])
        torch.testing.assert_close(step(fast, x, ends), step(model, x, ends))
    found = braze.explain(fast, torch.randn(9, 8, dtype=torch.double, requires_grad=True), torch.tensor([2, 9]))
    assert found.graph_break_count == 3, found
    assert found.training_graph_count == found.graph_count > 3, found
    assert not any("eagerly" in g for g in found.graphs), found
    # Sizes stay open on both sides: no version for each of them.
    seen = braze.counters()["captures"]
    assert torch.equal(step(fast, x[:7], ends.clamp(max=7))[0], step(fast, x[:7], ends.clamp(max=7))[0])
    assert braze.counters()["captures"] == seen


@pytest.mark.parametrize("call", CALLS)
def test_without_gradients_it_is_one_graph(call):
    model = Layers(CALLS[call], 2)
    x, ends = torch.randn(10, 8), torch.tensor([3, 10])
    with torch.no_grad():
        found = braze.explain(model, x, ends)
        assert (found.graph_count, found.graph_break_count) == (1, 0), found
        torch.testing.assert_close(found.output, model(x, ends))


def test_fullgraph_names_the_line():
    model = braze.compile(Layers(grouped, 2), fullgraph=True)
    with pytest.raises(braze.Unsupported, match=r"(?s)in the backward.*backward_breaks_test\.py"):
        model(torch.randn(10, 8), torch.tensor([3, 10]))
