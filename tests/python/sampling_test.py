"""grid_sample at every place of a grid: inside, on borders, outside, and at places that are no numbers."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import braze

SIZES = {2: [(7, 5), (1, 1), (2, 9)], 3: [(4, 5, 6), (1, 1, 1), (3, 1, 2)]}
PLACES = {2: (4, 5), 3: (3, 4, 2)}
AMONG = [math.nan, math.inf, -math.inf, 1e20, -1e20, 1.0, -1.0, 0.0, -0.0]


def grid(dims, dtype, seed=0):
    g = torch.rand(2, *PLACES[dims], dims, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 4 - 2
    flat = g.view(-1)
    for k, place in enumerate(AMONG):
        flat[3 * k + 1] = place
    return g


def image(dims, sizes, dtype, seed=1, channels=3):
    return torch.randn(2, channels, *sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def check(f, x, g, kernels=None):
    got, want = braze.compile(f, fullgraph=True)(x, g), f(x, g)
    tol = 1e-12 if x.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(got, want, rtol=tol, atol=tol, equal_nan=True)
    assert got.stride() == want.stride()
    if kernels is not None:
        found = braze.explain(f, x, g)
        assert (found.kernel_count, found.extern_count) == (kernels, 1 - kernels)


@pytest.mark.parametrize("corners", [True, False], ids=["corners", "edges"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    "dims, mode", [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
)
def test_places(dims, mode, padding, corners):
    f = lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=corners)  # noqa: E731
    for sizes, dtype in itertools.product(SIZES[dims], (torch.float32, torch.float64)):
        check(f, image(dims, sizes, dtype), grid(dims, dtype), kernels=int(dims == 3))


@pytest.mark.parametrize("codegen", ["llvm", "cpp"])
def test_with_what_surrounds_it(codegen):
    def f(x, g):
        return F.grid_sample(x * 2 + 1, torch.tanh(g), align_corners=False).relu() - 1

    x, g = image(3, (4, 5, 6), torch.float32), torch.randn(2, 3, 4, 5, 3)
    with torch.no_grad():
        got = braze.compile(f, fullgraph=True, options={"codegen": codegen})(x, g)
    torch.testing.assert_close(got, f(x, g), rtol=1e-5, atol=1e-5)
    assert braze.explain(f, x, g).extern_count == 0


@pytest.mark.parametrize("layout", ["channels last", "a part", "expanded"])
def test_layouts(layout):
    f = lambda x, g: F.grid_sample(x, g, align_corners=True)  # noqa: E731
    x, g = image(3, (4, 5, 6), torch.float32), grid(3, torch.float32)
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last_3d)
    elif layout == "a part":
        x, g = x[:, :, 1:, ::2], g[:, :2]
    else:
        x = x[:1].expand(2, -1, -1, -1, -1)
    check(f, x, g)


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients(dims):
    f = lambda x, g: (F.grid_sample(x, g, align_corners=False, padding_mode="border") ** 2).sum()  # noqa: E731
    found = []
    for run in (f, braze.compile(f, fullgraph=True)):
        x = image(dims, SIZES[dims][0], torch.float64).requires_grad_()
        g = (
            torch.rand(2, *PLACES[dims], dims, generator=torch.Generator().manual_seed(3)).double() * 3 - 1.5
        ).requires_grad_()
        run(x, g).backward()
        found.append((x.grad, g.grad))
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want)


def test_a_net_that_turns_its_images():
    class Transformer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.where = torch.nn.Linear(12, 6)

        def forward(self, x):
            theta = self.where(x.mean((2, 3)).repeat(1, 4)).view(-1, 2, 3)
            return F.grid_sample(x, F.affine_grid(theta, x.size(), align_corners=False), align_corners=False)

    net, x = Transformer().eval(), torch.randn(2, 3, 16, 12)
    with torch.no_grad():
        torch.testing.assert_close(braze.compile(net, fullgraph=True)(x), net(x), rtol=1e-5, atol=1e-5)


def test_open_sizes():
    f = lambda x, g: F.grid_sample(x, g, align_corners=False)  # noqa: E731
    compiled = braze.compile(f, fullgraph=True, dynamic=True)
    for depth, places in [(4, 3), (7, 5), (2, 8)]:
        x, g = torch.randn(2, 3, depth, 5, 6), torch.rand(2, places, 4, 2, 3) * 2 - 1
        torch.testing.assert_close(compiled(x, g), f(x, g), rtol=1e-5, atol=1e-5)
