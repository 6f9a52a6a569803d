"""Pointwise operators on NaN, infinities, signed zeros, the ends of ranges and ties: the same places are NaN, infinite or
negative zero as in eager, and the rest is close. Every row of class Pointwise whose arguments can be filled in by its schema."""

import itertools

import pytest
import torch

import braze
from op_table_test import rows

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, -3.0, 3.5, 6.0, 20.0, -20.0, 80.0, -80.0, 1e-40, 1e30, -1e30, INF, -INF, NAN]
INTS = [0, 1, -1, 2, 3, -3, 7, 100, -128, 127]
# Arguments without a default, by operator and name.
GIVEN = {
    "alpha": 1.5, "scale": 1.5, "input_scale": 1.0, "negative_slope": 0.1, "min_val": -1.0, "max_val": 1.0, "threshold": 0.5, "value": 2.0,
    "lambd": 0.5, "beta": 1.0, "is_result": False, "decimals": 1, "eps": None, "weight": 0.3, "self_is_result": False, "dtype": None,
    "approximate": "none", "rounding_mode": "floor", "other": 3, "exponent": 3, "min": -1, "max": 1, "self": 2, "p": 2.0,
}
SKIP = {
    "copysign_Scalar": "eager gives the sign of an integer zero",
    "polar": "complex", "complex": "complex", "contiguous": "no kernel of its own", "native_dropout_backward": "takes a mask",
    "gelu": "eager's float kernel gives NaN at infinity, its double kernel infinity",
    "hardtanh_backward": "eager's answer at NaN depends on the place in the vector",
    "hardshrink_backward": "as hardtanh_backward", "softshrink_backward": "as hardtanh_backward",
    "hardsigmoid_backward": "eager computes doubles with a float's sixth",
    "log_sigmoid_backward": "its saved buffer is part of the formula",
}  # fmt: skip


def operator(aten):
    name, _, overload = aten.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, overload or "default")


def call_of(op):
    """A function of the operator's tensors, and how many there are; None where an argument is not known."""
    parts, tensors = [], 0
    for a in op._schema.arguments:
        kind = str(a.type)
        if kind == "Tensor":
            parts.append(None)
            tensors += 1
        elif a.name in GIVEN and not a.has_default_value():
            parts.append(GIVEN[a.name])
        elif a.has_default_value():
            parts.append(a.default_value)
        elif kind.startswith("Optional"):
            parts.append(GIVEN.get(a.name))
        else:
            return None, 0
    if not 1 <= tensors <= 3:
        return None, 0
    names, call = iter("xyz"), []
    for value, a in zip(parts, op._schema.arguments):
        text = next(names) if str(a.type) == "Tensor" else repr(value)
        call.append(f"{a.name}={text}" if a.kwarg_only else text)
    return eval(f"lambda {', '.join('xyz'[:tensors])}: op({', '.join(call)})", {"op": op, "inf": INF, "nan": NAN, "torch": torch}), tensors


def inputs(dtype, n):
    values = FLOATS if dtype.is_floating_point else INTS if dtype != torch.bool else [False, True]
    if n == 3:
        values = values[::2] + values[-2:]
    columns = list(zip(*itertools.product(values, repeat=n)))
    return [torch.tensor(c, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype) for c in columns]


CASES = [(name, aten) for name, aten, cls, _ in rows() if cls == "Pointwise" and name not in SKIP]


@pytest.mark.parametrize("name,aten", CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool], ids=str)
def test_special_values(name, aten, dtype):
    call, n = call_of(operator(aten))
    if call is None:
        pytest.skip("arguments that the schema does not give")
    if not dtype.is_floating_point and name in ("mish_backward", "threshold_backward"):
        pytest.skip("PyTorch decomposes it while tracing, into operators that take integers")
    if dtype == torch.bool and "shift" in name:
        pytest.skip("eager refuses it, and so does its Meta kernel for a part of the forms")
    args = inputs(dtype, n)
    if name.startswith(("where", "masked_fill")):
        at = 1 if name.startswith("masked") else 0
        args[at] = args[at] != 0
        args = args if name != "masked_fill_Tensor" else [args[0], args[1], args[2][0].clone()]
    try:
        want = call(*args)
    except Exception as e:
        with pytest.raises(type(e)):
            braze.compile(call)(*args)
        return
    explained = braze.explain(call, *args)
    assert explained.graph_count == 1, explained
    got = explained.output
    for w, g in zip(want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,)):
        assert w.dtype == g.dtype
        if not w.is_floating_point():
            bad = (w != g).nonzero().flatten()[:5].tolist()
            assert not bad, [(i, [a[i].item() for a in args], w[i].item(), g[i].item()) for i in bad]
            continue
        eps = torch.finfo(w.dtype).eps
        close = torch.isclose(g.double(), w.double(), rtol=64 * eps, atol=64 * eps if w.dtype != torch.bfloat16 else eps, equal_nan=True)
        # The sign of a zero counts, but of the greater or smaller of two zeros.
        if name not in ("fmax", "fmin", "softshrink"):
            close &= (torch.signbit(w) == torch.signbit(g)) | (w != 0) | (g != 0) | w.isnan()
        # Eager's vectors may flush subnormal operands.
        for a in args:
            if a.dtype.is_floating_point and a.dim():
                close |= (a != 0) & (a.abs() < torch.finfo(a.dtype).tiny)
        bad = (~close).nonzero().flatten()[:5].tolist()
        assert not bad, [(i, [a[i if a.dim() else ()].item() for a in args], w[i].item(), g[i].item()) for i in bad]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_value_equals_what_was_stored_of_it(dtype):
    def equal(a, b):
        s = a * 1.01 + b
        top = s.amax(1, keepdim=True)
        return s == top, s >= top, s < s.to(torch.float32).amin(1, keepdim=True) + 0.5

    a, b = torch.randn(33, 17).to(dtype), torch.randn(33, 17).to(dtype)
    want, got = equal(a, b), braze.compile(equal, fullgraph=True)(a, b)
    assert got[0].any(1).all() and (got[0] == got[1]).all()
    # The sum itself may be rounded once where eager rounds twice.
    assert all((w != g).sum() <= 0.02 * w.numel() for w, g in zip(want, got))

    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    braze.compile(lambda x, y: (x + y).max(), fullgraph=True)(x, y).backward()
    z = a.clone().requires_grad_()
    (z + b).max().backward()
    assert torch.equal(x.grad, z.grad) and torch.equal(y.grad, z.grad)
