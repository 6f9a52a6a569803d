"""Braze as a backend of PyTorch's own entry: `torch.compile(model, backend="braze")`."""

from . import _C


def backend(gm, example_inputs, *, options=None, mode=None):
    """Compiles a torch.fx.GraphModule for these inputs; a graph that can't be compiled runs as it is."""
    if mode in ("reduce-overhead", "max-autotune"):
        options = {"cuda_graphs": True, **(options or {})}
    return _C.compile_graph(gm, example_inputs, options) or gm.forward
