"""Braze: a compiler for PyTorch programs. `braze.compile(model)` is the way in."""

import torch as _torch  # the extension needs its libraries

from . import _built

if _torch.__version__.split(".")[:2] != _built.PYTORCH.split("."):
    raise ImportError(
        f"braze was built for PyTorch {_built.PYTORCH}, but this is {_torch.__version__}: "
        f"install torch=={_built.PYTORCH}.*, or build braze against this PyTorch"
    )

from ._api import (  # noqa: E402
    Explanation,
    Unsupported,
    compile,
    disable,
    explain,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
    reset,
)
from ._install import install  # noqa: E402

__all__ = [
    "compile",
    "explain",
    "Explanation",
    "Unsupported",
    "disable",
    "graph_break",
    "install",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "reset",
]
__version__ = "0.1.0"
