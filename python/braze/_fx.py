"""Graphs as torch.fx has them."""

import torch
from torch.fx import GraphModule
from torch.fx.node import _get_qualified_name


class _Recorded:
    """A module, of which some names stay what they were when a graph was recorded."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def graph_module(root, graph):
    """A torch.fx.GraphModule whose functions are the graph's own, whatever their names in PyTorch are bound to later."""
    made = GraphModule(root, graph)
    names = type(made).forward.__globals__
    for node in graph.nodes:
        if node.op != "call_function" or not (path := _get_qualified_name(node.target)).startswith("torch."):
            continue
        *way, last = path.split(".")[1:]
        if not isinstance(at := names["torch"], _Recorded):
            at = names["torch"] = _Recorded(torch)
        for name in way:
            inner = getattr(at, name)
            if not isinstance(inner, _Recorded):
                setattr(at, name, inner := _Recorded(inner))
            at = inner
        setattr(at, last, node.target)
    return made
