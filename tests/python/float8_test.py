"""Floats of a byte: every number that is read, every one that is cast, what moves them, what eager refuses, and scaling by the
largest magnitude as training and inference in float8 write it."""

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze

DTYPES = [getattr(torch, f"float8_{n}") for n in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")]
SIGNED = DTYPES[:4]
WIDE = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
bits_of = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def patterns(dtype):
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)


def same_bits(want, got):
    """Equal in every bit, but that a NaN may be any NaN where the type has more than a byte."""
    assert want.dtype == got.dtype and want.shape == got.shape
    a, b = (t.contiguous().view(bits_of[t.element_size()]) for t in (want, got))
    wrong = a != b
    if want.is_floating_point() and want.element_size() > 1:
        wrong &= ~(want.isnan() & got.isnan())
    where = wrong.nonzero()[:5]
    assert not where.numel(), [(tuple(i.tolist()), want[tuple(i)].item(), got[tuple(i)].item()) for i in where]


def many(dtype):
    """Every number of a type of 16 bits; of wider ones all that these are the upper half of, next to it and half way."""
    every = torch.arange(65536, dtype=torch.int32)
    if dtype in (torch.bfloat16, torch.float16):
        return every.to(torch.int16).view(dtype)
    g = torch.Generator().manual_seed(1)
    low = [torch.full((65536,), n) for n in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    low += [torch.randint(0, 65536, (65536,), generator=g) for _ in range(4)]
    x = torch.cat([(every.long() << 16 | n).to(torch.int32).view(torch.float32) for n in low])
    ties = (patterns(torch.float8_e5m2).float().nan_to_num(0, 0, 0) * torch.linspace(0.5, 1.5, 33)[:, None]).flatten()
    return torch.cat([x, ties]).to(dtype)


@pytest.mark.parametrize("to", [*WIDE, torch.bool, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_pattern_is_read(dtype, to):
    x = patterns(dtype)
    if to is torch.int32:  # of what is no integer, any will do
        x = x[x.float().abs() < 2**31]
    fn = braze.compile(lambda x: x.to(to))
    same_bits(x.to(to), fn(x))
    odd = x[:29].repeat(3)[1::2]
    same_bits(odd.to(to), fn(odd))


@pytest.mark.parametrize("source", WIDE, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_is_rounded(dtype, source):
    x = many(source)
    same_bits(x.to(dtype), braze.compile(lambda x: x.to(dtype))(x))


@pytest.mark.parametrize(
    "source", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_are_rounded(dtype, source):
    x = torch.cat(
        [
            torch.arange(-130, 300),
            torch.tensor([2**24 + 1, -(2**31), 2**31 - 1, 57344, 61439, 61440, 61441, 463, 464, 465]),
        ]
    )
    x = x.to(source)
    same_bits(x.to(dtype), braze.compile(lambda x: x.to(dtype))(x))


@pytest.mark.parametrize("to", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_to_another(dtype, to):
    x = patterns(dtype)
    same_bits(x.to(to), braze.compile(lambda x: x.to(to))(x))
    chain = lambda x: (x.to(to).float() * 1.5).to(dtype)  # noqa: E731
    same_bits(chain(x), braze.compile(chain)(x))


def written(x):
    y = x.clone()
    y[1] = 1.0
    y[:, 2] = x[:, 0]
    return y


MOVES = {
    "clone": lambda x: x.clone(),
    "transposed": lambda x: x.t().contiguous(),
    "bytes": lambda x: x.view(torch.uint8) ^ 1,
    "from bytes": lambda x: (x.view(torch.uint8) & 0x3F).view(x.dtype).float() + 1,
    "wider view": lambda x: x.view(torch.int16) + 1,
    "cat": lambda x: torch.cat([x, x[1:3], x[:4]]),
    "stack": lambda x: torch.stack([x, x]),
    "rows": lambda x: x[torch.tensor([3, 0, -1])],
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
    "embedding": lambda x: F.embedding(torch.tensor([[1, 2], [0, 3]]), x),
    "where": lambda x: torch.where(x.float() > 0, x, x[:1]),
    "where number": lambda x: torch.where(x.float() > 0, x, 1.3),
    "where large number": lambda x: torch.where(x.float() > 0, x, 1e9),
    "equal": lambda x: x == x[2],
    "not equal": lambda x: x != 1.0,
    "equal rounded": lambda x: x == 1.01,
    "nan": lambda x: x.isnan(),
    "slice": lambda x: x[1:, ::2].reshape(-1),
    "repeat": lambda x: x.repeat(2, 3),
    "expand": lambda x: x[None].expand(2, -1, -1).contiguous(),
    "written": written,
    "copied over": lambda x: x.clone().copy_(x.float() * 2),
    "copied from": lambda x: torch.zeros(x.shape).copy_(x) + 1,
    "zeros": lambda x: torch.zeros_like(x),
    "ones": lambda x: torch.ones(3, dtype=x.dtype),
    "full": lambda x: torch.full((5,), 1.7, dtype=x.dtype),
    "filled": lambda x: x.clone().fill_(2.5),
    "padded": lambda x: F.pad(x, (1, 1), value=1.0),
    "any": lambda x: (x.any(), x.all()),
    "sum": lambda x: x.sum(dtype=torch.float32),
    "flipped": lambda x: x.flip(0),
    "rolled": lambda x: x.roll(1, 0),
    "tiled": lambda x: x.tile((2, 2)),
    "split": lambda x: [t.contiguous() for t in x.split(3)][1],
    "scalar where": lambda x: torch.where(x.float() > 0, x.flatten()[0], x),
    "mask": lambda x: x[x.float() > 0],
    "put": lambda x: x.clone().index_put_((torch.tensor([0, 2]),), x[:2]),
    "abs": lambda x: x.abs(),
    "product": lambda x: x * x,
    "item": lambda x: x[0, 1].item(),
    "0-dim": lambda x: x[0, 1] * torch.ones(3, dtype=torch.bfloat16),
    "matrix product": lambda x: x @ x.t(),
}


@pytest.mark.parametrize("shape", [(6, 8), (48,)], ids=str)
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_moves(dtype, name, shape):
    fn = MOVES[name]
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(3)).view(shape).to(dtype)
    try:
        want = fn(x)
    except (RuntimeError, IndexError) as e:
        with pytest.raises(type(e)) as raised:
            braze.compile(fn)(x)
        assert str(raised.value).splitlines()[0] == str(e).splitlines()[0]
        return
    got = braze.compile(fn)(x)
    for a, b in zip(want, got) if isinstance(want, tuple) else [(want, got)]:
        if isinstance(a, torch.Tensor):
            assert a.stride() == b.stride()
            same_bits(a, b)
        else:
            assert a == b


REFUSED = {
    "add": lambda x: x + x,
    "number": lambda x: x * 2.0,
    "neutral number": lambda x: x * 1.0,
    "neg": lambda x: -x,
    "less": lambda x: x < x,
    "max": lambda x: x.max(),
    "amax": lambda x: x.amax(0),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "softmax": lambda x: x.softmax(-1),
    "relu": lambda x: x.relu(),
    "clamp": lambda x: x.clamp(-1, 1),
    "exp": lambda x: x.exp(),
    "tril": lambda x: x.tril(),
    "gather": lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.long)),
    "masked_fill": lambda x: x.masked_fill(x.float() > 0, 0.0),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort()[0],
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "mixed with bfloat16": lambda x: x + x.to(torch.bfloat16),
    "mixed cat": lambda x: torch.cat([x, x.float()]),
    "mixed where": lambda x: torch.where(x.float() > 0, x, x.float()),
    "mixed with bool": lambda x: x * torch.ones(8, dtype=torch.bool),
    "full beyond": lambda x: torch.full((3,), 1e9, dtype=x.dtype),
    "random": lambda x: torch.randn(3, dtype=x.dtype),
    "sequence": lambda x: torch.arange(3, dtype=x.dtype),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_what_eager_refuses(dtype, name):
    fn = REFUSED[name]
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(3)).to(dtype)
    with pytest.raises(RuntimeError) as want:
        fn(x)
    with pytest.raises(type(want.value)) as got:
        braze.compile(fn)(x)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def scaled(x, dtype, dim=None):
    amax = x.abs().max() if dim is None else x.abs().amax(dim, keepdim=True)
    top = torch.finfo(dtype).max
    scale = (top / torch.clamp(amax.double(), min=1e-12)).float()
    return (x.float() * scale).clamp(min=-top, max=top).to(dtype), scale.reciprocal()


@pytest.mark.parametrize("dim", [None, 0, -1])
@pytest.mark.parametrize("source", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_dynamic_scaling(dtype, source, dim):
    x = (torch.randn(96, 160, generator=torch.Generator().manual_seed(0)) * 5).to(source)
    want, got = scaled(x, dtype, dim), braze.compile(lambda x: scaled(x, dtype, dim))(x)
    same_bits(want[0], got[0])
    same(want[1], got[1])


def test_scaling_is_kernels():
    """The largest magnitude is one pass, scaling and rounding another; of a row, both are one kernel."""
    x = torch.randn(64, 256).bfloat16()
    for fn, kernels in (
        (lambda x: scaled(x, torch.float8_e4m3fn), 2),
        (lambda x: scaled(F.silu(x) * 2, torch.float8_e4m3fn, -1), 1),
    ):
        said = braze.explain(fn, x)
        assert (said.kernel_count, said.extern_count) == (kernels, 0), said


def test_dequantised_weights_are_products():
    w, scale = scaled(torch.randn(48, 64, generator=torch.Generator().manual_seed(1)), torch.float8_e4m3fn, -1)
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(2))
    fn = lambda x, w, s: F.linear(x, w.to(x.dtype) * s)  # noqa: E731
    same(fn(x, w, scale), braze.compile(fn, fullgraph=True)(x, w, scale))


def test_open_sizes():
    fn = braze.compile(lambda x: scaled(x, torch.float8_e5m2)[0].float().sum(-1), dynamic=True)
    for n in (3, 17, 40):
        x = torch.randn(n, 24, generator=torch.Generator().manual_seed(n))
        same(scaled(x, torch.float8_e5m2)[0].float().sum(-1), fn(x))


class Straight(torch.autograd.Function):
    """Rounded to float8 both ways, as training does it."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        (a, s), (b, t) = scaled(x, torch.float8_e4m3fn), scaled(w, torch.float8_e4m3fn)
        return (a.float() * s) @ (b.float() * t).t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        q, s = scaled(g, torch.float8_e5m2)
        g = q.float() * s
        return g @ w, g.t() @ x


def test_training():
    x, w = torch.randn(8, 16), torch.randn(12, 16)
    out = []
    for fn in (Straight.apply, braze.compile(Straight.apply)):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = fn(a, b)
        y.sin().sum().backward()
        out.append((y.detach(), a.grad, b.grad))
    same(out[0], out[1])


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_gradient_of_a_cast(dtype):
    def fn(x):
        return (x * 2).to(dtype).to(torch.float32) * 3

    x = torch.randn(4, 8)
    grads = []
    for f in (fn, braze.compile(fn)):
        a = x.clone().requires_grad_()
        f(a).sum().backward()
        grads.append(a.grad)
    same(grads[0], grads[1])


def test_dtypes_are_told_apart():
    fn = braze.compile(lambda x: x.to(torch.float32) * 2)
    for dtype in (*DTYPES, torch.uint8, *DTYPES):
        x = torch.arange(1, 33, dtype=torch.uint8).view(dtype)
        same_bits(x.to(torch.float32) * 2, fn(x))


def test_input_in_place():
    cache = torch.zeros(8, 4).to(torch.float8_e4m3fn)
    other = cache.clone()
    k, at = torch.randn(2, 4), torch.tensor([3, 5])

    def fn(cache, k, at):
        cache[at] = k.to(cache.dtype)
        return cache.float().sum()

    same(fn(cache, k, at), braze.compile(fn)(other, k, at))
    same_bits(cache, other)
