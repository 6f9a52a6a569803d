"""The public functions: arguments checked here, the work done in braze._C."""

from __future__ import annotations

import abc
import copy
import functools
import importlib.util
import os
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import torch

from . import _C

_F = TypeVar("_F", bound=Callable[..., Any])
_Backend = str | Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]]

BACKENDS = ("braze", "eager")
MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Unsupported(RuntimeError):
    """What `fullgraph=True` raises: code that can't be compiled as one graph, with its line, the reason and a remedy."""


@overload
def compile(
    f: _F,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: _Backend = "braze",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
) -> _F: ...


@overload
def compile(
    f: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: _Backend = "braze",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
) -> Callable[[_F], _F]: ...


def compile(
    f: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: _Backend = "braze",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
) -> Any:
    """Returns `f` compiled: a function or method as a native callable, a module as one of the same class on the same state.

    Also a decorator, with or without arguments. Code is captured and compiled at the first call and whenever something that it
    read has changed; what can't be captured runs in Python, and capture goes on after it.

    fullgraph: raise `braze.Unsupported` instead of running any part in Python, in every call and in the backward; an internal failure raises
        RuntimeError. Without it, what runs uncompiled for a reason of the compiler is told to `logging.getLogger("braze")`, once.
    dynamic: None: sizes and numbers are compiled as they come; one that had another value before stays open as far as it is only
        computed with, and the code serves all its values; a branch on it compiles once for each way. True: sizes and integers stay open from the start. False: never, each new
        size compiles again.
    backend: "braze"; "eager" (runs the captured graph unchanged); a callable on (torch.fx.GraphModule, example_inputs) that
        returns a callable on the inputs; or the name of a backend known to torch.compile.
    mode: as in torch.compile. "reduce-overhead" and "max-autotune" replay CUDA Graphs on a GPU; "max-autotune" and
        "max-autotune-no-cudagraphs" time kernels of templates for matrix products against the library's, at the first call,
        on the CPU also mappings of loops, and keep the choices on disk. "lite" changes least: loops are not
        fused and random numbers are PyTorch's, as with the options {"fuse": False, "rng": "eager"}.
    options: a dict, e.g. {"fuse": False}; a wrong name raises with the accepted ones. "memory_budget" (0 to 1): the share of what
        the backward would keep by default that may be kept, the rest is computed again. "rng": "philox" (kernels draw random
        numbers from seeds that PyTorch's default generator gives) or "eager" (PyTorch's own numbers). "codegen": "triton" makes a
        GPU's kernels with the installed triton package (ImportError where there is a GPU and no such package); the CPU's stay as
        they are. "codegen": "cpp" prints the CPU's kernels as C++ for the system's compiler (CXX, c++, g++ or clang++; RuntimeError without one). "guard_speed": time each region beside PyTorch's calls in a few of its calls, and run one that is slower as those. "autotune_seconds": most seconds that the first call of a graph spends on timing kernels for its products, and on a CPU its loops, convolutions and their layout.
    disable: returns `f` as it is. So does one of the variables BRAZE_DISABLE, TORCH_COMPILE_DISABLE and TORCHDYNAMO_DISABLE, set to 1
        when this is called.
    name: what profiles, and callbacks of on_compile, call it.
    recompile_limit: at most so many versions of code that begins at one place; calls that would need another run uncompiled, with a
        warning, or raise RuntimeError with fullgraph=True. None: no limit; the 64 used last are kept.
    """
    if not _is_bool(fullgraph):
        raise TypeError(f"fullgraph: a bool is expected, not {fullgraph!r}")
    if dynamic is not None and not _is_bool(dynamic):
        raise TypeError(f"dynamic: None or a bool is expected, not {dynamic!r}")
    if not _is_bool(disable):
        raise TypeError(f"disable: a bool is expected, not {disable!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name: a str is expected, not {name!r}")
    if name is not None and ("\0" in name or not _is_unicode(name)):
        raise ValueError(f"name: text that UTF-8 can say, without null characters, is expected, not {name!r}")
    if recompile_limit is not None and (type(recompile_limit) is not int or not 1 <= recompile_limit < 2**31):
        raise ValueError(f"recompile_limit: None or an int from 1 to {2**31 - 1} is expected, not {recompile_limit!r}")
    options = with_mode(options, mode)
    if (
        isinstance(options, dict)
        and options.get("codegen") == "triton"
        and torch.cuda.is_available()
        and importlib.util.find_spec("triton") is None
    ):
        raise ImportError("options={'codegen': 'triton'} needs the package triton: pip install triton")
    if isinstance(options, dict) and options.get("codegen") == "cpp" and not _C.has_cpp_compiler():
        raise RuntimeError(
            "options={'codegen': 'cpp'} needs a C++ compiler: install g++ or clang++, or name one in the variable CXX"
        )
    settings = (_backend(backend), bool(fullgraph), None if dynamic is None else bool(dynamic), options)
    settings += (recompile_limit or 0, name or "")
    _C.check_options(options)
    if disable or _switched_off():
        return (lambda g: g) if f is None else f
    if f is None:
        return lambda g: _compile(g, *settings)
    return _compile(f, *settings)


def _is_bool(value):
    return isinstance(value, int) and value in (0, 1)


def _is_unicode(text):
    return all(not 0xD800 <= ord(c) < 0xE000 for c in text)


def with_mode(options, mode):
    """The options that a mode stands for, and those given, which win."""
    if mode is not None and mode not in MODES:
        raise ValueError(f"no mode {mode!r}; accepted: {', '.join(MODES)}")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options: a dict is expected, not {options!r}")
    meant = {"fuse": False, "rng": "eager"} if mode == "lite" else {}
    if mode in ("reduce-overhead", "max-autotune"):
        meant["cuda_graphs"] = True
    if mode in ("max-autotune", "max-autotune-no-cudagraphs"):
        meant["autotune_seconds"] = 10
    return {**meant, **(options or {})} if meant else options


def _switched_off():
    torchs = (os.environ.get("TORCH_COMPILE_DISABLE"), os.environ.get("TORCHDYNAMO_DISABLE"))
    return "1" in (os.environ.get("BRAZE_DISABLE"), *torchs)


def _compile(f, backend, fullgraph, dynamic, options, recompile_limit, name):
    make = lambda function, bound=None, replaces=False: _C.compile(
        function, bound, replaces, backend, fullgraph, dynamic, options, recompile_limit, name
    )
    if isinstance(f, _C.Compiled):
        f = f.__wrapped__
    if isinstance(f, torch.nn.Module):
        return _compile_module(getattr(f, "_orig_mod", f) if hasattr(type(f), "_braze_make") else f, make)
    if isinstance(f, types.FunctionType):
        made = functools.update_wrapper(make(f), f)
        made._braze_make = make
        return made
    if isinstance(f, types.MethodType) and isinstance(f.__func__, types.FunctionType):
        made = functools.update_wrapper(make(f.__func__, f.__self__), f)
        made._braze_make = lambda function: make(function, f.__self__)
        return made
    if isinstance(f, type) and isinstance(call := getattr(f, "__call__", None), types.FunctionType):
        f.__call__ = functools.update_wrapper(make(call), call)  # what its instances run when they are called
        return f
    if isinstance(f, type) or not callable(f):
        raise TypeError(
            f"braze.compile takes a function, a method, a module, a callable object or a class of such, not {f!r}"
        )
    call = getattr(type(f), "__call__", None)
    if isinstance(call, types.FunctionType):
        return make(call, f)

    def through(*args, **kwargs):
        return f(*args, **kwargs)

    return functools.update_wrapper(make(through), f, updated=())


class _Unannounced:
    __slots__ = ()

    def __init_subclass__(cls, **arguments):
        pass


def _compile_module(module, make):
    """An object of a subclass of the module's class, on the module's own __dict__, whose call is compiled."""
    call = type(module).__call__
    while isinstance(call, _C.Compiled):
        call = call.__wrapped__
    if not isinstance(call, types.FunctionType):
        raise TypeError(f"{type(module).__name__}.__call__ is not a Python function")
    body = {
        "__call__": make(call, module, True),
        "__doc__": type(module).__doc__,
        "__module__": type(module).__module__,
        "__qualname__": type(module).__qualname__,
        "__slots__": (),
        "_braze_make": staticmethod(make),
        "_orig_mod": property(lambda self: module),
        # Copies and pickles are of the module: compiled code does not travel.
        "__reduce_ex__": lambda self, protocol: (_same, (module,)),
        "__copy__": lambda self: _compile_module(copy.copy(module), make),
        "__deepcopy__": lambda self, memo: _compile_module(copy.deepcopy(module, memo), make),
    }
    cls = type(module)
    # Not a class of the program's: what it does when one is made (a metaclass, __init_subclass__) is not done for it.
    made = type.__new__(type(cls), cls.__name__, (_Unannounced, cls), body)
    if isinstance(made, abc.ABCMeta):
        abc._abc_init(made)
    compiled = object.__new__(made)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


def compile_module_(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """Compiles calls of the module in place, as `module.compile(...)` does with torch.compile, and returns it. It stays the object that it is:
    its class, names of its state_dict, parameters and hooks. Options are those of `compile`; disable=True makes it as it was. Copies
    and pickles of the module are of the uncompiled one."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"braze.compile_module_ takes a torch.nn.Module, not {module!r}; braze.compile takes functions")
    if hasattr(type(module), "_braze_make"):
        raise TypeError(
            "braze.compile_module_ takes a module that is not compiled; this one is what braze.compile gave"
        )
    compiled = compile(module._call_impl, **options)
    module._compiled_call_impl = compiled if isinstance(compiled, _C.Compiled) else None
    return module


def _same(module):
    return module


def _backend(backend):
    if backend == "braze":
        return None
    if backend == "eager":
        return _eager
    if callable(backend):
        return backend
    if isinstance(backend, str):
        # Names that the user may know from torch.compile; PyTorch's registry is loaded only for them.
        from torch._dynamo.backends import registry

        names = registry.list_backends(exclude_tags=())
        if backend in names:
            return registry.lookup_backend(backend)
        raise ValueError(
            f"no backend {backend!r}; accepted: {', '.join(dict.fromkeys((*BACKENDS, *names)))}, or a callable"
        )
    raise TypeError(f"backend: a name or a callable on (GraphModule, example_inputs) is expected, not {backend!r}")


def _eager(gm, example_inputs, **ignored):  # torch.compile's takes mode and options, too
    return gm.forward


def reset() -> None:
    """Forgets all compiled code of this process; the next calls compile again."""
    _C.reset()


def graph_break() -> None:
    """Ends the graph here: what comes next is captured anew. Does nothing in code that runs uncompiled."""


def is_compiling() -> bool:
    """True while code is being captured. `torch.compiler.is_compiling()` says the same."""
    return _C.capturing()


_C.set_markers(graph_break, is_compiling, Unsupported)


class _Disabled:
    def __init__(self, recursive: bool = True, reason: str | None = None) -> None:
        self.recursive, self.reason = recursive, reason

    def __enter__(self) -> None:
        self.before = _C.set_disabled(True)

    def __exit__(self, *exc: object) -> None:
        _C.set_disabled(self.before)

    def __call__(self, fn: _F) -> _F:
        return disable(fn, self.recursive, reason=self.reason)


@overload
def disable(fn: _F, recursive: bool = True, *, reason: str | None = None) -> _F: ...


@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> _Disabled: ...


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """As a decorator: the function is never captured and runs as it is. As a context, `with braze.disable():`, compiled
    callables that are called inside run as they are. A class is marked, so that compiled code does not capture how its objects are made;
    of a module a twin on the same parameters is returned, whose forward is never captured.

    recursive: whether compiled callables that the function calls run as they are, too. reason: told with the graph break that a
        call of it from compiled code is."""
    if not _is_bool(recursive):
        raise TypeError(f"recursive: a bool is expected, not {recursive!r}")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"reason: a str is expected, not {reason!r}")
    if fn is None:
        return _Disabled(recursive, reason)
    if not callable(fn):
        raise TypeError(f"braze.disable takes a callable, not {fn!r}")
    if isinstance(fn, type):
        fn._braze_disable = True
        return fn
    if isinstance(fn, torch.nn.Module):
        module = copy.copy(fn)
        module.forward = disable(fn.forward, recursive, reason=reason)
        return module

    @functools.wraps(fn)
    def run(*args, **kwargs):
        if not recursive:
            return fn(*args, **kwargs)
        before = _C.set_disabled(True)
        try:
            return fn(*args, **kwargs)
        finally:
            _C.set_disabled(before)

    run._braze_disable = True
    if reason is not None:
        run._torchdynamo_disable_msg = reason
    return run
