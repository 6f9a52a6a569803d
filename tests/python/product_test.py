"""Matrix products from templates: their kernels under Triton's interpreter against eager, compiled for a GPU, and the processes that compile them."""

import importlib.util
import time

import pytest
import torch
import torch.nn.functional as F
from interpreter import interpreted_by
from product_cases import CASES, kernels

import braze
from braze import _triton, _triton_workers

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton package")


@pytest.fixture(scope="module")
def interpreted():
    return interpreted_by("product_cases.py")


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(interpreted, name):
    assert interpreted[name] == "", interpreted[name]


@needs_triton
@pytest.mark.parametrize("name", ["gelu_tanh", "quantised", "batch_transposed"])
def test_compiles(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made, _ = kernels(name)
    for product in made["products"]:
        assert 0 < len(product["kernels"]) <= 8
        for k in product["kernels"][:2]:
            cubin, threads, shared, scratch = _triton.compile_any(
                k["text"], k["kernel"], k["arguments"], k["warps"], 90, k["stages"], True
            )
            assert cubin.startswith(b"\x7fELF") and k["kernel"].encode() in cubin
            assert threads == 32 * k["warps"] and shared <= 227 << 10
            assert bool(scratch) == ("tma" in k["label"])


ALL_CONFIGS = [
    (128, 256, 64, 8, 3, True, False),
    (256, 128, 64, 8, 3, True, False),
    (128, 128, 64, 8, 4, True, False),
    (128, 256, 64, 8, 3, False, False),
    (128, 128, 64, 4, 3, False, False),
    (16, 64, 256, 4, 4, False, False),
]


@needs_triton
def test_large_tiles_fit_a_multiprocessor(tmp_path, monkeypatch):
    """Those with the most shared memory, with bias, activation and a residual after them."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def f(x, w, b, r):
        return F.gelu(F.linear(x, w, b)) + r

    args = [torch.zeros(s, dtype=torch.bfloat16) for s in ((512, 1024), (512, 1024), (512,), (512, 512))]
    monkeypatch.setitem(CASES, "large", (f, args, 1, True))
    made, _ = kernels("large", ALL_CONFIGS, multiprocessors=132)
    (product,) = made["products"]
    sources = [
        (k["text"], k["kernel"], k["arguments"], k["warps"], 90, k["stages"], True, ()) for k in product["kernels"]
    ]
    ticket = _triton_workers.start(sources, 1.0)
    for config, result in zip(ALL_CONFIGS, _triton_workers.finish(ticket, 300), strict=True):
        assert isinstance(result, tuple), f"{config}: {result}"
        assert result[2] <= 227 << 10, f"{config} takes {result[2]} bytes"


@needs_triton
def test_processes_tell_what_is_wrong_and_end(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_triton_workers, "_IDLE", 0.2)
    good, _ = kernels("plain")
    k = good["products"][0]["kernels"][0]
    source = (k["text"], k["kernel"], k["arguments"], k["warps"], 90, k["stages"], True, ())
    ticket = _triton_workers.start([(k["text"].replace("tl.zeros", "tl.nothing"), *source[1:]), source], 1.0)
    bad, fine = _triton_workers.finish(ticket, 120)
    assert isinstance(bad, str) and "nothing" in bad
    assert isinstance(fine, tuple) and fine[0].startswith(b"\x7fELF")
    # Whom nobody waits for is not compiled; a ticket is good once.
    late = _triton_workers.start([source], 1.0)
    assert _triton_workers.finish(late, 0) in ([None], [fine])
    assert _triton_workers.finish(late, 0) == []
    end = time.monotonic() + 20
    while (_triton_workers._running or _triton_workers._processes) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _triton_workers._running and not _triton_workers._processes


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_on_the_cpu_compile_alike(mode):
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU()).eval()
    x = torch.randn(32, 64)
    before = len(braze._C._tuned())
    with torch.no_grad():
        fast = braze.compile(model, mode=mode, fullgraph=True)
        torch.testing.assert_close(fast(x), model(x))
        assert sum("product" in t for t in braze._C._tuned()[before:]) == 1
        seconds = braze.compile(model, options={"autotune_seconds": 3}, fullgraph=True)
        torch.testing.assert_close(seconds(x), model(x))
    with pytest.raises(TypeError, match="autotune_seconds"):
        braze.compile(model, options={"autotune_seconds": "long"})
