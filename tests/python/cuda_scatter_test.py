"""Additions to computed places on an NVIDIA GPU, against eager and float64: many to few places, in every dtype that has them."""

import pytest
import torch
import torch.nn.functional as F
from cuda_test import rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def places(n, most):
    return torch.randint(0, most, (n,), generator=torch.Generator().manual_seed(n)).cuda()


def agree(f, *args):
    """One graph without calls; as exact as eager, whose order of additions is as open as ours."""
    explained = braze.explain(f, *args)
    assert explained.graph_break_count == 0 and explained.extern_count == 0, str(explained)
    got, want = braze.compile(f, fullgraph=True)(*args), f(*args)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    if not want.dtype.is_floating_point:
        assert torch.equal(got, want)
        return
    exact = f(*(a.double() if torch.is_tensor(a) and a.dtype.is_floating_point else a for a in args))
    worst = lambda r: ((r.double() - exact).abs().max() / exact.abs().max().clamp(min=1)).item()
    assert worst(got) <= 4 * worst(want) + 4 * torch.finfo(want.dtype).eps, (worst(got), worst(want))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("n, most", [(100_003, 7), (4096, 4096), (1, 5), (50_000, 1)])
def test_many_to_few(n, most, dtype):
    src = rand(n, dtype=dtype) if dtype == torch.int64 else rand(n, dtype=dtype) / 64
    base, index = rand(most, dtype=dtype, seed=3), places(n, most)
    agree(lambda b, s: b.scatter_add(0, index, s * 2), base, src)
    agree(lambda b, s: b.index_add(0, index, s), base, src)
    agree(lambda b, s: b.index_put((index,), s, accumulate=True), base, src)


@pytest.mark.parametrize("features", [1, 3, 64, 200])
def test_messages_along_edges(features):
    source, target = places(30_000, 900), places(30_001, 500)[:30_000]
    nodes, weights = rand(900, features), rand(30_000, 1, seed=4)

    def aggregate(nodes, weights):
        messages = torch.relu(nodes[source] * weights)
        return torch.zeros(500, features, dtype=nodes.dtype, device="cuda").index_add(0, target, messages)

    agree(aggregate, nodes, weights)
    wide = target[:, None].expand(-1, features)
    agree(
        lambda n, w: torch.zeros(500, features, dtype=n.dtype, device="cuda").scatter_add(0, wide, n[source] * w),
        nodes,
        weights,
    )


@pytest.mark.parametrize("padding", [None, 2])
def test_gradient_of_an_embedding(padding):
    ids = places(20_000, 50).view(40, 500)
    weight = rand(50, 96).requires_grad_()

    def gradient(f, w):
        w = w.detach().requires_grad_()
        return torch.autograd.grad(f(w), w)[0]

    f = lambda w: (F.embedding(ids, w, padding_idx=padding).sin() * 2).sum()
    got, want, exact = gradient(braze.compile(f), weight), gradient(f, weight), gradient(f, weight.double())
    worst = lambda r: (r.double() - exact).abs().max().item()
    assert worst(got) <= 4 * worst(want) + 1e-4, (worst(got), worst(want))


def test_a_place_out_of_range_is_told():
    index = torch.tensor([0, 9, 1], device="cuda")
    f = braze.compile(lambda b, s: b.scatter_add(0, index, s))
    with pytest.raises((IndexError, RuntimeError)):
        f(rand(4), rand(3))
        torch.cuda.synchronize()
        f(rand(4), rand(3))
