"""Gradients through what was computed before the captured code: its arguments, and results of the part before a graph break."""

import pytest
import torch

import braze


def leaf():
    return torch.arange(1.0, 4.0).requires_grad_()


def loss_alone(loss, x):
    loss.backward()
    return x.grad


def loss_of_several(losses, x):
    torch.autograd.backward(losses)
    return x.grad


def loss_by_name(loss, x):
    torch.autograd.backward(tensors=[loss], retain_graph=True)
    torch.autograd.backward(inputs=[x], tensors=loss)
    return x.grad


def on_from_it(loss, x):
    (loss * 2).backward()
    return x.grad


def gradient_of_it(loss, x):
    (g,) = torch.autograd.grad(loss, x)
    return g


def gradient_past_it(loss, x):
    return torch.autograd.grad([(loss * x).sum()], [x])


def gradient_to_it(loss, x):
    return torch.autograd.grad((loss * loss).sum(), loss)


def made_once(x):
    return (x * x).sum()


def made_twice(x):
    return [(x * x).sum(), (x * 3).sum()]


CASES = [
    (loss_alone, made_once),
    (loss_of_several, made_twice),
    (loss_by_name, made_once),
    (on_from_it, made_once),
    (gradient_of_it, made_once),
    (gradient_past_it, made_once),
    (gradient_to_it, made_once),
]


@pytest.mark.parametrize("f, make", CASES, ids=[f.__name__ for f, _ in CASES])
def test_arguments_with_a_history(f, make):
    compiled, seen = braze.compile(f), []
    for g in (f, compiled, compiled):
        x = leaf()
        gradient = g(make(x), x)
        seen.append((gradient, None if x.grad is None else x.grad.tolist()))
    assert repr(seen[1]) == repr(seen[2]) == repr(seen[0])


def test_a_leaf_and_then_a_result():
    compiled = braze.compile(loss_alone)
    x, loss = leaf(), torch.tensor(2.0, requires_grad=True)
    assert compiled(loss, x) is None and loss.grad == 1
    x = leaf()
    assert compiled(made_once(x), x).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("pause", [lambda loss: loss.item(), lambda loss: braze.graph_break()], ids=["item", "break"])
def test_a_training_step_that_looks_at_its_loss(pause):
    def train(compile_step):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            pause(loss)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = braze.compile(step) if compile_step else step
        return [step(torch.ones(4, 3)).item() for _ in range(4)]

    eager = train(False)
    assert train(True) == pytest.approx(eager, rel=1e-5)
    assert eager[3] < eager[0]


def late_gradient(x):
    y = x * 2
    z = (y * y).sum()
    y.retain_grad()
    z.backward()
    return y.grad


def test_a_gradient_that_is_retained_late():
    compiled = braze.compile(late_gradient)
    for _ in range(2):
        x = leaf()
        assert compiled(x).tolist() == late_gradient(leaf()).tolist()
        assert x.grad.tolist() == [8.0, 16.0, 24.0]
