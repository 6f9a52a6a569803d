"""Softmax and its kin over long rows, whose maxima and sums of exponentials come of one read; cross entropy and what it keeps."""

import pytest
import torch
import torch.nn.functional as F
from harness import check

import braze

INF, NAN = float("inf"), float("nan")
LONG = 400_000  # elements that a core reads again from memory


def special(n, dtype):
    """Rows with infinities and NaN at their start, end, in between and everywhere."""
    g = torch.Generator().manual_seed(n)
    x = torch.randn(9, n, generator=g, dtype=torch.float64).to(dtype)
    if n:
        x[1, :] = -INF
        x[2, : n // 2] = -INF
        x[3, n // 2 :] = -INF
        x[4, n - 1] = INF
        x[5, 0] = INF
        x[6, n // 3] = NAN
        x[7, :] = torch.linspace(-60, 60, n, dtype=torch.float64).to(dtype)
        x[8, :] = torch.linspace(30, -90, n, dtype=torch.float64).to(dtype)
    return x


def closely(got, eager, exact):
    """Within twice eager's own error against float64, or a few units of the dtype."""
    assert got.dtype == eager.dtype and got.shape == eager.shape and got.stride() == eager.stride()
    assert torch.equal(got.isnan(), eager.isnan())
    assert torch.equal(got.isinf(), eager.isinf())
    ok = eager.isfinite() & exact.isfinite()
    if not ok.any():
        return
    error = lambda r: ((r.double() - exact)[ok].abs() / exact[ok].abs().clamp(min=1)).max().item()
    units = 64 if eager.dtype == torch.float64 else 8  # float64's reference is rounded as it is
    assert error(got) <= 2 * error(eager) + units * torch.finfo(eager.dtype).eps, (error(got), error(eager))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("n", [1, 7, 5000, LONG])
@pytest.mark.parametrize("f", [F.softmax, F.log_softmax, torch.logsumexp], ids=lambda f: f.__name__)
def test_special_values(f, n, dtype):
    x = special(n, dtype)
    fn = lambda x: f(x, dim=-1)
    explained = braze.explain(fn, x)
    assert explained.graph_count == 1 and explained.kernel_count > 0 and explained.extern_count == 0
    closely(braze.compile(fn)(x), fn(x), fn(x.double()))


def test_long_rows_are_read_once_for_both():
    x = torch.randn(32, LONG)
    code = str(braze.explain(lambda x: torch.logsumexp(x, -1), x, code=True))
    assert braze.explain(lambda x: torch.logsumexp(x, -1), x).kernel_count == 1, code
    y = torch.randn(3, LONG)  # cut in pieces
    closely(
        *(
            f(v, -1)
            for f, v in ((braze.compile(torch.logsumexp), y), (torch.logsumexp, y), (torch.logsumexp, y.double()))
        )
    )


def test_rows_without_elements():
    check(lambda x: F.softmax(x, -1), torch.randn(3, 0))
    check(lambda x: F.log_softmax(x, -1), torch.randn(0, 5))


def test_written_by_hand():
    def fn(x, scale):
        x = x * scale
        top = x.max(-1, keepdim=True).values
        e = torch.exp(x - top)
        return e.sum(-1), top, e

    def another(x, y):  # a maximum of something else
        return torch.exp(y - x.amax(-1, keepdim=True)).sum(-1)

    def changed(x):  # between the maximum and the sum
        top = x.amax(-1, keepdim=True)
        x.mul_(0.5)
        return torch.exp(x - top).sum(-1)

    x, y = torch.randn(20, LONG), torch.randn(20, LONG)
    check(fn, x, 0.5, tol=1e-4)
    check(another, x, y, tol=1e-4)
    check(changed, x, tol=1e-4)


def gradient(fn, x, *args):
    x = x.detach().clone().requires_grad_()
    loss = fn(x, *args)
    (grad,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), grad


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction, smoothing, weighted):
    n = 5000
    x = torch.randn(12, n).bfloat16()
    y = torch.randint(0, n, (12,))
    y[3:6] = -100
    w = torch.rand(n) if weighted else None

    def fn(x, y):
        weight = None if w is None else w.to(x.dtype if x.dtype == torch.float64 else torch.float32)
        x = x if x.dtype == torch.float64 else x.float()
        return F.cross_entropy(x, y, weight=weight, reduction=reduction, label_smoothing=smoothing)

    got = gradient(braze.compile(fn), x, y)
    for g, e, r in zip(got, gradient(fn, x, y), gradient(fn, x.double(), y), strict=True):
        closely(g, e, r)


def test_all_targets_are_ignored():
    x, y = torch.randn(5, 1000), torch.full((5,), -100)
    fn = lambda x, y: F.cross_entropy(x, y)
    for g, e in zip(gradient(braze.compile(fn), x, y), gradient(fn, x, y), strict=True):
        torch.testing.assert_close(g, e, equal_nan=True)


def test_a_target_out_of_range_is_an_error():
    x, y = torch.randn(5, 1000), torch.tensor([1, 2, 1000, 3, 4])
    with pytest.raises(IndexError, match="out of bounds"):
        braze.compile(lambda x, y: F.cross_entropy(x, y))(x, y)


def test_sizes_that_vary():
    fn = braze.compile(lambda x, y: F.cross_entropy(x.float(), y))
    for rows, n in ((4, 1000), (5, 1001), (7, 300_001), (1, 7)):
        x, y = torch.randn(rows, n).bfloat16(), torch.randint(0, n, (rows,))
        eager = lambda x, y: F.cross_entropy(x.float(), y)
        for g, e in zip(gradient(fn, x, y), gradient(eager, x, y), strict=True):
            torch.testing.assert_close(g, e, atol=1e-4, rtol=1e-2)


def test_logits_may_be_overwritten_before_the_backward():
    """What eager keeps is a float copy of them, so a program may do so."""
    x, y = torch.randn(6, 3000).bfloat16().requires_grad_(), torch.randint(0, 3000, (6,))
    fn = lambda x, y: F.cross_entropy(x.float(), y)

    def run(f):
        v = x.detach().clone().requires_grad_()
        loss = f(v, y)
        with torch.no_grad():
            v.zero_()
        return torch.autograd.grad(loss, v)[0]

    torch.testing.assert_close(run(braze.compile(fn)), run(fn))


def test_second_derivatives():
    x, y = torch.randn(4, 50, dtype=torch.float64), torch.randint(0, 50, (4,))

    def twice(f):
        v = x.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad(f(v, y), v, create_graph=True)
        return torch.autograd.grad((g * g).sum(), v)[0]

    fn = lambda x, y: F.cross_entropy(x, y)
    torch.testing.assert_close(twice(braze.compile(fn)), twice(fn))
