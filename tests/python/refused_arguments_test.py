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
    "65 dimensions": (lambda x, t: torch.amax(x.view([1] * 65 + [4, 5]), 0), X, CLASSES),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_eager_refuses(name):
    fn, *args = REFUSED[name]
    want, compiled = outcome(fn, args, {}), braze.compile(fn)
    for _ in range(2):
        assert outcome(compiled, args, {}) == want and want[0] == "raised"


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
