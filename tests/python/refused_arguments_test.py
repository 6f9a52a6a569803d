"""Arguments that PyTorch's kernels refuse, and its Meta kernels do not look at: compiled code raises what eager raises."""

import copy

import pytest
import torch
import torch.nn.functional as F
from harness import outcome, same
from torch.testing._internal.common_methods_invocations import op_db

import braze

torch.manual_seed(0)
X, CLASSES, PLANES = torch.randn(4, 5), torch.arange(4), torch.randn(2, 3, 4, 4)
P = torch.rand(4, 5)


def empty(*shape, dtype=torch.float64):
    return torch.zeros(*shape, dtype=dtype)


REFUSED = {
    "weights of too few classes": (lambda x, t: F.nll_loss(x, t, weight=torch.ones(4)), X, CLASSES),
    "weights of too many classes": (lambda x, t: F.cross_entropy(x, t, weight=torch.ones(6)), X, CLASSES),
    "weights of another dtype": (lambda x, t: F.nll_loss(x, t, weight=torch.ones(5, dtype=torch.float64)), X, CLASSES),
    "weights of two dimensions": (lambda x, t: F.nll_loss(x, t, weight=torch.ones(5, 1)), X, CLASSES),
    "int32 as classes": (lambda x, t: F.cross_entropy(x, t), X, CLASSES.int()),
    "int32 as classes of planes": (lambda x, t: F.nll_loss(x, t), PLANES, torch.zeros(2, 4, 4, dtype=torch.int32)),
    "weights for planes": (lambda x, t: F.nll_loss(x, t, weight=torch.ones(4)), PLANES, torch.zeros(2, 4, 4).long()),
    "a class out of range": (lambda x, t: F.cross_entropy(x, t), X, torch.tensor([0, 5, 1, 2])),
    "classes of another batch": (lambda x, t: F.nll_loss(x, t), X, torch.arange(3)),
    "probabilities of another dtype": (lambda x, t: F.binary_cross_entropy(x, t), P, P.double()),
    "probabilities as integers": (lambda x, t: F.binary_cross_entropy(x, t), P, torch.ones(4, 5, dtype=torch.int64)),
    "too few numbers to put": (lambda x, t: torch.put(x, t, x[:1, 0]), X, CLASSES),
    "numbers to put nowhere": (lambda x, t: torch.put(x, t[:0], x[:1, 0]), X, CLASSES),
    "steps of two dtypes": (lambda x, t: torch.heaviside(x, t), X, torch.tensor(1.0, dtype=torch.float64)),
    "an infinite shrinkage": (lambda x, t: F.softshrink(x, float("inf")), X, CLASSES),
    "a negative shrinkage": (lambda x, t: F.softshrink(x, -1.0), X, CLASSES),
    "a shrinkage beyond the dtype": (lambda x, t: F.hardshrink(x, 1e39), X, CLASSES),
    "windows of integers": (lambda x, t: F.max_pool1d(t[None], 2), X, CLASSES),
    "65 dimensions": (lambda x, t: torch.amax(x.view([1] * 65 + [4, 5]), 0), X, CLASSES),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_eager_refuses(name):
    fn, *args = REFUSED[name]
    want, compiled = outcome(fn, args, {}), braze.compile(fn)
    for _ in range(2):
        assert outcome(compiled, args, {}) == want and want[0] == "raised"


NORMS = {
    "layer": lambda x, w: F.layer_norm(x, (5,), w),
    "layer's bias": lambda x, w: F.layer_norm(x, (5,), None, w),
    "layer of two": lambda x, w: F.layer_norm(x, (4, 5), w),
    "root": lambda x, w: F.rms_norm(x, (5,), w),
    "group": lambda x, w: F.group_norm(x, 1, w),
    "batch": lambda x, w: F.batch_norm(x, None, None, w, training=True),
}


@pytest.mark.parametrize("shape", [(1,), (3, 5), (4,), (5, 1), ()])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_weights_of_other_sizes(name, shape, dynamic):
    fn, w = NORMS[name], torch.ones(shape)
    want = outcome(fn, (X, w), {})
    got = outcome(braze.compile(fn, dynamic=dynamic), (X, w), {})
    assert got[0] == want[0], (want, got)
    same(want[1], got[1])


PRODUCTS = {
    "matrices": lambda a, b: a @ b,
    "linear": F.linear,
    "linear with bias": lambda a, b: F.linear(a, a, b[0]),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "addmm of another": lambda a, b: torch.addmm(b, a, a),
    "vector": lambda a, b: a @ b[0],
    "dot": lambda a, b: a[0] @ b[0],
    "batches": lambda a, b: a[None] @ b[None],
    "sizes alone": lambda a, b: (a @ b).shape,
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    "dtypes", [(torch.half, torch.bfloat16), (torch.float, torch.half), (torch.bfloat16, torch.float)]
)
def test_products_of_two_dtypes(name, dtypes):
    args = [torch.ones(3, 3, dtype=d) for d in dtypes]
    want, got = outcome(PRODUCTS[name], args, {}), outcome(braze.compile(PRODUCTS[name]), args, {})
    assert got == want and want[0] == "raised"


@pytest.mark.parametrize(
    "pads", [(-3, 4), (3, -4), (-3, 1), (1, -1), (-1, -1), (-2, 2), (-1, 2), (2, -1), (0, 0, -5, 6)]
)
@pytest.mark.parametrize("shape", [(4, 0), (4, 1), (4, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_paddings_that_take_more_than_there_is(pads, shape, dynamic):
    def fn(x):
        return F.pad(x, pads)

    x = torch.ones(shape)
    want, got = outcome(fn, (x,), {}), outcome(braze.compile(fn, dynamic=dynamic), (x,), {})
    assert got[0] == want[0], (want, got)
    same(want[1], got[1])
    if want[0] != "raised" and (want[1].numel() or not dynamic):  # strides of nothing, by open paddings, tell nothing
        assert got[1].stride() == want[1].stride()


OF_A_FORMAT = {
    "to": lambda x, f: x.to(memory_format=f),
    "to another dtype": lambda x, f: x.to(torch.float64, memory_format=f),
    "contiguous": lambda x, f: x.contiguous(memory_format=f),
    "clone": lambda x, f: x.clone(memory_format=f),
    "zeros_like": lambda x, f: torch.zeros_like(x, memory_format=f),
    "empty": lambda x, f: torch.empty(x.shape, memory_format=f).fill_(2),
}


@pytest.mark.parametrize("name", OF_A_FORMAT)
@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.channels_last_3d])
def test_memory_formats_of_other_ranks(name, shape, memory_format):
    def fn(x):
        return OF_A_FORMAT[name](x, memory_format)

    x = torch.ones(shape)
    want, got = outcome(fn, (x,), {}), outcome(braze.compile(fn), (x,), {})
    assert got[0] == want[0], (want, got)
    same(want[1], got[1])


UNREAD = {
    "booleans less a number": lambda x, t: (x > 0) - 0.5,
    "a number less booleans": lambda x, t: 1 - (x > 0),
    "floats less booleans": lambda x, t: x - (x > 0),
    "a negative power of integers": lambda x, t: t**-1,
    "averages of bytes": lambda x, t: F.avg_pool2d(t.byte().view(1, 2, 2), 2),
    "products of two dtypes": lambda x, t: x @ x.t().half(),
}


@pytest.mark.parametrize("name", UNREAD)
def test_refuses_what_nobody_reads(name):
    def fn(x, t):
        UNREAD[name](x, t)
        return x + 1

    want, got = outcome(fn, (X, CLASSES), {}), outcome(braze.compile(fn), (X, CLASSES), {})
    assert got[0] == want[0] == "raised" and got[1][0] is want[1][0], (want, got)


NUMBERS = {
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill_": lambda x, n: x.clone().masked_fill_(x > 0, n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "new_full": lambda x, n: x.new_full((2,), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "where of it": lambda x, n: torch.where(x > 0, n, x),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0]), n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n),
    "clamp": lambda x, n: x.clamp(max=n),
    "threshold": lambda x, n: F.threshold(x, 0, n),
    "factor": lambda x, n: torch.add(x, x, alpha=n),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "dtype, numbers", [(torch.uint8, (1, 2, 3, 300, 4)), (torch.int8, (1, 2, -128, 128)), (torch.half, (1, 2, 70000))]
)
def test_numbers_beyond_the_dtype_after_others(name, dtype, numbers):
    fn = NUMBERS[name]
    compiled, x = braze.compile(fn), torch.ones(2, dtype=dtype)
    for n in numbers:
        want, got = outcome(fn, (x, n), {}), outcome(compiled, (x, n), {})
        assert got[0] == want[0], (n, want, got)
        same(want[1], got[1])


OUT = {
    "product": (lambda x, t, o: torch.mm(x, x.T, out=o), empty(4, 4)),
    "gather": (lambda x, t, o: torch.gather(x, 1, t[:, None], out=o), empty(4, 1)),
    "largest": (lambda x, t, o: torch.amax(x, 1, out=o), empty(4, dtype=torch.int32)),
    "index of the largest": (lambda x, t, o: torch.argmax(x, 1, out=o), empty(4, dtype=torch.int32)),
    "rows": (lambda x, t, o: torch.index_select(x, 0, t, out=o), empty(4, 5)),
    "softmax": (lambda x, t, o: torch.softmax(x, 1, out=o), empty(4, 5)),
    "sum into integers": (lambda x, t, o: torch.add(x, x, out=o), empty(4, 5, dtype=torch.int64)),
    "bounds into integers": (lambda x, t, o: torch.clamp(x, 0, 1, out=o), empty(4, 5, dtype=torch.int64)),
    "choice": (lambda x, t, o: torch.where(x > 0, x, x, out=o), empty(4, 5)),
    "wider sum": (lambda x, t, o: torch.add(x, x, out=o), empty(4, 5)),
    "wider sum over rows": (lambda x, t, o: torch.sum(x, 1, out=o), empty(4)),
    "joined": (lambda x, t, o: torch.cat([x, x], out=o), empty(8, 5)),
    "the same dtype": (lambda x, t, o: torch.mm(x, x.T, out=o), empty(4, 4, dtype=torch.float32)),
}


@pytest.mark.parametrize("name", OUT)
def test_out_of_another_dtype(name):
    fn, out = OUT[name]

    def f(x, t, o):
        return fn(x * 2, t, o) + 1, o

    compiled = braze.compile(f)
    for _ in range(2):
        a, b = out.clone(), out.clone()
        want, got = outcome(f, (X, CLASSES, a), {}), outcome(compiled, (X, CLASSES, b), {})
        assert got[0] == want[0], (want, got)
        same(want[1], got[1])
        same(a, b, "out")


WITH_ERRORS = [op for op in op_db if op.error_inputs_func]
# An argument that shares memory with out=.
SHARED = {("cat", 7)}


@pytest.mark.parametrize("op", WITH_ERRORS, ids=lambda op: op.name + op.variant_test_name)
def test_error_inputs_of_pytorch(op):
    try:
        inputs = list(op.error_inputs("cpu"))
    except Exception as e:
        pytest.skip(f"PyTorch's own list fails: {e}")
    for i, error in enumerate(inputs):
        sample = error.sample_input
        args = (sample.input, *sample.args)
        try:
            own = copy.deepcopy((args, sample.kwargs))
        except Exception:
            continue  # what cannot be copied is not called twice
        want = outcome(op, args, sample.kwargs)
        got = outcome(braze.compile(lambda *a, **k: op(*a, **k)), *own)
        if (op.name, i) not in SHARED:
            assert got[0] == want[0] and (want[0] == "returned" or got[1][0] is want[1][0]), (i, want, got)
