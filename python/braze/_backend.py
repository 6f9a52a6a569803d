"""Braze as a backend of PyTorch's own entry: `torch.compile(model, backend="braze")`."""

import torch

from . import _C
from ._api import _switched_off, with_mode


def backend(gm, example_inputs, *, options=None, mode=None):
    """A torch.fx.GraphModule as a callable on its inputs, compiled when it is first called, and again for inputs of another kind.

    The module's forward is a Python function like others: it is captured with guards of its own, so that integers and sizes stay open
    once they vary, and inputs may be given twice, be written to, or be returned.
    """
    options = with_mode(options, mode)
    if isinstance(gm, torch.fx.GraphModule):
        gm.code  # its forward is made when somebody asks for it
    if _switched_off():
        return gm.forward
    return _C.compile(type(gm).forward, gm, False, None, False, None, options)
