"""Programs that differentiate and step inside of the compiled code, as meta learning does: results, gradients of what comes after, and
what is left in the modules are eager's."""

import copy

import pytest
import torch
import torch.nn.functional as F
from harness import same
from torch import nn
from torch.func import functional_call

import braze


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.last(torch.tanh(self.norm(self.first(x))))


def error(prediction, y):
    return ((prediction - y) ** 2).mean()


class Learner(nn.Module):
    create_graph = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = Net()

    def gradients(self, loss, parameters):
        return torch.autograd.grad(loss, parameters, create_graph=self.create_graph)


class Map(Learner):
    def forward(self, x, y):
        net = copy.deepcopy(self.net)
        loss = error(net(x), y)
        fast = list(map(lambda p, g: p - 0.1 * g, net.parameters(), self.gradients(loss, net.parameters())))
        with torch.no_grad():
            value = loss.item()
        return fast, value


class Zip(Learner):
    def forward(self, x, y):
        net = copy.deepcopy(self.net)
        loss = error(net(x), y)
        grads = self.gradients(loss, list(net.parameters()))
        fast = {n: p - 0.1 * g for (n, p), g in zip(net.named_parameters(), grads)}
        with torch.no_grad():
            value = error(functional_call(net, fast, (x,)), y).item()
        return fast, value, dict(net.named_buffers())


class Functional(Learner):
    def forward(self, x, y):
        fast = dict(self.net.named_parameters())
        values = []
        for _ in range(3):
            loss = error(functional_call(self.net, fast, (x,)), y)
            grads = self.gradients(loss, fast.values())
            fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads)}
            with torch.no_grad():
                values.append(loss.item())
        return error(functional_call(self.net, fast, (x,)), y), values


class FunctionalInOne(Learner):
    def forward(self, x, y):
        fast = dict(self.net.named_parameters())
        for _ in range(2):
            grads = self.gradients(error(functional_call(self.net, fast, (x,)), y), fast.values())
            fast = dict(zip(fast, map(lambda p, g: p - 0.1 * g, fast.values(), grads)))
        return error(functional_call(self.net, fast, (x,)), y)


class ThroughData(Learner):
    def forward(self, x, y):
        net = copy.deepcopy(self.net)
        loss = error(net(x), y)
        for p, g in zip(net.parameters(), self.gradients(loss, net.parameters())):
            p.data.copy_(p.data - 0.1 * g)
        with torch.no_grad():
            value = error(net(x), y).item()
        return list(net.parameters()), value


class InPlace(Learner):
    def forward(self, x, y):
        net = copy.deepcopy(self.net)
        values = []
        for _ in range(2):
            loss = error(net(x), y)
            grads = self.gradients(loss, net.parameters())
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads):
                    p.add_(g, alpha=-0.1)
                values.append(loss.item())
        return list(net.parameters()), values, list(net.buffers())


class OnItself(Learner):
    """The module's own weights change: the next call starts from others."""

    def forward(self, x, y):
        loss = error(self.net(x), y)
        grads = self.gradients(loss, self.net.parameters())
        with torch.no_grad():
            for p, g in zip(self.net.parameters(), grads):
                p.sub_(0.1 * g)
            return loss.item()


class OneParameter(Learner):
    def forward(self, x, y):
        w = copy.deepcopy(self.net.first.weight)
        loss = error(F.linear(x, w).sum(1, keepdim=True), y)
        (g,) = self.gradients(loss, (p for p in [w]))
        fast = w - 0.1 * g
        with torch.no_grad():
            return fast, loss.item()


class OfStateDict(Learner):
    def forward(self, x, y):
        before = {k: v.clone() for k, v in self.net.state_dict().items()}
        loss = error(self.net(x), y)
        grads = self.gradients(loss, filter(lambda p: p.requires_grad, self.net.parameters()))
        with torch.no_grad():
            for p, g in zip(self.net.parameters(), grads):
                p -= 0.1 * g
            after = error(self.net(x), y).item()
        self.net.load_state_dict(before)
        return loss.detach(), after


class Pairs(Learner):
    """Iterators of other kinds for the engine's lists."""

    def forward(self, x, y):
        net = copy.deepcopy(self.net)
        loss = error(net(x), y)
        named = {n: p for n, p in net.named_parameters()}
        grads = self.gradients(iter([loss]), (named[n] for n in sorted(named, key=lambda n: n[::-1])))
        with torch.no_grad():
            return loss.item(), list(map(torch.neg, grads))


class Scaled(Learner):
    """The mapped function is a closure of another one."""

    def forward(self, x, y):
        def step(rate):
            def apply(pair):
                p, g = pair
                return p - rate * g

            return apply

        net = copy.deepcopy(self.net)
        loss = error(net(x), y)
        fast = [*map(step(0.1), zip(net.parameters(), self.gradients(loss, net.parameters())))]
        with torch.no_grad():
            return fast, loss.item(), float(fast[0].sum())


PROGRAMS = [
    Map,
    Zip,
    Functional,
    FunctionalInOne,
    ThroughData,
    InPlace,
    OnItself,
    OneParameter,
    OfStateDict,
    Pairs,
    Scaled,
]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple, type({}.values()))) else []


def run(module, call, x, y):
    """The results, the gradients of what is computed from them, and the module afterwards."""
    module.zero_grad()
    out = call(x, y)
    roots = [t for t in tensors(out) if t.requires_grad and not t.is_leaf]
    leaves = [p for p in module.parameters()]
    grads = torch.autograd.grad(sum((t * t).sum() for t in roots), leaves, allow_unused=True) if roots else []
    return (
        out,
        [g for g in grads if g is not None],
        {k: v.clone() for k, v in module.state_dict().items()},
        [p.grad for p in leaves],
    )


@pytest.mark.parametrize("backend", ["eager", "braze"])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_inner_steps(program, create_graph, backend):
    eager, module = program(), program()
    eager.create_graph = module.create_graph = create_graph
    compiled = braze.compile(module, backend=backend)
    for call in range(3):
        torch.manual_seed(call)
        x, y = torch.randn(5, 4), torch.randn(5, 1)
        same(run(eager, eager, x, y), run(module, compiled, x, y), f"call {call}", tol=1e-4)
        with torch.no_grad():  # other weights in the next call
            for m in eager, module:
                m.net.first.weight.mul_(0.9)
                m.net.last.bias.data = torch.full((1,), float(call))


@pytest.mark.parametrize("create_graph", [False, True])
def test_inner_steps_in_one_graph(create_graph):
    eager, module = FunctionalInOne(), FunctionalInOne()
    eager.create_graph = module.create_graph = create_graph
    compiled = braze.compile(module, fullgraph=True)
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    for call in range(2):
        same(run(eager, eager, x, y), run(module, compiled, x, y), f"call {call}", tol=1e-4)


@pytest.mark.parametrize(
    "parameters",
    [
        lambda net: net.parameters(),
        lambda net: (p for p in net.parameters()),
        lambda net: map(lambda named: named[1], net.named_parameters()),
        lambda net: filter(lambda p: p.dim() > 1, net.parameters()),
        lambda net: {n: p for n, p in net.named_parameters()}.values(),
    ],
    ids=["method", "generator", "map", "filter", "values"],
)
def test_code_that_unpacking_for_the_engine_runs(parameters):
    # The functions that it makes and calls, and the objects that these make, are the program's.
    net = Net()

    def fn(x):
        return torch.autograd.grad(net(x).sum(), parameters(net), allow_unused=True)

    x = torch.randn(5, 4)
    compiled = braze.compile(fn, fullgraph=True)
    for _ in range(2):
        same(fn(x), compiled(x), tol=1e-4)
