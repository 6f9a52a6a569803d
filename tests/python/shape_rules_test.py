"""Every operator that PyTorch's own test suite has samples for: what tracing records, replayed, has the recorded types and
gives eager's results; or else tracing breaks the graph. It never records something else."""

import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's samples of operators need it")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from trace_test import _C, LOOSE, replay, same, tensors, trace  # noqa: E402

SAMPLES = 3  # of each operator and dtype
# Results that differ between two eager runs: only types are compared.
RANDOM = {
    "bernoulli", "multinomial", "normal", "rand_like", "randn", "randn_like", "randint", "randint_like", "uniform", "exponential",
    "cauchy", "geometric", "log_normal", "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
    "new_empty_strided", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "nn.functional.multi_head_attention_forward",
    "nn.functional.fractional_max_pool2d", "pca_lowrank",
    "nn.functional.fractional_max_pool3d", "svd_lowrank", "nn.functional.scaled_dot_product_attention", "torch.ops.aten._efficient_attention_forward",
}  # fmt: skip

# Internal operators whose Meta kernels give results of another dtype than the CPU kernels; no public function calls them.
UNSTABLE = {"_batch_norm_with_update"}


def plain(obj):
    """Detached copies, without the layouts and subclasses that are not lifted."""
    if isinstance(obj, torch.Tensor):
        return obj.detach()
    if isinstance(obj, (list, tuple)) and type(obj) in (list, tuple):
        return type(obj)(plain(o) for o in obj)
    if isinstance(obj, dict):
        return {k: plain(v) for k, v in obj.items()}
    return obj


def check_sample(op, sample):
    """'agrees', or why it was not recorded."""
    args = (plain(sample.input), *plain(sample.args))
    kwargs = plain(sample.kwargs)
    torch.manual_seed(0)
    try:
        eager = tensors(op(*args, **kwargs))
    except Exception:
        return "eager raises"
    try:
        _, graph, outputs = trace(lambda a, k: op(*a, **k), list(args), kwargs)
    except BaseException as e:
        signal = _C._graph_break_of(e)
        if signal:
            return signal[0]
        if isinstance(e, RuntimeError) and str(e).split(":")[0].startswith("Unsupported"):
            return str(e).split(":")[0]
        raise
    assert len(outputs) == len(eager)
    torch.manual_seed(0)
    loose = any(name.removeprefix("aten::").partition(".")[0] in LOOSE for name, *_ in graph["nodes"])
    if loose and op.name in UNSTABLE:
        return "agrees"
    replayed = replay(graph, graph["reals"], types=not loose)
    depends_on_data = " unbacked " in graph["text"]
    for e, o in zip(eager, outputs):
        if depends_on_data:
            assert (e.dtype, e.dim()) == (o.dtype, o.dim()), graph["text"]
            continue
        assert (e.dtype, e.shape) == (o.dtype, o.shape), graph["text"]
        assert e.numel() <= 1 or e.stride() == o.stride() or loose, (e.stride(), o.stride(), graph["text"])
    if op.name not in RANDOM:
        same(eager, replayed, graph, strides=not loose)
    return "agrees"


@pytest.mark.parametrize(
    "op", op_db, ids=lambda op: op.name + ("." + op.variant_test_name if op.variant_test_name else "")
)
def test_operator(op):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for i, sample in enumerate(op.sample_inputs("cpu", dtype)):
                if i >= SAMPLES:
                    break
                check_sample(op, sample)
