"""Products, convolutions and attention of half types on the CPU: as eager's or closer to float64, forward and backward, in every layout."""

import copy

import pytest
import torch
import torch.nn.functional as F

import braze

HALF = [torch.bfloat16, torch.float16]
STEP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def closer(f, args, dtype, **how):
    """Not farther from float64 than twice eager's own error, or one step of the type at the largest value."""
    halves = [a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    doubles = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in halves]
    got, want, exact = braze.compile(f, fullgraph=True, **how)(*halves), f(*halves), f(*doubles)
    for g, w, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want, exact)), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape and g.stride() == w.stride()
        allowed = 2 * (w.double() - e).abs().max().item() + STEP[dtype] * e.abs().max().item()
        assert (g.double() - e).abs().max().item() <= allowed


PRODUCTS = {
    "a layer": (lambda x, w, b: F.linear(x, w, b), rand(7, 40), rand(33, 40), rand(33)),
    "a layer of one row": (lambda x, w, b: F.linear(x, w, b), rand(1, 300), rand(520, 300), rand(520)),
    "without bias": (lambda x, w: x @ w, rand(3, 5, 40), rand(40, 9)),
    "transposed": (lambda x, w: x.t() @ w.t(), rand(40, 7), rand(9, 40)),
    "batches": (lambda x, w: x @ w.transpose(1, 2), rand(3, 8, 16), rand(3, 9, 16)),
    "scaled": (lambda c, x, w: torch.addmm(c, x, w, beta=0.5, alpha=2.0), rand(7, 9), rand(7, 40), rand(40, 9)),
    "batches, added": (lambda c, x, w: torch.baddbmm(c, x, w), rand(3, 8, 9), rand(3, 8, 16), rand(3, 16, 9)),
    "a matrix and a vector": (lambda x, w: x @ w, rand(7, 40), rand(40)),
    "a vector added": (lambda c, x, w: torch.addmv(c, x, w, beta=2), rand(7), rand(7, 40), rand(40)),
    "with what is around it": (lambda x, w, b: F.gelu(F.linear(x * 2, w, b)) + 1, rand(7, 40), rand(33, 40), rand(33)),
    "nothing to sum": (lambda x, w: x @ w, rand(3, 0), rand(0, 4)),
    "no rows": (lambda x, w, b: F.linear(x, w, b), rand(0, 40), rand(33, 40), rand(33)),
    "a large sum": (lambda x, w: (x + 30) @ (w + 30), rand(4, 60), rand(60, 5)),
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype):
    f, *args = PRODUCTS[name]
    if name in ("nothing to sum", "no rows"):
        halves = [a.to(dtype) for a in args]
        torch.testing.assert_close(braze.compile(f, fullgraph=True)(*halves), f(*halves), equal_nan=True)
    else:
        closer(f, args, dtype)


CONVOLUTIONS = {
    "plain": (lambda x, w, b: F.conv2d(x, w, b, padding=1), rand(2, 6, 9, 10), rand(8, 6, 3, 3), rand(8)),
    "strided": (lambda x, w: F.conv2d(x, w, stride=2, dilation=2), rand(2, 6, 12, 13), rand(8, 6, 3, 3)),
    "by channel": (
        lambda x, w, b: F.conv2d(x, w, b, padding=2, groups=6),
        rand(2, 6, 9, 10),
        rand(6, 1, 5, 5),
        rand(6),
    ),
    "of one element": (lambda x, w: F.conv2d(x, w), rand(2, 6, 9, 10), rand(8, 6, 1, 1)),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), rand(2, 6, 5, 6), rand(6, 4, 3, 3)),
    "of one dimension": (lambda x, w: F.conv1d(x, w, padding=1), rand(2, 6, 20), rand(8, 6, 3)),
    "of three": (lambda x, w: F.conv3d(x, w), rand(1, 3, 5, 6, 7), rand(4, 3, 2, 2, 2)),
    "between": (lambda x, w: F.relu(F.conv2d(F.relu(x), w)) * 2, rand(2, 6, 9, 10), rand(8, 6, 3, 3)),
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, last, dtype):
    f, x, *rest = CONVOLUTIONS[name]
    if last and x.dim() != 4:
        pytest.skip("channels-last is of images")
    closer(f, [x.to(memory_format=torch.channels_last) if last else x, *rest], dtype)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("how", ["plain", "causal", "mask", "bias"])
def test_attention(how, dtype):
    q, k, v = (rand(2, 3, 17, 16, seed=i) for i in range(3))
    mask = {"mask": rand(17, 17) > 0, "bias": rand(2, 3, 17, 17)}.get(how)
    if how == "mask":
        mask[:, 0] = True

    def f(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=how == "causal")

    closer(f, [q, k, v, mask], dtype)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v)).mean(1)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_training(layout, dtype):
    torch.manual_seed(0)
    model = Net().to(dtype)
    x = rand(2, 3, 6, 6).to(dtype).to(memory_format=layout)

    def gradients(f, model, x):
        model.zero_grad()
        f(x).double().square().sum().backward()
        return [p.grad.double().clone() for p in model.parameters()]

    want = gradients(model, model, x)
    double = copy.deepcopy(model).double()
    exact = gradients(double, double, x.double())
    got = gradients(braze.compile(model, fullgraph=True), model, x)
    for g, w, e in zip(got, want, exact, strict=True):
        scale = e.abs().max().item()
        # A gradient that is nothing, as of what is added to all keys: noise, here and in eager.
        times = 2 if scale > 1e-12 else 8
        assert (g - e).abs().max().item() <= times * (w - e).abs().max().item() + 8 * STEP[dtype] * scale


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_frozen_layers(rows, dtype):
    layer, x = torch.nn.Linear(300, 520).to(dtype), rand(rows, 300).to(dtype)
    compiled = braze.compile(layer, fullgraph=True, options={"freezing": True})
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), layer(x), rtol=2 * STEP[dtype], atol=2 * STEP[dtype])


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_frozen(dtype):
    torch.manual_seed(0)
    model = Net().to(dtype).eval()
    x = rand(2, 3, 6, 6).to(dtype)
    compiled = braze.compile(model, fullgraph=True, options={"freezing": True})
    with torch.no_grad():
        for factor in (1, 2):  # weights are made wide again once they were written to
            model.out.weight.mul_(factor)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), model(x), rtol=8 * STEP[dtype], atol=8 * STEP[dtype])


def test_autocast():
    layer, x = torch.nn.Linear(40, 33), rand(7, 40)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = braze.compile(layer, fullgraph=True)(x), layer(x)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)


def test_sizes_that_vary():
    w = rand(33, 40).bfloat16()
    f = braze.compile(lambda x: F.linear(x, w), dynamic=True, fullgraph=True)
    for rows in (1, 2, 5, 64, 0):
        x = rand(rows, 40).bfloat16()
        torch.testing.assert_close(f(x), F.linear(x, w))


def test_results_out_of_range():
    """What float16 cannot hold is infinite, as eager has it."""
    a, b = torch.full((2, 64), 100.0).half(), torch.full((64, 3), 100.0).half()
    assert torch.equal(braze.compile(lambda a, b: a @ b)(a, b), a @ b)
    assert torch.equal(braze.compile(lambda a, b: (a @ b).isinf())(a, b), (a @ b).isinf())
