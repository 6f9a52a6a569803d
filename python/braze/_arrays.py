"""Arrays of NumPy in compiled code: the functions of torch._numpy that stand for NumPy's, and what NumPy itself gives for them.

An operation is recorded as a call on tensors. Before it is, NumPy carries it out on arrays of the same types and sizes: what that
gives (array or scalar, its type, its shape, whether it shares memory) is what the recorded result has to be, or else the code is
not compiled there. So NumPy of this version decides about types, and only the values are torch._numpy's."""

import _operator  # the functions themselves: a program may replace those of module operator
import warnings

import numpy as np
import torch
import torch._numpy as tnp


class Mismatch(Exception):
    """torch._numpy and NumPy differ, or NumPy does not say what the result is."""


class Operation:
    """A function of torch._numpy on tensors: they stand for arrays, and those that it gives come back as tensors."""

    def __init__(self, name, of_numpy, function):
        self.__name__ = self.__qualname__ = f"numpy_{name}"
        self.of_method = name
        self.of_numpy, self.function = of_numpy, function

    def __call__(self, *args, **kwargs):
        return _map(self.function(*_map(args, _to_array), **_map(kwargs, _to_array)), _to_tensor)

    def __repr__(self):
        return self.__name__


def _map(x, leaf):
    if type(x) in (tuple, list):
        return type(x)(_map(v, leaf) for v in x)
    if type(x) is dict:
        return {k: _map(v, leaf) for k, v in x.items()}
    if type(x) is slice:
        return slice(_map(x.start, leaf), _map(x.stop, leaf), _map(x.step, leaf))
    return leaf(x)


def _to_array(x):
    if isinstance(x, torch.Tensor):
        return tnp.ndarray(x)
    if isinstance(x, np.generic):
        return tnp.ndarray(torch.tensor(x.item(), dtype=torch.as_tensor(np.empty(0, x.dtype)).dtype))
    return x


def _to_tensor(x):
    return x.tensor if isinstance(x, tnp.ndarray) else x


def _parts(x):
    """Sequences that hold arrays, as one array: the recorder cannot take tensors for numbers."""
    if not isinstance(x, (list, tuple)):
        return x
    parts = [_parts(v) for v in x]
    return tnp.stack(parts) if any(isinstance(v, tnp.ndarray) for v in parts) else x


def _array(object, *args, **kwargs):
    return tnp.array(_parts(object), *args, **kwargs)


def _asarray(a, *args, **kwargs):
    return tnp.asarray(_parts(a), *args, **kwargs)


def _put_along_axis(arr, indices, values, axis):
    """torch._numpy's does not broadcast the indices."""
    if axis is not None and isinstance(indices, tnp.ndarray) and indices.ndim == arr.ndim:
        shape = list(arr.shape)
        shape[axis] = indices.shape[axis]
        indices = tnp.broadcast_to(indices, shape)
    return tnp.put_along_axis(arr, indices, values, axis)


def _of_floats(fn):
    """A function that takes whole numbers for floats, as NumPy does."""

    def floats(x):
        if isinstance(x, tnp.ndarray):
            return (
                x if x.tensor.is_floating_point() or x.tensor.is_complex() else tnp.ndarray(x.tensor.to(torch.float64))
            )
        return float(x) if isinstance(x, int) else x

    def call(a, b, *args, **kwargs):
        whole = all(isinstance(x, int) or (isinstance(x, tnp.ndarray) and floats(x) is not x) for x in (a, b))
        return fn(floats(a), floats(b), *args, **kwargs) if whole else fn(a, b, *args, **kwargs)

    return call


def _by_zero(fn):
    """A division of whole numbers, which gives zero where NumPy divides by zero."""

    def call(a, b, *args, **kwargs):
        whole = isinstance(b, tnp.ndarray) and all(
            isinstance(x, int) or (isinstance(x, tnp.ndarray) and _whole(x.tensor)) for x in (a, b)
        )
        if not whole or args or kwargs:
            return fn(a, b, *args, **kwargs)
        zero = b.tensor == 0
        made = fn(a, tnp.ndarray(torch.where(zero, torch.ones_like(b.tensor), b.tensor)))
        parts = [tnp.ndarray(r.tensor.masked_fill(zero, 0)) for r in (made if isinstance(made, tuple) else (made,))]
        return tuple(parts) if isinstance(made, tuple) else parts[0]

    return call


def _whole(tensor):
    return not tensor.is_floating_point() and not tensor.is_complex()


DIVISIONS = ("floordiv", "floor_divide", "mod", "remainder", "fmod", "divmod")
DIFFERENT = ("cbrt", "fix", "modf", "from_dlpack")  # torch._numpy's gives other values
NOT_OF_BOOLS = ("numpy_ceil", "numpy_floor", "numpy_trunc", "numpy_rint")  # PyTorch has none, which only the run finds
OWN = {"array": _array, "asarray": _asarray, "put_along_axis": _put_along_axis}
OF_FLOATS = ("truediv", "divide", "true_divide", "arctan2", "hypot", "logaddexp", "logaddexp2")


# ---- which operation ----

_functions, _methods, _operators = {}, {}, {}


def _fill():
    for ours, theirs, prefix in ((np, tnp, ""), (np.linalg, tnp.linalg, "linalg_"), (np.fft, tnp.fft, "fft_")):
        for name in dir(theirs):
            fn, known = getattr(theirs, name), getattr(ours, name, None)
            if (
                name.startswith("_")
                or isinstance(fn, type)
                or not callable(fn)
                or not callable(known)
                or isinstance(known, type)
            ):
                continue
            if name in DIFFERENT:
                continue
            if name in OF_FLOATS:
                fn = _of_floats(fn)
            elif name in DIVISIONS:
                fn = _by_zero(fn)
            _functions.setdefault(known, Operation(prefix + name, known, OWN.get(prefix + name, fn)))


def function(callable_):
    """The operation in place of a function of NumPy, or None."""
    if not _functions:
        _fill()
    return _functions.get(callable_)


def method(name):
    """The operation in place of a method of arrays, or None."""
    if name not in _methods:
        fn = getattr(tnp.ndarray, name, None)
        known = callable(fn) and callable(getattr(np.ndarray, name, None)) and getattr(object, name, None) is not fn

        def call(self, *args, **kwargs):
            return getattr(self, name)(*args, **kwargs)

        _methods[name] = Operation(name, call, fn) if known else None
    return _methods[name]


def attribute(name):
    """The operation that reads an attribute which is an array."""
    key = "." + name
    if key not in _methods:
        get = _operator.attrgetter(name)
        _methods[key] = Operation(name, get, get)
    return _methods[key]


def operation(name):
    """The operation of an operator, by its name in module operator."""
    if name not in _operators:
        fn = getattr(_operator, name)
        wrapped = _of_floats(fn) if name in OF_FLOATS else _by_zero(fn) if name in DIVISIONS else fn
        _operators[name] = Operation(name, fn, wrapped)
    return _operators[name]


# ---- types ----


def numpy_dtype(dtype):
    """NumPy's type for one of torch's; None: it has none."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except (TypeError, RuntimeError):
        return None


def dtype_name(x):
    """The name of a type of numbers, given as a class or dtype; None: it is none."""
    if (
        isinstance(x, np.dtype)
        or x in (bool, int, float, complex)
        or (isinstance(x, type) and issubclass(x, np.generic))
    ):
        try:
            dtype = np.dtype(x)
        except TypeError:
            return None
        return dtype.name if dtype.kind in "biufc" else None
    return None


# ---- what NumPy gives ----

MOST_ELEMENTS = 1 << 24

size_hint = None  # set by the capture: the value of a size in this call, None where only the run knows it


def _hint(n):
    """A size in this call; of one that only the run knows, some number."""
    known = size_hint(n)
    return 2 if known is None else known


def _known(n):
    return size_hint(n) is not None


def _like(fake, kind, fill):
    shape, strides = [_hint(n) for n in fake.shape], [_hint(n) for n in fake.stride()]
    if kind == "tensor":
        if not fake.is_cpu:
            raise Mismatch("a tensor on another device")
        return torch.full(shape, fill, dtype=fake.dtype, requires_grad=fake.requires_grad)
    dtype = numpy_dtype(fake.dtype)
    if dtype is None:
        raise Mismatch(f"arrays of {fake.dtype}")
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    if max(extent, fake.element_size()) > MOST_ELEMENTS:
        raise Mismatch("an array that is too large to try")
    memory = np.full(extent, fill, dtype=dtype)
    if kind == "scalar":
        return memory[0]
    if not extent:
        return np.empty(shape, dtype)
    made = np.lib.stride_tricks.as_strided(memory, shape, [s * dtype.itemsize for s in strides])
    if fill is _DIAGONAL and made.ndim > 1:
        for i in range(min(made.shape[-2:])):
            made[..., i, i] += 3
    if kind == "readonly":
        made.flags.writeable = False
    return made


class _Diagonal(int):
    pass


_DIAGONAL = _Diagonal(1)  # ones, and more on the diagonal: matrices that have an inverse


def expect(operation, args, kwargs, kinds):
    """What NumPy gives: nested ("array" | "readonly" | "scalar" | "tensor", torch's dtype, shape, strides in elements, places of what
    it shares memory with) | ("same", place) | ("none",) | (tuple | list, parts). `kinds`: by the id of a tensor among the arguments,
    (one of those kinds, its place)."""
    error = None
    if operation.__name__ in NOT_OF_BOOLS and any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in args):
        raise Mismatch("bools have no such function in PyTorch")
    if (
        operation.__name__ == "numpy_roll"
        and len(args) == 2
        and "axis" not in kwargs
        and isinstance(args[1], (tuple, list))
    ):
        raise Mismatch("several shifts of all elements")
    for fill in (1, 0, _DIAGONAL):
        made = {}

        def stand_in(x):
            if isinstance(x, torch.Tensor):
                kind, place = kinds[id(x)]
                if place not in made:
                    made[place] = _like(x, kind, fill)
                return made[place]
            return _hint(x) if isinstance(x, torch.SymInt) else x

        try:
            real_args, real_kwargs = _map(args, stand_in), _map(kwargs, stand_in)
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return _describe(operation.of_numpy(*real_args, **real_kwargs), made)
        except Mismatch:
            raise
        except Exception as e:  # whatever NumPy says: the real call says it again
            error = e
    raise Mismatch(f"NumPy: {type(error).__name__}: {error}")


def _describe(result, made):
    if result is None:
        return ("none",)
    for place, x in made.items():
        if x is result:
            return ("same", place)
    if type(result) in (tuple, list) or (isinstance(result, tuple) and hasattr(result, "_fields")):
        return (type(result), [_describe(x, made) for x in result])
    if isinstance(result, torch.Tensor):
        return ("tensor", result.dtype, tuple(result.shape), result.stride(), _shared(result.detach().numpy(), made))
    if isinstance(result, np.generic):
        return ("scalar", torch.as_tensor(np.empty(0, result.dtype)).dtype, (), (), ())
    if type(result) is np.ndarray:
        dtype = torch.as_tensor(np.empty(0, result.dtype)).dtype
        strides = tuple(s // result.itemsize for s in result.strides)
        kind = "array" if result.flags.writeable else "readonly"
        return (kind, dtype, result.shape, strides, _shared(result, made))
    raise Mismatch(f"a {type(result).__name__}")


def _shared(result, made):
    arrays = {place: x.detach().numpy() if isinstance(x, torch.Tensor) else x for place, x in made.items()}
    return tuple(place for place, x in arrays.items() if isinstance(x, np.ndarray) and np.may_share_memory(x, result))


def _root(t):
    while t._base is not None:
        t = t._base
    return t


def fits(fake, leaf, tensors):
    """Whether a recorded result is what NumPy gives. 0: no, 1: yes, 2: a copy of it is, one of its rows after another 3.
    `tensors`: the arguments by place."""
    _, dtype, shape, strides, shared = leaf
    known = all(_known(n) for t in (fake, *tensors) for n in t.shape)
    sizes = not known or tuple(_hint(n) for n in fake.shape) == tuple(shape)
    if fake.dtype is not dtype or fake.dim() != len(shape) or not sizes:
        return 0
    roots = {id(_root(t)): place for place, t in enumerate(tensors)}
    ours = id(_root(fake)) in roots
    if fake.numel() != 0 and ours < bool(shared):
        return 0
    if known and 0 not in shape:
        far = [(_hint(s), n) for s, n in zip(fake.stride(), shape) if n > 1] != [
            (s, n) for s, n in zip(strides, shape) if n > 1
        ]
        if far and (shared or not _in_rows(shape, strides)):
            return 0
        if far:
            return 3
    return 2 if ours and not shared else 1


def _in_rows(shape, strides):
    step = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n > 1 and s != step:
            return False
        step *= n
    return True


def to_array(tensor):
    return tensor.resolve_conj().resolve_neg().numpy()


def to_readonly(tensor):
    array = to_array(tensor)
    array.flags.writeable = False
    return array


def to_scalar(tensor):
    return to_array(tensor)[()]
