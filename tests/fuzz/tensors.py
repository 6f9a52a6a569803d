"""Random programs of tensor operators against eager PyTorch: values, dtypes, shapes, strides, gradients; with --order 2 gradients of gradients, too.

    python tests/fuzz/tensors.py --first 0 --count 20000 [--device cuda] [--order 2]

prints each program whose results differ, made as small as dropping results and statements makes it, and its seed.
"""

import argparse
import contextlib
import functools
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from running import search  # noqa: E402
from tensor_programs import Program, arguments, put, write  # noqa: E402

import braze  # noqa: E402


def compiled_source(program):
    scope = {"torch": torch, "F": F, "put": put}
    exec(program.source(), scope)
    return scope["f"]


def run(f, inputs, weights, order=1):
    """Results, and the gradients of their weighted sum where inputs ask for them; with order 2 those of a function of these, too."""
    leaves = [t for t in inputs if t.requires_grad]
    # Twice: on activations that nobody else keeps.
    results = f(*(t * 1 if t.requires_grad and order == 2 else t for t in inputs))
    if not leaves:
        return results, []
    loss = sum((r.double() * w.to(r.device)).sum() for r, w in zip(results, weights) if r.requires_grad)
    if not isinstance(loss, torch.Tensor):
        return results, []
    first = torch.autograd.grad(loss, leaves, allow_unused=True, create_graph=order == 2)
    if order == 1:
        return results, first
    again = sum((g.double().tanh() * weight_of(g)).sum() for g in first if g is not None and g.requires_grad)
    second = torch.autograd.grad(again, leaves, allow_unused=True) if isinstance(again, torch.Tensor) else ()
    return results, [*(g if g is None else g.detach() for g in first), *second]


def weight_of(g):
    return torch.rand(g.shape, generator=torch.Generator().manual_seed(g.dim()), dtype=torch.float64).to(g.device)


def distance(a, b):
    """The largest difference, NaN and infinities equal to themselves."""
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(torch.inf)).amax().item() if a.numel() else 0.0


def compare(what, got, want, exact, rounding):
    """`exact`: computed in float64. An error up to some times eager's own, or a few `rounding`s of the largest value, is none."""
    if (got is None) != (want is None):
        return f"{what}: {got is not None}, expected {want is not None}"
    if got is None:
        return None
    for name in ("dtype", "shape"):
        if getattr(got, name) != getattr(want, name):
            return f"{what}: {name} {getattr(got, name)}, expected {getattr(want, name)}"
    if not what.startswith("gradient") and [s for s, n in zip(got.stride(), got.shape) if n != 1] != [
        s for s, n in zip(want.stride(), want.shape) if n != 1
    ]:
        return f"{what}: strides {got.stride()}, expected {want.stride()} of {list(want.shape)}"
    error = distance(got, exact)
    scale = exact.detach().double().abs().nan_to_num(0, 0, 0).amax().item() if exact.numel() else 0.0
    allowed = 4 * distance(want, exact) + rounding * (1 + scale)
    return (
        f"{what}: off by {error:g}, eager by {distance(want, exact):g}, values up to {scale:g}"
        if not error <= allowed
        else None
    )


def failure(program, seed, device="cpu", order=1, mode=None):
    """What is wrong with the program compiled, or None. Two calls on other values, the second on other memory layouts."""
    r = random.Random(seed)
    grad, dynamic = r.random() < 0.4 or order == 2, r.choice((None, None, True, False))
    # A gradient is rounded to the half type that the value was rounded to, from one side or the other.
    half = max([2e-5] + [step for dtype, step in (("bfloat16", 2e-2), ("float16", 2e-3)) if dtype in program.source()])
    f = compiled_source(program)
    compiled = braze.compile(compiled_source(program), dynamic=dynamic, fullgraph=True, mode=mode)
    for call in (seed, seed + 1):
        inputs = [t.detach().to(device).requires_grad_(t.requires_grad) for t in arguments(program, call, grad)]
        weights = []
        with contextlib.nullcontext() if grad else torch.no_grad():
            reference = [t.detach().double().requires_grad_(grad) if t.is_floating_point() else t for t in inputs]
            with in_double():
                exact, exact_gradients = run_weighted(f, reference, weights, order)
            want, want_gradients = run(f, inputs, weights, order)
            try:
                got, got_gradients = run(compiled, inputs, weights, order)
            except Exception as e:  # whatever it is, eager ran
                return f"{type(e).__name__}: {e}"
        for what, gs, ws, es in (
            ("result", got, want, exact),
            ("gradient", got_gradients, want_gradients, exact_gradients),
        ):
            if len(gs) != len(ws):
                return f"{what}s: {len(gs)}, expected {len(ws)}"
            for i, (g, w, e) in enumerate(zip(gs, ws, es)):
                if wrong := compare(f"{what} {i}", g, w, e, half if what == "gradient" else 2e-5):
                    return f"call {call - seed}, grad={grad}, dynamic={dynamic}: {wrong}"
    return None


@contextlib.contextmanager
def in_double():
    """Casts to float32 in the program keep float64."""
    to = torch.Tensor.to

    def keep(t, *args, **kwargs):
        return to(t, *((torch.float64,) if args == (torch.float32,) else args), **kwargs)

    torch.Tensor.to = keep
    try:
        yield
    finally:
        torch.Tensor.to = to


def run_weighted(f, inputs, weights, order):
    results = f(*inputs)
    g = torch.Generator().manual_seed(0)
    weights[:] = [torch.rand(r.shape, generator=g, dtype=torch.float64) for r in results]
    return run(f, inputs, weights, order)


def shrink(program, seed, *how):
    """Drops results, then statements whose result an input of the same shape can stand for."""
    why = failure(program, seed, *how)
    for result in program.results:
        smaller = Program(program.inputs, program.lines, [result]).needed()
        if len(program.results) > 1 and (now := failure(smaller, seed, *how)):
            return shrink(smaller, seed, *how)
        braze.reset()
    for name in [line[0] for line in program.lines[:-1]][::-1]:
        if name in program.results:
            continue
        try:
            smaller = replaced(program, name)
            now = smaller and failure(smaller, seed, *how)
        except Exception:  # not a program any more
            continue
        finally:
            braze.reset()
        if now:
            return shrink(smaller, seed, *how)
    return program, why


def replaced(program, name):
    """The program with a new input in place of what the statement computes."""
    values = dict(zip([i[0] for i in program.inputs], arguments(program, 0)))
    scope = {"torch": torch, "F": F, "put": put, **values}
    for line in program.lines:
        exec(line[2], scope)
    value = scope[name]
    if value.dtype != torch.float32:
        return None
    lines = [line for line in program.lines if line[0] != name]
    return Program([*program.inputs, (name, tuple(value.shape), "float")], lines, program.results).needed()


def check(seed, device="cpu", order=1, mode=None):
    """None, or a text with the shrunk program and what is wrong with it."""
    program = write(seed)
    why = failure(program, seed, device, order, mode)
    braze.reset()
    if not why:
        return None
    small, reason = shrink(program, seed, device, order, mode)
    return f"seed {seed}: {why}\nshrunk: {reason}\n{small.source()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--order", type=int, default=1, help="of the derivatives: 1 or 2")
    parser.add_argument("--mode", help="of braze.compile")
    parser.add_argument("--stop-after", type=int, default=20, help="failures to show")
    options = parser.parse_args()
    one = functools.partial(check, device=options.device, order=options.order, mode=options.mode)
    failed, seed = search(one, options.first, options.count, options.stop_after)
    print(f"{failed} of {seed + 1 - options.first} programs differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
