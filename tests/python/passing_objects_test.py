"""Tensors and modules that others take the place of between calls: compiled for once or twice, not for each."""

import pytest
import torch
from torch import nn

import braze


class Holder:
    pass


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.state = torch.zeros(3)
        self.rows = torch.zeros(1, 3)

    def forward(self, x):
        return x * self.weight * self.scale + self.state + self.rows.sum(0)


def compilations(run):
    before = braze.counters()["graphs"]
    run()
    return braze.counters()["graphs"] - before


@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("name", ["weight", "scale", "state"])
def test_another_tensor_in_a_module(name, every, kept):
    m, all_of_them = Stateful(), []
    fast = braze.compile(m)

    def run():
        for i in range(12):
            if i % every == 0:
                t = torch.full((3,), float(i))
                setattr(m, name, nn.Parameter(t) if name == "weight" else t)
                if kept:
                    all_of_them.append(getattr(m, name))
            x = torch.randn(3)
            torch.testing.assert_close(fast(x), m(x))

    assert compilations(run) <= 2


def test_another_tensor_in_a_variable():
    holder = Holder()
    fast = braze.compile(lambda x: x + holder.t[0])

    def run():
        for i in range(8):
            holder.t = torch.full((2, 3), float(i))
            assert torch.equal(fast(torch.zeros(3)), holder.t[0])

    assert compilations(run) <= 2


def test_a_tensor_that_grows_outside():
    m = Stateful()
    fast = braze.compile(m)

    def run():
        for i in range(1, 10):
            m.rows = torch.ones(i, 3)
            torch.testing.assert_close(fast(torch.ones(3)), m(torch.ones(3)))

    assert compilations(run) <= 4


def test_a_tensor_that_the_captured_code_grows():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.zeros(1, 3)

        def forward(self, x):
            self.kept = torch.cat([self.kept, x])
            return self.kept.sum(0)

    m, slow = Cache(), Cache()
    fast = braze.compile(m)

    def run():
        for _ in range(10):
            x = torch.randn(1, 3)
            torch.testing.assert_close(fast(x), slow(x))
            assert torch.equal(m.kept, slow.kept)

    assert compilations(run) <= 3


def test_a_tensor_that_becomes_another_one_again():
    """The argument itself is put where the module's tensor was: what is written to one is read from the other."""
    m = Stateful()

    def f(x):
        x.add_(1)
        return m.state * 2

    fast = braze.compile(f)
    for i in range(6):
        m.state = torch.full((3,), float(i))
        x = m.state if i % 2 else torch.zeros(3)
        got = fast(x)
        torch.testing.assert_close(got, m.state * 2)
        assert torch.equal(m.state, torch.full((3,), float(i + i % 2)))


def layers(n):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(n)]


def test_one_function_of_very_many_modules():
    fast, all_of_them = braze.compile(lambda layer, x: layer(x)), layers(80)

    def run():
        for _ in range(2):
            for layer in all_of_them:
                x = torch.randn(2, 3)
                torch.testing.assert_close(fast(layer, x), layer(x))

    assert compilations(run) <= 10
    all_of_them[5][1] = nn.Tanh()
    all_of_them[70][0].weight = nn.Parameter(torch.zeros(4, 3))
    all_of_them[71].register_forward_hook(lambda m, args, out: out + 1)
    for i in (5, 6, 70, 71, 72):
        x = torch.randn(2, 3)
        torch.testing.assert_close(fast(all_of_them[i], x), all_of_them[i](x))


def test_the_layers_of_a_deep_model_with_breaks():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = self.a(x).relu()
            if h.sum().item() < 0:
                return x
            return x + self.b(h)

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(50))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    def step(m, f):
        torch.manual_seed(1)
        m.zero_grad()
        y = f(torch.randn(2, 3))
        y.square().sum().backward()
        return [y.detach(), *(p.grad for p in m.parameters())]

    m = Deep()
    fast = braze.compile(m)
    for _ in range(4):
        torch.testing.assert_close(step(m, fast), step(m, m))


def test_models_that_live_for_few_calls():
    fast = braze.compile(lambda layer, x: layer(x))

    def run():
        for i in range(20):
            (layer,) = layers(1)
            for _ in range(2):
                x = torch.randn(2, 3)
                torch.testing.assert_close(fast(layer, x), layer(x))

    assert compilations(run) <= 8
