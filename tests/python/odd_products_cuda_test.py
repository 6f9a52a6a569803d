"""Products of half types on a GPU whose rows are no multiples of 16 bytes run on longer rows, with the same results."""

import re

import pytest
import torch
import torch.nn.functional as F

import braze

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0), reason="no GPU that gains by it"
)
HALVES = [torch.bfloat16, torch.float16]


def made(*sizes, dtype, seed=0):
    g = torch.Generator("cuda").manual_seed(seed + sum(sizes))
    return torch.randn(sizes, generator=g, device="cuda").to(dtype)


def check(f, *args, grows=True):
    exact = f(*(a.double() for a in args))
    got, want = braze.compile(f, fullgraph=True)(*args), f(*args)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    assert torch.equal(got.isnan(), want.isnan())
    far = lambda t: (t.double() - exact).nan_to_num(0, 0, 0).abs().max().item()  # noqa: E731
    assert far(got) <= 2 * far(want) + 1e-3
    assert pads(f, *args) == grows


def pads(f, *args):
    """Whether a kernel makes longer rows."""
    return bool(re.search(r"nest \w*pad", str(braze.explain(f, *args, code=True))))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("m, k, n", [(2048, 1024, 1025), (2048, 1023, 1024), (2047, 1023, 1025), (4096, 4094, 4092)])
def test_sizes(m, k, n, dtype):
    a, w = made(m, k, dtype=dtype), made(n, k, dtype=dtype)
    check(lambda a, w: a @ w.t(), a, w)
    check(lambda a, w: a @ w, a, w.t().contiguous())
    check(lambda a, w, b: F.linear(a, w, b).relu(), a, w, made(n, dtype=dtype))
    check(lambda a, w, c: torch.addmm(c, a, w.t()), a, w, made(m, n, dtype=dtype))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_batches(dtype):
    a, b = made(8, 1025, 1023, dtype=dtype), made(8, 1023, 1025, dtype=dtype)
    check(torch.bmm, a, b)
    check(lambda a, b, c: torch.baddbmm(c, a, b), a, b, made(8, 1, 1025, dtype=dtype))


def test_activations_and_turned_matrices():
    a, w, b = made(2048, 1024, dtype=HALVES[0]), made(4099, 1024, dtype=HALVES[0]), made(4099, dtype=HALVES[0])
    check(lambda a, w, b: F.gelu(F.linear(a, w, b), approximate="tanh"), a, w, b)
    check(lambda a, w, b: F.linear(a, w, b).relu(), a, w, b)
    x = made(2048, 4099, dtype=HALVES[0])
    check(lambda x, a: x.t() @ a, x, a)


def test_infinities_stay_in_their_rows():
    a, w = made(2047, 1023, dtype=HALVES[0]), made(1025, 1023, dtype=HALVES[0])
    a[3, 5], a[7, 1022], w[1024, 1022] = torch.inf, torch.nan, -torch.inf
    check(lambda a, w: a @ w.t(), a, w)


def test_small_ones_and_float32_stay_as_they_are():
    check(lambda a, w: a @ w.t(), made(64, 65, dtype=HALVES[0]), made(67, 65, dtype=HALVES[0]), grows=False)
    f = lambda a, w: a @ w.t()  # noqa: E731
    assert not pads(f, made(2048, 1023, dtype=torch.float32), made(1025, 1023, dtype=torch.float32))


def test_training_a_vocabulary():
    torch.manual_seed(0)
    words, width = 5003, 512
    found = []
    for run in (lambda f: f, lambda f: braze.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        layer = torch.nn.Linear(width, words, bias=False, device="cuda", dtype=torch.bfloat16)
        x = made(2048, width, dtype=torch.bfloat16).requires_grad_()
        target = torch.randint(words, (2048,), generator=torch.Generator("cuda").manual_seed(2), device="cuda")
        loss = run(lambda x, t: F.cross_entropy(layer(x).float(), t))(x, target)  # noqa: B023
        loss.backward()
        found.append((loss, x.grad, layer.weight.grad))
    for got, want in zip(found[1], found[0], strict=True):
        scale = want.abs().max().item()
        torch.testing.assert_close(got, want, rtol=0, atol=2e-2 * scale)
