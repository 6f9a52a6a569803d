"""Freezing makes one product of what several make of one operand by parameters alone."""

import pytest
import torch
from torch import nn

import braze


class Adapted(nn.Module):
    """A layer with an adapter of low rank beside it (LoRA)."""

    def __init__(self, columns, rows, rank=4, scale=0.5, bias=True):
        super().__init__()
        self.layer = nn.Linear(columns, rows, bias=bias)
        self.down = nn.Linear(columns, rank, bias=False)
        self.up = nn.Linear(rank, rows, bias=False)
        self.scale = scale

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x)) * self.scale


def check(model, x, products):
    compiled = braze.compile(model, fullgraph=True, options={"freezing": True})
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        assert braze.explain(compiled, x).extern_count == products
        for p in model.parameters():
            p.mul_(1.5)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(32, 64), (2, 40, 64), (3, 2, 20, 64)], ids=str)
def test_an_adapter(sizes, bias):
    check(Adapted(64, 48, bias=bias).eval(), torch.randn(sizes), products=1)


def test_adapters_of_several_layers():
    model = nn.Sequential(Adapted(64, 96), nn.GELU(), Adapted(96, 64, scale=2), nn.Tanh()).eval()
    check(model, torch.randn(5, 40, 64), products=2)


def test_layers_with_nothing_between_them():
    model = nn.Sequential(nn.Linear(32, 128), nn.Linear(128, 64), nn.Linear(64, 16)).eval()
    check(model, torch.randn(64, 32), products=1)


def test_what_would_multiply_more_stays():
    check(nn.Sequential(nn.Linear(128, 4), nn.Linear(4, 128)).eval(), torch.randn(64, 128), products=2)


def test_what_is_read_besides_stays():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x):
            h = self.first(x)
            return self.second(h) + h.sum()

    check(Both().eval(), torch.randn(64, 32), products=2)


def test_gradients_and_other_modes_stay_apart():
    model, x = Adapted(64, 48), torch.randn(32, 64)
    compiled = braze.compile(model, fullgraph=True, options={"freezing": True})
    want = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    got = torch.autograd.grad(compiled(x).sum(), list(model.parameters()))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
