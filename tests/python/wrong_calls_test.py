"""Calls that PyTorch refuses: the exception is eager's, and later calls that it takes are compiled as any others."""

import pytest
import torch
import torch.nn.functional as F
from harness import Graphs, outcome, same

import braze

# What eager raises an exception for, of x = [3, 4].
REFUSED = {
    "add": lambda x: x + torch.ones(7),
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, torch.ones(3, 9)),
    "matvec": lambda x: x @ torch.ones(9),
    "cat": lambda x: torch.cat([x, torch.ones(2)]),
    "stack": lambda x: torch.stack([x, x[0]]),
    "softmax_dim": lambda x: F.softmax(x, 3),
    "index_matrix": lambda x: x.index_select(0, torch.tensor([[0]])),
    "index_add_count": lambda x: x.index_add(0, torch.tensor([0, 1]), x),
    "index_add_rest": lambda x: x.index_add(0, torch.tensor([0, 1, 2]), torch.ones(3, 5)),
    "index_put_value": lambda x: x.index_put((torch.tensor([0]),), torch.ones(7)),
    "index_put_rank": lambda x: x.index_put((torch.tensor([0]),), torch.ones(2, 1, 4)),
    "copy_more": lambda x: x.copy_(torch.ones(7)),
    "copy_less": lambda x: x.copy_(torch.ones(2, 4)),
    "flip_dim": lambda x: x.flip(5),
    "flip_twice": lambda x: x.flip(0, 0),
    "roll_dim": lambda x: x.roll(1, 5),
    "roll_count": lambda x: x.roll((1, 2), 1),
    "roll_count_of_all": lambda x: x[None, None].roll((1, 2)),
    "masked_fill_value": lambda x: x.masked_fill(x > 0, torch.ones(4)),
    "masked_fill_mask": lambda x: x.masked_fill(x, 1),
    "where_condition": lambda x: torch.where(x, x, x),
    "gather_index": lambda x: x.gather(0, torch.zeros(2, dtype=torch.float)),
    "embedding_index": lambda x: F.embedding(x, x),
    "topk": lambda x: x.topk(99),
    "layer_norm": lambda x: F.layer_norm(x, (9,)),
    "in_place": lambda x: torch.ones(2, 3).add_(torch.ones(5, 2, 3)),
    "gelu_word": lambda x: F.gelu(x, approximate="tangent"),
    "softshrink_bound": lambda x: F.softshrink(x, -0.5),
    "huber_delta": lambda x: F.huber_loss(x, x, delta=-1.0),
    "zeros": lambda x: torch.zeros(-1),
    "full": lambda x: torch.full((-2,), 1.0),
    "eye": lambda x: torch.eye(2, -3),
    "new_zeros": lambda x: x.new_zeros(2, -3),
    "ones_of_size": lambda x: torch.ones(x.shape[0] - 5),
    "repeat": lambda x: x.repeat(-1, 1),
}


def same_outcome(want, got):
    assert want[0] == got[0], (want, got)
    same(want[1], got[1])


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, dynamic):
    """Its result is returned, or nobody asks for it; the program handles the exception, or its caller does."""
    f, x = REFUSED[name], torch.randn(3, 4)

    def returned(x):
        return f(x), x * 2

    def handled(x):
        try:
            return f(x)
        except Exception as e:
            return x * 2, type(e).__name__, str(e)

    for g in (returned, handled):
        compiled = braze.compile(g, dynamic=dynamic)
        for _ in range(2):
            want, got = outcome(g, (x.clone(),), {}), outcome(compiled, (x.clone(),), {})
            same_outcome(want, got)
        assert g is handled or want[0] == "raised"


@pytest.mark.parametrize("name", ["softmax_dim", "index_matrix", "zeros", "flip_dim", "copy_more"])
def test_result_not_used(name):
    f = REFUSED[name]

    def g(x):
        f(x.clone())
        return x * 2

    same_outcome(outcome(g, (torch.ones(3, 4),), {}), outcome(braze.compile(g), (torch.ones(3, 4),), {}))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_right_calls_after_a_wrong_one(fullgraph):
    """Code that an exception was raised for is not taken for arguments that PyTorch takes: those get a whole graph."""
    graphs = Graphs()

    def f(x, y):
        return (x * 2) @ y

    compiled = braze.compile(f, backend=graphs, fullgraph=fullgraph, dynamic=False)
    for shape in ((3, 5), (4, 3), (3, 5), (4, 3), (4,), (7,)):
        args = (torch.randn(3, 4), torch.randn(shape))
        same_outcome(outcome(f, args, {}), outcome(compiled, args, {}))
    whole = [m for m in graphs.modules if any("matmul" in str(n.target) for n in m.graph.nodes)]
    assert len(whole) == 2  # of [4, 3] and [4]


def test_raised_in_a_call_that_is_inlined():
    """The exception comes from a function that is called in a comprehension, after a change that it made."""
    log = []

    def inner(x, n):
        log.append(n)
        return x.view(n, -1)

    def f(x, sizes):
        return [inner(x, n).sum() for n in sizes]

    compiled = braze.compile(f, fullgraph=True)
    x = torch.randn(3, 4)
    for sizes in ([2, 3], [2, 5], [2, 3], [5], [3, 3]):
        want = outcome(f, (x, sizes), {})
        expected = log[:]
        log.clear()
        got = outcome(compiled, (x, sizes), {})
        same_outcome(want, got)
        assert log == expected
        log.clear()


def test_backward_of_what_was_changed():
    """An error of autograd's, handled by the program that reads its text."""

    def f(x):
        y = x.exp()
        y.add_(1)
        try:
            y.sum().backward()
        except RuntimeError as e:
            return x * 2, str(e)

    compiled = braze.compile(f)
    for n in (3, 5, 6):
        args = (torch.ones(n, requires_grad=True),)
        same_outcome(outcome(f, args, {}), outcome(compiled, args, {}))


@pytest.mark.parametrize("read", [lambda x: x.item(), int, float])
def test_number_of_many(read):
    def f(x):
        return x * read(x)

    compiled = braze.compile(f, fullgraph=True)
    for x in (torch.ones(3, 4), torch.ones(1), torch.ones(3, 4)):
        same_outcome(outcome(f, (x,), {}), outcome(compiled, (x,), {}))
