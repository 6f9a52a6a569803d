"""Every operator of PyTorch's own list of samples, called eagerly and compiled: results (values, dtype, sizes, strides, shared
storage), arguments after the call, and exceptions are the same."""

import os
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's samples of operators need it")

from op_samples import check  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

# Samples per operator: of float32, and of the other dtypes. The environment asks for more, in more dtypes: BRAZE_OPINFO_SAMPLES=20.
SAMPLES = int(os.environ.get("BRAZE_OPINFO_SAMPLES", 0))
FIRST, OTHERS = (SAMPLES, SAMPLES) if SAMPLES else (2, 1)
DTYPES = (torch.bfloat16, torch.int64, torch.bool, torch.complex64)
if SAMPLES:
    DTYPES += (torch.float64, torch.int32, torch.uint8)

# Values that differ between two eager runs, or are not defined: everything else is compared.
NO_VALUES = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",  # uninitialised
    "svd_lowrank", "pca_lowrank", "linalg.svd", "svd", "linalg.eig", "linalg.eigh",  # up to signs
}  # fmt: skip

META = (
    "PyTorch's Meta kernel promises other strides than its CPU kernel gives; the compiled result has the promised ones"
)
LAZY = "eager shares storage under a lazy conjugation, which compiled code resolves; the values are equal"
EXCEPTIONS = {
    "fft.rfftn": META, "fft.hfft2": META, "fft.hfftn": META, "linalg.eig": META, "svd_lowrank": META, "pca_lowrank": META,
    "fft.irfftn": META, "fft.irfft2": META, "fft.rfft2": META, "fft.ihfft2": META, "fft.ihfftn": META,
    "conj": LAZY, "H": LAZY, "mH": LAZY, "imag": LAZY, "real": LAZY, "view_as_real": LAZY, "view_as_complex": LAZY,
    "_batch_norm_with_update": "an internal operator whose Meta kernel gives the statistics of half types another dtype than its CPU kernel",
    "signal.windows.nuttall": "a sum of cosines that cancel: compared with 2 times eager's error, which is less than one rounding of a term",
    "signal.windows.blackman": "as nuttall",
}  # fmt: skip


# Samples that give no graph, with the reason; of all others there is one, and all of it is compiled or called by it.
UNCOMPILED = {
    "allclose": "a bool that depends on values", "equal": "a bool that depends on values",
    "broadcast_shapes": "no tensor", "nn.functional.one_hot": "the number of classes is the largest value",
    "sparse.sampled_addmm": "sparse tensors", "sparse.mm": "sparse tensors", "to_sparse": "a sparse result",
    "geqrf": "PyTorch has no Meta kernel", "histogramdd": "PyTorch has no Meta kernel", "linalg.lstsq": "as many residuals as values say",
    "tensor_split": "indices that are a tensor's values", "narrow": "a start that is a tensor's value",
    "as_strided": "an offset into the storage of an input", "hash_tensor": "unsigned integers of 64 bits",
}  # fmt: skip

# Of a complex dtype: a Python complex as an argument, and views that are conjugated or negated when they are read.
UNCOMPILED_COMPLEX = ("an argument of a kind that graphs do not hold", "a lazily conjugated or negated tensor")
# By what later samples ask for.
UNCOMPILED_SAMPLES = {
    "cov": "weights whose values are asked for",
    "empty_strided": "elements that share their memory, which strides (2, 0, 1) ask for",
}


def may_break(op, dtype, found):
    if op.name in UNCOMPILED or (SAMPLES and op.name in UNCOMPILED_SAMPLES):
        return True
    return dtype.is_complex and any(why in str(found) for why in UNCOMPILED_COMPLEX)


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


@pytest.mark.parametrize("op", op_db, ids=name_of)
def test_operator(op):
    if op.name in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[op.name])
    fn = op.op

    def call(*args, **kwargs):
        return fn(*args, **kwargs)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, *DTYPES):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for _, sample in zip(range(FIRST if dtype == torch.float32 else OTHERS), op.sample_inputs("cpu", dtype)):
                found = check(call, (sample.input, *sample.args), sample.kwargs, values=op.name not in NO_VALUES)
                assert found is None or found.graph_count or may_break(op, dtype, found), "nothing was compiled"
