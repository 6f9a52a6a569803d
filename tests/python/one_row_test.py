"""Products of one row on the CPU, which may be sums of Braze's: results, gradients, and what is fused with them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import braze


def right(got, eager, exact, terms):
    """No further from float64 than twice eager, or the rounding of sums of so many terms."""
    bound = 2 * (eager.double() - exact).abs().max() + terms**0.5 * torch.finfo(got.dtype).eps * exact.abs().max()
    assert got.shape == eager.shape and got.dtype == eager.dtype
    assert (got.double() - exact).abs().max() <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k, n", [(512, 2048), (37, 300), (1000, 3), (8, 4), (1, 5), (64, 1), (0, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer(dtype, k, n, bias):
    torch.manual_seed(0)
    layer = nn.Linear(k, n, bias=bias).to(dtype) if k else nn.Linear(1, n, bias=bias).to(dtype)
    weight = layer.weight.detach() if k else torch.empty(n, 0, dtype=dtype)
    b = layer.bias.detach() if bias else None

    def f(x, weight, b):
        return F.linear(x, weight, b)

    compiled = braze.compile(f, fullgraph=True)
    for shape in ((1, k), (k,), (1, 1, k)):
        x = torch.randn(shape, dtype=dtype)
        exact = f(x.double(), weight.double(), None if b is None else b.double())
        right(compiled(x, weight, b), f(x, weight, b), exact, k + 1)


FORMS = {
    "mv": lambda a, x: a @ x,
    "addmv": lambda a, x: torch.addmv(a[:, 0], a, x),
    "addmv with factors": lambda a, x: torch.addmv(a[:, 0], a, x, beta=0.5, alpha=2),
    "a column": lambda a, x: a @ x[:, None],
    "a column of dense columns": lambda a, x: a.t().contiguous().t() @ x[:, None],
    "a row": lambda a, x: x[None] @ a.t(),
    "a row of dense rows": lambda a, x: x[None] @ a.t().contiguous(),
    "addmm of a column": lambda a, x: torch.addmm(a[:, :1], a, x[:, None]),
    "addmm onto one number": lambda a, x: torch.addmm(a[0, :1], a, x[:, None]),
    "einsum": lambda a, x: torch.einsum("nk,k->n", a, x),
    "rows in a batch": lambda a, x: torch.bmm(x.expand(3, 1, -1) * 2, a.expand(3, -1, -1).transpose(1, 2)),
    "columns in a batch": lambda a, x: torch.bmm(torch.stack([a, a + 1]), torch.stack([x, x - 1])[:, :, None]),
    "a batch in two dimensions": lambda a, x: torch.stack([a, a + 1]).unflatten(0, (1, 2)) @ x[:, None],
    "a factor that is read twice": lambda a, x: (a @ x).tanh() + (a @ x.flip(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_a_form(form, dtype):
    torch.manual_seed(0)
    for n, k in ((48, 130), (4, 7), (5, 1), (1, 9), (300, 64)):
        a, x = torch.randn(n, k, dtype=dtype), torch.randn(k, dtype=dtype)
        f = FORMS[form]
        right(braze.compile(f, fullgraph=True)(a, x), f(a, x), f(a.double(), x.double()), k + 1)
    assert braze.explain(f, a, x).graph_count == 1


def test_layers_of_one_row_with_what_is_around_them():
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.RMSNorm(96)
            self.gate, self.up, self.down = nn.Linear(96, 256), nn.Linear(96, 256, bias=False), nn.Linear(256, 96)

        def forward(self, x):
            y = self.norm(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    model = nn.Sequential(*[Block() for _ in range(3)])
    compiled = braze.compile(model, fullgraph=True)
    x = torch.randn(1, 1, 96)
    exact = nn.Sequential(*[Block() for _ in range(3)]).double()
    exact.load_state_dict(model.state_dict())
    with torch.no_grad():
        right(compiled(x), model(x), exact(x.double()), 256)
    grads = []
    for m, call, given in ((model, compiled, x), (model, model, x), (exact, exact, x.double())):
        for p in m.parameters():
            p.grad = None
        call(given).square().sum().backward()
        grads.append([p.grad.clone() for p in m.parameters()])
    for got, eager, want in zip(*grads):
        right(got, eager, want, 256)


def test_open_sizes_that_become_one():
    layer = nn.Linear(48, 20)

    def f(x):
        return layer(x).relu()

    compiled = braze.compile(f, dynamic=True, fullgraph=True)
    for rows in (3, 1, 7, 1, 0):
        x = torch.randn(rows, 48)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_value_that_is_not_finite_stays_so():
    weight = torch.randn(300, 64)
    weight[3, 5], weight[7, 0], weight[9, 1] = float("inf"), float("nan"), float("-inf")
    x = torch.randn(1, 64)
    x[0, 5] = 0

    def f(x):
        return F.linear(x, weight)

    torch.testing.assert_close(braze.compile(f)(x), f(x), equal_nan=True)


def test_one_row_of_many_layers():
    weights = [torch.randn(40, 64) for _ in range(24)]

    def f(x):
        return [F.linear(x, w) for w in weights]

    x = torch.randn(1, 64)
    e = braze.explain(f, x)
    assert e.graph_count == 1
    for a, b in zip(braze.compile(f)(x), f(x)):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)
