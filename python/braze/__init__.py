"""Braze: a compiler for PyTorch programs. `braze.compile(model)` is the way in."""

import os as _os
import sys as _sys
import typing as _typing

from . import _built

if "t" in _sys.abiflags:
    raise ImportError("braze does not run on free-threaded builds of Python: use the ordinary build")
if _sys.implementation.name != "cpython" or "%d.%d" % _sys.version_info[:2] != _built.PYTHON:
    raise ImportError(
        f"braze was built for CPython {_built.PYTHON}, but this is {_sys.implementation.name} "
        f"{'%d.%d' % _sys.version_info[:2]}: build braze for this interpreter (CPython 3.11 to 3.14)"
    )

import torch as _torch  # noqa: E402: the extension needs its libraries

_version = ".".join(_torch.__version__.split(".")[:2])
if _version not in _built.PYTORCH:
    _or = "or build braze against this PyTorch"
    if _version not in _built.VERSIONS:
        _or = f"or build braze against a version from {_built.VERSIONS[0]} to {_built.VERSIONS[-1]}, which it is for"
    raise ImportError(
        f"braze was built for PyTorch {', '.join(_built.PYTORCH)}, but this is {_torch.__version__}: "
        f"install torch=={_built.PYTORCH[-1]}.*, {_or}"
    )
# The extension for this PyTorch, braze._C, has a folder to itself.
__path__.append(_os.path.join(__path__[0], "_torch" + _version.replace(".", "_")))

from ._api import (  # noqa: E402
    Unsupported,
    compile,
    compile_module_,
    disable,
    graph_break,
    is_compiling,
    reset,
)
from ._swap import install as _watch_swaps  # noqa: E402

_watch_swaps()

# What many programs never ask for is imported where it is asked for: importing braze is part of the start of each process.
if _typing.TYPE_CHECKING:
    from ._artifacts import load_cache_artifacts, save_cache_artifacts
    from ._control import (
        Compilation,
        allow_in_graph,
        assume_constant_result,
        counters,
        mark_static_address,
        on_compile,
        set_logs,
        set_stance,
        substitute_in_graph,
    )
    from ._explain import Explanation, explain
    from ._install import install
    from ._marks import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic

_LATER = {
    "_artifacts": ("load_cache_artifacts", "save_cache_artifacts"),
    "_control": (
        "Compilation",
        "allow_in_graph",
        "assume_constant_result",
        "counters",
        "mark_static_address",
        "on_compile",
        "set_logs",
        "set_stance",
        "substitute_in_graph",
    ),
    "_explain": ("Explanation", "explain"),
    "_install": ("install",),
    "_marks": ("mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic"),
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            found = getattr(__import__(f"{__name__}.{module}", fromlist=[name]), name)
            return globals().setdefault(name, found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "compile",
    "compile_module_",
    "explain",
    "Explanation",
    "Unsupported",
    "Compilation",
    "allow_in_graph",
    "assume_constant_result",
    "counters",
    "disable",
    "graph_break",
    "install",
    "is_compiling",
    "load_cache_artifacts",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "on_compile",
    "reset",
    "save_cache_artifacts",
    "set_logs",
    "set_stance",
    "substitute_in_graph",
]
__version__ = "0.1.0"
