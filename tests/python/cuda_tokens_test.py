"""One token of a language model on an NVIDIA GPU: attention over a cache of grouped heads, rotary embeddings, counters, launches that
small kernels share."""

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


# ---- products of few rows ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [2, 3, 5, 8])
@pytest.mark.parametrize("n, k", [(256, 32), (272, 96), (1000, 2048), (2056, 1120), (512, 8192), (8192, 64)])
def test_few_rows(rows, n, k, dtype):
    x, w, b = rand(rows, k, dtype=dtype), rand(n, k, dtype=dtype) / k**0.5, rand(n, dtype=dtype)
    for f in (lambda x, w, b: F.linear(x, w), lambda x, w, b: F.linear(x, w, b)):
        explained = braze.explain(f, x, w, b)
        assert explained.extern_count == 0, str(explained)
        check(f, x, w, b)


def test_few_rows_with_what_stands_around_them():
    x, r = rand(4, 256, dtype=torch.bfloat16), rand(4, 256, dtype=torch.bfloat16)
    up, gate = (rand(768, 256, dtype=torch.bfloat16) / 16 for _ in range(2))
    down = rand(256, 768, dtype=torch.bfloat16) / 28

    def f(x, r, gate, up, down):
        x = (x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5).to(x.dtype)).tanh()
        return r + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    explained = braze.explain(f, x, r, gate, up, down)
    assert explained.extern_count == 0 and explained.kernel_count == 3, str(explained)
    check(f, x, r, gate, up, down)
    heads = rand(4, 1, 256, dtype=torch.bfloat16)
    check(lambda x, up: F.linear(x, up).view(4, 1, 12, 64).transpose(1, 2) * 2, heads, up)


def test_few_rows_that_lie_across():
    w = rand(512, 320, dtype=torch.bfloat16) / 16
    check(lambda x, w: F.linear(x.t(), w), rand(320, 6, dtype=torch.bfloat16), w)
    check(lambda x, w: F.linear(x[:, ::2], w), rand(6, 640, dtype=torch.bfloat16), w)
    check(lambda x, w: F.linear(x[1:, 3:323], w), rand(7, 324, dtype=torch.bfloat16), w)
    check(lambda x, w: F.linear(x.expand(5, 320), w), rand(1, 320, dtype=torch.bfloat16), w)
    wide = rand(512, 640, dtype=torch.bfloat16) / 16
    check(lambda x, w: F.linear(x, w[:, 8:328]), rand(3, 320, dtype=torch.bfloat16), wide)
    check(lambda x, w: F.linear(x, w[:, 3:323]), rand(3, 320, dtype=torch.bfloat16), wide)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("n, k", [(256, 32), (1000, 64), (512, 4096)])
def test_weights_of_bytes(rows, n, k, dtype):
    w = torch.randint(-128, 128, (n, k), device="cuda", dtype=torch.int8)
    w[0, :] = -128
    w[1, :] = 127
    x, scale = rand(rows, k, dtype=dtype) / k, rand(n, dtype=dtype)
    f = lambda x, w, s: F.linear(x, w.to(x.dtype)) * s
    explained = braze.explain(f, x, w, scale)
    assert explained.extern_count == 0 and explained.kernel_count == 1, str(explained)
    check(f, x, w, scale)
    check(lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]), x, w, scale)
    check(lambda x, w, s: F.linear(x, w.to(torch.uint8).to(x.dtype)), x, w, scale)
    check(lambda x, w, s: F.linear(x, (w > 0).to(x.dtype)), x, w, scale)


def test_weights_that_are_rounded_on_their_way():
    x, w = rand(3, 96, dtype=torch.bfloat16), rand(512, 96, dtype=torch.bfloat16) * 3
    for through in (torch.int8, torch.uint8, torch.float16, torch.bool):
        w = w.abs() if through == torch.uint8 else w
        f = lambda x, w, through=through: F.linear(x, w.to(through).to(x.dtype))
        got, eager = braze.compile(f, fullgraph=True)(x, w), f(x, w)
        torch.testing.assert_close(got, eager, rtol=0.01, atol=0.05)


def test_infinities_among_the_weights():
    x, w = rand(3, 96, dtype=torch.bfloat16), rand(512, 96, dtype=torch.bfloat16)
    w[5, 95], w[6, 64], x[1, 3] = torch.inf, torch.nan, 0
    got, eager = braze.compile(F.linear, fullgraph=True)(x, w), F.linear(x, w)
    torch.testing.assert_close(got, eager, equal_nan=True, rtol=0.02, atol=0.1)


def test_weights_written_by_the_step_before():
    """A program may read its inputs ahead of its second kernel on, never ahead of what wrote them."""
    w = rand(4096, 2048, dtype=torch.bfloat16) / 45
    x = rand(4, 2048, dtype=torch.bfloat16)

    def step(w, x):
        y = F.linear(F.silu(x), w)
        w.mul_(1.5)
        return y

    compiled = braze.compile(step, fullgraph=True)
    apply = braze.compile(lambda x, w: F.linear(x.exp(), w), fullgraph=True)
    other = w.clone()
    for _ in range(6):
        got, then = compiled(w, x), apply(x, w)
        wanted, wanted_then = step(other, x), F.linear(x.exp(), other)
        torch.testing.assert_close(got, wanted, rtol=0.03, atol=0.03)
        torch.testing.assert_close(then, wanted_then, rtol=0.03, atol=0.5)
        assert torch.equal(w, other)
        w.copy_(w / 1.5)
        other.copy_(w)


def launches(run):
    """How many kernels of Braze's own a call launches."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum("braze" in e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA)


def test_small_kernels_that_need_nothing_of_each_other_share_a_launch():
    def f(x, y, z, w):
        return x.sin(), (y * y).sum(-1), torch.softmax(z, -1), w.cos() @ w, w.tanh().mean(0)

    args = rand(50), rand(70, 333), rand(40, 1000), rand(31, 31)
    check(f, *args)
    small = lambda x, y, z: (x.sin(), (y * y).sum(-1), z.exp())
    args = rand(50), rand(70, 24), rand(3, 111)
    check(small, *args)
    compiled = braze.compile(small, fullgraph=True)
    assert launches(lambda: compiled(*args)) == 1


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_what_a_launch_writes_to_an_input_is_read_after_it(mode):
    """The kernels beside the write, and those after it, see the input as eager does."""

    def step(x, kept, other):
        before = kept.sum(-1)
        kept.copy_(x.cos() * 2)
        beside = other.sin()
        after = kept * 3 + 1
        return before, beside, after, other[:5] + kept[0, :5], kept.T @ kept

    compiled = braze.compile(step, fullgraph=True, mode=mode)
    ours, eager = (rand(64, 96, seed=9) for _ in range(2))
    for n in range(20):
        x, other = rand(64, 96, seed=n), rand(40, seed=n)
        for want, got in zip(step(x, eager, other), compiled(x, ours, other), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
