"""Weights of four bits as plain code unpacks them (shift, mask, offset, a scale for each group), and of eight: what comes out, and that no
matrix of weights is made where the product is of one row; PyTorch's own operators on packed weights."""

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze

N, K, GROUP = 320, 256, 32


def rand(*shape, lo=0, hi=256, dtype=torch.uint8, seed=0):
    return torch.randint(lo, hi, shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def in_groups(q, scale, zero=None):
    q = q.view(N, K // GROUP, GROUP)
    q = q - 8 if zero is None else q - zero[:, :, None]
    return (q * scale[:, :, None]).view(N, K)


def interleaved(x, w, scale):
    q = torch.stack([w & 0xF, w >> 4], -1).view(N, K)
    return F.linear(x, in_groups(q.to(x.dtype), scale))


def halves(x, w, scale):
    return F.linear(x, in_groups(torch.cat([w & 0xF, w >> 4], 1).to(x.dtype), scale))


def words(x, w, scale):
    q = (w[:, :, None] >> torch.arange(0, 32, 4, dtype=torch.int32)) & 0xF
    return F.linear(x, in_groups(q.view(N, K).to(x.dtype), scale))


def seen_as_bytes(x, w, scale):
    b = w.view(torch.uint8)
    return F.linear(x, in_groups(torch.stack([b & 0xF, b >> 4], -1).view(N, K).to(x.dtype), scale))


def with_zeros(x, w, scale, zero):
    q = torch.stack([w & 0xF, w >> 4], -1).view(N, K)
    return F.linear(x, in_groups(q.to(x.dtype), scale, zero))


def bytes_by_row(x, w, scale):
    return F.linear(x, w.to(x.dtype) * scale)


def bytes_after(x, w, scale, bias):
    return F.linear(x, w.to(x.dtype), bias) * scale.t()


def cases(dtype):
    scale = rand(N, K // GROUP, lo=1, hi=9, dtype=dtype) / 64
    row = rand(N, 1, lo=1, hi=9, dtype=dtype) / 64
    packed = rand(N, K // 2)
    return {
        "interleaved": (interleaved, [packed, scale]),
        "halves": (halves, [packed, scale]),
        "words": (words, [rand(N, K // 8, lo=-(2**31), hi=2**31 - 1, dtype=torch.int32), scale]),
        "seen as bytes": (seen_as_bytes, [rand(N, K // 8, lo=-(2**31), hi=2**31 - 1, dtype=torch.int32), scale]),
        "with zeros": (with_zeros, [packed, scale, rand(N, K // GROUP, lo=0, hi=16, dtype=dtype)]),
        "bytes": (bytes_by_row, [rand(N, K, lo=-128, hi=128, dtype=torch.int8), row]),
        "bytes after": (bytes_after, [rand(N, K, lo=-128, hi=128, dtype=torch.int8), row, row.view(N)]),
        "float8": (
            bytes_by_row,
            [torch.randn(N, K, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn), row],
        ),
    }


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", cases(torch.float32))
def test_products(name, dtype, rows):
    fn, weights = cases(dtype)[name]
    x = rand(rows, K, lo=-4, hi=5, dtype=dtype, seed=5) / 4
    want = fn(x.double(), *(w.double() if w.dtype == dtype else w for w in weights))
    got, eager = braze.compile(fn, fullgraph=True)(x, *weights), fn(x, *weights)
    assert got.dtype == dtype and got.stride() == eager.stride()
    error, allowed = ((t.double() - want).abs().max().item() for t in (got, eager))
    assert error <= 2 * allowed + 1e-5 * want.abs().max().item(), (error, allowed)


@pytest.mark.parametrize("name", [n for n in cases(torch.float32) if n != "halves"])
def test_one_row_makes_no_matrix(name):
    fn, weights = cases(torch.float32)[name]
    said = braze.explain(fn, torch.randn(1, K), *weights)
    assert said.extern_count == 0, said
    assert all(line.find(f"[{N}, {K}]") < 0 for line in said.plans[0].splitlines() if "temp" in line), said.plans[0]


@pytest.mark.parametrize("name", ["interleaved", "words", "bytes", "float8"])
def test_many_rows_make_it_once(name):
    fn, weights = cases(torch.float32)[name]
    said = braze.explain(fn, torch.randn(64, K), *weights)
    assert said.extern_count == 1, said


def test_gradient_of_the_rows():
    fn, weights = cases(torch.float32)["interleaved"]
    for rows in (1, 4):
        grads = []
        for f in (fn, braze.compile(fn)):
            x = (rand(rows, K, dtype=torch.float32) / 64).requires_grad_()
            f(x, *weights).sin().sum().backward()
            grads.append(x.grad)
        same(grads[0], grads[1], tol=1e-4)


def test_packed_eight_bits():
    w, scale = rand(64, 128, lo=-128, hi=128, dtype=torch.int8), torch.rand(64).bfloat16()
    fn = lambda x, w, s: torch._weight_int8pack_mm(x * 2, w, s) + 1  # noqa: E731
    x = torch.randn(4, 128).bfloat16()
    same(fn(x, w, scale), braze.compile(fn, fullgraph=True)(x, w, scale), tol=2e-2)


def test_packed_four_bits():
    packed = torch._convert_weight_to_int4pack_for_cpu(rand(64, 128, hi=16, dtype=torch.int32), 1)
    scales = torch.rand(128 // 32, 64, 2).bfloat16()
    fn = lambda x, w, s: torch._weight_int4pack_mm_for_cpu(x * 2, w, 32, s).relu()  # noqa: E731
    x = torch.randn(4, 128).bfloat16()
    same(fn(x, packed, scales), braze.compile(fn, fullgraph=True)(x, packed, scales), tol=2e-2)
    unpacked = rand(64, 128, hi=16, dtype=torch.int32)
    convert = lambda w: torch._convert_weight_to_int4pack_for_cpu(w & 15, 1)  # noqa: E731
    same(convert(unpacked), braze.compile(convert, fullgraph=True)(unpacked))
