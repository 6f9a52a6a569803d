"""Products whose kernels are printed from templates, and how those run under Triton's interpreter.

As a program (with TRITON_INTERPRET=1): runs the cases named on the command line, prints {name: "" or what is wrong} as JSON.
"""

import torch
import torch.nn.functional as F
from interpreter import report
from trace_test import DTYPES, ThroughTracer
from triton_cases import Library, plain_numbers

from braze import _C, _triton

BF16, F16 = torch.bfloat16, torch.float16


def r(*shape, dtype=BF16, seed=0, scale=1.0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    if not dtype.is_floating_point:
        return torch.randint(-100, 100, shape, generator=g).to(dtype)
    return (torch.randn(shape, generator=g) * scale).to(dtype)


def gated(x, a, b):
    return F.silu(x @ a) * (x @ b)


def quantised(x, w, scale):
    return F.linear(x, w.to(scale.dtype) * scale)


def kept(x, w):
    y = x @ w
    return y, torch.relu(y)


def chained(x, w, r):
    return r.transpose(0, 1) + x @ w


def twice(x, w, b):
    return F.gelu(F.linear(x, w, b), approximate="tanh"), x.t() @ x


POINTERS = (32, 32, 32, 4, 2, False, False)
NARROW = (16, 64, 64, 4, 3, False, False)
DESCRIPTORS = (64, 64, 32, 4, 2, True, False)

# name: (function, arguments, products in the graph, whether all rows are of 16-byte multiples)
CASES = {
    "plain": (lambda x, w: x @ w, [r(64, 96), r(96, 128)], 1, True),
    "odd": (lambda x, w: x @ w, [r(77, 131), r(131, 90)], 1, False),
    "one_row": (lambda x, w: F.linear(x, w).relu(), [r(2, 200), r(3000, 200)], 1, False),
    "f16": (lambda x, w: torch.tanh(x @ w) * 2, [r(65, 104, dtype=F16), r(104, 160, dtype=F16)], 1, True),
    "left_transposed": (lambda x, w: x.t() @ w, [r(128, 96), r(128, 160)], 1, True),
    "both_transposed": (lambda x, w: x.t() @ w.t(), [r(136, 88), r(96, 136)], 1, True),
    "odd_transposed": (lambda x, w: x.t() @ w.t(), [r(131, 77), r(110, 131)], 1, False),
    "strided": (lambda x, w: x[::2, 1:] @ w[:, 8:], [r(160, 97), r(96, 168)], 1, False),
    "batch": (lambda x, y: torch.bmm(x, y) * 0.5, [r(3, 40, 72), r(3, 72, 136)], 1, False),
    "batch_transposed": (
        lambda x, y, b: torch.relu(torch.baddbmm(b, x, y.transpose(1, 2), beta=0.5, alpha=2.0)),
        [r(3, 40, 72), r(3, 136, 72), r(3, 1, 136)],
        1,
        False,
    ),
    "bias_gelu_residual": (
        lambda x, w, b, res: F.gelu(F.linear(x, w, b)) + res,
        [r(2, 40, 96), r(200, 96), r(200), r(2, 40, 200)],
        1,
        True,
    ),
    "gelu_tanh": (
        lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
        [r(70, 136), r(200, 136), r(200)],
        1,
        True,
    ),
    "relu": (lambda x, w, b: F.linear(x, w, b).relu() + 1, [r(70, 136), r(200, 136), r(200)], 1, True),
    "addmm": (
        lambda b, x, w: torch.addmm(b, x, w, beta=0.5, alpha=3.0).exp(),
        [r(70, 1), r(70, 136, scale=0.1), r(136, 168, scale=0.1)],
        1,
        True,
    ),
    "broadcasts": (
        lambda x, w, rows, columns: (x @ w) * rows + columns,
        [r(65, 136), r(136, 200), r(65, 1, dtype=torch.float32), r(200, dtype=torch.float32)],
        1,
        True,
    ),
    "cast": (lambda x, w: (x @ w).float() * 1.5, [r(65, 136), r(136, 200)], 1, True),
    "kept": (kept, [r(65, 136), r(136, 200)], 1, True),
    "gated": (gated, [r(65, 136), r(136, 200), r(136, 200, seed=1)], 2, True),
    "two": (twice, [r(72, 136), r(200, 136), r(200)], 2, True),
    "quantised": (
        quantised,
        [r(40, 136), r(200, 136, dtype=torch.int8), r(200, 1, scale=0.01)],
        1,
        False,
    ),
    "quantised_odd": (
        lambda x, w, s: x @ (w.to(s.dtype) * s + 1),
        [r(40, 133), r(133, 203, dtype=torch.int8), r(203, scale=0.01)],
        1,
        False,
    ),
}


def kernels(name, configs=(), multiprocessors=3):
    """What _C._product_kernels says of a case, and the tensors that its graph reads."""
    fn, args, *_ = CASES[name]
    tracer = _C._Tracer()
    fakes = [tracer.lift(a, f"a{i}", []) for i, a in enumerate(args)]
    tracer.enter()
    try:
        with ThroughTracer(tracer):
            result = fn(*fakes)
    finally:
        tracer.leave()
    graph = tracer.finish(list(result) if isinstance(result, tuple) else [result])
    return _C._product_kernels(graph["text"], list(configs), multiprocessors), graph["reals"]


def mend_interpreter():
    """The interpreter multiplies the bits of bf16 numbers, rounds to them towards zero, and its program numbers are no bounds of a range."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    dot = builder.create_dot

    def wide(x):
        if x.dtype.scalar != tl.bfloat16:
            return x
        return interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    convert = interpreter._convert_float

    def rounded(data, source, target, mode):
        if (source, target) != (tl.float32, tl.bfloat16):
            return convert(data, source, target, mode)
        made = torch.from_numpy(np.ascontiguousarray(data)).to(BF16).view(torch.int16)
        return made.numpy().view(np.uint16).reshape(data.shape)

    interpreter._convert_float = rounded
    number = builder.create_get_program_id

    def program(self, axis):
        made = number(self, axis)
        made.data = made.data.reshape(())
        return made

    builder.create_get_program_id = program
    builder.create_dot = lambda self, a, b, *rest: dot(self, wide(a), wide(b), *rest)


def configs(name):
    return [POINTERS, NARROW] + [DESCRIPTORS] * CASES[name][3]


def run(name, config):
    """Results of a case, computed by Triton's interpreter."""
    made, inputs = kernels(name, [config])
    covered = sorted(i for p in made["products"] for i in p["items"])
    assert covered == list(range(made["items"])), f"kernels stand for items {covered} of {made['items']}"
    assert len(made["products"]) == CASES[name][2]
    memory = []
    for dtype, given, sizes, strides in made["buffers"]:
        if given is not None:
            memory.append(inputs[given])
            continue
        count = 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
        memory.append(torch.full((count,), 77, dtype=DTYPES[dtype]))
    for product in made["products"]:
        (step,) = product["kernels"]
        kernel = _triton.define(step["text"], step["kernel"])
        kernel.fn.__globals__["libdevice"] = Library()
        error = torch.zeros(1, dtype=torch.int32)
        kernel[(step["programs"],)](*[memory[b] for b in step["buffers"]], error)
        assert int(error) == 0, "an index out of range"
    return [torch.as_strided(memory[b], *view) for b, *view in made["outputs"]]


def wrong(name):
    """ "" or the difference: at most twice eager's own from double precision."""
    fn, args, *_ = CASES[name]
    many = lambda x: x if isinstance(x, tuple) else (x,)
    eager = many(fn(*args))
    exact = many(fn(*[a.double() if a.dtype.is_floating_point else a for a in args]))
    for config in configs(name):
        for i, (got, e, x) in enumerate(zip(run(name, config), eager, exact)):
            assert got.dtype == e.dtype and got.shape == e.shape
            off, bound = (got.double() - x).abs(), (e.double() - x).abs()
            for by in (torch.max, torch.mean):
                assert by(off) <= 2 * by(bound), f"{config}, result {i}: {by(off)} from exact, eager {by(bound)}"


if __name__ == "__main__":
    plain_numbers()
    mend_interpreter()
    report(CASES, wrong)
