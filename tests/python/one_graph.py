"""Rows of the tests of what stays in one graph: a function, the arguments of several calls, and what is compared with eager.

    @row(call, call, ...)
    def feature():
        return function

A call is a function that makes the arguments; `feature` is called twice, so that eager and compiled code have state of their own.
"""

import collections
import contextlib
import io
import itertools

import torch
from dynamic_test import Counted
from harness import outcome, same

import braze


class Rows(dict):
    def row(self, *calls, **options):
        """dynamic, options: of braze.compile; tol; most: the most captures that all calls together may take (default: one each)."""

        def add(make):
            assert make.__name__ not in self, make.__name__
            self[make.__name__] = (make, calls, options)
            return make

        return add

    def functions(self, prefix, calls, functions, **options):
        """A row for each function without state of its own."""
        for fn in functions:
            self[f"{prefix}_{fn.__name__}"] = ((lambda f: lambda: f)(fn), calls, options)


def tensors(x):
    """All tensors in it."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for part in x for t in tensors(part)] if isinstance(x, (list, tuple, collections.deque)) else []


def plain(x):
    """What is left of the arguments: of an iterator its next items."""
    if hasattr(x, "__next__"):
        return [type(x).__name__, *itertools.islice(x, 4)]
    if isinstance(x, torch.Generator):
        return x.get_state()
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def observed(fn, call, module=None):
    """All that one call shows: what it gives or raises and prints, its arguments after it, and the gradients that it leads to."""
    torch.manual_seed(3)
    args = call()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = outcome(fn, args, {})
    random = torch.get_rng_state()
    parts = [t for t in tensors(result[1]) if t.requires_grad and t.is_floating_point()]
    if parts:
        sum((t * t).sum() for t in parts).backward()
    gradients = [t.grad for t in tensors(args) if t.is_leaf]
    state = [p.grad for p in module.parameters()] + list(module.buffers()) if module else []
    return {
        "result": result,
        "printed": printed.getvalue(),
        "arguments": plain(args),
        "gradients": gradients,
        "state": state,
    }, random


def check(make, calls, tol=1e-5, most=None, dynamic=None, options=None):
    torch.manual_seed(9)
    eager = make()
    torch.manual_seed(9)
    fn = make()
    modules = (eager, fn) if isinstance(fn, torch.nn.Module) else (None, None)
    compiled = Counted(fn, fullgraph=True, dynamic=dynamic, **({"options": options} if options else {}))
    for i, call in enumerate(calls):
        want, want_random = observed(eager, call, modules[0])
        got, got_random = observed(compiled, call, modules[1])
        kind, value = got["result"]
        assert kind == "returned" or value[0] is not braze.Unsupported, value[1]
        same(want, got, f"call {i}", tol)
        if options and options.get("rng") == "eager":
            assert torch.equal(want_random, got_random), f"call {i}: the generator's state after it"
    assert not compiled.breaks, compiled.breaks
    assert 0 < compiled.count <= (len(calls) if most is None else most), f"{compiled.count} captures"
