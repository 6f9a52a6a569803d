"""Reductions of rows that are shorter than a vector, along them and across, and parts of short rows that are written at once."""

import pytest
import torch
from harness import same

import braze

SIZES = [
    (70, 2),
    (1000, 3),
    (4099, 2),
    (20011, 3),
    (30000, 4),
    (9973, 5),
    (10007, 7),
    (10000, 8),
    (5003, 9),
    (3, 4096, 3),
]
REDUCTIONS = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: (1 + x / 1024).prod(d),
    "amax": lambda x, d: x.amax(d),
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "max": lambda x, d: x.max(d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "var": lambda x, d: x.var(d),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d),
    "any": lambda x, d: (x > 2).any(d),
    "of columns of another tensor": lambda x, d: (x - x[..., :1, :]).square().sum(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "two": lambda x, d: (x.sum(d), x.amin(d)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("along", [-1, -2], ids=["along", "across"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, along, dynamic):
    torch.manual_seed(0)
    fn = braze.compile(lambda x: REDUCTIONS[name](x, along), dynamic=dynamic, fullgraph=True)
    for size in SIZES:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.randn(size).to(dtype)
            got, want = fn(x), REDUCTIONS[name](x, along)
            if dtype == torch.float64 or name in ("argmax", "argmin", "max", "any"):
                same(want, got, tol=1e-10)
                continue
            exact = REDUCTIONS[name](x.double(), along)
            for g, w, e in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want, exact))):
                assert g.dtype == w.dtype and g.stride() == w.stride()
                own, eager = ((v.double() - e).abs().max().item() for v in (g, w))
                rounding = torch.finfo(dtype).eps * e.abs().max().item()
                assert own <= 2 * eager + (64 if dtype == torch.float32 else 2) * rounding


@pytest.mark.parametrize("columns", [2, 3, 8])
def test_first_of_equals_and_nan(columns):
    x = torch.zeros(20001, columns)
    fn = braze.compile(lambda x: (x.argmax(0), x.argmin(0), x.amax(0)), fullgraph=True)
    same((x.argmax(0), x.argmin(0), x.amax(0)), fn(x))
    for row in (17, 4444, 20000):
        x[row:, 0] = 1
        x[row, 1] = float("nan")
        same((x.argmax(0), x.argmin(0), x.amax(0)), fn(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers(dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (10007, 3)).to(dtype)
    f = lambda x: (x.sum(0), x.sum(1), x.any(0), x.amax(1), x.cumsum(1))  # noqa: E731
    same(f(x), braze.compile(f, fullgraph=True)(x))


def test_rows_that_are_not_neighbours():
    torch.manual_seed(0)
    base = torch.randn(6000, 6)
    f = lambda x: (x.sum(0), x.sum(1), x.softmax(1), x.argmax(0))  # noqa: E731
    for x in (
        base[:, :3],
        base[:, ::2],
        base.t()[:3].t(),
        base[::2, :2],
        base[:, 1:].flip(1),
        base[:, :1].expand(6000, 4),
    ):
        same(f(x), braze.compile(f, fullgraph=True)(x))


CATS = {
    "images in channels-last": lambda x: torch.cat([x, x.sin()], 1),
    "rotary": lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1),
    "three": lambda x: torch.cat([x, x + 1, x * 2], -1),
    "of other widths": lambda x: torch.cat([x, x[..., :3], x[..., 1:2]], -1),
    "stack": lambda x: torch.stack([x, -x], -1),
    "over each other": lambda x: torch.cat([x, x], 1).as_strided((4, 8), (3, 1)).add(1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CATS)
def test_parts_of_rows(name, dynamic):
    torch.manual_seed(0)
    fn = braze.compile(CATS[name], dynamic=dynamic, fullgraph=True)
    for size in ((2, 8, 8, 8), (3, 16, 4, 8), (1, 8, 5, 8)):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(size).to(memory_format=layout)
            got, want = fn(x), CATS[name](x)
            same(want, got)
            assert got.stride() == want.stride()


def test_writes_that_meet_keep_their_order():
    def f(x):
        y = torch.zeros(100, 8)
        y[:, :5] = x[:, :5]
        y[:, 3:] = x[:, 3:] * 2
        return y

    x = torch.randn(100, 8)
    same(f(x), braze.compile(f, fullgraph=True)(x))


def test_parts_of_rows_are_one_kernel():
    fn = braze.compile(lambda x, y: torch.cat([x, y], -1), fullgraph=True)
    x, y = torch.randn(100, 16), torch.randn(100, 16)
    assert braze.explain(fn, x, y).kernel_count == 1
