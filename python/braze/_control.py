"""What a program says to the compiler besides `compile`: stances, logs, counts, callbacks, and what functions stand for."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from . import _C

_F = TypeVar("_F", bound=Callable[..., Any])


class set_stance:
    """What is done where compiled code is asked for: `braze.set_stance("force_eager")` from here on, `with braze.set_stance(...)`: for a
    block, `@braze.set_stance(...)`: while a function runs. Of the process, as torch.compiler.set_stance, which is understood as well.

    "default": compile what is called. "force_eager": run everything uncompiled. "eager_on_recompile": use compiled code that there is,
    run the rest uncompiled. "fail_on_recompile": RuntimeError, with the guards that did not hold, where code would have to be compiled.
    "eager_then_compile", "aot_eager_then_compile": run the first call uncompiled and compile at the second, which may know by then
    which sizes vary.
    """

    def __init__(self, stance: str) -> None:
        self._stance = stance
        self._before = [_C.set_stance(stance)]

    def __enter__(self) -> "set_stance":
        if not self._before:
            self._before.append(_C.set_stance(self._stance))
        return self

    def __exit__(self, *exc: object) -> None:
        _C.set_stance(self._before.pop())

    def __call__(self, fn: _F) -> _F:
        if not callable(fn):
            raise TypeError(f"braze.set_stance decorates a function, not {fn!r}")
        if self._before:
            _C.set_stance(self._before.pop())  # only what runs inside of the function is meant

        @functools.wraps(fn)
        def run(*args, **kwargs):
            before = _C.set_stance(self._stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _C.set_stance(before)

        return run


def set_logs(*topics: str) -> tuple[str, ...]:
    """Tells these topics of BRAZE_LOGS on stderr from here on, and no others; `braze.set_logs()`: none. Returns those told before, so that
    `braze.set_logs(*before)` puts them back. An unknown topic is a ValueError that lists them."""
    for t in topics:
        if not isinstance(t, str):
            raise TypeError(f"braze.set_logs takes names of topics, not {t!r}")
    before = _C.set_logs(",".join(topics))
    return tuple(before.split(",")) if before else ()


def counters(clear: bool = False) -> dict[str, Any]:
    """What was compiled in this process so far: `captures`, `graphs`, `training_graphs`, `recompiles` (captures of code that had been
    compiled), `failures` (errors of Braze's own), `runs_made_again` (runs of a graph that ended in an exception, after which the uncompiled code ran),
    `kept_captures` (those of the captures that another process had made and left on disk),
    `left_out` (calls that ran uncompiled because what had been compiled for those before them served next to no other calls),
    `capture_seconds`, `compile_seconds`, and `graph_breaks`, a dict by the name of the reason.
    clear: begin anew afterwards."""
    return _C.counters(bool(clear))


class Compilation:
    """What callbacks of `on_compile` are told: `file`, `line` and `function` where the compiled code begins, the `name` given to compile.
    Of one that ended also `status` ("compiled", or why not; empty where no tensor work was found), `seconds`, `kernel_count`,
    `extern_count`, and `break_reason`: the name of the reason for which capture ended early, or None."""

    def __init__(self, file: str, line: int, function: str, name: str, event: Mapping[str, Any] | None) -> None:
        self.file, self.line, self.function, self.name = file, line, function, name
        self.ended = event is not None
        if event is not None:
            self.status = event["status"]
            self.seconds = event["times"]["capture"] + event["times"]["compile"]
            self.kernel_count, self.extern_count = event["kernels"], event["externs"]
            self.break_reason = event["break"]["name"] if event["break"] else None

    def __repr__(self) -> str:
        what = f", {self.status}, {self.seconds * 1e3:.1f} ms" if self.ended else ""
        return f"<{self.function} at {self.file}:{self.line}{what}>"


_callbacks: list["Callbacks"] = []
_lock = threading.Lock()


class Callbacks:
    """What `on_compile` gives; remove(), or leaving it as a context, ends it."""

    def __init__(
        self, start: Callable[[Compilation], object] | None, end: Callable[[Compilation], object] | None
    ) -> None:
        self.start, self.end = start, end

    def remove(self) -> None:
        with _lock:
            if self in _callbacks:
                _callbacks.remove(self)
            if not _callbacks:
                _C.set_listener(None)

    def __enter__(self) -> "Callbacks":
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def on_compile(
    *,
    start: Callable[[Compilation], object] | None = None,
    end: Callable[[Compilation], object] | None = None,
) -> Callbacks:
    """Calls `start` before each compilation of this process and `end` after it, on the thread that compiles, with a Compilation. An exception
    of theirs is told to sys.unraisablehook, and changes nothing."""
    for name, f in (("start", start), ("end", end)):
        if f is not None and not callable(f):
            raise TypeError(f"braze.on_compile: {name} takes a callable on a Compilation, not {f!r}")
    made = Callbacks(start, end)
    with _lock:
        _callbacks.append(made)
        _C.set_listener(_tell)
    return made


def _tell(file, line, function, name, event):
    told = Compilation(file, line, function, name, event)
    for c in tuple(_callbacks):
        f = c.end if told.ended else c.start
        if f is not None:
            f(told)


def allow_in_graph(fn: Any) -> Any:
    """As torch.compiler.allow_in_graph: a callable implemented in C, which capture cannot see into, is called on fake tensors and recorded in
    the graph; so it must be made of PyTorch's operators, and depend on nothing but its arguments. Functions in Python are
    captured like all others, and need no such word. Returns `fn`; of a list or tuple each is meant."""
    if isinstance(fn, (list, tuple)):
        return type(fn)(map(allow_in_graph, fn))
    if not callable(fn):
        raise TypeError(f"braze.allow_in_graph takes a callable, or a list or tuple of them, not {fn!r}")
    if not isinstance(fn, (types.FunctionType, types.MethodType)):
        _C.allow_in_graph(fn)
    return fn


def substitute_in_graph(
    original: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[_F], _F]:
    """As torch.compiler.substitute_in_graph: a decorator; capture evaluates the function in place of `original`, which is called as ever
    elsewhere. can_constant_fold_through is taken and does nothing.

    TypeError where both have signatures that differ, if not skip_signature_check."""
    if not callable(original):
        raise TypeError(f"braze.substitute_in_graph takes a callable to substitute, not {original!r}")

    def register(fn: _F) -> _F:
        if not isinstance(fn, types.FunctionType):
            raise TypeError(f"braze.substitute_in_graph decorates a function in Python, not {fn!r}")
        if not skip_signature_check:
            theirs, ours = _parameters(original), _parameters(fn)
            if theirs is not None and theirs != ours:
                raise TypeError(
                    f"braze.substitute_in_graph: {original!r} takes ({theirs}), but its substitute ({ours})"
                )
        _C.substitute(original, fn)
        return fn

    return register


def _parameters(fn):
    try:
        return ", ".join(
            str(p.replace(annotation=p.empty, kind=_kind(p))) for p in inspect.signature(fn).parameters.values()
        )
    except (TypeError, ValueError):  # functions in C need have none
        return None


def _kind(p):  # functions in C have names for arguments that are taken by position alone
    return p.POSITIONAL_OR_KEYWORD if p.kind is p.POSITIONAL_ONLY else p.kind


def assume_constant_result(fn: _F) -> _F:
    """As torch.compiler.assume_constant_result: called while code is captured, on constants, `fn` is run once, and what it returned is
    part of the compiled code. Nobody checks that it would return the same later. Returns `fn`."""
    if not isinstance(fn, types.FunctionType):
        raise TypeError(f"braze.assume_constant_result takes a function in Python, not {fn!r}")
    fn._dynamo_marked_constant = True
    return fn


def mark_static_address(tensor: torch.Tensor) -> None:
    """As torch._dynamo.mark_static_address: says that the tensor stays where it is, as a cache does. Braze finds out by itself where the
    arguments of a CUDA Graph lie, so nothing depends on it."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"braze.mark_static_address takes a tensor, not {tensor!r}")
    tensor._dynamo_static_input_type = "unguarded"
