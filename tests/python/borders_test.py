"""Axes whose parts read differently: padded, rolled, repeated, written slice by slice; resampled images. Against eager."""

import pytest
import torch
import torch.nn.functional as F

import braze

SHAPES = [(2, 3, 17, 33), (40, 16), (3, 5, 40), (1, 1, 1000, 20)]
DTYPES = [torch.float32, torch.bfloat16, torch.int32, torch.float64]


def check(f, x, **options):
    want, before = f(x), braze.counters()["graph_breaks"]
    got = braze.compile(f, fullgraph=True, **options)(x)
    assert got.dtype == want.dtype and got.stride() == want.stride()
    tol = {torch.bfloat16: 1e-2, torch.float32: 1e-4}.get(got.dtype, 0 if not got.is_floating_point() else 1e-12)
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)
    assert braze.counters()["graph_breaks"] == before


def images(shape, dtype):
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)
    return x, x.mT.contiguous().mT


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES[:1] + SHAPES[2:], ids=str)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pads(mode, shape, dtype):
    for x in images(shape, dtype):
        for by in ((1, 1), (3, 2), (0, 4), (1, 0)):
            by = by * (x.dim() - 2)
            if dtype == torch.int32 and mode in ("reflect", "replicate"):
                continue  # not for integers
            check(lambda x: F.relu(F.pad(x, by, mode) * 2), x, dynamic=False)


def two_slices(x):
    y = x * 2
    y[..., 2:7] = x[..., :5]
    y[..., -4:] = 5
    return y


def every_third(x):
    y = x * 2
    y[..., 2::3] = 1
    return y


PLACES = {
    "roll": lambda x: x.roll(3, -1) + 1,
    "roll_back": lambda x: x.roll(-7, -1),
    "roll_far": lambda x: x.roll(100, -1),
    "roll_both": lambda x: x.roll((5, 2), (-1, -2)),
    "crop": lambda x: F.pad(x, (-2, 3)),
    "repeat": lambda x: x.repeat(*[1] * (x.dim() - 1), 3) + 1,
    "two_slices": two_slices,
    "every_third": every_third,
    "cat": lambda x: torch.cat([x, x * 2, x[..., :3]], -1) + 1,
    "triangle": lambda x: x.triu(1) + x.tril(-1),
    "first_places": lambda x: torch.where(torch.arange(x.shape[-1]) < 5, x, -x),
    "one_place": lambda x: torch.where(torch.arange(x.shape[-1]) == 5, x, -x),
    "all_but_one": lambda x: torch.where((torch.arange(x.shape[-1]) > 3) & (torch.arange(x.shape[-1]) != 9), x, x.flip(-1)),
    "every_second": lambda x: x[..., ::2] + x[..., 1 : x.shape[-1] // 2 * 2 : 2].sum(),
    "every_second_from_one": lambda x: x[..., 1::2] * 3,
    "every_fourth": lambda x: x[..., 3::4] + 1,
    "every_fifth": lambda x: x[..., ::5] + 1,
    "interleaved": lambda x: torch.stack([x + 1, -x], -1),
    "three_interleaved": lambda x: torch.stack([x + 1, -x, x * x], -1).flatten(-2),
    "rotated_pairs": lambda x: torch.stack((-x[..., 1::2][..., :8], x[..., ::2][..., :8]), -1).flatten(-2),
    "clamped": lambda x: x[..., torch.arange(x.shape[-1]).clamp(3, 9)],
    "mirrored_and_rolled": lambda x: x.flip(-1) + x.roll(1, -1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("f", PLACES.values(), ids=PLACES)
def test_parts_of_an_axis(f, shape, dtype):
    for x in images(shape, dtype):
        check(f, x, dynamic=False)


@pytest.mark.parametrize("name", ["roll", "crop", "repeat", "two_slices", "clamped"])
def test_parts_of_an_axis_of_open_size(name):
    compiled = braze.compile(PLACES[name], dynamic=True, fullgraph=True)
    for n in (40, 17, 64, 9):
        x = torch.randn(6, n)
        torch.testing.assert_close(compiled(x), PLACES[name](x))


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(20, 30), (7, 50), (40, 9), (5, 6), (12, 30), (20, 16), (1, 1), (64, 64)], ids=str)
def test_bilinear(size, corners):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(2, 3, 12, 16, dtype=dtype)
        check(lambda x: F.interpolate(x.relu(), size=size, mode="bilinear", align_corners=corners) + 1, x)
    x = torch.randn(2, 3, 12, 16, requires_grad=True)
    f = lambda x: F.interpolate(x.exp(), size=size, mode="bilinear", align_corners=corners).square().sum()
    want, got = (torch.autograd.grad(g(x), x)[0] for g in (f, braze.compile(f, fullgraph=True)))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear"])
@pytest.mark.parametrize(
    "scale", [(1.005, 2.0), (1.005, 1.0), (2.0, 1.01), (1.016, 1.016), (2.02, 2.01), (1.7, 0.3)], ids=str
)
def test_scales_that_say_something_else_than_the_sizes(scale, mode):
    """Of equal and doubled sizes PyTorch's kernels go by the sizes or by the scale, each in its own way."""
    for channels in (1, 3):
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(2, channels, 64, 60).contiguous(memory_format=layout).requires_grad_()
            f = lambda x: F.interpolate(x, scale_factor=scale, mode=mode) * 2
            check(lambda x: f(x.detach()), x)
            want, got = (torch.autograd.grad(g(x).square().sum(), x)[0] for g in (f, braze.compile(f)))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_in_a_circle_without_a_batch_at_open_sizes(dims):
    f = lambda x: F.pad(x * 2, (1, 2) * dims, mode="circular")
    compiled = braze.compile(f, dynamic=True)
    for n in (3, 5):
        x = torch.randn([n] * (dims + 1))
        torch.testing.assert_close(compiled(x), f(x))
