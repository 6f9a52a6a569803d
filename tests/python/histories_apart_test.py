"""Results of one region whose histories have nothing in common: a backward from one of them leaves the others, and what
leads to their inputs, alone."""

import pytest
import torch

import braze


def scaled(x, y):
    return (x * 2).sin(), (y * 3).exp()


def trunk(x, y):
    h = x.exp()
    return h.sin(), h.cos(), (y * 3).exp()


def shared_input(x, y):
    return (x * 2).sin(), (x * y).exp(), y.cos()


def crossed(x, y):
    return x.sin() * 2, y.cos(), (x * y).tanh()


def three(x, y):
    return x.sin(), y.cos(), (x + 1).exp(), (y + 1).exp()


REGIONS = [scaled, trunk, shared_input, crossed, three]


def leaves(seed=0):
    torch.manual_seed(seed)
    return [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]


def of_leaves(x, y):
    return x, y


def with_histories(x, y):
    return x.exp(), y.tanh()


def seen(region, before, order, hooked=False, keep=False):
    """What each backward, in turn, did: gradients so far and what hooks were given, or the error."""
    p, q = leaves()
    log = []
    if hooked:
        p.register_hook(lambda g: log.append(("p", g.sum().item())))
    x, y = before(p, q)
    if hooked:
        x.register_hook(lambda g: log.append(("x", g.sum().item())))
        y.register_hook(lambda g: log.append(("y", g.sum().item())))
    results = region(x, y)
    for i in order:
        try:
            results[i % len(results)].sum().backward(retain_graph=keep)
            log.append([None if t.grad is None else t.grad.clone() for t in (p, q)])
        except RuntimeError as e:
            log.append(str(e)[:40])
    return log


@pytest.mark.parametrize("before", [of_leaves, with_histories], ids=lambda f: f.__name__)
@pytest.mark.parametrize("region", REGIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 2, 1), (2, 0), (0, 0), (3, 1, 2, 0)], ids=str)
def test_one_after_the_other(region, before, order):
    want = seen(region, before, order)
    got = seen(braze.compile(region, fullgraph=True), before, order)
    assert len(got) == len(want)
    torch.testing.assert_close([x for x in got if type(x) is not str], [x for x in want if type(x) is not str])
    assert [x for x in got if type(x) is str] == [x for x in want if type(x) is str]


@pytest.mark.parametrize("before", [of_leaves, with_histories], ids=lambda f: f.__name__)
@pytest.mark.parametrize("region", [scaled, trunk, three], ids=lambda f: f.__name__)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0)], ids=str)
def test_hooks_are_called_where_there_is_a_gradient(region, before, order):
    want = seen(region, before, order, hooked=True)
    got = seen(braze.compile(region, fullgraph=True), before, order, hooked=True)
    assert [x if type(x) is str else type(x) for x in got] == [x if type(x) is str else type(x) for x in want]
    torch.testing.assert_close(
        [x[1] if type(x) is tuple else x for x in got if type(x) is not str],
        [x[1] if type(x) is tuple else x for x in want if type(x) is not str],
    )
    assert [x[0] for x in got if type(x) is tuple] == [x[0] for x in want if type(x) is tuple]


@pytest.mark.parametrize("region", REGIONS, ids=lambda f: f.__name__)
def test_kept(region):
    order = (0, 1, 0, 1)
    torch.testing.assert_close(
        seen(braze.compile(region, fullgraph=True), with_histories, order, keep=True),
        seen(region, with_histories, order, keep=True),
    )


@pytest.mark.parametrize("region", REGIONS, ids=lambda f: f.__name__)
def test_together_and_differentiated_again(region):
    def twice(f):
        p, q = leaves()
        results = f(*with_histories(p, q))
        first = torch.autograd.grad(sum(r.sum() for r in results), (p, q), create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first), (p, q))
        return [*first, *second]

    torch.testing.assert_close(twice(braze.compile(region, fullgraph=True)), twice(region))


def test_two_steps_of_one_graph():
    """Two models in one region, each with an optimizer of its own."""

    def run(wrap):
        torch.manual_seed(0)
        models = [torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh()) for _ in range(2)]
        encoders = [torch.nn.Linear(4, 4) for _ in range(2)]
        step = wrap(lambda a, b: (models[0](a).square().mean(), models[1](b).square().mean()))
        parameters = [p for m in models + encoders for p in m.parameters()]
        for _ in range(3):
            x = torch.randn(2, 4)
            losses = step(encoders[0](x), encoders[1](x))
            for loss, mine in zip(losses, (0, 1)):
                optimizer = torch.optim.SGD([*models[mine].parameters(), *encoders[mine].parameters()], lr=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return [p.detach() for p in parameters]

    torch.testing.assert_close(run(lambda f: braze.compile(f, fullgraph=True)), run(lambda f: f))
