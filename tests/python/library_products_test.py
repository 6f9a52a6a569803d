"""Products and attention of float32 that are large enough for a library on the CPU: in every layout, forward and backward, beside float64."""

import pytest
import torch
import torch.nn.functional as F

import braze


def R(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def closer(f, args, **how):
    """Not farther from float64 than twice eager's own error."""
    doubles = [a.double() if a.is_floating_point() else a for a in args]
    got, want, exact = braze.compile(f, fullgraph=True, **how)(*args), f(*args), f(*doubles)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    error = (want.double() - exact).abs().nan_to_num().max().item()
    assert torch.equal(got.isnan(), want.isnan())
    assert (
        got.double() - exact
    ).abs().nan_to_num().max().item() <= 2 * error + 1e-6 * exact.abs().nan_to_num().max().item()


LAYOUTS = {
    "dense": lambda a: a,
    "turned": lambda a: a.transpose(-1, -2).contiguous().transpose(-1, -2),
    "of longer rows": lambda a: torch.cat([a, a], -1)[..., : a.shape[-1]],
    "every second row": lambda a: torch.stack([a, a], -2).flatten(-3, -2)[..., ::2, :],
    "expanded": lambda a: a[..., :1, :].expand_as(a),
    "spread": lambda a: torch.stack([a, a], -1)[..., 0],
}


@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("form", ["mm", "addmm", "a matrix added", "scaled", "bmm", "baddbmm", "into a part"])
def test_products(form, a, b):
    batch = (3,) if "b" in form[:2] else ()
    x, y, bias = LAYOUTS[a](R(*batch, 150, 130)), LAYOUTS[b](R(*batch, 130, 140)), R(140)
    f = {
        "mm": lambda x, y, z: x @ y,
        "addmm": lambda x, y, z: torch.addmm(z, x, y),
        "a matrix added": lambda x, y, z: torch.addmm(z.expand(150, 140) * 2, x, y),
        "scaled": lambda x, y, z: torch.addmm(z, x, y, beta=0.5, alpha=2),
        "bmm": lambda x, y, z: torch.bmm(x, y),
        "baddbmm": lambda x, y, z: torch.baddbmm(z, x, y),
        "into a part": lambda x, y, z: torch.cat([x @ y, x @ y * 2], 1),
    }[form]
    closer(f, (x, y, bias))


@pytest.mark.parametrize("what", ["infinite", "nan"])
def test_products_of_no_numbers(what):
    x, y = R(150, 130), R(130, 140)
    x[3, 4] = float("inf") if what == "infinite" else float("nan")
    closer(lambda x, y: x @ y, (x, y))


def test_rows_that_vary():
    layer = torch.nn.Linear(160, 192)
    compiled = braze.compile(layer, dynamic=True)
    with torch.no_grad():
        for rows in (1, 2, 3, 17, 64, 100, 150, 400, 2):
            x = R(rows, 160)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-4, atol=1e-5)


def test_a_layer_in_training():
    def step(run, layer, x):
        run(x).square().mean().backward()
        return [p.grad for p in layer.parameters()]

    first, second = (torch.nn.Linear(192, 256) for _ in range(2))
    second.load_state_dict(first.state_dict())
    x = R(300, 192)
    for got, want in zip(step(braze.compile(first), first, x), step(second, second, x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def heads(batch, n, rows, features):
    return R(batch, rows, n, features).transpose(1, 2)


MASKS = {
    "none": (None, False),
    "causal": (None, True),
    "of floats": (R(1, 1, 70, 90), False),
    "of lengths": (torch.arange(90)[None, None, None] < torch.tensor([90, 31])[:, None, None, None], False),
    "of nothing for some": (torch.arange(70)[:, None] > torch.arange(90)[None], False),
    "with NaN": (R(70, 90).log(), False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask, dense, dtype):
    q, k, v = (heads(2, 3, rows, 32).to(dtype) for rows in (70, 90, 90))
    if dense:
        q, k, v = (t.contiguous() for t in (q, k, v))
    given, causal = MASKS[mask]
    if given is not None and given.is_floating_point():
        given = given.to(dtype)

    def f(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)

    args = (q, k, v) if given is None else (q, k, v, given)
    doubles = [a.double() if a.is_floating_point() else a for a in args]
    got, want, exact = braze.compile(f, fullgraph=True)(*args), f(*args), f(*doubles)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    assert torch.equal(got.isnan(), want.isnan())
    step = torch.finfo(dtype).eps
    error = (want.double() - exact).abs().nan_to_num().max().item()
    assert (
        got.double() - exact
    ).abs().nan_to_num().max().item() <= 2 * error + step * exact.abs().nan_to_num().max().item()


def test_attention_in_training_keeps_its_gradients():
    q, k, v = (heads(2, 3, 48, 32).requires_grad_() for _ in range(3))
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)  # noqa: E731
    got = torch.autograd.grad(braze.compile(f, fullgraph=True)(q, k, v).square().sum(), (q, k, v))
    want = torch.autograd.grad(f(q, k, v).square().sum(), (q, k, v))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


REDUCED = {
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "variance": lambda x: (x - x.mean(1, True)) / (x.var(1, keepdim=True) + 1e-5).sqrt(),
    "less the most": lambda x: x - x.amax(1, True),
    "of what was computed": lambda x: (x.exp() / x.exp().sum(1, True)).relu(),
    "read turned": lambda x: x.softmax(1).transpose(1, 2) + x.amax(1)[:, :, None],
    "two of them": lambda x: x.softmax(1) + (x * 2).softmax(2),
}


@pytest.mark.parametrize("shape", [(2, 4, 64), (3, 7, 5, 9), (4, 4, 4), (2, 64, 33), (1, 3, 1, 8), (5, 65, 6)])
@pytest.mark.parametrize("name", REDUCED)
def test_reductions_of_a_few_between_axes(name, shape):
    closer(REDUCED[name], (R(*shape),))
    closer(REDUCED[name], (R(*shape).transpose(0, 2).contiguous().transpose(0, 2),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mish(dtype):
    x = torch.cat(
        [torch.linspace(-120, 120, 4001), torch.tensor([0.0, -0.0, 700.0, -700.0, float("inf"), float("nan")])]
    ).to(dtype)
    x.requires_grad_()
    exact = x.detach().double().requires_grad_()
    got, want = braze.compile(F.mish, fullgraph=True)(x), F.mish(exact)
    torch.testing.assert_close(
        got.double(), want, rtol=1e-6 if dtype is torch.float32 else 1e-14, atol=1e-30, equal_nan=True
    )
    (g,), (w,) = (torch.autograd.grad(y[:-2].sum(), t) for y, t in ((got, x), (want, exact)))
    near = {"rtol": 1e-5, "atol": 1e-7} if dtype is torch.float32 else {"rtol": 1e-12, "atol": 1e-15}
    torch.testing.assert_close(g.double(), w, equal_nan=True, **near)
