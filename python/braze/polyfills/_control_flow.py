"""Control flow of torch that depends on tensors, as plain Python."""

import torch
from torch.utils import _pytree as pytree


def run_branches(pred, true_fn, false_fn, operands):
    """The result of the branch that is taken, alone in a tuple. Where capture can evaluate both, it gives both."""
    return (true_fn(*operands) if pred else false_fn(*operands),)


def select(pred, a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype != b.dtype or a.device != b.device:
            raise RuntimeError(
                f"torch.cond: one branch returns {a.dtype} on {a.device} where the other returns {b.dtype} on {b.device}"
            )
        return torch.where(pred.to(a.device), a, b)
    if type(a) is not type(b):
        raise RuntimeError(
            f"torch.cond: one branch returns {type(a).__name__} where the other returns {type(b).__name__}"
        )
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            raise RuntimeError(f"torch.cond: one branch returns {len(a)} values where the other returns {len(b)}")
        selected = [select(pred, x, y) for x, y in zip(a, b)]
        return a._make(selected) if hasattr(a, "_make") else type(a)(selected)
    if isinstance(a, dict):
        if a.keys() != b.keys():
            raise RuntimeError(
                f"torch.cond: one branch returns a dict of {list(a)} where the other returns one of {list(b)}"
            )
        return type(a)((k, select(pred, v, b[k])) for k, v in a.items())
    return a


def cond(pred, true_fn, false_fn, operands=()):
    if not isinstance(pred, (torch.Tensor, bool, torch.SymBool)):
        raise RuntimeError(f"torch.cond: the condition is a tensor or a bool, not {pred}")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("torch.cond: both branches must be callable")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"torch.cond: the operands are a tuple or a list of tensors, not {operands}")
    if not isinstance(pred, torch.Tensor):
        return true_fn(*operands) if pred else false_fn(*operands)
    if pred.numel() != 1:
        raise RuntimeError(f"torch.cond: the condition has one element, not {pred.numel()}")
    pred = pred.reshape(()).bool()
    results = run_branches(pred, true_fn, false_fn, operands)
    if len(results) == 1:
        return results[0]
    return select(pred, results[0], results[1])


def call_region(function, *args, **kwargs):
    """What torch.compiler.nested_compile_region marks: evaluated where it is called."""
    return function(*args, **kwargs)


def while_loop(cond_fn, body_fn, carried_inputs):
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("while_loop: the condition and the body must be callable")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop: what is carried is a tuple or a list, not {carried_inputs}")
    carried = tuple(carried_inputs)
    while cond_fn(*carried):
        after = body_fn(*carried)
        if not isinstance(after, (tuple, list)) or len(after) != len(carried):
            raise RuntimeError(f"while_loop: the body returns {len(carried)} values, as many as it takes")
        carried = tuple(after)
    return carried


def map(f, xs, *args):
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or any(not isinstance(x, torch.Tensor) for x in leaves):
        raise RuntimeError(f"map: what is mapped over are tensors, not {xs}")
    count = leaves[0].shape[0]
    if count == 0 or any(x.shape[0] != count for x in leaves):
        raise RuntimeError("map: the tensors have the same first dimension, which is not empty")
    results, out_spec = [], None
    for i in range(count):
        flat, out_spec = pytree.tree_flatten(f(pytree.tree_unflatten([x.select(0, i) for x in leaves], spec), *args))
        results.append(flat)
    return pytree.tree_unflatten([torch.stack(column) for column in zip(*results)], out_spec)


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        return pytree.tree_unflatten(*pytree.tree_flatten(init)), []
    count = leaves[0].shape[dim]
    if count == 0 or any(x.shape[dim] != count for x in leaves):
        raise RuntimeError("scan: the tensors have the same size in the dimension that is scanned, and it is not 0")
    carry, results, out_spec = init, [], None
    indices = range(count - 1, -1, -1) if reverse else range(count)
    for i in indices:
        carry, out = combine_fn(carry, pytree.tree_unflatten([x.select(dim, i) for x in leaves], spec))
        flat, out_spec = pytree.tree_flatten(out)
        results.append(flat)
    if reverse:
        results.reverse()
    columns = [torch.stack(column) for column in zip(*results)]
    return carry, pytree.tree_unflatten([c.movedim(0, dim) if dim < c.dim() else c for c in columns], out_spec)


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """Of log2(n) rounds of operations on whole tensors, which are differentiated like any others.

    Neighbours are combined, what they give is scanned by the same rule, and is what every second result is; the others combine
    it with one element each (Blelloch, "Prefix sums and their applications", 1990)."""
    leaves, spec = pytree.tree_flatten(xs)
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    if not leaves or any(not isinstance(x, torch.Tensor) for x in leaves):
        raise ValueError(f"associative_scan: what is scanned over are tensors, not {xs}")
    if dim < 0:
        dim += leaves[0].dim()
    if any(x.dim() <= dim or x.shape[dim] == 0 for x in leaves):
        raise ValueError("associative_scan: the tensors have the dimension that is scanned, and it is not empty")
    if any(x.shape[dim] != leaves[0].shape[dim] for x in leaves):
        raise RuntimeError("associative_scan: the tensors have the same size in the dimension that is scanned")
    combine = torch.vmap(combine_fn) if combine_mode == "generic" else combine_fn

    def join(a, b):
        out, _ = pytree.tree_flatten(combine(pytree.tree_unflatten(a, spec), pytree.tree_unflatten(b, spec)))
        if len(out) != len(leaves):
            raise RuntimeError("associative_scan: the function returns as many tensors as it is given of each side")
        return out

    columns = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        columns = [x.flip(0) for x in columns]
    columns = _scanned(join, columns)
    if reverse:
        columns = [x.flip(0) for x in columns]
    return pytree.tree_unflatten([x.movedim(0, dim) for x in columns], spec)


def _scanned(join, columns):
    count = columns[0].shape[0]
    if count < 2:
        return columns
    even = [x[: count - 1 : 2] for x in columns]
    odd = _scanned(join, join(even, [x[1::2] for x in columns]))
    first = [x[:1] for x in columns]
    if count == 2:
        return [torch.cat(pair) for pair in zip(first, odd)]
    between = join([x[:-1] for x in odd] if count % 2 == 0 else odd, [x[2::2] for x in columns])
    even = [torch.cat(pair) for pair in zip(first, between)]
    paired = [torch.stack((a[: count // 2], b), 1).flatten(0, 1) for a, b in zip(even, odd)]
    return paired if count % 2 == 0 else [torch.cat((p, a[-1:])) for p, a in zip(paired, even)]
