"""Graphs as torch.fx has them."""

import types

import torch
from torch.fx import GraphModule
from torch.fx.node import _get_qualified_name, map_aggregate


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


def foreign_calls(module):
    """The name of something in the graph that is no function of PyTorch's own, and may do what cannot be seen from here; or None."""
    for node in module.graph.nodes:
        if node.op == "call_module":
            return str(node.target)
        handed = [node.target] if node.op == "call_function" else []
        if node.op == "get_attr":
            handed.append(getattr(module, node.target, None))
        map_aggregate((node.args, node.kwargs), handed.append)
        for value in handed:
            if callable(value) and not isinstance(value, (torch.fx.Node, torch.Tensor)) and not _of_pytorch(value):
                return getattr(value, "__qualname__", None) or repr(value)
    return None


def _of_pytorch(function):
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name = function._qualified_op_name if isinstance(function, torch._ops.OpOverloadPacket) else function._name
        return name.startswith(("aten::", "prim::", "prims::"))
    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, type)):
        module = getattr(function, "__module__", None) or "builtins"
        return module.split(".")[0] in ("torch", "builtins", "_operator", "math")
    return False
