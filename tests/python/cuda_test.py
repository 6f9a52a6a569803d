"""Kernels and models on an NVIDIA GPU, against eager. Skipped where there is none."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


@pytest.fixture(autouse=True)
def usable():
    """Whatever a test did, the device and its random numbers go on."""
    yield
    assert int(torch.randint(5, 6, (1,), device="cuda")) == 5


def rand(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator("cpu").manual_seed(seed + len(shape))
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).cuda()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool().cuda()
    return torch.randint(-50, 50, shape, generator=g).to(dtype).cuda()


def error(got, reference):
    """Largest error, relative to the larger of 1 and the reference's largest value."""
    got, reference = got.double(), reference.double()
    both_nan = got.isnan() & reference.isnan()
    same = (got == reference) | both_nan
    d = torch.where(same, torch.zeros_like(got), (got - reference).abs())
    scale = reference[reference.isfinite()].abs().max().clamp(min=1) if reference.numel() else 1
    return float((d / scale).max()) if d.numel() else 0.0


def check(fn, *args, kernels=None, externs=None):
    """fn compiled as one graph gives eager's results, within twice eager's own error against float64."""
    explained = braze.explain(fn, *args)
    assert explained.graph_break_count == 0, explained.breaks
    assert explained.kernel_count + explained.extern_count > 0, str(explained)
    if kernels is not None:
        assert explained.kernel_count == kernels, str(explained)
    got = braze.compile(fn)(*args)
    eager = fn(*args)
    exact = fn(*[a.double() if torch.is_tensor(a) and a.dtype.is_floating_point else a for a in args])
    one = lambda r: r if isinstance(r, (tuple, list)) else (r,)
    for g, e, x in zip(one(got), one(eager), one(exact), strict=True):
        assert g.shape == e.shape and g.dtype == e.dtype and g.device == e.device
        assert g.stride() == e.stride()
        if not e.dtype.is_floating_point:
            assert torch.equal(g, e)
            continue
        assert torch.equal(g.isnan(), e.isnan())
        allowed = 2 * error(e, x) + 8 * torch.finfo(e.dtype).eps * (0.25 if e.dtype == torch.float64 else 1)
        assert error(g, x) <= allowed, f"error {error(g, x)}, eager's {error(e, x)}"


POINTWISE = {
    "chain": lambda x, y: F.gelu(x * 2 + y, approximate="tanh") * torch.sigmoid(y),
    "exact_gelu": lambda x, y: F.gelu(x) + F.silu(y),
    "trigonometry": lambda x, y: torch.sin(x) * torch.cos(y) + torch.tan(x * 0.3),
    "inverse": lambda x, y: torch.atan(x) + torch.asin(torch.tanh(y)) + torch.acos(torch.tanh(x)) + torch.atan2(x, y),
    "hyperbolic": lambda x, y: torch.sinh(x)
    + torch.cosh(y)
    + torch.asinh(x)
    + torch.acosh(y.abs() + 1)
    + torch.atanh(torch.tanh(x)),
    "logarithms": lambda x, y: torch.log(x.abs())
    + torch.log1p(y.abs())
    + torch.log2(y.abs() + 1)
    + torch.log10(x.abs() + 1)
    + torch.expm1(x * 0.1),
    "errors": lambda x, y: torch.erf(x) + torch.erfc(y),
    "powers": lambda x, y: torch.pow(x.abs(), y) + x**3 + torch.rsqrt(x.abs() + 1) + torch.exp2(y),
    "division": lambda x, y: torch.fmod(x * 7, y) + torch.remainder(x * 7, y) + torch.floor_divide(x * 7, y),
    "choice": lambda x, y: torch.where(x > y, x, -y).clamp(-1, 1) + torch.maximum(x, y) + x.sign(),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_pointwise(name, dtype):
    check(POINTWISE[name], rand(64, 1000, dtype=dtype), rand(64, 1000, dtype=dtype, seed=1), kernels=1)


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (1024,), (1000003,), (3, 5, 7), (129, 65), (2, 3, 4, 4096), (0, 4), (2048, 2048)]
)
def test_shapes(shape):
    check(lambda x, y: torch.tanh(x + y) * 2, rand(*shape), rand(*shape, seed=1), kernels=1)


def test_special_values():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor(
        [
            0.0,
            -0.0,
            inf,
            -inf,
            nan,
            1e-40,
            -1e-40,
            88.7,
            88.8,
            -87.4,
            -103.9,
            -104.1,
            1e30,
            -1e30,
            3e38,
            1.0,
            -1.0,
            1e9,
            1e20,
        ],
        device="cuda",
    )
    check(
        lambda x: (
            torch.exp(x),
            torch.sigmoid(x),
            torch.tanh(x),
            torch.erf(x),
            torch.log(x),
            torch.sin(x),
            torch.cos(x),
            torch.atan(x),
            torch.relu(x),
            torch.sqrt(x),
            torch.expm1(x),
            torch.log1p(x),
        ),
        x,
    )


def test_integers():
    x, y = rand(1000, dtype=torch.int64), rand(1000, dtype=torch.int64, seed=3)
    check(
        lambda x, y: (
            x * y + 3,
            x // 7,
            x % 7,
            x & y,
            x << 2,
            (x > y),
            x.to(torch.int8) + 1,
            x.bool() | y.bool(),
            x.abs() ** 2,
        ),
        x,
        y,
    )


def test_broadcast_and_strides():
    x, b, c = rand(64, 128, 96), rand(96), rand(64, 1, 96)
    check(lambda x, b, c: (x * b + c).relu(), x, b, c, kernels=1)
    check(lambda x, b: x[:, 1:, ::2] * b[::2], x, b, kernels=1)
    check(lambda x: x[:, 3:] + 1, x.reshape(64 * 128, 96), kernels=1)
    check(lambda x: x + 1, torch.randn(1025, device="cuda")[1:], kernels=1)


@pytest.mark.parametrize("shape", [(2048, 2048), (100, 37), (3, 65, 33), (8, 64, 1000)])
def test_transposed(shape):
    check(
        lambda x, y: x + y.transpose(-1, -2).contiguous(), rand(*shape), rand(*shape[:-2], shape[-1], shape[-2], seed=2)
    )
    check(lambda x: x.transpose(-1, -2).contiguous(), rand(*shape))
    check(lambda x: x.transpose(-1, -2).contiguous(), rand(*shape, dtype=torch.bfloat16))


ROWS = [(4096, 1024), (16, 64), (33, 7), (1000, 49), (5, 1000), (64, 4096), (3, 50257), (2, 300001), (1, 1), (17, 1)]


@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows(shape, dtype):
    x = rand(*shape, dtype=dtype)
    check(lambda x: torch.softmax(x, -1), x)
    check(lambda x: torch.log_softmax(x.float(), -1), x)
    check(lambda x: x.sum(-1), x)
    check(lambda x: (x.amax(-1), x.amin(-1), x.mean(-1)), x)
    check(lambda x: x.argmax(-1), x)
    check(lambda x: (x > 0).any(-1), x)
    check(lambda x: (x > -9).all(-1), x)


@pytest.mark.parametrize("width", [7, 64, 768, 1000, 4096, 40000])
def test_norms(width):
    x, w, b = rand(64, width), rand(width), rand(width, seed=4)
    check(lambda x, w, b: F.layer_norm(x, (width,), w, b), x, w, b)
    check(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, x, w)
    check(lambda x: (x.var(-1), x.std(-1)), x)


@pytest.mark.parametrize("shape", [(4096, 1024), (1000, 7), (64, 40), (3, 33), (100000, 3), (8, 512, 96)], ids=str)
def test_columns(shape):
    x = rand(*shape)
    check(lambda x: x.sum(0), x)
    check(lambda x: x.sum(-2), x)
    check(lambda x: (x.amax(0), x.argmin(-2)), x)
    check(lambda x: torch.softmax(x, 0), x)
    check(lambda x: x.var(0), x)


@pytest.mark.parametrize("n", [1, 1000, 1 << 20, 3 << 22, 1000003])
def test_whole(n):
    x = rand(n).abs()  # no cancellation
    check(lambda x: x.sum(), x)
    check(lambda x: (x.max(), x.argmax(), (x * x).mean()), x)


def test_batch_norm_axes():
    x = rand(16, 32, 14, 14)
    check(lambda x: x.mean((0, 2, 3)), x)
    check(lambda x: x.var((0, 2, 3), unbiased=False), x)
    check(lambda x: F.group_norm(x, 8), x)


def test_gather():
    w = rand(1000, 64)
    i = torch.randint(0, 1000, (8, 33), device="cuda")
    check(lambda w, i: F.embedding(i, w) * 2, w, i)
    check(lambda w, i: w[i[0]], w, i)
    check(lambda w, i: torch.gather(w, 1, i[:, :5] % 64), w[:8].contiguous(), i)


def test_index_out_of_range_is_reported():
    w, i = rand(10, 4), torch.tensor([3, 11], device="cuda")
    f = braze.compile(lambda w, i: w[i] + 1)
    f(w, i)
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="out of range"):
        f(w, torch.tensor([3, 1], device="cuda"))
    assert torch.equal(f(w, torch.tensor([3, 1], device="cuda")), w[[3, 1]] + 1)  # the device goes on


def test_cpu_number():
    check(lambda x, s: x * s, rand(100), torch.tensor(2.5))


def test_matmul_and_attention():
    x, w, b = rand(64, 256), rand(512, 256), rand(512)
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b, kernels=1)
    q, k, v = (rand(2, 4, 64, 32, seed=s) for s in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v)
    # Attention's random state lies on the CPU, which tracing cannot know.
    efficient = lambda q, k, v: torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True)
    got, want = braze.compile(efficient)(q, k, v), efficient(q, k, v)
    for g, e in zip(got, want, strict=True):
        assert g.device == e.device and g.shape == e.shape and g.dtype == e.dtype
    torch.testing.assert_close(got[:2], want[:2])  # without dropout the state means nothing
    check(lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v, q, k, v)


def test_product_with_odd_rows():
    x, w = rand(1024, 64, dtype=torch.bfloat16), rand(1031, 64, dtype=torch.bfloat16)
    got, want = braze.compile(lambda x, w: (x @ w.t(), torch.relu(x @ w.t())))(x, w), (x @ w.t(), torch.relu(x @ w.t()))
    for g, e in zip(got, want):
        assert g.stride() == e.stride()
        torch.testing.assert_close(g, e, rtol=2e-2, atol=1e-1)


def test_streams():
    x = rand(1 << 20)
    f = braze.compile(lambda x: torch.sin(x) + 1)
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        y = f(x)
    torch.cuda.current_stream().wait_stream(s)
    torch.testing.assert_close(y, torch.sin(x) + 1)


def test_memory_does_not_grow():
    x = rand(1 << 20)
    f = braze.compile(lambda x: torch.softmax(x.view(1024, 1024), -1).sum(0))
    f(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(10):
        f(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def test_out_of_memory_leaves_the_device_usable():
    free, _ = torch.cuda.mem_get_info()
    f = braze.compile(lambda x: (x[:, None] + x[None, :]).relu())
    n = int((free / 4) ** 0.5 * 2)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        f(torch.ones(n, device="cuda"))
    torch.testing.assert_close(f(torch.ones(4, device="cuda")), torch.full((4, 4), 2.0, device="cuda"))


def test_autocast():
    m = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).cuda()
    x = rand(8, 64)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        got, want = braze.compile(m)(x), m(x)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=2e-2)


def test_training_step():
    torch.manual_seed(0)
    m = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10)
    ).cuda()
    x, y = rand(32, 64), torch.randint(0, 10, (32,), device="cuda")
    F.cross_entropy(m(x), y).backward()
    want = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    F.cross_entropy(braze.compile(m)(x), y).backward()
    for p, w in zip(m.parameters(), want):
        torch.testing.assert_close(p.grad, w, rtol=1e-4, atol=1e-5)


def test_copies_between_devices():
    x = torch.randn(100)
    check(lambda x: x.cuda() * 2 + 1, x)
    got = braze.compile(lambda x: (x * 2).cpu() + 1)(x.cuda())
    torch.testing.assert_close(got, x * 2 + 1)


def test_without_an_assembler_the_driver_takes_the_text():
    code = "import torch, braze; x = torch.randn(1000, device='cuda'); torch.testing.assert_close(braze.compile(lambda x: x.exp() + 1)(x), x.exp() + 1)"
    env = {**os.environ, "BRAZE_NVJITLINK": "no-such-library.so", "BRAZE_CACHE_DIR": ""}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(
    "cls, kw",
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"capturable": True}),
        (torch.optim.AdamW, {"fused": True}),
    ],
)
def test_a_whole_step_is_one_function(cls, kw, mode):
    """Forward, backward, optimizer and zero_grad together: parameters, losses and what is left in .grad are eager's."""

    def train(wrap):
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).cuda()
        o = cls(m.parameters(), lr=1e-2, **kw)

        def step(x, y):
            o.zero_grad()
            loss = F.cross_entropy(m(x), y)
            loss.backward()
            o.step()
            return loss

        step, losses = wrap(step), []
        for i in range(8):
            x = rand(32, 64, seed=i)
            losses.append(step(x, x.sum(1).long() % 10).detach().clone())
        return (
            torch.stack(losses),
            [p.detach().clone() for p in m.parameters()],
            [p.grad.clone() for p in m.parameters()],
        )

    want = train(lambda f: f)
    got = train(lambda f: braze.compile(f, mode=mode))
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_pinned_memory():
    x = torch.randn(1000)
    f = braze.compile(lambda x: x.pin_memory().cuda(non_blocking=True) * 2 + 1)
    torch.testing.assert_close(f(x), x.cuda() * 2 + 1)
    torch.testing.assert_close(braze.compile(lambda x: x.cuda(non_blocking=True) * 2)(x.pin_memory()), x.cuda() * 2)


def test_streams_inside():
    s = torch.cuda.Stream()

    def f(x):
        y = x * 2
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            z = y.sin() + 1
        torch.cuda.current_stream().wait_stream(s)
        return z * y

    x = rand(1 << 20)
    torch.testing.assert_close(braze.compile(f)(x), f(x))


@pytest.mark.parametrize("n", [64, 100, 1000])
def test_sum_with_its_own_transpose(n):
    check(lambda x: x + x.t() * 2, rand(n, n))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices():
    f = braze.compile(lambda x: torch.softmax(x @ x, -1) + 1)
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = torch.randn(64, 64, device=device)
        got = f(x)
        assert got.device == x.device
        torch.testing.assert_close(got, torch.softmax(x @ x, -1) + 1)
    g = braze.compile(lambda x, y: (x * 2).to(y.device) + y)
    x, y = torch.randn(64, device="cuda:0"), torch.randn(64, device="cuda:1")
    torch.testing.assert_close(g(x, y), (x * 2).to(y.device) + y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_current_device():
    """In a process of its own, whose first capture finds the second GPU current."""
    program = """
        import torch, braze
        x = torch.ones(3)
        f = braze.compile(lambda x: (x + 1, torch.zeros(2, device="cuda")))
        for device in (1, 0, 1):
            torch.cuda.set_device(device)
            assert f(x)[1].device.index == device, (device, f(x)[1].device)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


@pytest.mark.parametrize("n", [1 << 16, 1 << 22, 3 * (1 << 20) + 96])
def test_reductions_of_everything(n):
    check(lambda x: (x * x).sum(), rand(n))
    check(lambda x: (x.sum() * 2, x.amax()), rand(n))
    check(lambda x: x.mean() + x[0], rand(n))


def test_reductions_of_everything_on_several_streams():
    f = braze.compile(lambda x: x.sum())
    g = braze.compile(lambda x: x.sum() + 1, mode="reduce-overhead")
    xs = [torch.arange(1 << 21, device="cuda").remainder(7 + i).double() for i in range(4)]
    for _ in range(4):
        f(xs[0]), g(xs[0])
    streams = [torch.cuda.Stream() for _ in xs]
    torch.cuda.synchronize()
    got = []
    for _ in range(30):
        for x, s in zip(xs, streams):
            with torch.cuda.stream(s):
                got.append((f(x), x))
        got.append((g(xs[1]) - 1, xs[1]))  # a replay beside them
    torch.cuda.synchronize()
    for y, x in got:
        assert float(y) == float(x.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_product_with_activation(dtype):
    x, w, b = rand(4, 32, 64, dtype=dtype), rand(48, 64, dtype=dtype, seed=1), rand(48, dtype=dtype, seed=2)
    check(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b, kernels=0, externs=1)
    check(
        lambda x, w, b: F.gelu(F.linear(x[0], w, b), approximate="tanh"),
        x,
        w,
        b,
        kernels=1 if dtype == torch.float32 else 0,
    )
    check(lambda x, w, b: F.relu(F.linear(x, w, b)) * 2 + F.linear(x, w, b), x, w, b)
    b[:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0], dtype=dtype)
    got, want = braze.compile(lambda x: F.relu(F.linear(x, w, b)))(x), F.relu(F.linear(x, w, b))
    torch.testing.assert_close(got, want, equal_nan=True, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(2048, 512), (300, 77), (1000, 2048), (257, 8192)], ids=str)
def test_product_of_one_row(dtype, shape):
    x, w, b = rand(1, shape[1], dtype=dtype), rand(*shape, dtype=dtype, seed=1), rand(shape[0], dtype=dtype, seed=2)
    check(lambda x, w: F.linear(x, w), x, w, kernels=1, externs=0)
    check(lambda x, w, b: F.gelu(F.linear(x[None], w, b), approximate="tanh") + b, x, w, b, kernels=1, externs=0)
    check(lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), x, w, w.flip(0), kernels=1, externs=0)
    check(lambda x, w: F.linear(x * torch.rsqrt((x.float() ** 2).mean(-1, True)).to(x.dtype), w), x, w, externs=0)
    assert braze.explain(lambda x, w: x @ w, x, w.t().contiguous()).extern_count == 1  # neighbours of another row


def test_product_of_one_row_with_integers():
    x, s = rand(1, 4096, dtype=torch.bfloat16), rand(512, dtype=torch.bfloat16).abs()
    w = torch.randint(-127, 127, (512, 4096), device="cuda", dtype=torch.int8)
    f = lambda x, s: F.linear(x, w.to(x.dtype)) * s
    check(f, x, s, kernels=1, externs=0)


def test_gradients_of_a_product_of_one_row():
    x, w = rand(1, 128, dtype=torch.bfloat16).requires_grad_(), rand(512, 128, dtype=torch.bfloat16).requires_grad_()
    f = lambda x, w: F.gelu(F.linear(x, w)).float().square().sum()
    got, want = [torch.autograd.grad(g(x, w), (x, w)) for g in (braze.compile(f), f)]
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-1)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_cache_is_written_where_it_is(mode):
    def step(cache, k, at):
        cache.index_copy_(2, at, k)
        return (cache * 2).sum(2)

    ours, theirs = rand(1, 4, 128, 16, dtype=torch.bfloat16), rand(1, 4, 128, 16, dtype=torch.bfloat16)
    fast, address = braze.compile(step, mode=mode), ours.data_ptr()
    for i in range(8):
        k, at = rand(1, 4, 1, 16, dtype=torch.bfloat16, seed=i), torch.tensor([i * 3], device="cuda")
        torch.testing.assert_close(fast(ours, k, at), step(theirs, k, at), rtol=2e-2, atol=2e-2)
        assert torch.equal(ours, theirs) and ours.data_ptr() == address
    assert braze.explain(step, ours, k, at).kernel_count == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [1, 7, 5000, 32768, 32776, 33001, 128256])
def test_softmax_of_long_rows(n, dtype):
    x = rand(70, n, dtype=dtype)
    x[1] = -float("inf")
    x[2, : n // 2] = -float("inf")
    x[3, n - 1] = float("inf")
    x[4, n // 3] = float("nan")
    for f in (F.softmax, F.log_softmax, torch.logsumexp):
        check(lambda x, f=f: f(x, dim=-1), x)
        check(lambda x, f=f: f(x, dim=-1), x[5:8].clone())  # rows in pieces


@pytest.mark.parametrize("bias", [False, True])
def test_cross_entropy_of_a_linear_layer_holds_no_logits(bias):
    rows, width, classes = 2048, 256, 65_600
    h, w, b = rand(rows, width).bfloat16(), (rand(classes, width) / 16).bfloat16(), rand(classes).bfloat16()
    y = torch.randint(0, classes, (rows,), device="cuda")
    y[5:9] = -100

    def f(h, w, b):
        logits = F.linear(h, w, b if bias else None)
        return F.cross_entropy(logits if logits.dtype == torch.float64 else logits.float(), y)

    def run(f, dtype=torch.bfloat16):
        args = [v.to(dtype).requires_grad_() for v in (h.clone(), w.clone(), b.clone())]
        grads = torch.autograd.grad(f(*args), args if bias else args[:2])
        torch.cuda.synchronize()
        return grads

    def peak(f):
        run(f)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = run(f)
        return torch.cuda.max_memory_allocated() - before, got

    (ours, got), (eager, want) = peak(braze.compile(f)), peak(f)
    assert ours < eager / 3
    for g, e, x in zip(got, want, run(f, torch.float64), strict=True):
        worst = lambda r: ((r.double() - x).abs().max() / x.abs().max()).item()
        assert worst(g) <= 2 * worst(e) + 1e-6, (worst(g), worst(e))


def test_a_device_without_a_number_is_the_current_one():
    def f(x, index):
        made = torch.zeros(4, 8, device="cuda")
        return made.index_add(0, index, x), made.device == x.device, x.to("cuda") is x, str(made.device)

    args = rand(3, 8), torch.tensor([0, 3, 0], device="cuda")
    want, got = f(*args), braze.compile(f, fullgraph=True)(*args)
    assert torch.equal(got[0], want[0]) and got[0].device == want[0].device and got[1:] == want[1:]
