"""One token of a language model on an NVIDIA GPU: attention over a cache of grouped heads, rotary embeddings, counters."""

import pytest
import torch
import torch.nn.functional as F
from cuda_test import check, rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def grouped(heads, scale=None):
    def attend(q, k, v, mask):
        b, kv, s, d = k.shape
        wide = lambda t: t[:, :, None].expand(b, kv, heads // kv, s, d).reshape(b, heads, s, d)
        return F.scaled_dot_product_attention(q, wide(k), wide(v), attn_mask=mask, scale=scale)

    return attend


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "batch, heads, kv, keys, features", [(1, 32, 8, 512, 64), (3, 4, 2, 37, 16), (8, 8, 1, 2048, 128)]
)
def test_one_query_over_grouped_heads(batch, heads, kv, keys, features, dtype):
    q, k, v = (rand(batch, n, s, features, dtype=dtype) for n, s in ((heads, 1), (kv, keys), (kv, keys)))
    mask = torch.zeros(batch, 1, 1, keys, dtype=dtype, device="cuda")
    mask[..., keys // 2 :] = torch.finfo(dtype).min
    explained = braze.explain(grouped(heads), q, k, v, mask)
    assert explained.extern_count == 0, str(explained)
    check(grouped(heads), q, k, v, mask)
    check(grouped(heads, scale=0.3), q, k, v, None)


def test_a_query_to_which_all_keys_are_forbidden():
    q, k, v = (rand(2, n, s, 32, dtype=torch.bfloat16) for n, s in ((4, 1), (2, 24), (2, 24)))
    mask = torch.zeros(2, 1, 1, 24, dtype=torch.bfloat16, device="cuda")
    mask[1] = -torch.inf
    got, eager = braze.compile(grouped(4), fullgraph=True)(q, k, v, mask), grouped(4)(q, k, v, mask)
    assert torch.equal(got[1].isnan(), eager[1].isnan())
    torch.testing.assert_close(got, eager, rtol=2e-2, atol=2e-2, equal_nan=True)


def test_gradients_of_attention_to_one_query():
    q, k, v = (rand(2, n, s, 32).requires_grad_() for n, s in ((4, 1), (2, 24), (2, 24)))
    out = [f(q, k, v, None).square().sum() for f in (grouped(4), braze.compile(grouped(4), fullgraph=True))]
    for want, got in zip(*(torch.autograd.grad(o, (q, k, v)) for o in out), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [(32, 32), (1, 62, 1), (8, 8, 8, 40)], ids=str)
def test_parts_are_chosen_in_the_kernel_that_reads_them(parts):
    def rotated(*x):
        return torch.cat([-x[-1], *x[1:-1], x[0]], -1) * 2 + 1

    check(rotated, *(rand(4, n, dtype=torch.bfloat16, seed=n) for n in parts), kernels=1)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_counters_are_written_where_they_are(mode):
    counters = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in range(5)]
    places = [c.data_ptr() for c in counters]

    def step(x):
        total = x
        for c in counters:
            total = total * 2 + c
            c.add_(1)
        return total

    compiled = braze.compile(step, fullgraph=True, mode=mode)
    x = rand(100)
    for n in range(8):
        want = x
        for _ in counters:
            want = want * 2 + n
        assert torch.equal(compiled(x), want)
        assert [int(c) for c in counters] == [n + 1] * 5
    assert [c.data_ptr() for c in counters] == places
