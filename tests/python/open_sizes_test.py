"""Operators whose code in PyTorch reads sizes as numbers keep them open all the same: one compilation for all sizes."""

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze
from braze import _C

SIZES = [(2, 4, 6, 8), (3, 4, 8, 10), (5, 4, 10, 6), (4, 4, 12, 14)]

FUNCTIONS = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest, a fraction": lambda x: F.interpolate(x, scale_factor=(1.5, 0.75)),
    "nearest exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "bilinear to a size": lambda x: F.interpolate(x, size=(10, 12), mode="bilinear", align_corners=True),
    "to a size of the operand's": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] + 1)),
    "bilinear, antialias": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "linear": lambda x: F.interpolate(x[:, :, 0], scale_factor=2, mode="linear"),
    "lines": lambda x: F.interpolate(x[:, :, 0], scale_factor=2),
    "volumes": lambda x: F.interpolate(x.unsqueeze(2), scale_factor=2),
    "trilinear": lambda x: F.interpolate(x.unsqueeze(2), scale_factor=2, mode="trilinear"),
    "channels-last": lambda x: F.interpolate(x.to(memory_format=torch.channels_last), scale_factor=2, mode="bilinear"),
    "grid_sample": lambda x: F.grid_sample(x, x[:, :2, :5, :5].permute(0, 2, 3, 1), align_corners=False),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "unfold": lambda x: F.unfold(x, 3),
    "fold": lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[2:], 2, stride=2),
    "cross_entropy": lambda x: F.cross_entropy(x, x.argmax(1)),
    "cross_entropy, each": lambda x: F.cross_entropy(x, x.argmax(1), reduction="none"),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.sin()),
    "glu": lambda x: F.glu(x, 1),
    "glu of an open size": lambda x: F.glu(x, 2),
    "rfft": lambda x: torch.fft.rfft(x).abs(),
}


def compiled_once(function, inputs):
    compiled = braze.compile(function, dynamic=True, fullgraph=True)
    for x in inputs:
        want, got = function(x), compiled(x)
        same(got, want)
        assert got.stride() == want.stride()
        if x.requires_grad:
            (wanted,), (given,) = (torch.autograd.grad(y, x, torch.ones_like(want)) for y in (want, got))
            same(given, wanted)
            assert given.stride() == wanted.stride()
    assert _C.compilations(compiled) == 1


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_compilation(name, training):
    torch.manual_seed(0)
    compiled_once(FUNCTIONS[name], [torch.randn(size).requires_grad_(training) for size in SIZES])


IN_PLACE = {
    "clamp_": (-0.5, 0.5),
    "clamp_min_": (0.0,),
    "clamp_max_": (0.0,),
    "copysign_": (-1.0,),
    "cumprod_": (1,),
    "cumsum_": (1,),
    "logit_": (0.1,),
    "nan_to_num_": (),
    "renorm_": (2, 0, 1.0),
    "sinc_": (),
    "tril_": (),
    "triu_": (1,),
    "xlogy_": (2.0,),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_one_compilation_in_place(name):
    torch.manual_seed(0)

    def function(x):
        y = x * 0.9
        getattr(y, name)(*IN_PLACE[name])
        return y

    compiled_once(function, [torch.randn(b, b + 3) for b in (2, 4, 5)])


@pytest.mark.parametrize("name, args", [("transpose_", (0, 1)), ("t_", ()), ("unsqueeze_", (1,)), ("squeeze_", ())])
def test_views_in_place(name, args):
    def function(x):
        y = x * 2
        getattr(y, name)(*args)
        return y + 1

    compiled = braze.compile(function, dynamic=True, fullgraph=True)
    for b in (2, 4, 5):
        x = torch.randn(b, b + 3)
        same(compiled(x), function(x))


def test_errors_are_those_of_eager():
    upsampled = braze.compile(lambda x: F.interpolate(x, size=(0, 4)), dynamic=True)
    sampled = braze.compile(lambda x, grid: F.grid_sample(x, grid, align_corners=False), dynamic=True)
    with pytest.raises(RuntimeError, match="should be greater than 0"):
        upsampled(torch.randn(2, 3, 4, 4))
    with pytest.raises(RuntimeError, match="same batch size"):
        sampled(torch.randn(2, 3, 4, 4), torch.zeros(3, 5, 5, 2))

    # Sizes that coincide in one call, and not in the next.
    x, grid = torch.randn(2, 3, 4, 4), torch.zeros(2, 5, 2, 2)
    same(sampled(x, grid), F.grid_sample(x, grid, align_corners=False))
    for wrong in (torch.zeros(3, 5, 2, 2), torch.zeros(2, 5, 2, 3)):
        with pytest.raises(RuntimeError, match="expected"):
            sampled(x, wrong)
    # Sizes of which nothing is left.
    quarter = braze.compile(lambda x: F.interpolate(x, scale_factor=0.25, mode="bilinear"), dynamic=True)
    quarter(torch.randn(2, 3, 8, 8))
    with pytest.raises(RuntimeError, match="should be greater than 0"):
        quarter(torch.randn(2, 3, 3, 8))

    def expanded(x):
        x.expand(4, -1, -1, -1).clamp_(0)

    with pytest.raises(RuntimeError, match="single memory location"):
        braze.compile(expanded, dynamic=True)(torch.randn(1, 3, 4, 5))


def test_a_marked_dimension_stays_open():
    """Which is an error where the code decides it."""
    function = FUNCTIONS["bilinear"]
    compiled = braze.compile(function, fullgraph=True)
    for batch in (2, 5):
        x = torch.randn(batch, 3, 6, 7)
        torch._dynamo.mark_dynamic(x, 0)
        same(compiled(x), function(x))
    assert _C.compilations(compiled) == 1
