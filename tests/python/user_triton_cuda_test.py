"""Triton kernels of the program's in compiled functions on an NVIDIA GPU, against eager. Skipped where there is none."""

import contextlib
import importlib.util

import pytest
import torch

import braze

if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
    pytest.skip("no NVIDIA GPU with triton", allow_module_level=True)

import triton
import triton.language as tl

from braze._user_kernels import Launch


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def square(x):
    return x * x


@triton.jit
def norm_rows(x_ptr, w_ptr, out_ptr, row, out_row, columns, eps, SQUARED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + at * row + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(square(x), 0) / columns + eps)
    y = x * scale
    if SQUARED:
        y = square(y)
    if w_ptr is not None:
        y *= tl.load(w_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + at * out_row + offsets, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def increment(x_ptr, n, by, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + by, mask=offsets < n)


@triton.jit
def sum_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), 0))


def autotuned(kernel, **options):
    configs = [triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 256}, num_warps=4)]
    return triton.autotune(configs=configs, key=["n"], **options)(kernel)


def rand(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=g).to(dtype).cuda()


def blocks(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def plus(x, y):
    out = torch.empty_like(x)
    add[blocks(x.numel())](x, y, out, x.numel(), BLOCK=128)
    return out


def norm(x, w=None, squared=False):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    norm_rows[(x.shape[0],)](
        x,
        w,
        out,
        x.stride(0),
        out.stride(0),
        x.shape[1],
        1e-6,
        squared,
        triton.next_power_of_2(x.shape[1]),
        num_warps=4,
    )
    return out


@contextlib.contextmanager
def launches():
    kernels, run = [], Launch.run
    Launch.run = lambda self, *args: (kernels.append(self.kernel), run(self, *args))[1]
    try:
        yield kernels
    finally:
        Launch.run = run


def agrees(f, *args, calls=5, **options):
    """In results and in what becomes of the arguments, over calls enough for a recording."""
    compiled = braze.compile(f, fullgraph=True, **options)
    for i in range(calls):
        mine, theirs = [[a + i if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2)]
        torch.testing.assert_close(compiled(*mine), f(*theirs))
        torch.testing.assert_close(mine, theirs)
    return compiled


MODES = pytest.mark.parametrize("mode", ["default", "reduce-overhead"])


@MODES
def test_between_kernels_of_ours(mode):
    agrees(lambda x, y: plus(x * 2, y.exp()).relu() + 1, rand(1000), rand(1000, seed=1), mode=mode)


@MODES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_are_views(mode, dtype):
    def f(x, w):
        return norm(x[:, 3:], w) + norm(x[2:, :50], squared=True).sum()

    agrees(f, rand(40, 70, dtype=dtype), rand(67, dtype=dtype), mode=mode)


@MODES
def test_autotuner(mode):
    tuned = autotuned(add)

    def f(x, y):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out * 2

    agrees(f, rand(1000), rand(1000, seed=1), mode=mode)
    assert tuned.best_config in tuned.configs


@MODES
def test_autotuner_that_resets(mode):
    tuned = autotuned(sum_into, reset_to_zero=["out_ptr"])

    def f(x):
        out = torch.zeros(1, device="cuda")
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    agrees(f, torch.ones(5000, device="cuda"), mode=mode)


def test_heuristics():
    tuned = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(add)

    def f(x, y):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out

    agrees(f, rand(300), rand(300, seed=1))


@MODES
def test_written_input(mode):
    def f(state, x):
        increment[blocks(state.numel())](state, state.numel(), 1.0, BLOCK=128)
        return state.sum() + x

    compiled, state = braze.compile(f, fullgraph=True, mode=mode), torch.zeros(1000, device="cuda")
    x = rand(10)
    for i in range(1, 8):
        torch.testing.assert_close(compiled(state, x), 1000.0 * i + x)
        assert torch.equal(state, torch.full_like(state, i))


def test_written_where_it_is():
    def f(state, x):
        increment[blocks(state.numel())](state, state.numel(), 1.0, BLOCK=1024)
        out = torch.empty_like(state)
        add[blocks(state.numel())](state, x, out, state.numel(), BLOCK=1024)
        return out

    compiled, state = braze.compile(f, fullgraph=True), torch.zeros(1 << 24, device="cuda")
    x = torch.ones_like(state)
    for _ in range(3):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = compiled(state, x)
        used = torch.cuda.max_memory_allocated() - before
        assert used < 1.5 * state.nbytes, used  # the result alone
        torch.testing.assert_close(out, state + 1)
        del out


def test_sizes_stay_open():
    compiled = braze.compile(lambda x, y: plus(x, y) * 2, fullgraph=True)
    braze.counters(clear=True)
    for n in (30, 41, 64, 200, 1, 4096, 7):
        x, y = rand(n), rand(n, seed=1)
        torch.testing.assert_close(compiled(x, y), (x + y) * 2)
    assert braze.counters()["captures"] <= 3  # a size of 1 is one of its own


class Plus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return plus(x, y)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return plus(grad.contiguous(), x), grad


@MODES
def test_backward(mode):
    compiled = braze.compile(lambda x, w: (Plus.apply(x * w, w) ** 2).sum(), fullgraph=True, mode=mode)
    with launches() as kernels:
        for i in range(6):
            x, w = rand(200, seed=i).requires_grad_(), rand(200, seed=i + 1).requires_grad_()
            result = compiled(x, w)
            result.backward()
            a, b = x.detach(), w.detach()
            grad = 2 * (a * b + b)
            torch.testing.assert_close(result.detach(), ((a * b + b) ** 2).sum())
            torch.testing.assert_close(x.grad, (grad + a * b) * b)
            torch.testing.assert_close(w.grad, (grad + a * b) * a + grad)
    assert kernels and set(kernels) == {add}


@torch.library.triton_op("braze_cuda_test::plus", mutates_args=())
def plus_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[blocks(x.numel())](x, y, out, x.numel(), BLOCK=128)
    return out


@MODES
def test_triton_op(mode):
    with launches() as kernels:
        agrees(lambda x, y: plus_op(x * 2, plus_op(x, y)), rand(500), rand(500, seed=1), mode=mode)
    assert kernels and set(kernels) == {add}


def test_another_stream():
    compiled = braze.compile(lambda x, y: plus(x * 2, y), fullgraph=True)
    x, y, stream = rand(1 << 20), rand(1 << 20, seed=1), torch.cuda.Stream()
    compiled(x, y)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = compiled(x, y)
    stream.synchronize()
    torch.testing.assert_close(got, x * 2 + y)


def test_what_a_launch_raises():
    @triton.jit
    def wrong(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

    def f(x):
        wrong[(1,)](x, BLOCK=3)  # no power of two
        return x

    raised = []
    for g in (f, braze.compile(f)):
        with pytest.raises(Exception) as e:
            g(rand(4))
        raised.append(e.type)
    assert raised[0] is raised[1]


def test_a_custom_operator_is_recorded():
    @torch.library.custom_op("braze_cuda_test::increment_", mutates_args={"x"})
    def increment_(x: torch.Tensor) -> None:
        increment[blocks(x.numel())](x, x.numel(), 1.0, BLOCK=128)

    def f(x, y):
        increment_(x)
        return x * y

    compiled, x, y = (
        braze.compile(f, fullgraph=True, mode="reduce-overhead"),
        torch.zeros(100, device="cuda"),
        rand(100),
    )
    for i in range(1, 7):
        torch.testing.assert_close(compiled(x, y), y * i)
