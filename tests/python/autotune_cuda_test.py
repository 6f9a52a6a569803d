"""mode="max-autotune" on an NVIDIA GPU: products by kernels of templates, and the search for the fastest. Skipped where there is none."""

import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from product_cases import CASES

import braze
from braze import _C, _triton

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("triton") is None, reason="no NVIDIA GPU with triton"
)
BF16 = torch.bfloat16
MODE = "max-autotune-no-cudagraphs"


@pytest.fixture
def kernels_first():
    """Kernels are chosen however fast the library is; the test gets what was chosen since its start."""
    before = len(_C._tuned())
    _C._prefer_kernels(True)
    yield lambda: [r for r in _C._tuned()[before:] if r["ways"]]
    _C._prefer_kernels(False)


def rand(*shape, dtype=BF16, seed=0, scale=1.0):
    g = torch.Generator("cpu").manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=g) * scale).to(dtype).cuda()


def agrees(got, fn, *args):
    """Within twice eager's own error from double precision."""
    many = lambda r: r if isinstance(r, (tuple, list)) else (r,)
    exact = fn(*[a.double() if a.dtype.is_floating_point else a for a in args])
    for g, e, x in zip(many(got), many(fn(*args)), many(exact), strict=True):
        assert g.shape == e.shape and g.dtype == e.dtype and g.stride() == e.stride()
        off, bound = (g.double() - x).abs(), (e.double() - x).abs()
        small = torch.finfo(g.dtype).eps * float(x.abs().mean()) / 8
        assert off.max() <= 2 * bound.max() + small and off.mean() <= 2 * bound.mean() + small


def compiled(fn, mode=MODE, **options):
    return braze.compile(fn, mode=mode, fullgraph=True, dynamic=False, options={"autotune_seconds": 60, **options})


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_eager(name, kernels_first):
    fn, args, products, _ = CASES[name]
    args = [a.cuda() for a in args]
    fast = compiled(fn)
    for _ in range(3):  # the first by the library
        agrees(fast(*args), fn, *args)
    if "one_row" not in name:
        assert len(kernels_first()) == products, kernels_first()
        assert all(r["chosen"] != "library" for r in kernels_first()), kernels_first()


def block(x, norm, up, bias, down):
    y = F.layer_norm(x, norm.shape, norm, None)
    return x + F.gelu(F.linear(y, up, bias)) @ down


@pytest.mark.parametrize("mode", ["max-autotune", MODE])
def test_a_block_over_new_values(mode, kernels_first):
    wide = 1024 if mode == MODE else 768  # products of their own: what is known is not searched for again
    weights = [rand(256), rand(wide, 256, scale=0.06), rand(wide), rand(wide, 256, scale=0.03)]
    fast = compiled(block, mode)
    for n in range(8):
        x = rand(2, 64, 256, seed=n)
        agrees(fast(x, *weights), block, x, *weights)
    assert len(kernels_first()) == 2 and all(r["chosen"] != "library" for r in kernels_first())


def test_equal_products_are_searched_once(kernels_first):
    weights = [rand(512, 512, seed=n, scale=0.04) for n in range(4)]

    def layers(x, *weights):
        for w in weights:
            x = F.relu(x @ w)
        return x

    fast = compiled(layers)
    x = rand(64, 512)
    for _ in range(3):
        agrees(fast(x, *weights), layers, x, *weights)
    assert len(kernels_first()) == 1


def test_a_factor_is_read_after_what_follows_is_written(kernels_first):
    w = rand(256, 256, scale=0.06)

    def residual(x, w):
        for _ in range(3):
            x = x + torch.tanh(x @ w)
            x = x * 0.5 + x @ w
        return x

    fast = compiled(residual)
    for n in range(3):
        x = rand(512, 256, seed=n)
        agrees(fast(x, w), residual, x, w)
    assert all(r["chosen"] != "library" for r in kernels_first())


def test_written_inputs(kernels_first):
    w = rand(256, 256, scale=0.06)

    def step(x, w):
        x.add_(torch.sigmoid(x @ w))
        return x * 2

    fast = compiled(step)
    x = rand(512, 256)
    for _ in range(4):  # errors of earlier steps aside: each starts from what ours has left
        eager, exact = x.clone(), x.double()
        got, expected, true = fast(x, w), step(eager, w), step(exact, w.double())
        for g, e, d in ((got, expected, true), (x, eager, exact)):
            off, bound = (g.double() - d).abs(), (e.double() - d).abs()
            assert off.max() <= 2 * bound.max() and off.mean() <= 2 * bound.mean()


def test_inputs_that_are_not_aligned(kernels_first):
    f = lambda x, w: F.relu(x @ w)
    fast = compiled(f)
    w = rand(256, 256)
    for offset in (0, 1, 0, 3, 8):
        x = rand(128 * 256 + offset)[offset:].view(128, 256)
        agrees(fast(x, w), f, x, w)
    assert [r["chosen"] for r in kernels_first()] != ["library"]


def test_training(kernels_first):
    x, w, b = rand(256, 256), rand(512, 256, scale=0.06), rand(512)
    f = lambda x, w, b: F.gelu(F.linear(x, w, b))
    fast = compiled(f)

    def gradients(f, *args):
        args = [a.detach().requires_grad_() for a in args]
        out = f(*args)
        return [out, *torch.autograd.grad(out.float().square().sum(), args)]

    exact = gradients(f, *[a.double() for a in (x, w, b)])
    eager = gradients(f, x, w, b)
    for _ in range(3):
        for g, e, d in zip(gradients(fast, x, w, b), eager, exact, strict=True):
            assert (g.double() - d).abs().max() <= 2 * (e.double() - d).abs().max() + 1e-2 * d.abs().max()
    assert any(r["chosen"] != "library" for r in kernels_first())


def test_sizes_that_vary_stay_the_librarys():
    f = lambda x, w: F.relu(x @ w)
    fast = braze.compile(f, mode=MODE, fullgraph=True)
    w = rand(256, 256)
    for m in (64, 100, 33, 1, 200):
        agrees(fast(rand(m, 256), w), f, rand(m, 256), w)


def test_explain_tells_the_choices():
    f = lambda x, w: torch.tanh(x @ w) * 3
    rows = random.SystemRandom().randrange(300, 4000)  # a size whose choice no earlier run left on disk
    x, w = rand(rows, 448), rand(448, 192)
    fast = compiled(f)
    first = braze.explain(fast, x, w)
    assert len(first.products) == 1 and len(first.products[0]["ways"]) > 4
    assert f"product aten::mm {rows}x192 of 448: " in str(first) and "library" in str(first)
    again = braze.explain(fast, x, w)
    assert [p["chosen"] for p in again.products] == [p["chosen"] for p in first.products]
    assert again.products[0]["ways"] == [] and "as was known" in str(again)


def test_without_triton(monkeypatch):
    monkeypatch.setattr(_triton, "version", lambda: "")
    before = len(_C._tuned())
    f = lambda x, w: torch.tanh(x @ w) + 3
    x, w = rand(192, 320), rand(320, 448)
    fast = compiled(f)
    for _ in range(2):
        agrees(fast(x, w), f, x, w)
    assert len(_C._tuned()) == before


PROGRAM = """
import json, time, torch, braze, torch.nn.functional as F
x, w, b = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((1024, 1024), (4096, 1024), (4096,)))
f = lambda x, w, b: F.silu(F.linear(x, w, b)) * 0.5
fast = braze.compile(f, mode="max-autotune", options={"autotune_seconds": 60})
for _ in range(5):
    start = time.time()
    got = fast(x, w, b)
    torch.cuda.synchronize()
torch.testing.assert_close(got, f(x, w, b), rtol=2e-2, atol=5e-1)
print(json.dumps(braze._C._tuned()))
"""


def test_a_second_process_does_not_search(tmp_path):
    env = {**os.environ, "BRAZE_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(pathlib.Path(braze.__file__).parents[1])}
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert len(found[0]) == 1 and len(found[1]) == 1
    assert found[1][0]["chosen"] == found[0][0]["chosen"] and found[1][0]["ways"] == []
    assert len(found[0][0]["ways"]) > 4 and found[0][0]["seconds"] < 60
