"""Tensors as indices where eager reads their number: x[i] with i of no dimension. They stay in the graph."""

import pytest
import torch

import braze


def writes(x, i):
    x[i] = 5
    return x + 1


def writes_to_a_view(x, i):
    y = x[i]
    y.add_(1)
    return x * 2, y


def writes_to_a_copy(x, i):
    z = x * 1
    z[i] = z[0] * 3
    z[1, i] += 2
    return z


def in_a_loop(x, i):
    s = 0
    for k in range(3):
        s = s + x[i - k] * k
    return s


def of_a_range(x, i):
    return torch.stack([x[k] for k in torch.tensor([1, 3, 0])]) + x[i]


def schedule(x, i):
    return x[i].sqrt()[:, None] * x.T + (1 - x[i, 0])


SAME = [
    lambda x, i: x[i] * 2,
    lambda x, i: (x[i, 1] * x[1, i]).sum(),
    lambda x, i: x[torch.argmax(x[:, 0])] + x[i],
    lambda x, i: (x[i], x[i] is x, x[..., i], x[None, i]),
    lambda x, i: x[i.int()] + x[i.short(), i],
    lambda x, i: x.unsqueeze(0)[:, i, :].mean(),
    writes_to_a_copy, in_a_loop, of_a_range, schedule,
]  # fmt: skip


def outcome(f, x, i):
    x = x.detach().clone().requires_grad_(x.requires_grad)
    try:
        results = f(x, i)
    except IndexError as e:
        return type(e), str(e)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if wanted:
        sum(wanted).backward()
    given = [x.detach(), x.grad if x.grad is not None else torch.zeros(0)]
    return [r.detach() if isinstance(r, torch.Tensor) else r for r in results] + given


def same(got, want):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert torch.allclose(g, w) if isinstance(w, torch.Tensor) else g == w


@pytest.mark.parametrize("index", [2, -1, 0, 9, -5])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", SAME)
def test_one_graph_with_the_results_and_errors_of_eager(f, grad, index):
    x, i = torch.arange(24.0).reshape(4, 6).requires_grad_(grad), torch.tensor(index)
    braze.counters(clear=True)
    compiled = braze.compile(f)
    same(outcome(compiled, x, i), outcome(f, x, i))
    same(outcome(compiled, x, torch.tensor(1)), outcome(f, x, torch.tensor(1)))
    told = braze.counters()
    assert told["graphs"] == 1 and told["graph_breaks"] == {}, told


@pytest.mark.parametrize("f", [writes, writes_to_a_view])
@pytest.mark.parametrize("index", [2, -1])
def test_what_is_written_is_seen(f, index):
    x, i = torch.arange(24.0).reshape(4, 6), torch.tensor(index)
    same(outcome(braze.compile(f, fullgraph=True), x, i), outcome(f, x, i))
