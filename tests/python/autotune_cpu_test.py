"""mode="max-autotune" on the CPU: how loops are run and who computes products, by timing. With _prefer_kernels what is not the default is taken
wherever it works: then every other way is seen to give eager's results."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import braze
from braze import _C

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "fuzz"))
from tensors import check  # noqa: E402

R = torch.randn
CASES = {
    "a sum over channels": (lambda x: x.sum(1), R(4, 30, 7, 7)),
    "rows": (lambda x: x.softmax(-1), R(37, 100)),
    "columns": (lambda x: x.softmax(1), R(8, 37, 30)),
    "layer norm": (lambda x: F.layer_norm(x, (x.shape[-1],)), R(37, 129)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), R(4, 8, 14, 14)),
    "group norm": (lambda x: F.group_norm(x, 2), R(4, 8, 14, 14)),
    "places": (lambda x: (x.argmax(1), x.max(1), x.argmin(0)), R(40, 33, 9)),
    "moments": (lambda x: torch.var_mean(x, (0, 2)), R(12, 9, 35)),
    "integers": (lambda x: (x.sum(0), (x * 3).prod(1), x.amax(0)), torch.randint(-4, 5, (13, 19))),
    "truths": (lambda x: (x > 0).any(0) & (x < 1).all(0), R(40, 33)),
    "half": (lambda x: (x * 2).sum(0) + x.amax(0), R(65, 70).half()),
    "bfloat16": (lambda x: F.gelu(x).mean(-1), R(65, 70).bfloat16()),
    "double": (lambda x: x.logsumexp(0), R(65, 70).double()),
    "a transposed copy": (lambda x: x.transpose(1, 2).contiguous() + 1, R(3, 65, 34)),
    "channels last": (lambda x: x.to(memory_format=torch.channels_last) * 2, R(2, 33, 9, 11)),
    "windows": (lambda x: F.unfold(x, 3, padding=1), R(2, 8, 9, 10)),
    "pooled windows": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), R(2, 8, 9, 11)),
    "shuffled pixels": (lambda x: F.pixel_shuffle(x, 2), R(2, 16, 7, 9)),
    "bytes": (lambda x: x.t().contiguous(), torch.randint(0, 255, (65, 130), dtype=torch.uint8)),
    "parts": (lambda x: torch.cat([x.t(), x.t() + 1], 1), R(40, 50)),
    "nothing": (lambda x: x.sum(0) + 1, R(0, 7)),
}


@pytest.fixture
def others():
    """Ways that are not the default's, made anew."""
    _C._prefer_kernels(True)
    yield
    _C._prefer_kernels(False)


def tuned(f, **how):
    return braze.compile(f, fullgraph=True, mode="max-autotune-no-cudagraphs", **how)


def agrees(got, want, tol=1e-5):
    torch.testing.assert_close(got, want, rtol=tol, atol=tol, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_loops_in_other_mappings(others, name):
    f, x = CASES[name]
    e = braze.explain(tuned(f), x)
    tol = {torch.half: 2e-3, torch.bfloat16: 2e-2}.get(x.dtype, 1e-5)
    agrees(e.output, f(x), tol)
    if name != "nothing":
        timed = [t for t in e.loops if t["ways"]]
        assert timed and all(t["chosen"] != t["ways"][0][0] for t in timed), e
        assert f"loops {timed[0]['loops']}: {timed[0]['chosen']} of " in str(e)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_programs_in_other_mappings(others, first):
    for seed in range(first, first + 20):
        wrong = check(seed, mode="max-autotune-no-cudagraphs")
        assert not wrong, wrong


def test_what_is_timed_is_not_the_callers():
    """Loops that write their input run on memory of their own while they are timed."""

    def f(x, counts):
        x.mul_(2).add_(counts.sum(1))
        return x.t().contiguous()

    x, counts = R(40, 33), R(40, 20, 33)
    want_x = x.clone()
    want = f(want_x, counts)
    agrees(tuned(f)(x, counts), want)
    agrees(x, want_x)


def test_errors_of_the_data_are_still_told():
    divide = tuned(lambda a, b: (a // b).sum(0))
    a = torch.arange(24).reshape(4, 6)
    assert torch.equal(divide(a, a + 1), (a // (a + 1)).sum(0))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(a, a)
    take = tuned(lambda t, i: t[i] * 2)
    table = R(7, 30)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        take(table, torch.tensor([1, 9]))
    assert torch.equal(take(table, torch.tensor([1, 6])), table[[1, 6]] * 2)


def test_training():
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8)
    )
    x = R(32, 64)
    want = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    got = torch.autograd.grad(tuned(model)(x).square().mean(), list(model.parameters()))
    for a, b in zip(got, want, strict=True):
        agrees(a, b)


PRODUCTS = {
    "a layer": lambda x, w, b: F.linear(x, w.t(), b),
    "without bias": lambda x, w, b: F.linear(x, w.t()),
    "a matrix of dense rows": lambda x, w, b: torch.addmm(b, x, w.contiguous() + 0),
    "dense columns": lambda x, w, b: x @ w.t().contiguous().t(),
    "a scaled sum": lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=2),
    "a transposed row operand": lambda x, w, b: x.t().contiguous().t() @ w,
    "batches": lambda x, w, b: torch.bmm(x.expand(3, -1, -1), w.expand(3, -1, -1)),
}


@pytest.mark.parametrize("way", ["own kernel", "oneDNN"])
@pytest.mark.parametrize("rows", [1, 2, 7, 40, 200])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_other_ways(others, name, rows, way):
    _C._prefer_kernels(True, way)
    f = PRODUCTS[name]
    before = len(_C._tuned())
    x, w, b = R(rows, 300), R(300, 130) / 17, R(130)
    compiled = tuned(f)
    for _ in range(2):
        agrees(compiled(x, w, b), f(x, w, b), 1e-4)
    # One row times dense columns is a kernel of sums where the library is slow at it.
    if name in ("a layer", "without bias") or (name == "dense columns" and rows > 1):
        assert way in [t["chosen"] for t in _C._tuned()[before:] if "product" in t]


def test_a_product_is_timed_once_for_each_shape():
    layer = torch.nn.Linear(256, 352)
    compiled = tuned(layer, dynamic=True, options={"disk_cache": False})
    with torch.no_grad():
        for rows, fresh in (3, 1), (5, 1), (3, 0), (5, 0):
            before = len(_C._tuned())
            x = R(rows, 256)
            agrees(compiled(x), layer(x), 1e-4)
            now = [t for t in _C._tuned()[before:] if "product" in t]
            assert len(now) == fresh, now
            for t in now:
                assert t["product"] == f"aten::addmm {rows}x352 of 256"
                assert [way for way, _ in t["ways"]] == ["library", "own kernel", "oneDNN"]
                assert min(ms for _, ms in t["ways"] if ms >= 0) > 0 and t["seconds"] > 0


def test_without_onednn():
    """Who has switched the library off meets none of it."""
    layer, x = torch.nn.Linear(256, 288), R(9, 256)
    before = len(_C._tuned())
    with torch.backends.mkldnn.flags(enabled=False), torch.no_grad():
        agrees(tuned(layer, options={"disk_cache": False})(x), layer(x), 1e-4)
    made = [t for t in _C._tuned()[before:] if "product" in t]
    assert made[0]["ways"][2] == ("oneDNN", -1.0) and made[0]["chosen"] != "oneDNN"


BATCHES = {  # each row of the second operand a column of the product, which the kernel takes as it lies
    "batches of dense columns": (lambda q, k, v: q @ k.transpose(1, 2), True),
    "scores, and what they weigh": (lambda q, k, v: (q @ k.transpose(1, 2)).softmax(-1) @ v, True),
    "dense rows": (lambda q, k, v: q @ v, False),
    "a shared operand": (lambda q, k, v: q @ k[:1].expand_as(k).transpose(1, 2), True),
    "every other row": (lambda q, k, v: q[:, ::2] @ k[:, ::3].transpose(1, 2), True),
}


@pytest.mark.parametrize("rows", [1, 5, 33])
@pytest.mark.parametrize("name", BATCHES)
def test_products_in_batches(others, name, rows):
    f, fits = BATCHES[name]
    _C._prefer_kernels(True, "own kernel")
    before = len(_C._tuned())
    q, k, v = R(12, rows, 40), R(12, 61, 40), R(12, 40, 61)
    if "weigh" in name:
        v = R(12, 61, 40)
    compiled = tuned(f)
    for _ in range(2):
        agrees(compiled(q, k, v), f(q, k, v), 1e-4)
    made = [t for t in _C._tuned()[before:] if t.get("product", "").startswith("aten::bmm 12x")]
    if rows == 1:  # sums, where the library is slow at them
        return
    assert made and (not fits or made[0]["chosen"] == "own kernel")


CONVOLUTIONS = {
    "windows": (dict(kernel_size=3, padding=1), True),
    "windows apart": (dict(kernel_size=(5, 2), stride=(2, 3), padding=(0, 1), bias=False), True),
    "windows of one element": (dict(kernel_size=1), True),
    "the same, apart": (dict(kernel_size=1, stride=2), True),
    "dilated windows": (dict(kernel_size=3, dilation=2), False),
    "groups": (dict(kernel_size=3, groups=4), False),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_other_ways(others, name, last):
    geometry, fits = CONVOLUTIONS[name]
    layer, x = torch.nn.Conv2d(120, 72, **geometry), R(3, 120, 40, 39)
    if last:
        layer, x = layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    _C._prefer_kernels(True, "matrix product")
    before = len(_C._tuned())
    compiled = tuned(layer, options={"convolution_layout": "recorded"})
    with torch.no_grad():
        for _ in range(2):
            got, want = compiled(x), layer(x)
            agrees(got, want, 1e-4)
            assert got.stride() == want.stride()
    chosen = [t["chosen"] for t in _C._tuned()[before:] if "convolution" in t]
    fits = fits and (not last or name == "windows of one element")
    assert chosen == (["matrix product"] if fits else [])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.groups, self.wide = nn.Conv2d(16, 16, 3, groups=4), nn.Conv2d(16, 32, 1, bias=False)
        self.last = nn.Linear(32, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        y = self.groups(x)
        z = self.wide(F.silu(y)) + y.repeat(1, 2, 1, 1)
        return self.last(z.mean((2, 3))), y, z


@pytest.mark.parametrize("freezing", [False, True])
def test_the_layout_of_a_net(others, freezing):
    net, x = Net().eval(), R(2, 3, 20, 22)
    with torch.no_grad():
        want = net(x)
        compiled = tuned(net, options={"freezing": freezing, "disk_cache": False})
        e = braze.explain(compiled, x)
        (made,) = e.layouts
        assert made["layout"] == "3 convolutions" and made["chosen"] != "by rule"
        assert made["ways"][0][0] == "by rule" and all(ms > 0 for _, ms in made["ways"])
        assert "layout 3 convolutions: " in str(e)
        before = len(_C._tuned())
        for got in e.output, compiled(x), compiled(x):
            agrees(got, want, 1e-4)
            assert [t.stride() for t in got] == [t.stride() for t in want]
        assert not [t for t in _C._tuned()[before:] if "layout" in t and t["ways"]]
        with torch.no_grad():
            net.last.weight.mul_(2)
        agrees(compiled(x), net(x), 1e-4)


@pytest.mark.parametrize("layout", ["auto", "recorded", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_layout_by_name(layout, dtype):
    net, x = Net().eval().to(dtype), R(2, 3, 20, 22, dtype=dtype)
    compiled = braze.compile(net, fullgraph=True, options={"convolution_layout": layout})
    with torch.no_grad():
        got, want = compiled(x), net(x)
    agrees(got, want, 5e-2 if dtype == torch.bfloat16 else 1e-4)
    assert [t.stride() for t in got] == [t.stride() for t in want]
    with pytest.raises(TypeError, match="'auto' or 'recorded' or 'channels_last'"):
        braze.compile(net, options={"convolution_layout": "last"})


def test_a_layout_for_each_size(others):
    net = Net().eval()
    compiled = tuned(net, dynamic=True, options={"disk_cache": False})
    with torch.no_grad():
        for h, w, fresh in (20, 22, 1), (24, 18, 1), (20, 22, 0), (24, 18, 0):
            before = len(_C._tuned())
            x = R(2, 3, h, w)
            agrees(compiled(x), net(x), 1e-4)
            assert len([t for t in _C._tuned()[before:] if "layout" in t]) == fresh


def test_what_may_not_run_twice_has_the_layout_of_the_rule(others):
    net = Net().eval()

    def counted(x, calls):
        calls.add_(1)
        return net(x)[0] + calls

    x, calls = R(2, 3, 20, 22), torch.zeros(())
    with torch.no_grad():
        e = braze.explain(tuned(counted), x, calls)
        assert calls.item() == 1 and not e.layouts
        agrees(e.output, net(x)[0] + 1, 1e-4)
        assert not braze.explain(tuned(lambda x: F.dropout(net(x)[0], 0.5)), x).layouts
    assert not braze.explain(tuned(lambda x: net(x)[0].sum()), x).layouts  # it has a backward


def test_errors_in_a_graph_whose_layout_is_timed():
    net = Net().eval()
    take = tuned(lambda x, i: net(x)[2][i], options={"disk_cache": False})
    x = R(2, 3, 20, 22)
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(IndexError, match="index 7 is out of bounds"):
                take(x, torch.tensor([0, 7]))
        for _ in range(2):
            agrees(take(x, torch.tensor([1])), net(x)[2][[1]], 1e-4)


PROGRAM = """
import sys, torch, braze
torch.manual_seed(0)
layer, x = torch.nn.Linear(160, 224), torch.randn(6, 160)
f = lambda x: torch.softmax(layer(x).t().contiguous(), 0).sum(1)
with torch.no_grad():
    e = braze.explain(braze.compile(f, fullgraph=True, options={"autotune_seconds": int(sys.argv[1])}), x)
    torch.testing.assert_close(e.output, f(x))
print([[(t["chosen"], bool(t["ways"])) for t in tuned] for tuned in (e.products, e.loops)])
"""


LAYOUTS = """
import sys, torch, braze
torch.manual_seed(0)
net, x = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3)), torch.randn(2, 8, 20, 21)
with torch.no_grad():
    f = braze.compile(net, fullgraph=True, options={"autotune_seconds": int(sys.argv[1])})
    e = braze.explain(f, x)
    torch.testing.assert_close(e.output, net(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(f(x), net(x), rtol=1e-4, atol=1e-4)
print([[(t["chosen"], bool(t["ways"])) for t in tuned] for tuned in (e.layouts, e.convolutions)])
"""


def test_choices_are_kept_on_disk(tmp_path):
    def run(seconds, program=PROGRAM, **more):
        made = subprocess.run(
            [sys.executable, "-c", program, str(seconds)],
            env=os.environ | {"BRAZE_CACHE_DIR": str(tmp_path / "cache"), **more},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert made.returncode == 0, made.stderr
        return ast.literal_eval(made.stdout)

    (tmp_path / "cache").mkdir(mode=0o700)
    products, loops = run(10)
    assert len(products) == 1 and loops and all(timed for _, timed in products + loops)
    known = [[(chosen, False) for chosen, _ in tuned] for tuned in (products, loops)]
    # The compiled graph is there, with the choices of loops in it; to another graph, as one of other options, the choices are known.
    assert run(10) == [known[0], []]
    again = run(9)
    assert again[0] == known[0] and sorted(again[1]) == sorted(known[1])
    anew = run(9, BRAZE_FORCE_DISABLE_CACHES="1")
    assert [len(tuned) for tuned in anew] == [1, len(loops)] and all(timed for tuned in anew for _, timed in tuned)
    ((layout, timed),), convolutions = run(10, LAYOUTS)
    assert timed and len(convolutions) == 2 and all(timed for _, timed in convolutions)
    for seconds in 10, 9:
        again = run(seconds, LAYOUTS)
        assert again[0] == [(layout, False)] and not any(timed for _, timed in again[1])
        assert len(again[1]) == (0 if layout == "channels_last" else 2)  # those are timed in the other layout
