"""What became of a program: `braze.explain`."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from typing import Any

import torch

from . import _C
from ._api import _compile_module, compile


class Break:
    """One graph break: `reason`, `detail`, `hint`, `file`, `line`, `source`."""

    def __init__(self, name: str, reason: str, detail: str, hint: str, file: str, line: int, source: str) -> None:
        self.name, self.reason, self.detail, self.hint = name, reason, detail, hint
        self.file, self.line, self.source = file, line, source

    def __repr__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        source = f"\n    {self.source}" if self.source else ""
        return f"{self.file}:{self.line}{source}\n  {self.reason}{detail}\n  hint: {self.hint}"


class Explanation:
    """What braze.explain found: `graph_count`, `graph_break_count`, `breaks`, `guards`, `times` (seconds by stage),
    `checks` (of each graph: the number of `guards`, of `watched` words, of `steps` besides, and the `seconds` that a check of them takes),
    `kernel_count`, `extern_count`, `graphs` (one text each), `output`, `compilations` (graphs that were compiled so far for what was
    explained: where it was a compiled function or module already, by its own calls), and `code` (the kernels of each graph, if
    asked for), and `products`, `loops`, `convolutions` and `layouts` (of mode="max-autotune": for each matrix product, and on a CPU each nest of loops, convolution and
    layout of a graph's convolutions, what was `chosen`, and
    if it was not known before, the milliseconds of all `ways` and the `seconds` that finding out took), and `speeds` (with options={"guard_speed": True}, of a
    compiled function or module: of each graph and class of sizes that its own calls met the `form` that runs, "compiled", "calls" (PyTorch's) or "open",
    `compiled_seconds` and `calls_seconds` of a run, 0 where not known, and `why`). Of graphs with a backward, which the counts include:
    `backward_kernel_count`, `backward_extern_count`, `saved_bytes`, and `partitions` (what is saved, what is recomputed)."""

    def __init__(
        self,
        output: Any,
        events: list[dict[str, Any]],
        compilations: int,
        tuned: list[dict[str, Any]] | None = None,
        speeds: list[dict[str, Any]] | None = None,
    ) -> None:
        self.output, self.compilations, self.speeds = output, compilations, speeds or []
        self.products = [t for t in tuned or [] if "product" in t]
        self.loops = [t for t in tuned or [] if "loops" in t]
        self.convolutions = [t for t in tuned or [] if "convolution" in t]
        self.layouts = [t for t in tuned or [] if "layout" in t]
        graphs = [e for e in events if e["calls"]]
        self.graph_count = len(graphs)
        self.breaks = [Break(**e["break"]) for e in events if e["break"]]
        self.graph_break_count = len(self.breaks)
        self.kernel_count = sum(e["kernels"] for e in graphs)
        self.extern_count = sum(e["externs"] for e in graphs)
        self.guards = list(dict.fromkeys(g for e in events for g in e["guards"]))
        self.checks = [e["check"] for e in graphs]
        self.graphs = [
            f"{e['calls']} calls, {e['kernels']} kernels, {e['externs']} extern calls, runs {e['status']}"
            for e in graphs
        ]
        self.training_graph_count = sum(e["training"] for e in graphs)
        self.backward_kernel_count = sum(e["backward_kernels"] for e in graphs)
        self.backward_extern_count = sum(e["backward_externs"] for e in graphs)
        self.saved_bytes = sum(e["saved_bytes"] for e in graphs)
        self.partitions = [e["partition"] for e in graphs]
        self.plans = [e["plan"] for e in graphs]
        self.code = [_quote_lines(e["code"]) for e in graphs]
        self.times: dict[str, float] = {}
        for e in events:
            for stage, seconds in e["times"].items():
                self.times[stage] = self.times.get(stage, 0.0) + seconds

    def __str__(self) -> str:
        lines = [
            f"{self.graph_count} graphs, {self.graph_break_count} graph breaks, {self.kernel_count} kernels, "
            f"{self.extern_count} extern calls, {len(self.guards)} guards"
        ]
        lines += [
            f"graph {i}: {g}, {c['guards']} guards checked in {c['seconds'] * 1e6:.1f} us"
            for i, (g, c) in enumerate(zip(self.graphs, self.checks))
        ]
        kinds = {
            "product": self.products,
            "loops": self.loops,
            "convolution": self.convolutions,
            "layout": self.layouts,
        }
        for kind, tuned in kinds.items():
            for t in tuned:
                times = ", ".join(f"{way} {ms:.4f} ms" if ms >= 0 else f"{way} dropped" for way, ms in t["ways"])
                lines.append(f"{kind} {t[kind]}: {t['chosen']}" + (f" of {times}" if times else ", as was known"))
        for s in self.speeds:
            if s["form"] == "calls":
                sizes = f" (sizes like {', '.join(map(str, s['sizes']))})" if s["sizes"] else ""
                lines.append(f"runs as PyTorch's calls: {s['place']}{sizes}: {s['why']}")
        lines += [f"break {i}: {b!r}" for i, b in enumerate(self.breaks)]
        lines.append("times: " + ", ".join(f"{k} {v * 1e3:.2f} ms" for k, v in self.times.items()))
        lines += [f"code of graph {i}:\n{c}" for i, c in enumerate(self.code) if c]
        return "\n".join(lines)

    __repr__ = __str__


def _quote_lines(code):
    """The user's lines, where the comments at the head of kernels name them."""
    quote = lambda m: f"{m[1]}: {linecache.getline(m[2], int(m[3])).strip()}"
    return re.sub(r"(?m)^((?:;|//|#)   (.+):(\d+)(?: in .*)?)$", quote, code)


def explain(f: Callable[..., Any], *args: Any, code: bool = False, **kwargs: Any) -> Explanation:
    """Compiles `f` afresh, calls it with the arguments and returns an Explanation of what was captured and what was not.

    What `compile` gave for a module or a function is compiled with the options that it has.
    code: also keep the source of the kernels, with the lines that each computes: LLVM IR (or C++) on the CPU, PTX on a GPU, or Triton for what
        was compiled with options={"codegen": "triton"}. The Explanation has it as `code` and prints it. An argument of `f` that is
        called `code` cannot be given by name here.
    """
    if isinstance(f, torch.nn.Module) and isinstance(f._compiled_call_impl, _C.Compiled):
        f = f._compiled_call_impl  # compiled in place
    owner = lambda c: type(c).__dict__["__call__"] if isinstance(c, torch.nn.Module) else c
    made_module = isinstance(f, torch.nn.Module) and hasattr(type(f), "_braze_make")
    before = f if made_module or isinstance(f, _C.Compiled) else None
    if made_module:
        compiled = _compile_module(f._orig_mod, type(f)._braze_make)
    elif isinstance(f, _C.Compiled) and hasattr(f, "_braze_make"):
        compiled = f._braze_make(f.__wrapped__)
    else:
        compiled = compile(f)
    known = len(_C._tuned())
    output, events = _C.record(owner(compiled), lambda: compiled(*args, **kwargs), bool(code))
    callers = owner(compiled if before is None else before)
    return Explanation(output, events, _C.compilations(callers), _C._tuned()[known:], _C.speeds(callers))
