"""Functions whose kernels are printed in Triton's language, and how one is run under Triton's interpreter.

As a program (with TRITON_INTERPRET=1): runs the cases named on the command line, prints {name: "" or what is wrong} as JSON.
"""

import torch
import torch.nn.functional as F
from interpreter import report
from trace_test import DTYPES

from braze import _C, _triton


def r(*shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + len(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if not dtype.is_floating_point:
        return torch.randint(0 if dtype == torch.uint8 else -50, 50, shape, generator=g).to(dtype)
    return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)


BF16, F16, F64, I64, I32 = torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32
POSITIVE = lambda x: x.abs() + 0.5


E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2
BYTES = torch.arange(256, dtype=torch.int32).to(torch.uint8)


def wide_range(n):
    """Numbers in and out of float8's ranges, ties and denormals among them."""
    x = torch.cat(
        [BYTES.view(E4).float(), BYTES.view(E5).float(), BYTES.view(E5).float() * 1.0625, r(n) * 1e-3, r(n) * 500]
    )
    return torch.cat(
        [x, x * 1.125, torch.tensor([464.0, 464.1, 480.0, 61439.0, 61440.0, float("inf"), -float("inf"), 1e-40])]
    )


def pad(x):
    return F.pad(x, (1, 2, 3, 0), value=-1.0)


# name: (function, arguments)
CASES = {
    "float8_read": (lambda x, y: (x.float() * 2, y.to(BF16) + 1), BYTES.view(E4), BYTES.view(E5)),
    "float8_rounded": (lambda x: (x.to(E4), x.to(E5)), wide_range(100)),
    "float8_moved": (lambda x, y: (torch.where(y > 0, x[:128], x[128:]), x[:128] == x[128:]), BYTES.view(E5), r(128)),
    "pointwise": (lambda x, y: F.gelu(x * 2 + y, approximate="tanh") * torch.sigmoid(y), r(33, 70), r(33, 70, seed=1)),
    "pointwise_f64": (lambda x, y: F.gelu(x * 2.1 + y) / (y + 3), r(70, dtype=F64), r(70, dtype=F64, seed=1)),
    "pointwise_bf16": (lambda x, y: F.silu(x) * y + 1, r(40, 16, dtype=BF16), r(40, 16, dtype=BF16, seed=1)),
    "pointwise_f16": (lambda x, y: torch.tanh(x) * y - 1, r(40, 16, dtype=F16), r(40, 16, dtype=F16, seed=1)),
    "trigonometry": (
        lambda x: (
            torch.sin(x),
            torch.cos(x),
            torch.tan(x),
            torch.atan(x),
            torch.asin(torch.tanh(x)),
            torch.acos(torch.tanh(x)),
            torch.atan2(x, x + 1),
        ),
        r(130),
    ),
    "hyperbolic": (
        lambda x: (
            torch.sinh(x),
            torch.cosh(x),
            torch.asinh(x),
            torch.acosh(x.abs() + 1),
            torch.atanh(torch.tanh(x)),
            torch.tanh(x),
        ),
        r(130),
    ),
    "logarithms": (
        lambda x: (
            torch.log(x),
            torch.log1p(x),
            torch.log2(x),
            torch.log10(x),
            torch.expm1(x),
            torch.exp2(x),
            torch.rsqrt(x),
            torch.sqrt(x),
            1 / x,
        ),
        POSITIVE(r(130)),
    ),
    "errors": (lambda x: (torch.erf(x), torch.erfc(x), x**3, torch.pow(x.abs(), x)), r(130)),
    "rounding": (
        lambda x: (
            torch.floor(x),
            torch.ceil(x),
            torch.trunc(x),
            torch.round(x),
            x.sign(),
            -x,
            x.abs(),
            torch.copysign(x, -x),
        ),
        torch.tensor([0.5, 1.5, -0.5, -0.0, 0.0, 2.5, -3.7, 1e9, float("inf"), float("-inf")]),
    ),
    "special": (
        lambda x: (
            x.isnan(),
            x.isinf(),
            torch.maximum(x, -x),
            torch.minimum(x, x * 0),
            F.relu(x),
            x.clamp(-1, 1),
            x.isfinite(),
        ),
        torch.tensor([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 3.0, -4.0]),
    ),
    "float_division": (
        lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), torch.floor_divide(x, y), x / y),
        r(200) * 7,
        r(200, seed=1),
    ),
    "integers": (
        lambda x, y: (
            x * y + 3,
            x // 7,
            x % 7,
            x & y,
            x | y,
            x ^ y,
            ~x,
            -x,
            x.abs(),
            x.sign(),
            torch.maximum(x, y),
            x > y,
            x == y,
            x**2,
        ),
        r(100, dtype=I64),
        r(100, dtype=I64, seed=3),
    ),
    "integer_division": (lambda x: (x // -7, x % -7, torch.fmod(x, 7), x // 5, x % 5), r(100, dtype=I32)),
    "shifts": (lambda x: (x << 2, x >> 1, x << 40), r(100, dtype=I64)),
    "small_integers": (
        lambda x, y: (x + y, x * y, x.to(torch.int16) + y, y.to(torch.uint8), y // 3, x.float() * 0.5, x > y),
        r(100, dtype=torch.uint8),
        r(100, dtype=torch.int8, seed=3),
    ),
    "booleans": (
        lambda a, b: (a & b, a | b, ~a, a ^ b, torch.where(a, 1.5, -2.0), a.float() + b.int(), a.sum()),
        r(300, dtype=torch.bool),
        r(300, dtype=torch.bool, seed=1),
    ),
    "casts": (
        lambda x: (x.to(BF16), x.to(F16), x.to(F64), x.to(I32), x.to(torch.int8), x.to(torch.bool), x.to(BF16).to(F16)),
        r(100) * 40,
    ),
    "broadcast": (lambda x, b, c: (x * b + c).relu(), r(6, 10, 12), r(12), r(6, 1, 12)),
    "strides": (lambda x, b: x[:, 1:, ::2] * b[::2], r(6, 10, 12), r(12)),
    "transposed": (lambda x, y: x + y.t(), r(70, 45), r(45, 70)),
    "transposed_copy": (lambda x: x.transpose(-1, -2).contiguous() * 1, r(3, 33, 40)),
    "cat": (lambda x, y: torch.cat([x, y * 2], 1), r(5, 7), r(5, 9)),
    "pad": (pad, r(4, 9)),
    "iota": (lambda x: x + torch.arange(20) * 3 - torch.arange(20.0).flip(0), r(4, 20)),
    "softmax": (lambda x: torch.softmax(x, -1), r(9, 100)),
    "softmax_bf16": (lambda x: torch.softmax(x, -1), r(3, 64, dtype=BF16)),
    "softmax_short_rows": (lambda x: torch.softmax(x, -1), r(50, 3)),
    "log_softmax": (lambda x: torch.log_softmax(x.float(), -1), r(4, 50, dtype=BF16)),
    "softmax_in_turns": (lambda x: torch.softmax(x, -1), r(1, 20000)),
    "softmax_of_columns": (lambda x: torch.softmax(x, 0), r(20, 40)),
    "sum": (lambda x: (x.sum(), x.sum(-1), x.mean(-1), x.sum(0), x.sum((0, 2))), r(6, 7, 30)),
    "sum_in_turns": (lambda x: x.sum(-1), r(3, 40001)),
    "columns": (lambda x: (x.sum(0), x.amax(0)), r(200, 33)),
    "columns_in_turns": (lambda x: x.sum(0), r(3000, 20)),
    "integer_sum": (lambda x: (x.sum(-1), x.sum(0), x.prod(-1)), r(6, 8, dtype=torch.int8)),
    "prod": (lambda x: x.prod(-1), r(4, 30)),
    "extremes": (lambda x: (x.amax(-1), x.amin(-1)), r(5, 37)),
    "extremes_nan": (
        lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1)),
        torch.tensor([[1.0, float("nan"), 2.0], [3.0, -1.0, 3.0], [float("-inf")] * 3]),
    ),
    "extremes_int": (lambda x: (x.amax(-1), x.amin(-1), x.argmin(-1)), r(5, 37, dtype=I64)),
    "positions": (
        lambda x: (x.argmax(-1), x.argmin(-1), x.argmax()),
        torch.randint(0, 9, (5, 37), generator=torch.Generator().manual_seed(2)).float(),
    ),
    "positions_in_turns": (lambda x: x.argmax(-1), r(1, 17000)),
    "choices": (lambda x: ((x > 1.5).any(-1), (x > -2).all(-1), (x > 0).any()), r(9, 20)),
    "variance": (lambda x: (x.var(-1), x.std(-1), x.var(0)), r(7, 50)),
    "variance_far_from_zero": (lambda x: (*torch.var_mean(x, -1), *torch.var_mean(x, 0)), r(7, 50) + 1e4),
    "variance_far_from_zero_in_turns": (lambda x: torch.var_mean(x, -1), r(1, 20000) + 1e4),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (60,), w, b), r(7, 60), r(60), r(60, seed=5)),
    "layer_norm_in_turns": (lambda x, w: F.layer_norm(x, (17000,), w), r(1, 17000), r(17000)),
    "rms_norm": (
        lambda x, w: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(BF16) * w,
        r(5, 48, dtype=BF16),
        r(48, dtype=BF16),
    ),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, torch.tensor([[3, 0, 4], [1, 1, 2]]), r(5, 12)),
    "gather": (
        lambda x, i: torch.gather(x, 1, i),
        r(5, 9),
        torch.randint(0, 9, (5, 4), generator=torch.Generator().manual_seed(2)),
    ),
    "index": (lambda x, i: x[:, i] + x[i, 0], r(8, 8), torch.tensor([3, -1, 0, -8])),
    "scatter_add": (
        lambda x, i: torch.zeros(6).index_add(0, i, x),
        r(30),
        torch.randint(0, 6, (30,), generator=torch.Generator().manual_seed(2)),
    ),
    "scatter": (
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        r(6, 5),
        torch.tensor([3, 1, 3]),
        r(3, 5, seed=1),
    ),
    "one_hot_loss": (lambda x, t: F.cross_entropy(x, t), r(6, 11), torch.tensor([0, 3, 10, 2, 2, 7])),
    "empty_rows": (lambda x: x.sum(-1) + 1, r(4, 0)),
    "nothing": (lambda x: x * 2, r(0, 4)),
    "scalar": (lambda x: torch.exp(x) + 1, r()),
    "open_sizes": (lambda x, b: torch.softmax(x * b, -1), r(6, 24), r(24)),
    "open_sizes_transposed": (lambda x, y: x + y.t(), r(35, 40), r(40, 35)),
    "open_sizes_sum": (lambda x: (x.sum(0), x.mean(), x.sum(-1)), r(13, 24)),
}
OPEN = {"open_sizes": [[0, 1], [0]], "open_sizes_transposed": [[0, 1], [0, 1]], "open_sizes_sum": [[0, 1]]}


def kernels(name, **flags):
    """What _C._triton_kernels says of a case, and the tensors that its graph reads."""
    fn, *args = CASES[name]
    tracer = _C._Tracer()
    dims = OPEN.get(name, [[]] * len(args))
    fakes = [tracer.lift(a, f"a{i}", d) for i, (a, d) in enumerate(zip(args, dims))]
    from trace_test import ThroughTracer

    tracer.enter()
    try:
        with ThroughTracer(tracer):
            result = fn(*fakes)
    finally:
        tracer.leave()
    graph = tracer.finish(list(result) if isinstance(result, tuple) else [result])
    sizes = {}
    for line in graph["text"].splitlines():
        word = line.split()
        if word and word[0] == "size":  # size s0 %0 0
            sizes[word[1]] = graph["reals"][int(word[2][1:])].shape[int(word[3])]
    return _C._triton_kernels(graph["text"], sizes, flags), graph["reals"]


class Library:
    """Triton's libdevice for the interpreter, which has none: PyTorch computes."""

    NAMES = {"fmod": torch.fmod, "pow": torch.pow, "rint": torch.round}

    def __getattr__(self, name):
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        function = self.NAMES.get(name) or getattr(torch, name)

        def run(*args):
            arrays = torch.broadcast_tensors(*[torch.from_numpy(a.handle.data.copy()) for a in args])
            data = function(*arrays).numpy()
            scalar = args[0].dtype.scalar
            shape = [tl.constexpr(n) for n in data.shape]
            return tl.core.tensor(TensorHandle(data, scalar), tl.block_type(scalar, shape) if shape else scalar)

        return run


def plain_numbers():
    """The interpreter makes arrays of one element of integers, which newer NumPy does not take as a range's bound."""
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt

    def scalar(arg):
        made = convert(arg)
        if isinstance(arg, int):
            made.handle.data = made.handle.data.reshape(())
        return made

    interpreter._implicit_cvt = scalar


def run(name, **flags):
    """Results of a case, computed by Triton's interpreter."""
    made, inputs = kernels(name, **flags)
    memory = []
    for dtype, given, sizes, strides in made["buffers"]:
        if given is not None:
            memory.append(inputs[given])  # kernels never write to inputs
            continue
        count = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
        memory.append(torch.full((count,), 77, dtype=DTYPES[dtype]))
    for step in made["steps"]:
        assert "text" in step, f"not in Triton: {step.get('inexpressible')}"
        kernel = _triton.define(step["text"], "kernel")
        kernel.fn.__globals__["libdevice"] = Library()
        error = torch.zeros(1, dtype=torch.int32)
        if step["programs"]:
            given = [m.view(torch.uint8) if m.dtype in (E4, E5) else m for m in (memory[b] for b in step["buffers"])]
            kernel[(step["programs"],)](*given, *step["sizes"], error)
        assert int(error) == 0, "an index out of range"
    view = lambda v: torch.as_strided(memory[v[0]], v[1], v[2], v[3])
    return [view(v) for v in made["outputs"]]


def wrong(name):
    """ "" or the difference from eager."""
    fn, *args = CASES[name]
    want = fn(*args)
    got = run(name)
    want = want if isinstance(want, tuple) else (want,)
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        low = w.dtype in (BF16, F16)
        if w.dtype in (E4, E5):
            assert torch.equal(w.float().nan_to_num(1e6), g.float().nan_to_num(1e6)), f"result {i}"
            continue
        torch.testing.assert_close(
            g,
            w,
            rtol=2e-2 if low else 2e-5,
            atol=1e-2 if low else 2e-5,
            equal_nan=True,
            msg=lambda m: f"result {i}: {m}",
        )
        if name == "rounding":
            assert torch.equal(torch.signbit(g), torch.signbit(w)), f"result {i}: signs of zeros"


if __name__ == "__main__":
    plain_numbers()
    report(CASES, wrong)
