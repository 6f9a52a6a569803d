"""Table 1: the systems that make a graph of a program. Each function captures one, and returns what runs it and how to count."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from benchmarks.paper.zoo import Program


@dataclasses.dataclass
class Counts:
    graphs: int = 0
    breaks: int = 0
    operators: int = 0


@dataclasses.dataclass
class Captured:
    run: Callable
    counts: Callable[[], Counts]  # after the first call


def calls(graph: torch.fx.Graph) -> int:
    return sum(node.op in ("call_function", "call_method", "call_module") for node in graph.nodes)


class Recorder:
    """A backend that runs the graphs which it is given as they are, and counts them."""

    def __init__(self):
        self.operators = []

    def __call__(self, graph_module, inputs):
        self.operators.append(calls(graph_module.graph))
        return graph_module.forward

    def counts(self, breaks: int) -> Counts:
        return Counts(len(self.operators), breaks, sum(self.operators))


def braze(program: Program) -> Captured:
    import braze

    recorder = Recorder()
    run = braze.compile(program.fn, backend=recorder)
    return Captured(run, lambda: recorder.counts(sum(braze.counters()["graph_breaks"].values())))


def torch_compile(program: Program) -> Captured:
    from torch._dynamo.utils import graph_break_reasons

    recorder = Recorder()
    run = torch.compile(program.fn, backend=recorder)
    return Captured(run, lambda: recorder.counts(len(graph_break_reasons)))


def of_script(made) -> Captured:
    """Of TorchScript: its operators, those inside branches and loops too."""

    def count(block):
        inside = (count(b) for node in block.nodes() for b in node.blocks())
        return sum(node.kind().startswith("aten::") for node in block.nodes()) + sum(inside)

    return Captured(made, lambda: Counts(1, 0, count(made.inlined_graph)))


def jit_trace(program: Program) -> Captured:
    return of_script(torch.jit.trace(program.fn, program.args, strict=False, check_trace=False))


def jit_script(program: Program) -> Captured:
    return of_script(torch.jit.script(program.fn))


def fx_symbolic_trace(program: Program) -> Captured:
    made = torch.fx.symbolic_trace(program.fn)
    return Captured(made, lambda: Counts(1, 0, calls(made.graph)))


def export(program: Program) -> Captured:
    made = torch.export.export(program.fn, program.args)
    return Captured(made.module(), lambda: Counts(1, 0, calls(made.graph)))


def onnx_export(program: Program) -> Captured:
    made = torch.onnx.export(program.fn, program.args, dynamo=True, verbose=False)
    return Captured(made, lambda: Counts(1, 0, len(list(made.model.graph))))


SYSTEMS: dict[str, Callable[[Program], Captured]] = {
    "Braze": braze,
    "torch.compile": torch_compile,
    "torch.jit.trace": jit_trace,
    "torch.jit.script": jit_script,
    "torch.fx.symbolic_trace": fx_symbolic_trace,
    "torch.export": export,
    "torch.onnx.export": onnx_export,
}
PACKAGES = {"torch.onnx.export": ["onnx", "onnxscript", "onnxruntime"]}  # to make it, and to run what was made
