"""Every module of PyTorch's own list, in training and evaluation: results, buffers after the call, and the gradients of parameters
and inputs are eager's."""

import copy
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's samples of modules need it")

from op_samples import double, fresh, leaves, same_value  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402

import braze  # noqa: E402

SAMPLES = 3  # of each module and mode
# Not compared at all, with the reason.
EXCEPTIONS = {}
# Modules that give no graph, with the reason.
UNCOMPILED = {}
# Random in training: with the same seed the results are eager's, and so are the gradients; but not in float64.
RANDOM = {
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
    "RReLU",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
}


def tensors(obj):
    return [t for t in leaves(obj) if isinstance(t, torch.Tensor)]


def run(module, inputs, kwargs, call):
    """Results; gradients of inputs and parameters of a weighted sum of the results."""
    torch.manual_seed(1)
    out = call(*inputs, **kwargs)
    results = [t for t in tensors(out)]
    roots = [t for t in results if t.requires_grad]
    leaf = [t for t in tensors((inputs, kwargs)) if t.requires_grad] + [
        p for p in module.parameters() if p.requires_grad
    ]
    grads = []
    if roots:
        weights = [torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype) for t in roots]
        grads = torch.autograd.grad(roots, leaf, weights, allow_unused=True)
    return [t.detach() for t in results], list(grads), [b.clone() for b in module.buffers()]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.formatted_name)
def test_module(info, training):
    name = info.module_cls.__name__
    if name in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
        for sample in samples[:SAMPLES]:
            c, f = sample.constructor_input, sample.forward_input
            torch.manual_seed(0)
            eager = info.module_cls(*c.args, **c.kwargs).train(training)
            if f is None:
                continue
            ours, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
            inputs = [fresh((f.args, f.kwargs)) for _ in range(2)]
            try:
                want = run(eager, *inputs[0], eager)
            except Exception as e:
                with pytest.raises(type(e)):
                    run(ours, *inputs[1], braze.compile(ours))
                continue
            compiled, explained = braze.compile(ours), []

            def call(*args, **kwargs):
                explained.append(braze.explain(compiled, *args, **kwargs))
                return explained[0].output

            got = run(ours, *inputs[1], call)
            assert explained[0].graph_count or name in UNCOMPILED, "nothing was compiled"
            reference = None
            if name not in RANDOM:
                args, kwargs = double((f.args, f.kwargs)) or (f.args, f.kwargs)
                for given, made in zip(tensors((f.args, f.kwargs)), tensors((args, kwargs))):
                    made.requires_grad_(given.requires_grad)
                try:
                    reference = run(exact, args, kwargs, exact)
                except RuntimeError:
                    pass
            for kind, w, g, e in zip(("result", "gradient", "buffer"), want, got, reference or ([], [], [])):
                assert len(w) == len(g)
                e = e if len(e) == len(w) else [None] * len(w)
                for i, (a, b, x) in enumerate(zip(w, g, e)):
                    # One sample of an error that went through a whole backward pass says little: some more room for gradients.
                    bounds = {"times": 4, "ulps": 16} if kind == "gradient" else {}
                    same_value(a, b, x, f"{kind} {i}", **bounds)
