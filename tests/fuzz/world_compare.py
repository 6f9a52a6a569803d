"""Whether two worlds that began alike are alike: values, types, strides, who is who, and which tensors share memory."""

import collections
import contextvars
import functools
import inspect
import re
import struct
import types
import weakref

import numpy as np
import torch

ATOMS = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    type(Ellipsis),
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
SHARED = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.CodeType,
)


def is_atom(cls):
    return any(cls is c for c in ATOMS)  # a metaclass may have its own ==


class Differ(Exception):
    pass


def is_a(o, classes):
    """By its class itself, whatever it says of its __class__."""
    return issubclass(type(o), classes)


WORDS = (
    (r"0x[0-9a-f]+", "0x"),
    (r"property '\w+' of", "property of"),  # the property's own name, which Python does not show
    # What PyTorch says of sizes that do not fit depends on the operator's kernel; of arguments, on the object that stands for them.
    (r"(Attempting to broadcast a dimension|The size of tensor a|The expanded size of the tensor).*", "sizes"),
    (r"must be (\w+), not .*", r"must be \1"),
    (r"grad_fn=<\w+>", "grad_fn"),  # of compiled code's own backward
    (
        r"unsupported operand type\(s\) for (\S+): 'Tensor' and .*",
        r"unsupported \1",
    ),  # containers stand for those of their subclasses
    (r"(maximum recursion depth exceeded).*", r"\1"),  # where it ends depends on the frames of the caller
    (r"not supported between instances of .*", "not supported"),
    (r"(iteration over a 0-d array|'numpy\.\w+' object is not iterable)", "not iterable"),
)


def plain_text(s):
    """Words of an error as far as they are compared."""
    for pattern, words in WORDS:
        s = re.sub(pattern, words, s)
    return s


FRACTION = r"-?\d+\.\d+(?:e[-+]\d+)?"


def alike_but_rounding(a, b):
    """Texts of results: what is computed as one kernel is rounded in other places."""
    ours, theirs = ([float(n) for n in re.findall(FRACTION, text)] for text in (a, b))
    if re.sub(FRACTION, "#", a) != re.sub(FRACTION, "#", b):
        return False
    return all(abs(x - y) <= 1e-6 * max(1, abs(x)) for x, y in zip(ours, theirs, strict=True))


def twins(a, b):
    """None, or what differs between a and b, which hang off two worlds."""
    try:
        Match().same(a, b, "")
    except Differ as e:
        return str(e)
    return None


class Match:
    def __init__(self):
        self.of, self.back, self.memory, self.memory_back, self.kept, self.tuples = {}, {}, {}, {}, [], set()

    def differ(self, where, a, b):
        show = lambda o: plain_text(repr(o))[:200] if isinstance(o, (*ATOMS, tuple, torch.Tensor)) else type(o).__name__
        raise Differ(f"{where or 'it'}: {show(b)}, expected {show(a)}")

    def pair(self, a, b, where):
        """False: met before."""
        if id(a) in self.of or id(b) in self.back:
            if self.of.get(id(a)) is not b or self.back.get(id(b)) is not a:
                raise Differ(f"{where}: another object ({type(a).__name__})")
            return False
        self.of[id(a)], self.back[id(b)] = b, a
        self.kept.append((a, b))
        return True

    def same(self, a, b, where):
        ta, tb = type(a), type(b)
        if a is b and (is_a(a, ATOMS) or is_a(a, SHARED) or is_a(a, types.ModuleType)):
            return
        if ta is not tb:
            if not (getattr(ta, "__module__", "") == getattr(tb, "__module__", "") == "world"):
                self.differ(where, a, b)
            self.same(ta, tb, where + ".__class__")
        if ta is float:
            if (
                struct.pack("d", a) != struct.pack("d", b)
                and not abs(a - b) <= 1e-6 * max(1, abs(a))
                or (a == 0 and struct.pack("d", a) != struct.pack("d", b))
            ):
                self.differ(where, a, b)
            return
        if ta is str:
            if plain_text(a) != plain_text(b) and not alike_but_rounding(a, b):
                self.differ(where, a, b)
            return
        if is_atom(ta):
            if a != b:
                self.differ(where, a, b)
            return
        if is_a(a, tuple):
            if (id(a), id(b)) in self.tuples:
                return
            self.tuples.add((id(a), id(b)))
            self.kept.append((a, b))
            self.sequence(a, b, where)
            return self.fields(a, b, where)
        if is_a(a, types.MethodType):
            self.same(a.__func__, b.__func__, where + ".__func__")
            return self.same(a.__self__, b.__self__, where + ".__self__")
        if is_a(a, np.generic):
            if a.tobytes() != b.tobytes():
                self.differ(where, str(a), str(b))
            return
        if not self.pair(a, b, where):
            return
        if is_a(a, torch.Tensor):
            return self.tensor(a, b, where)
        if is_a(a, type):
            if a is b:
                return
            if a.__qualname__ != b.__qualname__:
                self.differ(where, a, b)
            self.sequence(a.__mro__, b.__mro__, where + ".__mro__")
            return self.names(
                vars(a),
                vars(b),
                where,
                skip=("__dict__", "__weakref__", "__doc__", "_abc_impl", "__mro__", "__slotnames__"),
            )
        if is_a(a, types.ModuleType):
            return self.names(vars(a), vars(b), where, skip=("__builtins__",))
        if is_a(a, types.FunctionType):
            names = ("__name__", "__defaults__", "__kwdefaults__", "__dict__", "__closure__")
            for name in (
                names if a.__globals__.get("__name__") == "world" else names[:4]
            ):  # what libraries keep between calls is theirs
                self.same(getattr(a, name), getattr(b, name), f"{where}.{name}")
            return
        if is_a(a, types.CellType):
            return self.optional(a, b, "cell_contents", where)
        if is_a(a, (property, staticmethod, classmethod, functools.cached_property)):
            for name in ("fget", "fset", "__func__", "func"):
                if hasattr(a, name):
                    self.same(getattr(a, name), getattr(b, name), f"{where}.{name}")
            return
        if is_a(a, functools.partial):
            for name in ("func", "args", "keywords", "__dict__"):
                self.same(getattr(a, name), getattr(b, name), f"{where}.{name}")
            return
        if is_a(a, contextvars.ContextVar):
            return self.same(a.get(None), b.get(None), where + ".get()")
        if is_a(a, weakref.ref):
            return self.same(a(), b(), where + "()")
        if is_a(a, types.MappingProxyType):
            a, b = dict(a), dict(b)
        if is_a(a, dict):
            self.names(a, b, where)
            if is_a(a, collections.defaultdict):
                self.same(a.default_factory, b.default_factory, where + ".default_factory")
        elif is_a(a, (list, collections.deque)):
            self.sequence(
                list.__iter__(a) if is_a(a, list) else a, list.__iter__(b) if isinstance(b, list) else b, where
            )
        elif is_a(a, (set, frozenset)):
            key = lambda o: (type(o).__name__, plain_text(repr(o)))
            self.sequence(
                sorted(set.__iter__(a) if is_a(a, set) else a, key=key),
                sorted(set.__iter__(b) if isinstance(b, set) else b, key=key),
                where,
            )
        elif is_a(a, np.ndarray):
            if (
                a.shape != b.shape
                or a.dtype != b.dtype
                or a.strides != b.strides
                or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
            ):
                self.differ(where, str(a), str(b))
            return
        elif is_a(a, BaseException):
            for name in ("args", "__cause__", "__context__", "__suppress_context__"):
                self.same(getattr(a, name), getattr(b, name), f"{where}.{name}")
        elif is_a(a, int | float | str):
            raw = int if is_a(a, int) else float if is_a(a, float) else str
            if not raw.__eq__(a, b):
                self.differ(where, str(a), str(b))
        elif is_a(a, types.GeneratorType):
            for name in ("gi_running", "gi_suspended", "__name__"):
                self.same(getattr(a, name), getattr(b, name), f"{where}.{name}")
            if (a.gi_frame is None) != (b.gi_frame is None):
                raise Differ(f"{where}: {inspect.getgeneratorstate(b)}, expected {inspect.getgeneratorstate(a)}")
            if a.gi_frame is not None:
                self.same(a.gi_frame.f_lasti, b.gi_frame.f_lasti, where + ".f_lasti")
                self.same(a.gi_frame.f_locals, b.gi_frame.f_locals, where + ".f_locals")
            return
        elif is_a(a, functools._lru_cache_wrapper):
            return self.same(getattr(a, "__wrapped__", None), getattr(b, "__wrapped__", None), where + ".__wrapped__")
        self.fields(a, b, where)

    def fields(self, a, b, where):
        own_a, own_b = object_dict(a), object_dict(b)
        if own_a is not None:
            self.names(own_a, own_b or {}, where + ".__dict__")
        for cls in type(a).__mro__:
            for name, field in vars(cls).items():
                if isinstance(field, types.MemberDescriptorType) and cls.__module__ == "world":
                    read = lambda o, c: type(field).__get__(vars(c)[name], o)
                    mine = next(c for c in type(b).__mro__ if c.__qualname__ == cls.__qualname__)
                    values = []
                    for o, c in ((a, cls), (b, mine)):
                        try:
                            values.append((True, read(o, c)))
                        except AttributeError:
                            values.append((False, None))
                    self.same(*values, f"{where}.{name}")

    def optional(self, a, b, name, where):
        values = []
        for o in (a, b):
            try:
                values.append((True, getattr(o, name)))
            except ValueError:
                values.append((False, None))
        self.same(*values, f"{where}.{name}")

    def sequence(self, a, b, where):
        a, b = list(tuple.__iter__(a) if is_a(a, tuple) else a), list(tuple.__iter__(b) if isinstance(b, tuple) else b)
        if len(a) != len(b):
            raise Differ(f"{where}: {len(b)} items, expected {len(a)}")
        for i, (x, y) in enumerate(zip(a, b)):
            self.same(x, y, f"{where}[{i}]")

    def names(self, a, b, where, skip=()):
        """Keys in their order, and values."""
        pairs = lambda d: list(
            collections.OrderedDict.items(d)
            if isinstance(d, collections.OrderedDict)
            else dict.items(d)
            if isinstance(d, dict)
            else d.items()
        )
        kept = lambda d: [
            (k, v) for k, v in pairs(d) if not (type(k) is str and k in (*skip, "_clear_cache"))
        ]  # that of functools.singledispatch
        a, b = kept(a), kept(b)
        if len(a) != len(b):
            raise Differ(f"{where}: keys {[k for k, _ in b]}, expected {[k for k, _ in a]}"[:300])
        for (x, p), (y, q) in zip(a, b):
            if not where.endswith("hooks']"):  # numbered in the order of their making
                if is_atom(type(x)) and not (type(x) is type(y) and x == y):
                    raise Differ(f"{where}: keys {[k for k, _ in b]}, expected {[k for k, _ in a]}"[:300])
                self.same(x, y, f"key of {where}")
            self.same(p, q, f"{where}[{x if is_atom(type(x)) else '...'!r}]")

    def tensor(self, a, b, where):
        facts = lambda t: (
            tuple(t.shape),
            t.dtype,
            t.device.type,
            t.requires_grad,
            t.is_leaf,
            t.storage_offset(),
            t.is_inference(),
        )
        strides = lambda t: [s for s, n in zip(t.stride(), t.shape) if n > 1]
        if facts(a) != facts(b) or (a.numel() and strides(a) != strides(b)):
            raise Differ(f"{where}: a tensor of {(*facts(b), b.stride())}, expected {(*facts(a), a.stride())}")
        if a.device.type == "cpu":
            x, y = a.detach().double(), b.detach().double()
            tol = {torch.bfloat16: 2**-5, torch.float16: 2**-8}.get(a.dtype, 1e-5)  # a fused chain is rounded once
            if not torch.allclose(x, y, rtol=tol, atol=tol, equal_nan=True):
                raise Differ(f"{where}: {b.tolist()}, expected {a.tolist()}"[:400])
            if a.numel():
                p, q = a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()
                if self.memory.setdefault(p, q) != q or self.memory_back.setdefault(q, p) != p:
                    raise Differ(f"{where}: shares memory with others than expected")
        if a.is_leaf:
            self.same(a.grad, b.grad, where + ".grad")
        self.same(a.__dict__, b.__dict__, where + ".__dict__")


def object_dict(o):
    try:
        d = object.__getattribute__(o, "__dict__")
    except AttributeError:
        return None
    return d if is_a(d, dict) else None
