"""Additions to computed places on an NVIDIA GPU: many to few places, in every dtype that has them."""

import pytest
import torch
import torch.nn.functional as F
from cuda_test import rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def places(n, most):
    return torch.randint(0, most, (n,), generator=torch.Generator().manual_seed(n)).cuda()


def ones(*shape, dtype=torch.float32, seed=0):
    """-1, 0 and 1: in whatever order they are added, sums of some thousand are exact in every dtype."""
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).to(dtype).cuda()


def agree(f, *args):
    """One graph without calls, exactly eager's results."""
    explained = braze.explain(f, *args)
    assert explained.graph_break_count == 0 and explained.extern_count == 0, str(explained)
    got, want = braze.compile(f, fullgraph=True)(*args), f(*args)
    assert got.dtype == want.dtype and got.stride() == want.stride() and torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("n, most", [(100_003, 7), (4096, 4096), (1, 5), (3_000, 1)])
def test_many_to_few(n, most, dtype):
    n = min(n, 7_000) if dtype in (torch.bfloat16, torch.float16) else n
    base, src, index = ones(most, dtype=dtype), ones(n, dtype=dtype, seed=1), places(n, most)
    agree(lambda b, s: b.scatter_add(0, index, -s), base, src)
    agree(lambda b, s: b.index_add(0, index, s), base, src)
    agree(lambda b, s: b.index_put((index,), s, accumulate=True), base, src)


@pytest.mark.parametrize("features", [1, 3, 64, 200])
def test_messages_along_edges(features):
    source, target = places(30_000, 900), places(30_001, 500)[:30_000]
    nodes, weights = ones(900, features), ones(30_000, 1, seed=4)

    def aggregate(nodes, weights):
        messages = torch.relu(nodes[source] * weights)
        return torch.zeros(500, features, device="cuda").index_add(0, target, messages)

    agree(aggregate, nodes, weights)
    wide = target[:, None].expand(-1, features)
    agree(lambda n, w: torch.zeros(500, features, device="cuda").scatter_add(0, wide, n[source] * w), nodes, weights)


@pytest.mark.parametrize("padding", [None, 2])
def test_gradient_of_an_embedding(padding):
    ids, weight, each = places(20_000, 50).view(40, 500), ones(50, 96), ones(40, 500, 96, seed=2)

    def gradient(f):
        w = weight.detach().requires_grad_()
        return torch.autograd.grad(f(w), w)[0]

    f = lambda w: (F.embedding(ids, w, padding_idx=padding) * each).sum()
    assert torch.equal(gradient(braze.compile(f)), gradient(f))


def test_a_place_out_of_range_is_told():
    index = torch.tensor([0, 9, 1], device="cuda")
    f = braze.compile(lambda b, s: b.scatter_add(0, index, s))
    with pytest.raises((IndexError, RuntimeError)):
        f(rand(4), rand(3))
        torch.cuda.synchronize()
        f(rand(4), rand(3))
