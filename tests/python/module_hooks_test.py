"""Hooks of modules that compiled code registers, whose backward runs inside, behind a graph break or outside."""

import pytest
import torch
from harness import same
from torch import nn

import braze

KINDS = ["register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook"]


def trained(kind, where, count):
    module, seen = nn.Sigmoid(), []
    x = torch.ones(5, 5, requires_grad=True)

    def forward_hook(m, given, result):
        if where == "break in forward":
            assert torch.equal(result, result.clone())  # decided by values
        seen.append("forward")

    first = module.register_forward_hook(forward_hook)
    module(x)
    for n in range(count):
        getattr(module, kind)(lambda m, *gradients: seen.append((n, m is module, len(gradients))))  # noqa: B023
    y = module(x)
    if where == "break":
        torch._dynamo.graph_break()
    if where != "outside":
        y.backward(torch.ones(5, 5) * 2)
        first.remove()
    return module, seen, x, y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["inside", "break", "break in forward", "outside"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_backward_hooks(kind, where, count):
    found = []
    for run in (trained, braze.compile(trained)):
        _module, seen, x, y = run(kind, where, count)
        if where == "outside":
            y.backward(torch.ones(5, 5) * 2)
        found.append((seen, x.grad))
    assert found[0][0] == found[1][0] and len([s for s in found[0][0] if s != "forward"]) == count
    same(found[0][1], found[1][1])


def test_numbers_of_hooks_are_the_programs():
    def fn(module, x):
        handle = module.register_full_backward_hook(lambda m, gi, go: None)
        y = module(x).sum()
        (gradient,) = torch.autograd.grad(y, x)
        handle.remove()
        return gradient, handle.id

    compiled = braze.compile(fn)
    module, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    numbers = []
    for run in (fn, compiled, fn, compiled, compiled):
        gradient, number = run(module, x)
        torch.testing.assert_close(gradient, module.weight.detach().sum(0).expand(2, 3))
        numbers.append(number)
    assert numbers == sorted(set(numbers)) and numbers[-1] - numbers[0] < 100


@pytest.mark.parametrize("transform", [torch.func.vmap, lambda f: torch.func.grad(lambda x: f(x).sum())])
def test_numbers_of_hooks_in_a_transform(transform):
    module = nn.Linear(3, 3)

    def hooked(x):
        handle = module.register_forward_hook(lambda m, given, result: result * 2)
        y = module(x)
        handle.remove()
        return y * (handle.id < 2**40)

    x = torch.randn(2, 3)
    compiled = braze.compile(lambda x: transform(hooked)(x))
    for _ in range(2):
        before = torch.utils.hooks.RemovableHandle.next_id
        torch.testing.assert_close(compiled(x), transform(hooked)(x))
        assert torch.utils.hooks.RemovableHandle.next_id == before + 2


class Scale:
    value = 2.0


@pytest.mark.parametrize("place", ["attribute", "list", "global", "cell"])
def test_what_a_hook_reads_when_the_backward_runs(place):
    scale, values = Scale(), [2.0]
    cell = 2.0
    globals()["SCALE"] = 2.0

    def set_to(value):
        nonlocal cell
        scale.value = values[0] = cell = value
        globals()["SCALE"] = value

    hooks = {
        "attribute": lambda g: g * scale.value,
        "list": lambda g: g * values[0],
        "global": lambda g: g * SCALE,  # noqa: F821
        "cell": lambda g: g * cell,
    }

    def fn(x):
        y = x * 3
        y.register_hook(hooks[place])
        return y.sum()

    compiled = braze.compile(fn)
    for value in (5.0, 7.0):
        set_to(2.0)
        x = torch.ones(2, requires_grad=True)
        loss = compiled(x)
        set_to(value)
        loss.backward()
        assert x.grad.tolist() == [3 * value] * 2
