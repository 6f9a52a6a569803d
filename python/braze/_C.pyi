"""The extension, as the package's own modules use it. Nothing of it is public."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

class Compiled:
    """A compiled function or method: called as what it was made of, `__wrapped__`."""

    __wrapped__: Callable[..., Any]
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

def compile(
    function: Callable[..., Any],
    bound: Any,
    replaces_first: bool,
    backend: Callable[..., Any] | None,
    fullgraph: bool,
    dynamic: bool | None,
    options: Mapping[str, Any] | None,
    recompile_limit: int = 0,
    name: str = "",
    /,
) -> Compiled:
    """`bound`: the first argument of each call, in front of those given or, if it replaces the first, in its place. None: there is none."""

def has_cpp_compiler() -> bool:
    """Whether CXX, or else PATH, names a C++ compiler."""

def check_options(options: Mapping[str, Any] | None, /) -> None:
    """Raises what compile() would for them."""

def record(compiled: Compiled, call: Callable[[], Any], texts: bool = False, /) -> tuple[Any, list[dict[str, Any]]]:
    """The result of call(), and what was captured for `compiled` meanwhile, with the kernels' source if `texts`."""

def compilations(compiled: Compiled, /) -> int: ...
def speeds(compiled: Compiled, /) -> list[dict[str, Any]]: ...
def reset() -> None: ...
def capturing() -> bool: ...
def set_disabled(on: bool, /) -> bool:
    """What it was before."""

def set_stance(name: str, /) -> str:
    """What it was before."""

def set_logs(topics: str, /) -> str:
    """Those told before."""

def counters(clear: bool, /) -> dict[str, Any]: ...
def cache_files() -> tuple[str, list[str]]:
    """The folder, empty where there is none; paths of what this process used of it."""

def let_go(reference: weakref.ref[Any], /) -> None: ...
def set_listener(listener: Callable[[str, int, str, str, dict[str, Any] | None], None] | None, /) -> None: ...
def overflow_errors() -> dict[str, str]:
    """By the name of a floating dtype: what eager's kernels on a CPU say of a number that it cannot hold."""

def allow_in_graph(callable: object, /) -> None: ...
def substitute(callable: object, by: Callable[..., Any], /) -> None: ...
def set_markers(
    graph_break: Callable[[], None], is_compiling: Callable[[], bool], unsupported: type[Exception], /
) -> None: ...

# For the fuzzers and tests that record without bytecode.
class _Tracer:
    def __init__(self) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

def _global_state_key() -> int: ...
def _graph_break_of(exception: object, /) -> Any: ...
def _guard_mismatch(seen: object, now: object, /) -> Any: ...
def _pytorch_lacks() -> list[str]: ...
def _make_leaf(tensor: torch.Tensor, /) -> torch.Tensor: ...
def _mark_consumed(tensor: torch.Tensor, /) -> torch.Tensor: ...
def _attention_kernels(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: list[torch.Tensor],
    columns: list[torch.Tensor],
    operands: list[torch.Tensor],
    functions: str,
    q_block: int,
    kv_block: int,
    scale: float,
    backward: bool,
) -> list[dict[str, Any]]: ...
def _register_operators() -> None: ...
def _triton_kernels(graph: str, sizes: Mapping[str, int] = {}, flags: Mapping[str, bool] = {}) -> dict[str, Any]: ...
def _product_kernels(
    graph: str, configs: Sequence[tuple[int, int, int, int, int, bool, bool]] = [], multiprocessors: int = 132
) -> dict[str, Any]: ...
def _tuned() -> list[dict[str, Any]]: ...
def _prefer_kernels(on: bool, name: str = "") -> None: ...
