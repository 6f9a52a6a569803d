"""grid_sample and embedding_bag on a GPU: kernels, with eager's results at every place."""

import itertools

import pytest
import sampling_test as cases
import torch
import torch.nn.functional as F

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def check(f, *args, kernel=True, tol=1e-5):
    with torch.no_grad():
        got, want = braze.compile(f, fullgraph=True)(*args), f(*args)
        assert (braze.explain(f, *args).extern_count == 0) == kernel
    torch.testing.assert_close(got, want, rtol=tol, atol=tol, equal_nan=True)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("corners", [True, False], ids=["corners", "edges"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    "dims, mode", [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
)
def test_places(dims, mode, padding, corners):
    f = lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=corners)  # noqa: E731
    # What another library samples is its call.
    cudnn = dims == 2 and mode == "bilinear" and padding == "zeros" and corners
    for sizes, dtype in itertools.product(cases.SIZES[dims], (torch.float32, torch.float64)):
        g = cases.grid(dims, dtype).cuda()
        check(f, cases.image(dims, sizes, dtype, channels=32).cuda(), g, kernel=not cudnn)
        check(f, cases.image(dims, sizes, dtype).cuda(), g, kernel=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_one_length(mode, dtype):
    w = torch.randn(50, 24, generator=torch.Generator().manual_seed(0)).to(dtype).cuda()
    idx = torch.randint(0, 50, (6, 5), generator=torch.Generator().manual_seed(1)).cuda()
    tol = 1e-5 if dtype == torch.float32 else 2e-2
    check(lambda i, w: F.embedding_bag(i, w, mode=mode), idx, w, tol=tol)
    check(lambda i, w: F.embedding_bag(i, w, mode=mode, padding_idx=3), idx, w, tol=tol)


@pytest.mark.parametrize("corners", [True, False], ids=["corners", "edges"])
def test_gradients(corners):
    found = []
    for run in (lambda f: f, lambda f: braze.compile(f, fullgraph=True)):
        x = cases.image(2, (7, 5), torch.float32).cuda().requires_grad_()
        g = (torch.rand(2, 4, 5, 2, generator=torch.Generator().manual_seed(3)) * 3 - 1.5).cuda().requires_grad_()
        f = lambda x, g: (F.grid_sample(x, g, align_corners=corners) ** 2).sum()  # noqa: E731
        run(f)(x, g).backward()
        found.append((x.grad, g.grad))
    for got, want in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
