"""flex_attention in compiled functions: one operator with its functions as a graph, and kernels for it."""

import importlib.util

import pytest
import torch
from attention_cases import CASES, causal, mask_of, qkv, wrong
from interpreter import interpreted_by
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import braze
from braze import _C, _triton

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton package")
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")

# Triton's interpreter has no products of bf16.
INTERPRETED = [name for name in CASES if name != "bf16"]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_float64(name):
    wrong(name)


@pytest.fixture(scope="module")
def interpreted():
    return interpreted_by("attention_cases.py", *INTERPRETED)


@on_cpu
@needs_triton
@pytest.mark.parametrize("name", INTERPRETED)
def test_kernels_agree_with_float64(interpreted, name):
    assert interpreted[name] == "", interpreted[name]


@on_cpu
def test_agrees_with_eager():
    q, k, v = qkv()
    bias = torch.rand(2)
    options = {"score_mod": lambda s, b, h, i, j: s + bias[h] * (j - i), "block_mask": mask_of(causal, 128)}
    want = flex_attention(q, k, v, **options)
    got = braze.compile(lambda q, k, v: flex_attention(q, k, v, **options), fullgraph=True)(q, k, v)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


@on_cpu
def test_layout_of_transposed_queries():
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in qkv())
    want = flex_attention(q, k, v)
    got = braze.compile(flex_attention, fullgraph=True)(q, k, v)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


@on_cpu
def test_mask_created_inside():
    def f(q, k, v):
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=q.device.type)
        return flex_attention(q, k, v, block_mask=mask)

    q, k, v = qkv()
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(q, k, v), f(q, k, v))


@on_cpu
def test_captured_values_are_guarded():
    q, k, v = qkv()
    scale, bias = 2.0, torch.rand(2)

    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * scale + bias[h])

    def want():  # PyTorch 2.15 refuses a float that score_mod captures once it has changed
        scores = q @ k.mT / q.shape[-1] ** 0.5 * scale + bias[:, None, None]
        return scores.softmax(-1) @ v

    c = braze.compile(f, fullgraph=True)
    torch.testing.assert_close(c(q, k, v), want())
    scale = 3.0
    torch.testing.assert_close(c(q, k, v), want())
    bias.mul_(2)
    torch.testing.assert_close(c(q, k, v), want())


@on_cpu
def test_dynamic_lengths():
    bias = torch.rand(2)
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h] * (j - i))
    c = braze.compile(f, fullgraph=True, dynamic=True)
    for n in (64, 96, 130):
        q, k, v = qkv(queries=n)
        torch.testing.assert_close(c(q, k, v), f(q, k, v))


REFUSED = {
    "which is not pointwise": lambda s, b, h, i, j: s + torch.cumsum(s, -1),
    "computes with a whole tensor": lambda s, b, h, i, j: s + torch.zeros(3)[:1].sum() * torch.ones(1) * h.reshape(1),
    "takes more than one element": lambda s, b, h, i, j: s + torch.arange(6.0).view(2, 3)[h],
}


@on_cpu
@pytest.mark.parametrize("why", REFUSED)
def test_other_functions_are_not_captured(why):
    q, k, v = qkv()
    c = braze.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=REFUSED[why]), fullgraph=True)
    with pytest.raises(braze.Unsupported):
        c(q, k, v)


def test_gradients_of_captured_tensors_are_not_captured():
    q, k, v = qkv()
    bias = torch.rand(2, device=q.device, requires_grad=True)
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h])
    with pytest.raises(braze.Unsupported, match="gradients of tensors that a score_mod captured"):
        braze.compile(f, fullgraph=True)(q, k, v)


ALIBI = """graph {
  %0: f32[] = input argument
  %1: i64[] = input argument
  %2: i64[] = input argument
  %3: i64[] = input argument
  %4: i64[] = input argument
  %5: f32[] = input argument
  %6: f32[4] = input argument
  %7: i64[] = aten::sub.Tensor(%4, %3, 1)
  %8: f32[] = aten::index.Tensor(%6, tensors[%2])
  %9: f32[] = aten::mul.Tensor(%8, %7)
  %10: f32[] = aten::add.Tensor(%0, %9, 1)
  %11: bool[] = aten::ge.Tensor(%3, %4)
  return %10, %11, %5
}
"""
FULL_BLOCKS = """
    count = tl.load(full_num + row) * 2
    for turn in range(0, count):
        start = tl.load(full_idx + row * full_columns + turn // 2) * 128 + turn % 2 * 64
        start = tl.multiple_of(start, 64)
        n = start + tl.arange(0, 64)
        k = tl.load(k_base + n[None, :] * k_s + offs_d[:, None])
        ki = n[None, :]
        score = tl.dot(q, k) * scale
        s_n0 = (-1) * qi + ki
        s_v1 = s_n0.to(tl.float32)
        s_v2 = tl.load(x0 + h)
        s_v3 = s_v2 * s_v1
        s_v5 = score + s_v3
        post = s_v5 * 1.4426950408889634
        top = tl.maximum(m_i, tl.max(post, 1))
        safe = tl.where(top == float("-inf"), 0.0, top)
        p = tl.exp2(post - safe[:, None])
        alpha = tl.exp2(m_i - safe)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_base + n[:, None] * v_s + offs_e[None, :])
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(tl.bfloat16), v, acc)
        m_i = top
"""


def printed(queries):
    q = torch.zeros(2, 4, queries, 64, dtype=torch.bfloat16)
    lists = [torch.zeros(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32)] * 2
    return _C._attention_kernels(q, q, q, lists, lists, [torch.zeros(4)], ALIBI, 128, 128, 0.125, True)


def test_text_of_full_blocks():
    assert FULL_BLOCKS in printed(256)[0]["text"]
    assert "key < N" in printed(200)[0]["text"]


@needs_triton
def test_kernels_compile_to_machine_code():
    for made in printed(256):
        compiled = _triton.compile_kernel(
            made["text"],
            made["kernel"],
            made["arguments"],
            made["warps"],
            90,
            made["stages"],
            True,
            made["aligned"],
        )
        assert compiled[0] and compiled[1] == made["warps"] * 32


@pytest.mark.parametrize("length_of_data", [False, True])
def test_beside_sizes_that_depend_on_data(length_of_data):
    def f(q, k, v, x):
        kept = x[x > 0]
        n = kept.shape[0] if length_of_data else 5
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i < n, s + kept[0], s + x[j]))

    compiled = braze.compile(f)
    for seed in range(3):
        torch.manual_seed(seed)
        q, k, v = (torch.randn(1, 2, 24, 16) for _ in range(3))
        x = torch.randn(24)
        torch.testing.assert_close(compiled(q, k, v, x), f(q, k, v, x))
    breaks = braze.explain(f, q, k, v, x).breaks
    assert bool(breaks) == length_of_data and all("varies between calls" in str(b) for b in breaks)
