"""Gradients of every operator of PyTorch's own list of samples: eager's and those of the compiled function are the same."""

import os
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's samples of operators need it")

from op_samples import close, fresh, leaves, outcome  # noqa: E402
from opinfo_test import EXCEPTIONS, NO_VALUES, name_of  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import braze  # noqa: E402

SAMPLES = int(os.environ.get("BRAZE_OPINFO_SAMPLES", 2))
DTYPES = (torch.float32, torch.complex64)
# Gradients that are not defined, or drawn anew.
UNDEFINED = {
    "linalg.pinv.singular": "of matrices without full rank", "linalg.matrix_rank": "not differentiable",
    "nn.functional.rrelu": "the slopes are drawn", "nn.functional.fractional_max_pool2d": "the windows are drawn",
    "nn.functional.fractional_max_pool3d": "the windows are drawn",
}  # fmt: skip


def tensors(obj):
    return [t for t in leaves(obj) if isinstance(t, torch.Tensor)]


def gradients(fn, sample):
    args, kwargs = fresh(((sample.input, *sample.args), sample.kwargs))
    torch.manual_seed(0)
    result, error = outcome(fn, *args, **kwargs)
    if error is not None:
        return None
    made = [t for t in tensors(result) if t.requires_grad and t.numel()]
    given = [t for t in tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
    if not made or not given:
        return None
    torch.manual_seed(1)
    seeds = [torch.randn(t.shape, dtype=t.dtype) for t in made]
    found, error = outcome(torch.autograd.grad, made, given, seeds, allow_unused=True)
    return error if error is not None else found


@pytest.mark.parametrize("op", [op for op in op_db if op.supports_autograd], ids=name_of)
def test_gradients(op):
    if op.name in EXCEPTIONS or op.name in NO_VALUES or name_of(op) in UNDEFINED:
        pytest.skip(EXCEPTIONS.get(op.name) or UNDEFINED.get(name_of(op)) or "values that are not defined")

    def call(*args, **kwargs):
        return op.op(*args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            if dtype not in op.supported_backward_dtypes("cpu"):
                continue
            for _, sample in zip(range(SAMPLES), op.sample_inputs("cpu", dtype, requires_grad=True)):
                want = gradients(call, sample)
                got = gradients(braze.compile(call, options={"rng": "eager"}), sample)
                if want is None or isinstance(want, Exception):
                    assert type(got) is type(want), f"{got!r}, expected {want!r}"
                    continue
                assert not isinstance(got, Exception), repr(got)
                for i, (w, g) in enumerate(zip(want, got)):
                    assert (w is None) == (g is None), f"gradient {i}: {g}, expected {w}"
                    if w is None:
                        continue
                    assert w.shape == g.shape and w.dtype == g.dtype and w.layout == g.layout, f"gradient {i}"
                    if w.layout == torch.strided and w.numel():
                        close(w, g, None, f"gradient {i}")
