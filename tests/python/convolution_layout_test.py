"""options={"convolution_layout": ...}: nets drawn at random have eager's values and strides in every layout."""

import random

import pytest
import torch
import torch.nn.functional as F
from harness import same

import braze

R = torch.randn
LAST = torch.channels_last


class Net(torch.nn.Module):
    """A graph of convolutions and of what may stand between them, drawn from `seed`: each step takes results of earlier ones."""

    def __init__(self, seed):
        super().__init__()
        self.r = r = random.Random(seed)
        torch.manual_seed(seed)
        self.steps, self.weights = [], torch.nn.ParameterList()
        # Sizes that coincide: a channel count may be the batch, or the side of the image.
        self.images = r.choice([1, 2, 4])
        self.input = (self.images, r.choice([1, 3, 4, 8]), r.choice([1, 4, 7, 8]), r.choice([1, 5, 8]))
        self.last = r.random() < 0.3
        shapes = [self.input]
        for _ in range(r.randint(3, 9)):
            at = r.choice([-1, -1, r.randrange(len(shapes))])
            step, shape = self.draw(shapes[at], shapes)
            if step:
                self.steps.append((at % len(shapes), step))
                shapes.append(shape)
        self.results = sorted({len(shapes) - 1, r.randrange(len(shapes))} - {0})

    def tensor(self, *sizes):
        weight = R(*sizes).div_(sizes[-1] * sizes[-2] if len(sizes) > 1 else 1)
        self.weights.append(torch.nn.Parameter(weight, requires_grad=False))
        i = len(self.weights) - 1
        return lambda net: net.weights[i]

    def draw(self, shape, shapes):
        r, (n, c, h, w) = self.r, shape
        kind = r.choice(
            ["conv"] * 5
            + ["act", "act", "pool", "norm", "cat", "add", "part", "turn", "resize", "mean", "view", "copy"]
        )
        if kind == "conv":
            groups = r.choice([1, 1, 1, c, 2 if c % 2 == 0 else 1])
            to = groups * r.choice([1, 1, 2, 3])
            k, pad, stride = r.choice([1, 3, 3]), r.choice([0, 1]), r.choice([1, 1, 2])
            if min(h, w) + 2 * pad < k:
                return None, None
            weight = self.tensor(to, c // groups, k, k)
            bias = self.tensor(to) if r.random() < 0.6 else lambda net: None
            out = [(s + 2 * pad - k) // stride + 1 for s in (h, w)]
            f = lambda net, x, *_: F.conv2d(x, weight(net), bias(net), stride, pad, 1, groups)
            return f, (n, to, *out)
        if kind == "act":
            f = r.choice([torch.relu, F.silu, F.gelu, torch.sigmoid, lambda x: x * 2 + 1, lambda x: x.clamp(-1, 1)])
            return lambda net, x, *_: f(x), shape
        if kind == "pool" and min(h, w) >= 2:
            f = r.choice([F.max_pool2d, F.avg_pool2d])
            return lambda net, x, *_: f(x, 2), (n, c, h // 2, w // 2)
        if kind == "norm":
            mean, var, weight = self.tensor(c), self.tensor(c), self.tensor(c)
            return lambda net, x, *_: F.batch_norm(x, mean(net), var(net).square() + 1, weight(net)), shape
        others = [i for i, s in enumerate(shapes) if s[0] == n and s[2:] == shape[2:]]
        if kind == "cat" and others:
            i = r.choice(others)
            return lambda net, x, all: torch.cat([x, all[i]], 1), (n, c + shapes[i][1], h, w)
        others = [i for i, s in enumerate(shapes) if all(a == b or a == 1 for a, b in zip(s, shape))]
        if kind == "add" and others:
            i = r.choice(others)
            f = r.choice([torch.add, torch.mul, torch.maximum])
            return lambda net, x, all: f(x, all[i]), shape
        if kind == "part" and c > 1:
            return lambda net, x, *_: x[:, 1:], (n, c - 1, h, w)
        if kind == "turn":
            d = r.choice([(1, 2), (2, 3), (1, 3)])
            turned = list(shape)
            turned[d[0]], turned[d[1]] = shape[d[1]], shape[d[0]]
            return lambda net, x, *_: x.transpose(*d), tuple(turned)
        if kind == "resize" and h * w <= 64:
            mode = r.choice(["nearest", "bilinear"])
            return lambda net, x, *_: F.interpolate(x, scale_factor=2, mode=mode), (n, c, h * 2, w * 2)
        if kind == "mean":
            return lambda net, x, *_: x.mean((2, 3), keepdim=True), (n, c, 1, 1)
        if kind == "view":
            return lambda net, x, *_: x.reshape(n, h, w, c), (n, h, w, c)
        f = r.choice([torch.clone, lambda x: x.contiguous(), lambda x: x.contiguous(memory_format=LAST)])
        return lambda net, x, *_: f(x), shape

    def forward(self, x):
        values = [x]
        for at, step in self.steps:
            values.append(step(self, values[at], values))
        return [values[i] for i in self.results]


@pytest.mark.parametrize("layout", ["auto", "recorded", "channels_last"])
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_nets_drawn_at_random(first, layout):
    made = 0
    for seed in range(first, first + 40):
        net = Net(seed)
        x = R(net.input)
        if net.last:
            x = x.contiguous(memory_format=LAST)
        freezing = seed % 3 == 0
        compiled = braze.compile(net, fullgraph=True, options={"convolution_layout": layout, "freezing": freezing})
        made += bool(net.results)
        with torch.no_grad():
            for _ in range(2):
                same(net(x), compiled(x), f"seed {seed}", 1e-4)
    assert made > 35


def test_the_layouts_are_different_code():
    different = 0
    for seed in range(20):
        net = Net(seed)
        x = R(net.input)
        with torch.no_grad():
            made = [
                braze.explain(braze.compile(net, options={"convolution_layout": layout}), x, code=True)
                for layout in ("recorded", "channels_last")
            ]
        different += made[0].code != made[1].code
    assert different > 5


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (1, 3, 8, 5), (2, 4, 3, 3), (3, 1, 5, 4)])
def test_open_sizes(shape, last):
    channels = shape[1]
    form = torch.channels_last if last else torch.contiguous_format
    w = torch.randn(5, channels, 3, 3)
    calls = [
        lambda x: F.conv2d(x, w),
        lambda x: F.conv2d(x, w, None, 2, 1),
        lambda x: F.conv2d(x, w.to(memory_format=torch.channels_last)),
        torch.nn.Conv2d(channels, channels, 3, padding=1, groups=channels).requires_grad_(False),
        lambda x: x.roll(1, 2),
        lambda x: x.roll(-2, 3),
        lambda x: x.roll((1, 0), (2, 1)),
    ]
    for call in calls:
        compiled = braze.compile(call, dynamic=True, fullgraph=True)
        for n in (shape[0], shape[0] + 2):
            x = torch.randn(n, *shape[1:]).contiguous(memory_format=form)
            want, got = call(x), compiled(x)
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("what", ["stride", "padding", "dilation", "groups"])
def test_open_integers(what, last):
    w = torch.randn(8, 2 if what == "groups" else 4, 3, 3)

    def call(x, n):
        return F.conv2d(x, w, **{what: n}) + n

    compiled = braze.compile(call, dynamic=True, fullgraph=True)
    for channels, n, side in ((4, 2, 9), (8, 4, 12)) if what == "groups" else ((4, 2, 9), (4, 3, 12), (4, 1, 11)):
        x = torch.randn(2, channels, side, side + 1)
        x = x.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        want, got = call(x, n), compiled(x, n)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_open_stride_along_a_line():
    w = torch.randn(3, 4, 8).permute(2, 1, 0)
    compiled = braze.compile(lambda x, n: F.conv1d(x, w, stride=n), dynamic=True, fullgraph=True)
    for n, length in ((2, 9), (3, 12)):
        x = torch.randn(2, 4, length)
        want, got = F.conv1d(x, w, stride=n), compiled(x, n)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
