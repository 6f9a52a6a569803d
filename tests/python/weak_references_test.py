"""Weak references that the compiled code asks, also after changes and breaks."""

import weakref

import torch

import braze


def test_layers_that_ask_weak_references_after_a_break():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.GRU(8, 4, bidirectional=True) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)[0]
                braze.graph_break()
            return x

    net, x = Net(), torch.rand(5, 2, 8)
    compiled = braze.compile(net)
    braze.counters(clear=True)
    assert torch.allclose(compiled(x), net(x), atol=1e-6)
    told = braze.counters()
    assert told["graphs"] == 3 and list(told["graph_breaks"]) == ["ExplicitBreak"], told


def test_a_weak_reference_to_what_a_change_let_go_of():
    class Thing:
        pass

    def f(x, items, references):
        items.pop()
        return x + (references[0]() is None), references[1]() is not None

    for compiled in (f, braze.compile(f)):
        items = [Thing(), Thing()]
        got = compiled(torch.zeros(2), items, [weakref.ref(items[1]), weakref.ref(items[0])])
        assert got[0].tolist() == [1, 1] and got[1]
