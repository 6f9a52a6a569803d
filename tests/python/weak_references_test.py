"""Weak references that the compiled code asks, also after changes and breaks."""

import weakref

import pytest
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


class Thing:
    pass


class Holder:
    def __init__(self):
        self.child = Thing()


def by_attribute(x):
    held = Holder()
    found = weakref.ref(held.child)
    braze.graph_break()
    held = None
    return x + 1, found() is None


def kept_by_another_name(x):
    held = Holder()
    found, other = weakref.ref(held.child), held.child
    braze.graph_break()
    held = None
    return x + 1, found() is None, other is not None


def deleted(x):
    held = Holder()
    found = weakref.ref(held)
    braze.graph_break()
    del held
    return x + 1, found() is None


def in_a_cell(x):
    held = Holder()
    found = weakref.ref(held.child)

    def let_go():
        nonlocal held
        held = None

    braze.graph_break()
    let_go()
    return x + 1, found() is None


def made_after_the_break(x):
    held = Holder()
    braze.graph_break()
    found = weakref.ref(held.child)
    held = None
    return x + 1, found() is None


def made_before_a_change(x, items):
    found = weakref.ref(items[0])
    items.pop()
    return x + 1, found() is None


def passed_on(x):
    def last(held, found):
        held = None
        return found() is None

    held = Holder()
    found = weakref.ref(held.child)
    braze.graph_break()
    return x + 1, last(held, found), found() is None


@pytest.mark.parametrize(
    "f", [by_attribute, kept_by_another_name, deleted, in_a_cell, made_after_the_break, made_before_a_change, passed_on]
)
def test_variables_that_let_go(f):
    compiled = braze.compile(f)
    more = f.__code__.co_argcount == 2
    for _ in range(3):
        want = f(torch.zeros(2), *([[Thing()]] if more else []))
        got = compiled(torch.zeros(2), *([[Thing()]] if more else []))
        assert want[1:] == got[1:] and torch.equal(want[0], got[0])


def test_variables_that_held_nothing_are_no_break():
    def f(x):
        held, n, y = Holder(), 0, x
        found = weakref.ref(held.child)
        braze.graph_break()
        n, y = n + 1, y + 1
        return y + n, found() is held.child

    compiled = braze.compile(f)
    braze.counters(clear=True)
    for _ in range(3):
        got = compiled(torch.zeros(2))
        assert got[0].tolist() == [2, 2] and got[1]
    told = braze.counters()
    assert list(told["graph_breaks"]) == ["ExplicitBreak"], told
