"""Backends that the user names: what they are told of open sizes, and programs that their graphs cannot hold."""

import copy
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze


class Specialising:
    """A backend whose callable holds for the sizes that it asked about alone, as one of AOTAutograd's does."""

    def __init__(self, ask=None):
        self.ask, self.made, self.inputs = ask, 0, []

    def __call__(self, module, inputs):
        self.made += 1
        self.inputs.append(inputs)
        fixed = [self.ask(x) for x in inputs if isinstance(x, torch.SymInt)] if self.ask else []

        def run(*args):
            numbers = [x for x in args if isinstance(x, int)]
            assert [self.ask(x) for x in numbers] == fixed if self.ask else True
            return module(*args)

        return run


def of_sizes(x, y):
    return (x * x.shape[0] + y).sum(0) * x.numel()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", "eager", "inductor"])
def test_all_sizes_are_right(backend, dynamic):
    compiled = braze.compile(of_sizes, backend=backend, dynamic=dynamic)
    for n in (3, 4, 5, 1, 7, 2):
        x, y = torch.randn(n, 2), torch.randn(n, 2)
        torch.testing.assert_close(compiled(x, y), of_sizes(x, y))


def test_integers_and_gradients_stay_right():
    def fn(x, k):
        y = torch.softmax(x.reshape(-1, 2) * x.shape[0] + k, -1)
        return torch.cat([y, y[:1]]).sum(0), y.t()

    compiled = braze.compile(fn, backend="aot_eager")
    for n in (3, 4, 6, 1):
        x = torch.randn(n, 2, requires_grad=True)
        got, want = compiled(x, n + 2), fn(x, n + 2)
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w)
            assert g.stride() == w.stride()
        grads = [torch.autograd.grad(r[0][0] + r[1].square().sum(), x)[0] for r in (got, want)]
        torch.testing.assert_close(*grads)


def test_a_backend_is_called_once_for_what_it_asks_nothing_of():
    backend = Specialising()
    compiled = braze.compile(lambda x: x * 2 + x.shape[0], backend=backend, dynamic=True)
    for n in (3, 4, 9):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0 + n))
    assert backend.made == 1
    (inputs,) = backend.inputs
    assert [type(x) for x in inputs] == [torch.SymInt, torch.Tensor] and inputs[0] == 3


def test_a_backend_is_called_again_where_its_answers_are_others():
    backend = Specialising(ask=lambda n: bool(n % 2 == 0))
    compiled = braze.compile(lambda x: x * 2 + x.shape[0], backend=backend, dynamic=True)
    for n in (3, 5, 4, 8, 7):
        assert torch.equal(compiled(torch.ones(n)), torch.full((n,), 2.0 + n))
    assert backend.made == 2


def test_what_returns_no_callable_is_an_error_at_open_sizes_too():
    compiled = braze.compile(lambda x: x * 2, backend=lambda module, inputs: 3, dynamic=True)
    with pytest.raises(TypeError, match="the backend did not return a callable"):
        compiled(torch.ones(3))


# ---- what their graphs cannot hold ----


def step(model, x):
    for p in model.parameters():
        p.grad = None
    loss = model(x).square().sum()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    return loss


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_whole_training_step(backend):
    """The backward adds to gradients that the program has cleared."""
    model = torch.nn.Linear(3, 2)
    plain, other = copy.deepcopy(model), copy.deepcopy(model)
    compiled = braze.compile(step, backend=backend)
    for _ in range(3):
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(other, x), step(plain, x))
        torch.testing.assert_close(other.weight, plain.weight)
        torch.testing.assert_close(other.weight.grad, plain.weight.grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("between", [0, 1, 2])
def test_leaves_made_inside(backend, between):
    def fn(x):
        w = torch.ones(3, requires_grad=True)
        (w * x).sum().backward()
        first = w.grad
        if between == 1:
            w.grad = None
        elif between == 2:
            w.grad = first * 2
        (w * x * 2).sum().backward()
        return w.grad, first

    x = torch.randn(3)
    same(fn(x), braze.compile(fn, backend=backend)(x))


@dataclass
class Given:
    factor: float
    b: torch.Tensor


class OfObjects(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, given):
        ctx.save_for_backward(given.b)
        return given.b * x * given.factor

    @staticmethod
    def backward(ctx, g):
        (b,) = ctx.saved_tensors
        return g * b, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: OfObjects.apply(x, Given(1.5, torch.full((3,), 2.0))),
        lambda x: (x * 5).to(bool).to(float).to(int) + 8,
        lambda x: torch.zeros(3, dtype=float) + torch.ones(3, dtype=complex) * x,
        lambda x: F.interpolate(x[None, None], size=5, mode="linear"),
    ],
)
def test_arguments_without_a_text(backend, fn):
    x, compiled = torch.randn(3), braze.compile(fn, backend=backend)
    for _ in range(2):
        same(fn(x), compiled(x))


# ---- classes ----


def test_a_class_is_compiled_where_its_instances_are_called():
    class Scaled:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by + 1

    @braze.compile
    class Net(torch.nn.Linear):
        def forward(self, x):
            return torch.relu(super().forward(x))

    before = braze.counters()["graphs"]
    assert braze.compile(Scaled) is Scaled
    assert torch.equal(Scaled(3)(torch.ones(2)), torch.full((2,), 4.0))
    net, x = Net(3, 2), torch.randn(4, 3)
    torch.testing.assert_close(net(x), torch.relu(F.linear(x, net.weight, net.bias)))
    assert isinstance(net, Net) and braze.counters()["graphs"] == before + 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_drawn_numbers_are_tensors(backend, dynamic):
    def fn(x):
        return x * random.random() + random.randrange(10), np.random.rand(x.shape[0]).sum() + x.shape[0]

    compiled = braze.compile(fn, backend=backend, dynamic=dynamic)
    for n in (3, 4, 5):
        random.seed(n), np.random.seed(n)
        got = compiled(torch.ones(n))
        random.seed(n), np.random.seed(n)
        want = fn(torch.ones(n))
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == pytest.approx(want[1])


def test_nothing_is_drawn_while_a_backend_is_called():
    given = []

    def backend(module, inputs):
        given.extend(inputs)
        return module

    random.seed(3)
    got = braze.compile(lambda x: x + random.random(), backend=backend)(torch.zeros(1, dtype=torch.float64))
    random.seed(3)
    assert got.item() == random.random()
    assert [(type(x), x.dtype, x.shape) for x in given] == [
        (torch.Tensor, torch.float64, (1,)),
        (torch.Tensor, torch.float64, ()),
    ]


def test_gradients_that_were_set():
    def fn(x):
        leaf = torch.ones(3, requires_grad=True)
        y, z = x * 2, x + 1
        y.grad, z.grad = leaf, x * 3
        return leaf, y, y.grad, z.grad * 2

    x = torch.randn(3)
    for backend in (None, "eager", "aot_eager"):
        compiled = braze.compile(fn, backend=backend) if backend else braze.compile(fn)
        leaf, y, grad, twice = compiled(x)
        assert grad is leaf and y.grad is leaf and leaf.requires_grad
        torch.testing.assert_close((y, twice), (x * 2, x * 6))
