"""Convolutions on an NVIDIA GPU, against eager: layouts, biases, each channel by itself."""

import pytest
import torch
import torch.nn.functional as F
from cuda_test import check, rand

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def test_convolution():
    torch.backends.cudnn.allow_tf32 = False
    check(lambda x, w: F.relu(F.conv2d(x, w, padding=1)), rand(2, 8, 16, 16), rand(8, 8, 3, 3))


def test_convolutions_in_channels_last():
    torch.backends.cudnn.allow_tf32 = False
    w1, w2, w3 = rand(16, 8, 3, 3), rand(16, 16, 1, 1, seed=3), rand(16, 16, 3, 3, seed=5)

    def f(x, w1, w2, w3):
        y = F.relu(F.conv2d(x, w1, padding=1))
        z = F.conv2d(y, w2) + y
        p = F.max_pool2d(torch.tanh(z), 2)
        q = F.conv2d(p, w3, stride=2) * 2
        return q, q.flatten(1).sum(1), p.mean((2, 3)), z.transpose(1, 2) + 1, z.view(2, 4, -1).softmax(-1)

    check(f, rand(2, 8, 20, 24), w1, w2, w3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "size, window, how",
    [
        ((2, 96, 14, 14), (7, 7), {"padding": 3}),
        ((1, 24, 31, 29), (5, 5), {"padding": 2, "stride": 2}),
        ((3, 7, 13, 11), (3, 3), {"padding": 1}),
        ((2, 40, 9, 17), (3, 5), {"padding": (2, 4), "dilation": 2, "stride": (2, 1)}),
        ((2, 16, 12, 8), (1, 9), {"padding": (0, 4)}),
        ((2, 16, 12, 8), (9, 1), {"padding": (4, 0)}),
        ((64, 96, 56, 56), (7, 7), {"padding": 3}),
        ((8, 672, 7, 7), (5, 5), {"padding": 2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=["channels_last", "contiguous"])
def test_convolutions_of_each_channel(layout, size, window, how, dtype):
    """Windows over the edges, strides, dilation, rows that strips divide and that they do not, what follows in the same kernel; results
    within twice eager's error."""
    c = size[1]
    x = rand(*size, dtype=dtype).to(memory_format=layout)
    w, b = rand(c, 1, *window, dtype=dtype), rand(c, dtype=dtype)
    torch.backends.cudnn.allow_tf32 = False
    f = lambda x, w, b: torch.relu(F.conv2d(x, w, b, groups=c, **how)) + 1
    compiled = braze.compile(f)
    got, want, exact = compiled(x, w, b), f(x, w, b), f(x.double(), w.double(), b.double())
    assert got.stride() == want.stride() and braze.explain(f, x, w, b).extern_count == 0
    worst = lambda r: (r.double() - exact).abs().max().item()
    assert worst(got) <= 2 * worst(want) + 1e-6, (worst(got), worst(want))
    h = braze.compile(lambda x: F.conv2d(x.tanh(), w, groups=c, **how).permute(0, 2, 3, 1).contiguous())
    torch.testing.assert_close(h(x), F.conv2d(x.tanh(), w, groups=c, **how).permute(0, 2, 3, 1), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("groups", [1, 8, 2])
def test_convolutions_of_channels_last(groups, dtype):
    """Layouts as eager has them (check compares strides), no copy between them, biases in the kernels that follow. Of each channel by
    itself they are kernels, too."""
    x = rand(2, 8, 12, 10, dtype=dtype).to(memory_format=torch.channels_last)
    w, b = rand(8, 8 // groups, 3, 3, dtype=dtype) / 8, rand(8, dtype=dtype)
    conv = lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=groups)
    check(conv, x, w, b)
    # One more lays out the weights of a convolution without groups, or of each channel by itself.
    check(lambda x, w, b: F.gelu(conv(x, w, b)) + x, x, w, b, kernels=1 + (groups != 2), externs=int(groups != 8))
    check(lambda x, w, b: F.layer_norm(conv(x, w, b).permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2) + x, x, w, b)
    check(lambda x, w, b: conv(conv(x, w, b).relu(), w, b), x, w, b)
    check(lambda x, w, b: F.conv_transpose2d(x, w.reshape(8, -1, 3, 3), None, stride=2, groups=groups).tanh(), x, w, b)
