"""torch.compile made ours, for programs and libraries that call it themselves."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ._api import compile

_lock = threading.Lock()
_holders = 0
_before: Callable[..., Any] | None = None
_known = ("fuse", "max_fusion_size", "disk_cache", "cuda_graphs", "autotune_seconds", "memory_budget", "rng", "codegen")


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
                torch.compile, _before = _before, None

    def __enter__(self) -> "Installed":
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def install() -> Installed:
    """From here on torch.compile is braze.compile: `torch.compile(f)`, `nn.Module.compile()`, `torch.compiler.compile`, and what libraries
    compile of themselves (transformers' `generate`, trainers). Captured natively, without TorchDynamo. For the whole process, or inside
    `with braze.install():`; may be nested.

    Arguments are torch.compile's. `backend`: None is the default one, which together with "inductor" and "braze" is Braze; others are given the
    graphs that Braze captures. `options` that Braze does not have are left out, which `logging.getLogger("braze")` is told (info).
    `recompile_limit`, `isolate_recompiles` and `name` are taken and do nothing.
    """
    global _holders, _before
    with _lock:
        if _holders == 0:
            _before, torch.compile = torch.compile, _compile
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
    if backend is None and hasattr(torch.compiler, "get_default_backend"):
        backend = torch.compiler.get_default_backend()
    if backend in (None, "inductor"):
        backend = "braze"
    return compile(
        model,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=_options(options, backend),
        disable=disable,
    )


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
