"""Pointwise operators at the edges of their dtypes: zeros of both signs, denormals, ties, the bounds of overflow and underflow,
infinities, NaN; in whole vectors and in what is left over. Every row of class Pointwise whose arguments can be filled in.

Eager's vectors and its scalar code differ in places (the sign of a zero, NaN at an infinity): each element must be what one of
them gives, sign of zero and NaN included. Where both are off, since a term overflows or underflows on the way or is rounded in
16 bits, what is as near to eager's answer in double is right, too."""

import math

import pytest
import torch
from op_table_test import rows

import braze

INF, NAN = float("inf"), float("nan")
INTS = [0, 1, -1, 2, 3, -3, 7, 100, -128, 127]
# Arguments without a default, by operator and name.
GIVEN = {
    "alpha": 1.5,
    "scale": 1.5,
    "input_scale": 1.0,
    "negative_slope": 0.1,
    "min_val": -1.0,
    "max_val": 1.0,
    "threshold": 0.5,
    "value": 2.0,
    "lambd": 0.5,
    "beta": 1.0,
    "is_result": False,
    "decimals": 1,
    "eps": None,
    "weight": 0.3,
    "self_is_result": False,
    "dtype": None,
    "approximate": "none",
    "rounding_mode": "floor",
    "other": 3,
    "exponent": 3,
    "min": -1,
    "max": 1,
    "self": 2,
    "p": 2.0,
    "n": 1,
}
SCALARS = [0.0, -0.0, 0.5, -3, 1e-40, 1e30, INF, -INF, NAN]
# More values of arguments, by operator.
MORE = {
    "clamp": [{"min": -1, "max": 1}, {"min": 0.0}, {"min": -0.0}, {"max": 0.0}, {"max": -0.0}, {"min": 1.0, "max": -1.0}, {"min": NAN}],
    "clamp_min": [{"min": m} for m in (0.0, -0.0, NAN, INF)],
    "clamp_max": [{"max": m} for m in (0.0, -0.0, NAN, -INF)],
    "hardtanh": [{"min_val": 0.0, "max_val": 6.0}, {"min_val": -1.0, "max_val": 0.0}],
    "gelu": [{"approximate": "tanh"}],
    "gelu_backward": [{"approximate": "tanh"}],
    "div_Tensor_mode": [{"rounding_mode": "trunc"}, {"rounding_mode": None}],
    "div_Scalar_mode": [{"rounding_mode": m, "other": s} for m in ("trunc", "floor", None) for s in SCALARS],
    "add_Tensor": [{"alpha": -2}], "sub_Tensor": [{"alpha": 0}], "rsub_Tensor": [{"alpha": -1}],
    "pow_Tensor_Scalar": [{"exponent": e} for e in (0, 1, 2, 0.5, -0.5, -1, -2, 2.5, -3, INF, -INF, NAN)],
    "pow_Scalar": [{"self": s} for s in (0.0, -0.0, 1.0, -1.0, 0.5, 10, INF, -INF, NAN)],
    "softshrink": [{"lambd": 0.0}], "hardshrink": [{"lambd": 0.0}], "threshold": [{"threshold": 0.0, "value": -0.0}],
    "leaky_relu": [{"negative_slope": 0.0}, {"negative_slope": -1.0}], "elu": [{"alpha": 1.0, "scale": 1.0}], "celu": [{"alpha": 0.5}],
    "softplus": [{"beta": 2, "threshold": 10}], "logit": [{"eps": 1e-6}, {"eps": 0.6}], "nan_to_num": [{"nan": 1.0, "posinf": 2.0, "neginf": -0.0}],
    "round_decimals": [{"decimals": d} for d in (0, 3, -2)],
    "lerp_Scalar": [{"weight": w} for w in (0.0, 0.5, 1.0, -2.0)], "addcmul": [{"value": 1}], "addcdiv": [{"value": -1.5}],
    **{op: [{"other": s} for s in SCALARS] for op in (
        "mul_Scalar", "add_Scalar", "sub_Scalar", "rsub_Scalar", "div_Scalar", "remainder_Scalar", "fmod_Scalar", "floor_divide_Scalar",
        "xlogy_Scalar_Other", "eq_Scalar", "lt_Scalar", "ge_Scalar", "copysign_Scalar")},
    "remainder_Scalar_Tensor": [{"self": s} for s in SCALARS],
    "xlogy_Scalar_Self": [{"self": s} for s in SCALARS], "special_xlog1py_self_scalar": [{"self": s} for s in SCALARS],
    "special_xlog1py_other_scalar": [{"other": s} for s in SCALARS], "polygamma": [{"n": 0}],
}  # fmt: skip
SKIP = {
    "polar": "complex", "complex": "complex", "contiguous": "no kernel of its own", "native_dropout_backward": "takes a mask",
    "log_sigmoid_backward": "its saved buffer is part of the formula",
}  # fmt: skip
# Near zero their results are the difference of two errors, of the size of the first argument's.
CANCELS = {"logaddexp2", "gelu_backward"}
# Eager's own doubles are right to seven digits.
ROUGH = {f"special_bessel_{kind}{order}" for kind in "jy" for order in (0, 1)}
# Python's operators, which end in the same rows.
EXPRESSIONS = [
    *[f"x {op} {s}" for op in ("//", "%", "/", "**") for s in ("0.0", "-0.0", "0.5", "-3", "1e-40", "inf", "nan")],
    *[f"{s} {op} x" for op in ("//", "%", "/", "**") for s in ("0.0", "(-0.0)", "2.0", "(-3.0)", "1e30", "inf")],
    *[f"x {op} y" for op in ("//", "%", "/", "**")],
]


def operator(aten):
    name, _, overload = aten.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name)
    return getattr(packet, overload or "default")


def call_of(op, given):
    """A function of the operator's tensors, and how many there are; None where an argument is not known."""
    names, call, tensors = iter("xyz"), [], 0
    for a in op._schema.arguments:
        kind = str(a.type)
        if kind == "Tensor":
            text, tensors = next(names, None), tensors + 1
        elif a.name in given:
            text = repr(given[a.name])
        elif a.has_default_value():
            text = repr(a.default_value)
        elif a.name in GIVEN or kind.startswith("Optional"):
            text = repr(GIVEN.get(a.name))
        else:
            return None, 0
        call.append(f"{a.name}={text}" if a.kwarg_only else text)
    if not 1 <= tensors <= 3:
        return None, 0
    return eval(
        f"lambda {', '.join('xyz'[:tensors])}: op({', '.join(map(str, call))})",
        {"op": op, "inf": INF, "nan": NAN, "torch": torch},
    ), tensors


def grid(dtype, few):
    """Zeros, denormals, ordinary values, ties, and the neighbourhoods of the bounds of exponentials and powers; both signs."""
    f = torch.finfo(dtype)
    low = f.smallest_normal * f.eps
    # exp and expm1, sinh and cosh, exp2; where exp and exp2 become denormal and zero; squares and cubes.
    bounds = [math.log(f.max), math.log(f.max) + math.log(2), math.log2(f.max), -math.log(f.smallest_normal), -math.log(low),
              -math.log2(low), math.sqrt(f.max), f.max ** (1 / 3)]  # fmt: skip
    if few:
        values = [0.0, low, f.smallest_normal, 0.5, 1.0, 3.0, bounds[1], f.max, INF]
    else:
        values = [
            0.0,
            low,
            f.smallest_normal - low,
            f.smallest_normal,
            f.eps,
            0.5,
            1.0,
            1.5,
            2.5,
            3.0,
            3.5,
            6.0,
            20.0,
            f.max,
            INF,
        ]
        bits = torch.tensor(bounds, dtype=torch.float64).to(dtype).view(getattr(torch, f"int{f.bits}"))
        values += [v for k in (-1, 0, 1) for v in (bits + k).view(dtype).tolist()]
    values = torch.tensor([s * v for v in values for s in (1, -1)] + [NAN], dtype=torch.float64).to(dtype)
    different = {str(v): i for i, v in enumerate(values.tolist())}
    return values[list(different.values())]


def inputs(dtype, n):
    if dtype.is_floating_point:
        values = grid(dtype, n == 3)
    else:
        values = torch.tensor([False, True] if dtype == torch.bool else INTS[::2] if n == 3 else INTS).to(dtype)
    return [c.flatten().contiguous() for c in torch.meshgrid(*[values] * n, indexing="ij")]


def tuple_of(y):
    return y if isinstance(y, tuple) else (y,)


def eager_answers(call, args):
    """What eager gives in whole vectors, where the elements lie apart so that they are taken one by one, and in double."""
    n = max(a.numel() for a in args)
    count = -(-n // 128) * 128
    whole = [torch.cat([a] * (count // n + 1))[:count] if a.dim() else a for a in args]
    apart = [torch.stack([a, a], 1)[:, 0] if a.dim() else a for a in args]
    answers = [[t[:n] for t in tuple_of(call(*a))] for a in (whole, apart)]
    wide = [a.double() if a.is_floating_point() else a for a in args]
    exact = [w.to(t.dtype) for w, t in zip(tuple_of(call(*wide)), answers[0])]
    return [*answers, exact]


def wrong(name, result, answers, args):
    """Where `result` is not what eager gives. The sign of a zero counts."""
    bad = []
    for k, g in enumerate(tuple_of(result)):
        whole, apart, exact = (a[k] for a in answers)
        assert whole.dtype == g.dtype
        if not g.is_floating_point():
            fine = (g == whole) | (g == apart)
        else:
            f = torch.finfo(g.dtype)
            rtol, atol = (64 if f.bits > 16 else 2) * f.eps, 4 * f.smallest_normal * f.eps
            if name in ROUGH:
                rtol = max(rtol, 2e-6)
            if name in CANCELS:
                atol = 64 * f.eps * args[0].double().abs().clamp(min=1)
            if name == "hardsigmoid_backward":
                rtol = max(rtol, 1e-7)  # eager computes doubles with a float's sixth
            got, whole, apart, exact = (t.double() for t in (g, whole, apart, exact))

            def agrees(want):
                close = (
                    (got == want)
                    | ((got - want).abs() <= rtol * want.abs() + atol) & want.isfinite()
                    | got.isnan() & want.isnan()
                )
                return close & (
                    (torch.signbit(got) == torch.signbit(want)) | (got != 0) | (want != 0) | (name in CANCELS)
                )

            # A number or infinity that eager loses on the way; in gradients also the sign of zero times what is lost.
            known = (exact.isfinite() | ~whole.isfinite()) & ((exact != 0) | name.endswith("_backward"))
            fine = agrees(whole) | agrees(apart) | agrees(exact) & known
            off = (got - exact).abs()  # what eager itself is off by is not asked for
            fine |= (got != 0) & ((off <= (whole - exact).abs()) | (off <= (apart - exact).abs()))
        for i in (~fine).nonzero().flatten().tolist():
            bad.append(
                (
                    k,
                    [a[i if a.dim() else ()].item() for a in args],
                    "eager",
                    *[a[k][i].item() for a in answers],
                    "compiled",
                    g[i].item(),
                )
            )
    return bad


def check(name, call, args):
    try:
        call(*args)
    except Exception as e:
        with pytest.raises(type(e)):
            braze.compile(call)(*args)
        return
    answers = eager_answers(call, args)
    explained = braze.explain(call, *args)
    assert explained.graph_count == 1, explained
    bad = wrong(name, explained.output, answers, args)
    assert not bad, (len(bad), bad[:: 1 + len(bad) // 5])
    n = max(a.numel() for a in args)
    for size in (1, 16, 37):  # a scalar kernel, one vector, vectors and a part of one
        fast, starts = (
            braze.compile(call, dynamic=False),
            range(0, n - size + 1, max(1, n // 100 if size == 1 else size)),
        )
        for start in starts:
            part = [a[start : start + size].clone() if a.dim() else a for a in args]
            bad = wrong(name, fast(*part), [[t[start : start + size] for t in a] for a in answers], part)
            assert not bad, (size, start, bad)


CASES = [
    (row["name"], row["aten"], given)
    for row in rows()
    if row["cls"] == "Pointwise" and row["name"] not in SKIP
    for given in [{}, *MORE.get(row["name"], [])]
]


@pytest.mark.parametrize("name,aten,given", CASES, ids=["-".join([c[0], *map(str, c[2].values())]) for c in CASES])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool],
    ids=str,
)
def test_special_values(name, aten, given, dtype):
    if given and not dtype.is_floating_point:
        pytest.skip("the values are floats'")
    call, n = call_of(operator(aten), given)
    if call is None:
        pytest.skip("arguments that the schema does not give")
    if not dtype.is_floating_point and name in ("mish_backward", "threshold_backward"):
        pytest.skip("PyTorch decomposes it while tracing, into operators that take integers")
    if dtype == torch.bool and "shift" in name:
        pytest.skip("eager refuses it, and so does its Meta kernel for a part of the forms")
    if name == "copysign_Scalar" and not dtype.is_floating_point:
        pytest.skip("eager gives the sign of an integer zero")
    args = inputs(dtype, n)
    if name.startswith(("where", "masked_fill")):
        at = 1 if name.startswith("masked") else 0
        args[at] = args[at] != 0
        args = args if name != "masked_fill_Tensor" else [args[0], args[1], args[2][0].clone()]
    check(name, call, args)


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_special_values_of_python_operators(text, dtype):
    n = 2 if "y" in text else 1
    call = eval(f"lambda {', '.join('xy'[:n])}: {text}", {"inf": INF, "nan": NAN})
    check(text, call, inputs(dtype, n))


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_operands_of_other_dtypes_are_rounded_to_16_bits(dtype):
    x, i, t = (torch.rand(1000) * 8 + 0.1).to(dtype), torch.arange(1000) + 257, torch.tensor(0.1, dtype=torch.float64)
    cases = [
        lambda x, i, t: (x + 0.1, 0.1 - x, x - 0.1, x % 0.3, 3.3 % x, torch.fmod(x, 0.3), t / x, x + t, t % x),
        lambda x, i, t: (x + i, i - x, x * i, i / x, x / i, torch.remainder(i, x)),
        lambda x, i, t: (
            x * 0.1,
            x / 0.3,
            x * t,
            x / t,
            x // 0.3,
            torch.div(x, 0.3, rounding_mode="trunc"),
        ),  # numbers stay floats
    ]
    for f in cases:
        for k, (want, got) in enumerate(zip(f(x, i, t), braze.compile(f, fullgraph=True)(x, i, t))):
            assert torch.equal(want, got), (k, (want != got).sum())
