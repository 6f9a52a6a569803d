"""What a program says of its tensors' sizes, in the attributes that torch.compile reads, too."""

from __future__ import annotations

from typing import NamedTuple

import torch


def mark_dynamic(
    tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...], *, min: int | None = None, max: int | None = None
) -> None:
    """Asks that the size of `tensor` in dimension `dim` (or several) stays open in code that is compiled for it.

    min, max: the sizes for which the code is to be one; the compiled call raises ValueError with the line where the program
    needs a narrower range, or one value. Marks of `torch._dynamo.mark_dynamic` are understood as well.
    """
    if isinstance(dim, (list, tuple)):
        for d in dim:
            mark_dynamic(tensor, d, min=min, max=max)
        return
    dim = _marked_dim(tensor, dim)
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and (type(bound) is not int or bound < 0):
            raise ValueError(f"mark_dynamic: {name} takes None or an int from 0 on, not {bound!r}")
    if min is not None and max is not None and min > max:
        raise ValueError(f"mark_dynamic: min={min} is greater than max={max}")
    size = tensor.shape[dim]
    if (min is not None and size < min) or (max is not None and size > max):
        raise ValueError(f"mark_dynamic: the size is {size}, which is not from min={min} to max={max}")
    _marks(tensor, "_dynamo_dynamic_indices").add(dim)
    _marks(tensor, "_dynamo_static_indices").discard(dim)
    ranges = _marks(tensor, "_dynamo_dynamic_range")
    ranges.difference_update([r for r in ranges if r.dim == dim])
    if min is not None or max is not None:
        ranges.add(_DimRange(dim, min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...]) -> None:
    """As mark_dynamic, but where the program needs one value, or the size is 0 or 1 in a way that matters, it is compiled for that."""
    for d in dim if isinstance(dim, (list, tuple)) else (dim,):
        d = _marked_dim(tensor, d)
        _marks(tensor, "_dynamo_weak_dynamic_indices").add(d)
        _marks(tensor, "_dynamo_static_indices").discard(d)


def mark_unbacked(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...]) -> None:
    """As mark_dynamic, but nothing is decided by the size that the tensor happens to have, 0 and 1 included: code that needs to know more
    than `torch._check` says of it ends the graph (an error under fullgraph=True). One compilation serves every size."""
    for d in dim if isinstance(dim, (list, tuple)) else (dim,):
        d = _marked_dim(tensor, d)
        _marks(tensor, "_dynamo_unbacked_indices").add(d)
        _marks(tensor, "_dynamo_static_indices").discard(d)


def mark_static(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Asks that the size of `tensor` in dimension `dim` (or several; None: all) is compiled as it is, whatever varied before."""
    if dim is None:
        dim = list(range(tensor.dim()))
    for d in dim if isinstance(dim, (list, tuple)) else (dim,):
        d = _marked_dim(tensor, d)
        _marks(tensor, "_dynamo_static_indices").add(d)
        _marks(tensor, "_dynamo_dynamic_indices").discard(d)
        _marks(tensor, "_dynamo_weak_dynamic_indices").discard(d)
        _marks(tensor, "_dynamo_unbacked_indices").discard(d)


class _DimRange(NamedTuple):
    dim: int
    min: int | None
    max: int | None


def _marks(tensor, name):
    found = tensor.__dict__.get(name)
    if found is None:
        found = set()
        setattr(tensor, name, found)
    return found


def _marked_dim(tensor, dim):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a tensor is expected, not {type(tensor).__name__}")
    if type(dim) is not int:
        raise TypeError(f"a dimension is an int, and several a list or a tuple of such, not {dim!r}")
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
    return dim % tensor.dim()
