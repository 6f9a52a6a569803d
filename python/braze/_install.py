"""torch.compile made ours, for programs and libraries that call it themselves."""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch

from ._api import _backend, compile, disable, reset
from ._control import allow_in_graph, assume_constant_result, set_stance, substitute_in_graph

_lock = threading.Lock()
_holders = 0
_before: dict[tuple[Any, str], Any] = {}
_known = (
    "fuse",
    "fusion_score",
    "inlining",
    "reordering",
    "convolution_layout",
    "patterns",
    "vectors",
    "freezing",
    "freezing_discard_parameters",
    "max_fusion_size",
    "disk_cache",
    "cuda_graphs",
    "autotune_seconds",
    "guard_speed",
    "memory_budget",
    "rng",
    "codegen",
)


class Installed:
    """What install() gives. Leaving it as a context, or remove(), takes back what its install() did; further calls of remove() do nothing."""

    def __init__(self) -> None:
        self._holds = True

    def remove(self) -> None:
        global _holders, _before
        with _lock:
            if not self._holds:
                return
            self._holds = False
            _holders -= 1
            if _holders == 0:
                for (module, name), function in _before.items():
                    setattr(module, name, function)
                _before.clear()

    def __enter__(self) -> "Installed":
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def install() -> Installed:
    """From here on torch.compile is braze.compile: `torch.compile(f)`, `nn.Module.compile()`, `torch.compiler.compile`, and what libraries
    compile of themselves (transformers' `generate`, trainers). Captured natively, without TorchDynamo. For the whole process, or inside
    `with braze.install():`; may be nested. So are those functions of torch.compiler that would load TorchDynamo: set_stance, disable,
    allow_in_graph, substitute_in_graph, assume_constant_result, cudagraph_mark_step_begin (a CUDA Graph of Braze needs no such mark) and
    reset.

    Arguments are torch.compile's. `backend`: None is the default one, which together with "inductor" and "braze" is Braze; others are given the
    graphs that Braze captures. `options` that Braze does not have are left out, which `logging.getLogger("braze")` is told (info).
    `isolate_recompiles` is taken and does nothing: callables share no compiled code.
    """
    global _holders
    with _lock:
        if _holders == 0:
            for (module, name), function in _ours.items():
                _before[module, name] = getattr(module, name)
                setattr(module, name, function)
        _holders += 1
    return Installed()


def _compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """torch.compile, by Braze; see braze.install()."""
    if shapes_spec is not None:
        raise ValueError("torch.compile under braze.install(): shapes_spec is not taken; mark_dynamic says what varies")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    registry = sys.modules.get("torch._dynamo.backends.registry")  # where nobody loaded it, nobody set a default
    if backend is None and hasattr(registry, "get_default_backend"):
        backend = registry.get_default_backend()
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(k, str) for k in options)):
        raise TypeError(f"options: a dict by names is expected, not {options!r}")
    if backend in (None, "inductor"):
        backend = "braze"
    elif backend != "braze":
        # Another backend is told of both, as by torch.compile.
        told = {k: v for k, v in (("mode", mode if mode != "default" else None), ("options", options)) if v}
        if told:
            backend, mode = functools.partial(_backend(backend), **told), None
    return compile(
        model,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=_options(options, backend),
        disable=disable,
        name=name,
        recompile_limit=recompile_limit,
    )


_compile.__name__ = _compile.__qualname__ = "compile"


def _set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
) -> set_stance:
    """torch.compiler.set_stance, by Braze: guards are always checked."""
    if force_backend is not None:
        raise ValueError(
            "torch.compiler.set_stance under braze.install(): force_backend is not taken; torch.compile takes a backend"
        )
    return set_stance(stance)


def _reset() -> None:
    reset()
    if "torch._dynamo" in sys.modules:
        _before[torch.compiler, "reset"]()


def _mark_step_begin() -> None:
    """Nothing: which results of a CUDA Graph the program still holds is known without it."""


_ours = {
    (torch, "compile"): _compile,
    (torch.compiler, "set_stance"): _set_stance,
    (torch.compiler, "disable"): disable,
    (torch.compiler, "allow_in_graph"): allow_in_graph,
    (torch.compiler, "substitute_in_graph"): substitute_in_graph,
    (torch.compiler, "assume_constant_result"): assume_constant_result,
    (torch.compiler, "cudagraph_mark_step_begin"): _mark_step_begin,
    (torch.compiler, "reset"): _reset,
}


def _options(given: Mapping[str, Any] | None, backend: Any) -> dict[str, Any] | None:
    if not given or backend != "braze":
        return None
    given = dict(given)
    if "triton.cudagraphs" in given:
        given["cuda_graphs"] = bool(given.pop("triton.cudagraphs"))
    left_out = sorted(k for k in given if k not in _known)
    if left_out:
        logging.getLogger("braze").info("torch.compile under braze.install(): left out options %s", ", ".join(left_out))
    return {k: v for k, v in given.items() if k in _known}
