"""Launches that share memory and sizes, calls of PyTorch's kernels and their layers on an NVIDIA GPU. Skipped where there is none."""

import pytest
import torch
import torch.nn.functional as F
from cuda_test import error, rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def test_sums_over_open_rows_in_one_launch():
    """Nests with sizes of their own share a launch: each gets its memory and its sizes."""

    def f(x, w):
        a = x * w
        return x.sum(0), a.sum(0), (a + 1).amax(0), x[:, :4].mean(), w * 2

    compiled = braze.compile(f, dynamic=True, fullgraph=True)
    for rows in (64, 70, 129, 1, 500):
        x, w = rand(rows, 512, seed=rows), rand(512)
        for g, e in zip(compiled(x, w), f(x, w), strict=True):
            assert error(g, e) < 1e-5

    def masked(ids, table, value, w):
        a = F.embedding(ids, table) * 2
        a[ids == 5] = value
        return F.rms_norm(torch.tanh(a @ w), (256,), value) @ w

    ids = torch.arange(128, device="cuda").reshape(2, 64)
    for tokens in (ids, ids + 6):  # with one to set, with none
        ours = [rand(200, 256).requires_grad_(), rand(256).requires_grad_(), rand(256, 256).requires_grad_()]
        theirs = [t.detach().clone().requires_grad_() for t in ours]
        braze.compile(masked, fullgraph=True)(tokens, *ours).square().mean().backward()
        masked(tokens, *theirs).square().mean().backward()
        for g, e in zip(ours, theirs, strict=True):
            assert error(g.grad, e.grad) < 1e-4


def test_attention_to_one_key_with_a_mask():
    """PyTorch's kernel looks at the strides of dimensions of one element, too."""

    def f(q, k, v, mask):
        bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask.logical_not(), -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(2, 4, 1, 1)) + 1

    q, k, v = (rand(2, 4, 1, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    mask = torch.ones(2, 1, 1, 1, dtype=torch.bool, device="cuda")
    compiled = braze.compile(f, fullgraph=True)
    braze.counters(clear=True)
    assert error(compiled(q, k, v, mask), f(q, k, v, mask)) < 1e-2
    assert braze.counters()["runs_made_again"] == 0


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_one_after_the_other(cell):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(cell(64, 32, batch_first=True, bidirectional=True) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)[0].relu()
            return x

    net = Net().cuda().eval()
    x = rand(4, 7, 64)
    compiled = braze.compile(net)
    with torch.no_grad():
        compiled(x)
        braze.counters(clear=True)
        assert error(compiled(x), net(x)) < 1e-5
        assert braze.counters()["captures"] == 0
        assert braze.explain(net, x).graph_break_count <= 4


def test_what_a_device_is_is_known():
    def f(x):
        major, minor = torch.cuda.get_device_capability(x.device)
        if torch.cuda.get_device_capability() < (5, 0) or torch.cuda.get_device_name(
            "cuda"
        ) != torch.cuda.get_device_name(0):
            return x
        return x * major + minor

    x = rand(5)
    assert torch.equal(braze.compile(f, fullgraph=True)(x), f(x))


@pytest.mark.parametrize("grad", [False, True])
def test_products_of_rows_that_depend_on_data(grad):
    def f(x, w, b, i, index):
        (rows,) = torch.where(index == i)
        return (
            torch.relu(x[rows] @ w[i]) + b[i],
            torch.addmm(b[i], x[index > i], w[i]),
            torch.bmm(x[None, i:], w[i][None]),
        )

    index = torch.arange(100, device="cuda") % 5
    compiled = braze.compile(f, fullgraph=True)
    for i in (2, 4, 2):
        ours = [t.requires_grad_(grad) for t in (rand(100, 64), rand(5, 64, 96), rand(5, 96))]
        theirs = [t.detach().clone().requires_grad_(grad) for t in ours]
        number = torch.tensor(i, device="cuda")
        got, want = compiled(*ours, number, index), f(*theirs, number, index)
        for g, e in zip(got, want, strict=True):
            assert g.shape == e.shape and error(g, e) < 1e-4
        if grad:
            sum(r.square().mean() for r in got).backward(), sum(r.square().mean() for r in want).backward()
            for g, e in zip(ours, theirs, strict=True):
                assert error(g.grad, e.grad) < 1e-4
