"""The usual ways to second derivatives: torch.autograd.functional, torch.func, penalties, MAML, physics losses."""

import copy

import pytest
import torch
import torch.nn.functional as F
from second_derivatives import MODELS, both, compiled_whole, leaf
from torch.autograd import grad

import braze


@pytest.mark.parametrize("name", ["tanh", "layer_norm", "attention", "conv", "gru_cell"])
def test_gradgradcheck(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    f = compiled_whole(make().double())
    assert torch.autograd.gradcheck(f, (leaf(*shape),), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, (leaf(*shape),))


@pytest.mark.parametrize("transform", ["hessian", "jacobian", "vectorized_hessian", "hvp", "vhp"])
def test_functional(transform):
    functional = torch.autograd.functional
    do = {
        "hessian": lambda f, x: functional.hessian(f, x),
        "vectorized_hessian": lambda f, x: functional.hessian(f, x, vectorize=True),
        "jacobian": lambda f, x: functional.jacobian(f, x, create_graph=True, vectorize=True).detach(),
        "hvp": lambda f, x: functional.hvp(f, x, torch.ones_like(x)),
        "vhp": lambda f, x: functional.vhp(f, x, torch.ones_like(x)),
    }[transform]
    w = leaf(4, 4, seed=1)
    both(lambda x: (x @ w).sin().pow(2).sum(), lambda f: do(f, leaf(4).detach()))


@pytest.mark.parametrize("transform", ["hessian", "jacrev", "jacfwd", "grad", "vmap_grad"])
def test_torch_func(transform):
    from torch.func import grad as fgrad
    from torch.func import hessian, jacfwd, jacrev, vmap

    w = leaf(4, 4, seed=1).detach()
    f = lambda x: (x @ w).sin().pow(2).sum()
    do = {"hessian": hessian, "jacrev": jacrev, "jacfwd": jacfwd, "grad": fgrad, "vmap_grad": lambda f: vmap(fgrad(f))}[
        transform
    ]
    x = leaf(*((3, 4) if transform == "vmap_grad" else (4,))).detach()
    compiled = braze.compile(f)
    compiled(leaf(4))
    torch.testing.assert_close(do(compiled)(x), do(f)(x))


@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients(create_graph):
    def act(f):
        x = leaf(3)
        (g,) = grad(f(x * 1), x, torch.eye(3, dtype=torch.float64), is_grads_batched=True, create_graph=create_graph)
        assert g.requires_grad == create_graph
        return g.detach(), *(grad(g.sum(), x) if create_graph else ())

    w = leaf(3, seed=1)
    both(lambda x: (x * w).sin().exp(), act)


def test_batched_gradients_of_random_numbers():
    f = compiled_whole(lambda x: F.dropout(x.pow(2), 0.5))
    x = leaf(6)
    y = f(x)
    (g,) = grad(y, x, torch.eye(6, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(g, torch.diag((2 * x * (y != 0) * 2).detach()))


def test_a_gradient_penalty():
    """WGAN-GP: three calls of the critic on temporaries, the gradients of one of them in the loss."""

    def step(critic, f):
        real, fake = leaf(4, 2, 4, 4).detach(), leaf(4, 2, 4, 4, seed=1).detach()
        mixed = (0.3 * real + 0.7 * fake).requires_grad_()
        score = f(mixed)
        (g,) = grad(score.sum(), mixed, create_graph=True)
        loss = f(fake * 1).mean() - f(real * 1).mean() + 10 * (g.flatten(1).norm(dim=1) - 1).pow(2).mean()
        loss.backward()
        return loss.detach(), [p.grad for p in critic.parameters()]

    torch.manual_seed(0)
    eager = MODELS["conv"][0]().double()
    other = copy.deepcopy(eager)
    f = compiled_whole(other)
    for _ in range(2):
        want = step(eager, eager)
        torch.testing.assert_close(step(other, f), want)


@pytest.mark.parametrize("name", ["tanh", "layer_norm"])
def test_maml(name):
    """Second order: two inner steps on fast weights, which are activations of the outer loss."""
    from torch.func import functional_call

    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().double()

    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).pow(2).mean()

    def act(f):
        fast = dict(model.named_parameters())
        for k in range(2):
            grads = grad(f(fast, leaf(*shape, seed=k).detach()), list(fast.values()), create_graph=True)
            fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads)}
        return grad(f(fast, leaf(*shape, seed=9).detach()), list(model.parameters()))

    both(loss, act)


def test_a_physics_loss():
    """The derivative of a network by its arguments, which come in by torch.cat."""
    torch.manual_seed(0)
    net = MODELS["tanh"][0]().double()

    def act(f):
        a, b = leaf(5, 2), leaf(5, 2, seed=1)
        u = f(torch.cat([a, b], 1))
        (ua,) = grad(u.sum(), a, create_graph=True)
        (uaa,) = grad(ua.sum(), a, create_graph=True)
        (ub,) = grad(u.sum(), b, create_graph=True)
        return grad((ub - uaa).pow(2).mean(), [p for p in net.parameters()], allow_unused=True, materialize_grads=True)

    both(net, act)
