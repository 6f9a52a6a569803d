"""Small convolutions on a CPU are kernels of Braze's: of each channel by itself, and with windows of one element, in planes and in
pixels, with what surrounds them."""

import pytest
import torch
import torch.nn.functional as F

import braze

LAYOUTS = [torch.contiguous_format, torch.channels_last]


def counts(compiled, *args):
    told = braze.explain(compiled, *args)
    return told.kernel_count, told.extern_count


def near(got, module, x):
    """As near to float64's result as eager's is, within twice and a little."""
    exact = module.double()(x.double())
    module.float()
    eager = module(x)
    allowed = 2 * (eager.double() - exact).abs().max() + 1e-6 * exact.abs().max()
    assert (got.double() - exact).abs().max() <= allowed
    assert got.stride() == eager.stride()


class Around(torch.nn.Module):
    """A convolution between functions that kernels take in."""

    def __init__(self, conv, both=False):
        super().__init__()
        self.conv, self.both = conv, both

    def forward(self, x):
        y = F.hardswish(x)
        z = F.relu(self.conv(y) + 0.5)
        return z + y.mean() if self.both else z


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "channels, size, kernel, stride, padding, dilation, bias",
    [
        (16, (14, 14), (3, 3), 1, 1, 1, True),
        (40, (15, 28), (5, 5), 2, 2, 1, False),
        (24, (13, 17), (3, 5), (2, 1), (0, 2), 1, True),
        (7, (20, 33), (7, 7), 1, 3, 1, True),
        (33, (18, 25), (3, 3), 1, 2, 2, True),
        (8, (30, 50), (2, 3), (3, 4), (1, 0), 1, False),
        (18, (16, 49), (4, 1), 1, (2, 0), 1, True),
    ],
)
@torch.no_grad()
def test_depthwise(layout, channels, size, kernel, stride, padding, dilation, bias):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(channels, channels, kernel, stride, padding, dilation, groups=channels, bias=bias)
    x = torch.randn(2, channels, *size).to(memory_format=layout)
    for module in (conv, Around(conv), Around(conv, both=True)):
        compiled = braze.compile(module, fullgraph=True)
        near(compiled(x), module, x)
        kernels, calls = counts(compiled, x)
        assert kernels > 0 and calls == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "inner, outer, size", [(3, 8, (7, 7)), (24, 144, (14, 14)), (65, 17, (9, 31)), (576, 30, (1, 1))]
)
@torch.no_grad()
def test_windows_of_one_element(layout, inner, outer, size):
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(inner, outer, 1)
    x = torch.randn(2, inner, *size).to(memory_format=layout)
    for module in (conv, Around(conv)):
        for options in ({}, {"freezing": True}):
            compiled = braze.compile(module, fullgraph=True, options=options)
            near(compiled(x), module, x)
            if layout == torch.contiguous_format:
                assert counts(compiled, x)[1] == 0
        # Weights that are laid out anew are so again after a change.
        conv.weight.mul_(-2)
        near(compiled(x), module, x)


def test_gradients_through_small_convolutions():
    torch.manual_seed(0)
    for layout in LAYOUTS:
        net = torch.nn.Sequential(
            torch.nn.Conv2d(8, 16, 1),
            torch.nn.Hardswish(),
            torch.nn.Conv2d(16, 16, 3, 1, 1, groups=16),
            torch.nn.Conv2d(16, 4, 1),
        ).to(memory_format=layout)
        x = torch.randn(2, 8, 14, 15).to(memory_format=layout)
        grads = []
        for run in (net, braze.compile(net, fullgraph=True)):
            net.zero_grad()
            leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
            run(leaf).square().mean().backward()
            grads.append([leaf.grad.clone(), *(p.grad.clone() for p in net.parameters())])
        for a, b in zip(*grads):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_batches_of_varying_size():
    torch.manual_seed(0)
    module = Around(torch.nn.Conv2d(12, 12, 3, 1, 1, groups=12))
    for layout in LAYOUTS:
        compiled = braze.compile(module, fullgraph=True, dynamic=True)
        for batch in (2, 5, 3):
            x = torch.randn(batch, 12, 16, 18).to(memory_format=layout)
            near(compiled(x), module, x)


@pytest.mark.parametrize("size", [(7, 7), (13, 13), (3, 11)])
@torch.no_grad()
def test_added_to_what_dies(size):
    """A sum may be written where one of its operands was: no element of it is made twice."""
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(24, 24, 1)
    own = torch.nn.Conv2d(24, 24, 3, 1, 1, groups=24)

    def both(x, p, q):
        y = F.hardswish(conv(x) + (p @ q).view(x.shape))
        return (own(y) + (p @ (q + 1)).view(x.shape)) * 2

    x, p, q = torch.randn(1, 24, *size), torch.randn(24, 9), torch.randn(9, size[0] * size[1])
    torch.testing.assert_close(braze.compile(both, fullgraph=True)(x, p, q), both(x, p, q), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_other_code_generators_call_the_library():
    module = Around(torch.nn.Conv2d(12, 12, 3, 1, 1, groups=12))
    x = torch.randn(1, 12, 16, 18)
    compiled = braze.compile(module, fullgraph=True, options={"codegen": "cpp"})
    near(compiled(x), module, x)
    assert counts(compiled, x)[1] == 1


@torch.no_grad()
def test_nothing_but_numbers_in_the_image_reaches_a_border():
    """Zeros around the image are zeros, whatever it holds."""
    conv = torch.nn.Conv2d(4, 4, 3, 1, 1, groups=4)
    x = torch.randn(1, 4, 14, 14)
    x[0, 1, 0, 0], x[0, 2, 13, 13] = float("inf"), float("nan")
    for layout in LAYOUTS:
        image = x.to(memory_format=layout)
        torch.testing.assert_close(braze.compile(conv, fullgraph=True)(image), conv(image), equal_nan=True)
