"""Random programs that write in place, make views and sizes that depend on data, against eager PyTorch: results and what they share
memory with, exceptions, what arguments hold afterwards, gradients.

    python tests/fuzz/effects.py --first 0 --count 20000

prints each program whose behaviour differs, made as small as dropping results and statements makes it, and its seed.
"""

import random
import re
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from effect_programs import Program, arguments, write  # noqa: E402
from running import compare  # noqa: E402
from tensors import distance  # noqa: E402

import braze  # noqa: E402

CALLS = (0, 1, 2, 3, 0)


def function(program):
    scope = {"torch": torch, "F": F}
    exec(compile(program.source(), "program", "exec"), scope)
    return scope["f"]


def sharing(tensors):
    """For each pair: whether they share memory, begin at the same place of it."""
    out = []
    for i, a in enumerate(tensors):
        for b in tensors[:i] if a.numel() else ():
            same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.untyped_storage().nbytes() > 0
            out.append((same, same and a.storage_offset() == b.storage_offset()))
    return out


def facts(t):
    stride = [s for s, n in zip(t.stride(), t.shape) if n != 1] if t.numel() else None
    try:
        leaf = t.is_leaf
    except RuntimeError:  # a view that was written to where autograd could not follow
        leaf = None
    return t.dtype, tuple(t.shape), stride, t.requires_grad, leaf


def observe(f, args):
    """What a caller sees of a call and of the backward of its results."""
    torch.manual_seed(0)
    try:
        results = f(*args)
    except Exception as e:
        results, raised = [], type(e).__name__
        if "braze" in str(e):
            raise
    else:
        raised = None
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    seen = {
        "raised": raised,
        "results": [facts(t) if isinstance(t, torch.Tensor) else t for t in results],
        "sharing": sharing([*args, *tensors]),
        "arguments": [facts(t) for t in args],
        "backward": None,
    }
    values = [t.detach().clone() for t in (*tensors, *args)]
    wanted = [t for t in tensors if t.requires_grad and t.is_floating_point()]
    if wanted:
        try:
            sum((t.double() * (1 + i)).sum() for i, t in enumerate(wanted)).backward()
        except RuntimeError as e:
            if "braze" in str(e):
                raise
            seen["backward"] = type(e).__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grads = [t.grad for t in args]
    seen["gradients"] = [g is not None for g in grads]
    return seen, values + [g.detach().clone() for g in grads if g is not None]


def tolerance(t, half):
    return 0.06 if half or t.dtype in (torch.bfloat16, torch.float16) else 2e-3 if t.dtype == torch.float32 else 1e-5


def difference(got, want, half):
    if not want.numel():
        return None
    if not want.dtype.is_floating_point and not want.is_complex():
        return None if torch.equal(got, want) else "values"
    scale = want.double().abs().nan_to_num(0, 0, 0).amax().item()
    error = distance(got, want)
    return f"off by {error:g}, values up to {scale:g}" if error > tolerance(want, half) * (1 + scale) else None


def raises_where_all_is_read(program, call):
    names = list(dict.fromkeys(re.findall(r"^(v\d+) = ", "\n".join(program.lines), re.MULTILINE)))
    try:
        braze.compile(function(Program(program.seed, program.inputs, program.lines, names)))(*arguments(program, call))
    except Exception as e:
        return "braze" not in str(e)
    return False


def failure(program):
    f = function(program)
    compiled = braze.compile(
        function(program), dynamic=random.Random(program.seed).choice((None, None, None, True, False))
    )
    half = "half" in program.source() or "bfloat16" in program.source()  # which names the inputs' dtypes
    try:
        for n, call in enumerate(CALLS):
            try:
                mine, theirs = arguments(program, call), arguments(program, call)
                if mine[0].is_cuda and raises_on_the_cpu(program, call):
                    continue
            except (RuntimeError, IndexError):
                continue
            want, wanted = observe(f, theirs)
            if want["raised"] in ("NameError", "UnboundLocalError"):
                return None  # not a program any more
            try:
                got, values = observe(compiled, mine)
            except Exception as e:
                return f"call {n}: {type(e).__name__}: {e}"
            if want["raised"] and got["raised"]:
                continue  # which of several errors comes first is not compared
            if want["raised"] and raises_where_all_is_read(program, call):
                continue  # an error of what nobody reads is not raised
            if want["backward"]:
                continue  # what was saved is not what the program wrote to; and others get their gradients before it fails
            for what in want:
                if got[what] != want[what]:
                    return f"call {n}: {what}: {got[what]}, expected {want[what]}"
            for k, (a, b) in enumerate(zip(values, wanted)):
                if wrong := difference(a, b, half):
                    return f"call {n}: value {k}: {wrong}\n{a}\nexpected\n{b}"
    finally:
        braze.reset()
    return None


def raises_on_the_cpu(program, call):
    """On a GPU some errors, as of an index, end the process's use of it."""
    with torch.device("cpu"):
        return observe(function(program), arguments(program, call))[0]["raised"] is not None


if __name__ == "__main__":
    sys.exit(compare(__doc__, write, failure, 20))
