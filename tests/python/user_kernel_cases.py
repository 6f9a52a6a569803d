"""Triton kernels of the program's in compiled functions, on the CPU by Triton's interpreter.

As a program (with TRITON_INTERPRET=1): runs the cases named on the command line, prints {name: "" or what is wrong} as JSON.
"""

import contextlib

import torch
import triton
import triton.language as tl
from interpreter import report

import braze

F32 = torch.float32


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def scaled(x, scale):
    return x * scale


@triton.jit
def scale_into(x_ptr, out_ptr, bias_ptr, n, scale, MODE: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = scaled(tl.load(x_ptr + offsets, mask=offsets < n).to(DTYPE), scale)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + offsets, mask=offsets < n)
    if MODE == "negate":
        x = -x
    tl.store(out_ptr + offsets, x, mask=offsets < n)


@triton.jit
def increment(x_ptr, row_stride, columns, by, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    pointers = x_ptr + tl.program_id(0) * row_stride + offsets
    tl.store(pointers, tl.load(pointers, mask=offsets < columns) + by, mask=offsets < columns)


@triton.jit
def swap(a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    a, b = tl.load(a_ptr + offsets, mask=mask), tl.load(b_ptr + offsets, mask=mask)
    tl.store(a_ptr + offsets, b, mask=mask)
    tl.store(b_ptr + offsets, a, mask=mask)


@triton.jit
def look(x_ptr, n):
    tl.load(x_ptr)


@contextlib.contextmanager
def launches():
    """The kernels that compiled code launches meanwhile, in order."""
    from braze._user_kernels import Launch

    kernels, run = [], Launch.run
    Launch.run = lambda self, *args: (kernels.append(self.kernel), run(self, *args))[1]
    try:
        yield kernels
    finally:
        Launch.run = run


def r(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + len(shape)))


def blocks(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def plus(x, y):
    out = torch.empty_like(x)
    add[blocks(out.numel())](x, y, out, out.numel(), BLOCK=16)
    return out


def agrees(f, *args, calls=2, **options):
    """As eager in results and in what becomes of the arguments, as one graph."""
    compiled = braze.compile(f, fullgraph=True, **options)
    for _ in range(calls):
        mine, theirs = [[a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2)]
        got, expected = compiled(*mine), f(*theirs)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        for a, b in zip(mine, theirs):
            assert not isinstance(a, torch.Tensor) or torch.equal(a, b), (a, b)
    return compiled


def result_of_a_grid_function():
    agrees(lambda x, y: plus(x * 2, y) + 1, r(100), r(100, seed=1))


def grid_of_numbers():
    def f(x, y):
        out = x.new_empty(x.shape)
        add[(7,)](x, y, out, x.numel(), 16)
        add[7, 1](out, y, out, x.numel(), BLOCK=16)
        return out

    agrees(f, r(100), r(100, seed=1))


def constants():
    def f(x, bias, mode, scale):
        out = torch.empty_like(x)
        scale_into[(4,)](x, out, bias, x.numel(), scale, mode, DTYPE=tl.float32)
        return out

    compiled = agrees(f, r(50), r(50, seed=1), "negate", 0.5)
    for args in [(r(50), None, "keep", 0.5), (r(50), None, "negate", 2.5), (r(50), r(50, seed=1), "keep", -3.0)]:
        torch.testing.assert_close(compiled(*args), f(*args), rtol=0, atol=0)


def sizes_stay_open():
    compiled = braze.compile(lambda x, y: plus(x, y) * 2, fullgraph=True)
    for n in (30, 41, 64, 200, 7):
        x, y = r(n), r(n, seed=1)
        torch.testing.assert_close(compiled(x, y), (x + y) * 2)
    assert braze.counters()["captures"] == 2


def writes_an_input():
    def f(x, y):
        before = x.amax()
        increment[(x.shape[0],)](x, x.stride(0), x.shape[1], 1.5, BLOCK=8)
        return before, x.amax(), x + y

    agrees(f, r(5, 6), r(5, 6, seed=1))


def writes_a_view():
    def f(x):
        y = x * 2
        part = y[1:3, 2:]
        increment[(2,)](part, part.stride(0), part.shape[1], 10.0, BLOCK=8)
        return y, part * 1

    agrees(f, r(5, 6))


def writes_a_view_of_an_input():
    def f(x):
        increment[(2,)](x[3:], x.stride(0), x.shape[1], 10.0, BLOCK=8)
        return x.sum()

    agrees(f, r(5, 6))


def views_beside_each_other():
    def f(qkv):
        q, k, v = qkv.unbind(1)
        swap[(1,)](q[0], k[0], q.shape[1], BLOCK=8)
        return q + k, v

    agrees(f, r(4, 3, 8))


def strided_views_beside_each_other():
    def f(x):
        a, b = x[:, :4], x[:, 4:]
        add[(1,)](a, b, a, 4, BLOCK=4)
        return a, b

    agrees(f, r(3, 8))


def one_tensor_twice():
    def f(x, y):
        add[blocks(x.numel())](x, y, x, x.numel(), BLOCK=16)
        return x * 1

    agrees(f, r(40), r(40, seed=1))


def one_memory_twice():
    def f(x, y):
        add[blocks(x.numel())](x, y, x.view(-1), x.numel(), BLOCK=16)
        return x * 1

    agrees(f, r(40), r(40, seed=1))


def overlapping_views_run_as_they_are():
    def f(x):
        add[(1,)](x[:8], x[4:12], x[:8], 8, BLOCK=8)
        return x * 1

    compiled, mine, theirs = braze.compile(f), r(16), r(16)
    torch.testing.assert_close(compiled(mine), f(theirs))
    torch.testing.assert_close(mine, theirs)


def two_in_a_row():
    def f(x, y):
        out = plus(x, y)
        return plus(out, y * 2), out

    agrees(f, r(33), r(33, seed=1))


def order_by_data():
    def f(x, y):
        a, b = x * 1, y * 1
        swap[(1,)](a, b, 8, BLOCK=8)
        between = a * 3
        increment[(1,)](a, 8, 8, 1.0, BLOCK=8)
        swap[(1,)](a, b, 8, BLOCK=8)
        return a, b, between

    agrees(f, r(8), r(8, seed=1))


def launched_once_in_each_call():
    compiled = braze.compile(plus, fullgraph=True)
    x, y = r(20), r(20, seed=1)
    for _ in range(3):
        with launches() as kernels:
            torch.testing.assert_close(compiled(x, y), x + y)
        assert kernels == [add]


def hooks_run():
    seen = []
    add.add_pre_run_hook(lambda *args, **kwargs: seen.append(kwargs))
    try:
        agrees(plus, r(20), r(20, seed=1))
    finally:
        add.pre_run_hooks.clear()
    assert seen == [{"BLOCK": 16}] * 4  # two calls of each


def unused_launches():
    def f(x, used):
        out = torch.empty_like(x)
        scale_into[(2,)](x, out, None, x.numel(), 2.0, "keep", tl.float32)
        return out if used else x * 1

    x = r(20)
    compiled = braze.compile(f, fullgraph=True)
    for used in (False, True):
        with launches() as kernels:
            torch.testing.assert_close(compiled(x, used), f(x, used))
        assert kernels == [scale_into] * used


def writes_nothing():
    def f(x):
        look[(1,)](x, x.numel())
        return x + 1

    with launches() as kernels:
        agrees(f, r(5))
    assert kernels == [look] * 2


def autotuned(configs, **options):
    return triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in configs], key=["n"], **options)(add)


def autotuner():
    """Whichever configuration it chooses has its own grid."""
    for best in (0, 1):
        asked = []

        def bench(call, quantiles, best=best, asked=asked):
            call()
            asked.append(1)
            return [float(len(asked) % 2 != 1 - best)] * 3

        tuned = autotuned([8, 32], do_bench=bench)

        def f(x, y, tuned=tuned):
            out = torch.empty_like(x)
            tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
            return out * 2

        agrees(f, r(100), r(100, seed=1))
        assert tuned.best_config.kwargs["BLOCK"] == (8, 32)[best]


def autotuner_that_resets():
    @triton.jit
    def accumulate(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.atomic_add(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    tuned = triton.autotune(
        configs=[triton.Config({"BLOCK": b}) for b in (16, 32)],
        key=["n"],
        reset_to_zero=["out_ptr"],
        do_bench=lambda call, quantiles: (call(), [0.0] * 3)[1],
    )(accumulate)

    def f(x):
        out = torch.zeros_like(x)
        tuned[(1,)](x, out, x.numel())
        return out

    agrees(f, r(10))


def heuristics():
    tuned = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(add)

    def f(x, y):
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
        return out

    agrees(f, r(100), r(100, seed=1))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        out = torch.empty_like(x)
        scale_into[(8,)](x, out, None, x.numel(), by, "keep", tl.float32)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        given = torch.empty_like(grad)
        scale_into[(8,)](grad.contiguous(), given, None, grad.numel(), ctx.by, "keep", tl.float32)
        return given + out * 0, None


def backward():
    def f(x, w):
        return (Scale.apply(x * w, 3.0) ** 2).sum()

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        mine, theirs = [[r(30).requires_grad_(), r(30, seed=1).requires_grad_()] for _ in range(2)]
        got, expected = compiled(*mine), f(*theirs)
        torch.testing.assert_close(got, expected)
        got.backward()
        expected.backward()
        for a, b in zip(mine, theirs):
            torch.testing.assert_close(a.grad, b.grad)
    assert braze.counters()["training_graphs"] == 1


def versions_are_eagers():
    def f(x):
        increment[(1,)](x, 8, 8, 1.0, BLOCK=8)
        return x.sum()

    x = r(8)
    braze.compile(f, fullgraph=True)(x)
    assert x._version == 0


def raises():
    def f(x, y):
        y.add_(1)
        add[(1,)](x, y, x.numel(), BLOCK=16)  # an argument is missing
        return x

    compiled = braze.compile(f)
    for g in (f, compiled):
        x, y = r(4), r(4)
        try:
            g(x, y)
            raise AssertionError("nothing raised")
        except TypeError as e:
            assert "n" in str(e), e
        torch.testing.assert_close(y, r(4) + 1)


def another_kernel():
    namespace = {"kernel": add}

    def f(x, y):
        out = torch.zeros_like(x)
        namespace["kernel"][(4,)](x, y, out, x.numel(), BLOCK=16)
        return out

    compiled = braze.compile(f, fullgraph=True)
    x, y = r(40), r(40, seed=1)
    torch.testing.assert_close(compiled(x, y), x + y)

    @triton.jit
    def first(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    namespace["kernel"] = first
    torch.testing.assert_close(compiled(x, y), x)


def graph_for_another_backend():
    seen = []

    def backend(graph_module, inputs):
        seen.append(graph_module)
        return graph_module

    f = lambda x, y: plus(x * 2, y) + 1
    x, y = r(20), r(20, seed=1)
    for chosen in ("eager", backend):
        torch.testing.assert_close(braze.compile(f, fullgraph=True, backend=chosen)(x, y), f(x, y))
    assert any("launch_kernel" in str(n.target) or n.name.startswith("launch_kernel") for n in seen[0].graph.nodes)


def inference_mode():
    with torch.inference_mode():
        agrees(lambda x, y: plus(x, y), r(20), r(20, seed=1))


@torch.library.triton_op("braze_test::plus", mutates_args=())
def plus_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[blocks(x.numel())](x, y, out, x.numel(), BLOCK=16)
    return out


@torch.library.triton_op("braze_test::increment_", mutates_args={"x"})
def increment_op(x: torch.Tensor, by: float) -> None:
    torch.library.wrap_triton(increment)[(1,)](x, x.numel(), x.numel(), by, BLOCK=32)


def triton_op():
    def f(x, y):
        out = plus_op(x * 2, y)
        torch.ops.braze_test.increment_(out, 1.0)
        increment_op(y, 2.0)
        return torch.ops.braze_test.plus(out, y)

    agrees(f, r(20), r(20, seed=1))
    with launches() as kernels:
        braze.compile(f, fullgraph=True)(r(20), r(20, seed=1))
    assert kernels == [add, increment, increment, add]


@torch.library.triton_op("braze_test::scale", mutates_args=())
def scale_op(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale_into)[(2,)](x, out, None, x.numel(), by, "keep", tl.float32)
    return out


def save_scale(ctx, inputs, output):
    ctx.by = inputs[1]
    ctx.save_for_backward(output)


def scale_backward(ctx, grad):
    (out,) = ctx.saved_tensors
    return scale_op(grad.contiguous(), ctx.by) + out * 0, None


scale_op.register_autograd(scale_backward, setup_context=save_scale)


def triton_op_with_gradients():
    compiled = braze.compile(lambda x, w: (scale_op(x * w) ** 2).sum() + scale_op(w, by=3.0).sum(), fullgraph=True)
    with launches() as kernels:
        for _ in range(2):
            x, w = r(30).requires_grad_(), r(30, seed=1).requires_grad_()
            result = compiled(x, w)
            torch.testing.assert_close(result, ((x * w * 2) ** 2).sum() + (w * 3).sum())
            result.backward()
            torch.testing.assert_close(x.grad, (8 * x * w**2).detach())
            torch.testing.assert_close(w.grad, (8 * w * x**2 + 3).detach())
    assert kernels == [scale_into] * 8


@torch.library.triton_op("braze_test::of_device", mutates_args=())
def of_device(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(scale_into)[(2,)](x, out, None, x.numel(), 2.0, "keep", tl.float32)
    return out


@of_device.register_kernel("cpu")
def _(x):
    return x * 5


def triton_op_for_a_device():
    """Another function has taken the CPU over."""
    compiled = braze.compile(lambda x: of_device(x) + 1)
    torch.testing.assert_close(compiled(r(8)), r(8) * 5 + 1)


def views_as_inputs():
    def f(x, y):
        add[(1,)](x, y, x, 8, BLOCK=8)
        return x + 1, y + 1

    for first, second in ((0, 8), (0, 4), (0, 0)):
        mine, theirs = r(16), r(16)
        compiled = braze.compile(f)
        for _ in range(2):
            got = compiled(mine[first : first + 8], mine[second : second + 8])
            expected = f(theirs[first : first + 8], theirs[second : second + 8])
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(mine, theirs)


CASES = [
    result_of_a_grid_function, grid_of_numbers, constants, sizes_stay_open, writes_an_input, writes_a_view,
    writes_a_view_of_an_input, views_beside_each_other, strided_views_beside_each_other, one_tensor_twice,
    one_memory_twice, overlapping_views_run_as_they_are, two_in_a_row, order_by_data, launched_once_in_each_call, hooks_run,
    unused_launches, writes_nothing, autotuner, autotuner_that_resets, heuristics, backward, versions_are_eagers,
    raises, another_kernel, graph_for_another_backend, inference_mode, triton_op, triton_op_with_gradients,
    triton_op_for_a_device, views_as_inputs,
]  # fmt: skip
CASES = {case.__name__: case for case in CASES}


def check(name):
    braze.reset()
    braze.counters(clear=True)
    CASES[name]()


if __name__ == "__main__":
    report(CASES, check)
