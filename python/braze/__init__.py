"""Braze: a compiler for PyTorch programs. `braze.compile(model)` is the way in."""

import torch as _torch  # noqa: F401  the extension needs its libraries

from ._api import (
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
from ._install import install

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
