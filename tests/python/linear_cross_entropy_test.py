"""Cross entropy of a linear layer over a large vocabulary: its logits are never held whole."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import braze

ROWS, WIDTH, CLASSES = 1040, 16, 65_600  # 260 MiB of logits in float32


def given(dtype=torch.float32, rows=ROWS):
    g = torch.Generator().manual_seed(0)
    h = torch.randn(rows, WIDTH, generator=g).to(dtype).requires_grad_()
    w = (torch.randn(CLASSES, WIDTH, generator=g) / 2).to(dtype).requires_grad_()
    b = torch.randn(CLASSES, generator=g).to(dtype).requires_grad_()
    y = torch.randint(0, CLASSES, (rows,), generator=g)
    y[3:9] = -100
    y[0], y[1] = 0, CLASSES - 1
    return h, w, b, y


def at_least_float(t):
    """What is computed in double for comparison stays so."""
    return t if t.dtype == torch.float64 else t.float()


FORMS = {
    "linear": lambda h, w, b, y: F.cross_entropy(F.linear(h, w), y),
    "bias": lambda h, w, b, y: F.cross_entropy(at_least_float(F.linear(h, w, b)), y),
    "matmul": lambda h, w, b, y: F.cross_entropy(h @ w.t(), y, reduction="sum"),
    "tokens": lambda h, w, b, y: F.cross_entropy(
        at_least_float(F.linear(h.view(4, -1, WIDTH), w, b).view(-1, CLASSES)), y.view(4, -1).view(-1)
    ),
    "each": lambda h, w, b, y: F.cross_entropy(F.linear(h, w), y, reduction="none").square().mean(),
    "weights": lambda h, w, b, y: F.cross_entropy(F.linear(h, w), y, weight=b.detach().abs().to(h.dtype)),
    "masked": lambda h, w, b, y: F.cross_entropy(F.linear(h, w, torch.where(b > -1, b, -float("inf"))), y.clamp(max=0)),
}


def gradients(f, h, w, b, y):
    loss = f(h, w, b, y)
    return (loss.detach(), *torch.autograd.grad(loss, (h, w, b), allow_unused=True))


def products(f, *args):
    return braze.explain(f, *args).extern_count


@pytest.mark.parametrize("form", FORMS)
def test_as_eager(form):
    f, args = FORMS[form], given()
    eager = gradients(f, *args)
    exact = gradients(f, *[a.detach().double().requires_grad_() if a.is_floating_point() else a for a in args])
    assert products(f, *args) >= 4  # chunks
    for g, e, x in zip(gradients(braze.compile(f), *args), eager, exact, strict=True):
        assert (g is None) == (e is None)
        if g is None:
            continue
        assert g.dtype == e.dtype and g.shape == e.shape and g.stride() == e.stride()
        assert torch.equal(g.isfinite(), e.isfinite())
        ok = x.isfinite()
        if not ok.any():
            continue
        worst = lambda r: ((r.double() - x)[ok].abs().max() / x[ok].abs().max()).item()
        assert worst(g) <= 2 * worst(e) + 8 * torch.finfo(g.dtype).eps, (worst(g), worst(e))


def test_half_types():
    f, args = FORMS["bias"], given(torch.bfloat16, 2 * ROWS)
    exact = gradients(f, *[a.detach().float().requires_grad_() if a.is_floating_point() else a for a in args])
    for g, e, x in zip(gradients(braze.compile(f), *args), gradients(f, *args), exact, strict=True):
        worst = lambda r: ((r.float() - x).abs().max() / x.abs().max()).item()
        assert g.dtype == e.dtype and worst(g) <= 2 * worst(e) + 1e-6, (worst(g), worst(e))


def test_without_gradients():
    f, args = FORMS["bias"], given()
    with torch.no_grad():
        assert products(f, *args) >= 4
        torch.testing.assert_close(braze.compile(f)(*args), f(*args))


def test_logits_that_are_seen_are_made():
    def f(h, w, b, y):
        logits = F.linear(h, w)
        return F.cross_entropy(logits, y), logits[:2]

    h, w, b, y = given()
    with torch.no_grad():
        assert products(f, h, w, b, y) == 1
        for g, e in zip(braze.compile(f)(h, w, b, y), f(h, w, b, y), strict=True):
            torch.testing.assert_close(g, e)


def test_a_target_out_of_range_is_an_error():
    h, w, b, y = given()
    y[7] = CLASSES
    with pytest.raises(IndexError, match="out of bounds"):
        braze.compile(FORMS["linear"])(h, w, b, y)


PEAK = """
import re, sys, torch, braze
sys.path.insert(0, sys.argv[2])
from linear_cross_entropy_test import FORMS, given, gradients
highest = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
f, args = FORMS["bias"], given()
few = [a[:8] if a.shape[0] == len(args[3]) else a for a in args]
torch.autograd.grad(f(*few), args[:2])
f = braze.compile(f) if sys.argv[1] == "braze" else f
before = highest()
gradients(f, *args)
print(highest() - before)
"""


def test_peak_of_memory():
    here = os.path.dirname(os.path.abspath(__file__))
    peak = lambda who: int(
        subprocess.run([sys.executable, "-c", PEAK, who, here], capture_output=True, text=True, check=True).stdout
    )
    assert peak("braze") < peak("eager") / 3
