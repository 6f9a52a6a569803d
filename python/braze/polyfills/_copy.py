"""The module copy."""

from copy import copy as _copy, deepcopy as _deepcopy
from copyreg import _slotnames, dispatch_table as _dispatch_table

from torch import Tensor as _Tensor, TypedStorage, UntypedStorage

_copied = "braze copies"  # key in the memo: objects are told apart by identity, without the numbers that id() gives
_itself = (
    type(None),
    int,
    float,
    bool,
    complex,
    bytes,
    str,
    range,
    type,
    type(Ellipsis),
    type(NotImplemented),
    property,
)
_storages = (UntypedStorage, TypedStorage)
_functions = (type(_deepcopy), type(len))


def has_attributes(tensor):
    """Whether the program put attributes of its own on it."""
    return bool(tensor.__dict__)


def deepcopy(x, memo=None, _nil=None):
    cls = type(x)
    if cls in _itself or cls in _functions or issubclass(cls, type):
        return x
    if memo is None:
        memo = {}
    seen = memo.setdefault(_copied, [])
    for before, copy in seen:
        if before is x:
            return copy
    if cls is list:
        y = []
        seen.append((x, y))
        for v in x:
            y.append(deepcopy(v, memo))
        return y
    if cls is tuple:
        y = tuple([deepcopy(v, memo) for v in x])
        for v, w in zip(x, y):
            if v is not w:
                seen.append((x, y))
                return y
        return x
    if cls is dict:
        y = {}
        seen.append((x, y))
        for k, v in x.items():
            y[deepcopy(k, memo)] = deepcopy(v, memo)
        return y
    if cls is set:
        y = set()
        seen.append((x, y))
        y.update([deepcopy(v, memo) for v in x])
        return y
    if cls is frozenset:
        y = frozenset([deepcopy(v, memo) for v in x])
        seen.append((x, y))
        return y
    if (
        cls is _Tensor
        and x.is_leaf
        and x.grad is None
        and x._base is None
        and not has_attributes(x)
        and "torch" not in memo
    ):
        y = x.detach().clone().requires_grad_(x.requires_grad)
        if y.stride() == x.stride():  # else its storage has gaps, which a copy has too
            seen.append((x, y))
            return y
    if cls is _Tensor or issubclass(cls, _storages):
        return _copy_as_c_does(x, memo)  # copies its storage, once for all that lie on it
    if hasattr(cls, "__deepcopy__"):
        y = x.__deepcopy__(memo)
        if y is not x:
            seen.append((x, y))
        return y
    if cls in _dispatch_table:
        return _copy_as_c_does(x, memo)
    plain = (
        cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
        and cls.__new__ is object.__new__
    )
    plain = (
        plain
        and not hasattr(cls, "__getnewargs__")
        and not hasattr(cls, "__getnewargs_ex__")
        and not hasattr(cls, "__slots__")
    )
    if plain and cls.__getattribute__ is not object.__getattribute__:
        # What the object itself is asked for, it answers by code of its own.
        plain = (
            getattr(x, "__deepcopy__", None) is None
            and getattr(x, "__reduce_ex__", None) is not None
            and getattr(x, "__getstate__", None) is not None
        )
    if not plain or not hasattr(x, "__dict__"):
        return _copy_as_c_does(x, memo)
    y = object.__new__(cls)
    seen.append((x, y))
    own = getattr(cls, "__getstate__", None)
    if own is None or own is getattr(object, "__getstate__", None):
        _slotnames(cls)
        state = x.__dict__ or None
    else:
        state = x.__getstate__()
    if state is not None:
        state = deepcopy(state, memo)
        if hasattr(y, "__setstate__"):
            y.__setstate__(state)
        else:
            for k, v in state.items():
                y.__dict__[k] = v
    return y


def copy(x):
    cls = type(x)
    if cls in _itself or cls in _functions or cls is tuple or cls is frozenset or cls is slice or issubclass(cls, type):
        return x
    if cls is list or cls is dict or cls is set:
        return x.copy()
    if hasattr(cls, "__copy__"):
        return cls.__copy__(x)
    if cls in _dispatch_table:
        return _shallow_as_c_does(x)
    plain = (
        cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
        and cls.__new__ is object.__new__
    )
    plain = plain and cls.__getattribute__ is object.__getattribute__
    plain = (
        plain
        and not hasattr(cls, "__getnewargs__")
        and not hasattr(cls, "__getnewargs_ex__")
        and not hasattr(cls, "__slots__")
    )
    own = getattr(cls, "__getstate__", None)
    plain = plain and (own is None or own is getattr(object, "__getstate__", None)) and not hasattr(cls, "__setstate__")
    if not plain or not hasattr(x, "__dict__"):
        return _shallow_as_c_does(x)
    _slotnames(cls)
    y = object.__new__(cls)
    for k, v in x.__dict__.items():
        y.__dict__[k] = v
    return y


def _shallow_as_c_does(x):
    return _copy(x)


_shallow_as_c_does._braze_disable = True


def _copy_as_c_does(x, memo):
    # What the C parts of copying ask for only a real object has: capture ends here, and the rest of the copy runs uncompiled.
    for before, copy in memo.get(_copied, ()):
        memo[id(before)] = copy
        if type(before) is _Tensor:
            memo.setdefault("torch", {})[before.untyped_storage()._cdata] = copy.untyped_storage()
    return _deepcopy(x, memo)


_copy_as_c_does._braze_disable = True
