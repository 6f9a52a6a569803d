"""Every operator of PyTorch's own list of samples with open sizes: one compiled function is called with the samples in turn."""

import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's samples of operators need it")

from op_samples import double, fresh, outcome, same  # noqa: E402
from opinfo_test import EXCEPTIONS, NO_VALUES, name_of  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import braze  # noqa: E402

SAMPLES = 6
# Operators of which PyTorch has neither a Meta kernel nor a decomposition, whose results or numbers depend on data, of kinds of tensors that
# are not compiled. All others are one graph.
BREAKS = {
    "allclose", "equal", "geqrf", "hash_tensor", "histogramdd", "linalg.lstsq", "resize_", "sparse.mm", "sparse.sampled_addmm",
    "tensor_split", "to_sparse",
}  # fmt: skip
if [int(n) for n in torch.__version__.split(".")[:2]] >= [2, 15]:
    BREAKS -= {"histogramdd"}


@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_operator(op):
    if op.name in EXCEPTIONS or not op.supports_dtype(torch.float32, "cpu"):
        pytest.skip("see opinfo_test.py")

    def call(*args, **kwargs):
        return op.op(*args, **kwargs)

    compiled = braze.compile(call, options={"rng": "eager"}, dynamic=True)
    explained = None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, sample in zip(range(SAMPLES), op.sample_inputs("cpu", torch.float32)):
            args, kwargs = (sample.input, *sample.args), sample.kwargs
            (want_args, want_kw), (got_args, got_kw) = fresh((args, kwargs)), fresh((args, kwargs))
            torch.manual_seed(0)
            want, error = outcome(op.op, *want_args, **want_kw)
            if error is not None:
                continue
            torch.manual_seed(0)
            if explained is None:
                explained = braze.explain(compiled, *got_args, **got_kw)

                wrapped = any(
                    "_DisableTorchDispatch" in b.detail for b in explained.breaks
                )  # of what the list wraps around random operators
                assert wrapped or (op.name in BREAKS) == bool(explained.breaks), explained
                (got_args, got_kw) = fresh((args, kwargs))
                torch.manual_seed(0)
            got = compiled(*got_args, **got_kw)
            exact = None
            doubled = double((args, kwargs))
            if doubled is not None:
                torch.manual_seed(0)
                exact, _ = outcome(op.op, *doubled[0], **doubled[1])
            same(want, got, exact, (want_args, want_kw), (got_args, got_kw), op.name not in NO_VALUES)
