"""Which gradients of one backward lie on the same memory, as eager decides by their strides and owners."""

import pytest
import torch

import braze

SIZES = [((), (1,)), ((), (1, 1)), ((), (2, 1)), ((), (1, 2)), ((1,), (1, 1)), ((1,), (2, 1)), ((2,), (1, 1, 2))]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_strides_of_expanded_tensors(sizes):
    x = torch.ones(sizes[0])
    want = x.expand(sizes[1]).stride()
    assert braze.compile(lambda x: x.expand(sizes[1]).stride(), fullgraph=True)(x) == want
    assert braze.compile(lambda x: x.expand(sizes[1]), fullgraph=True)(x).stride() == want


STEPS = {
    "sums": lambda a, b: a.sum() + b.sum(),
    "sums of products": lambda a, b: (a * 2).sum() + (b * 2).sum(),
    "sum": lambda a, b: (a + b).sum(),
    "means": lambda a, b: a.mean() + b.mean(),
    "views": lambda a, b: (a.view(-1) + b.view(-1)).sum(),
    "squeezed": lambda a, b: (a.squeeze() + b.squeeze()).sum(),
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", STEPS)
def test_a_gradient_that_is_written(name, n):
    """The two share memory if eager's do: what is written to one is then read from the other."""

    def step(a, b):
        STEPS[name](a, b).backward()
        braze.graph_break()
        with torch.no_grad():
            a.grad.copy_(torch.zeros_like(a))
            b.sub_(b.grad)
            a.sub_(a.grad)

    results = []
    for f in (step, braze.compile(step)):
        a, b = (torch.nn.Parameter(torch.full((n,), 2.0 + i)) for i in range(2))
        f(a, b)
        results.append((a.detach(), b.detach(), a.grad.data_ptr() == b.grad.data_ptr()))
    torch.testing.assert_close(results[1][:2], results[0][:2])
    assert results[1][2] == results[0][2]


def test_a_gradient_that_was_set_before_a_break_behind_a_view_without_history():
    def f(p):
        p.grad = torch.ones(2, 4)
        with torch.no_grad():
            m = p.reshape(8)
            m.add_(1)
        same = m.data_ptr() == p.data_ptr()
        return same, p.grad.sum()

    for g in (f, braze.compile(f)):
        p = torch.nn.Parameter(torch.ones(2, 4))
        same, total = g(p)
        assert same and total == 8 and torch.equal(p.detach(), torch.full((2, 4), 2.0))
