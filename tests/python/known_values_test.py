"""Numbers that are read from tensors which the program's own constants decide: no graph break, and no value of another call."""

import pytest
import torch
from harness import same

import braze

CASES = {
    "a literal": lambda x: x * torch.tensor(3).item(),
    "computed": lambda x: x * (torch.tensor(3) + torch.tensor(2.5)).item(),
    "of two numbers": lambda x: x.view(int(torch.div(12, 4, rounding_mode="trunc")), -1),
    "as a size": lambda x: x.view(torch.div(x.size(0) * 4, 6, rounding_mode="trunc"), 6),
    "a branch": lambda x: x + 1 if torch.full((2, 2), 3).max() > 2 else x - 1,
    "of a view": lambda x: x * torch.arange(5)[3].item(),
    "written in place": lambda x: x * torch.zeros(2).add_(4)[1].item(),
    "float()": lambda x: x * float(torch.tensor(2)),
    "bool()": lambda x: x + bool(torch.tensor([True, False]).any()),
    "of equal tensors": lambda x: x + torch.equal(torch.ones(3), torch.ones(3)),
    "covariance": lambda x: torch.cov(x),
    "correlation": lambda x: torch.corrcoef(x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_known(name, dynamic):
    fn = CASES[name]
    compiled = braze.compile(fn, fullgraph=True, dynamic=dynamic)
    for size in ((3, 4), (6, 4)):
        x = torch.randn(size)
        same(fn(x), compiled(x))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + (torch.tensor(1.0) + x.sum()).item(),
        lambda x: x + torch.zeros(2).copy_(x[0, :2])[0].item(),
        lambda x: x + torch.rand(()).item(),
    ],
)
def test_what_depends_on_the_run_is_not_known(fn):
    compiled = braze.compile(fn, options={"rng": "eager"})
    for _ in range(3):
        x = torch.randn(3, 4)
        torch.manual_seed(0)
        want = fn(x)
        torch.manual_seed(0)
        same(want, compiled(x))
    assert braze.explain(fn, torch.randn(3, 4)).graph_break_count > 0
