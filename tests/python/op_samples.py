"""Compares one call of a function, compiled, with eager: what opinfo_test.py and module_db_test.py share."""

import dataclasses

import torch

import braze

# Eager's own error against float64 may be this many times exceeded; a few units in the last place always may.
TIMES, ULPS = 2.0, 4.0


def rebuild(obj, leaf):
    """A copy of nested lists, tuples and dicts with `leaf` applied to what they hold."""
    if isinstance(obj, (list, tuple)):
        parts = [rebuild(o, leaf) for o in obj]
        return type(obj)(*parts) if hasattr(obj, "_fields") else type(obj)(parts)
    if isinstance(obj, dict):
        return {k: rebuild(v, leaf) for k, v in obj.items()}
    return leaf(obj)


def leaves(obj):
    """The leaves in order: tensors and everything else that is not a list, tuple or dict."""
    if isinstance(obj, (list, tuple)):
        return [x for o in obj for x in leaves(o)]
    if isinstance(obj, dict):
        return [x for o in obj.values() for x in leaves(o)]
    if dataclasses.is_dataclass(obj):
        return [x for f in dataclasses.fields(obj) for x in leaves(getattr(obj, f.name))]
    return [obj]


def fresh(obj):
    """A copy in which tensors have the same layout and what shared storage still does."""
    storages = {}

    def leaf(t):
        if not isinstance(t, torch.Tensor):
            return t
        if t.layout != torch.strided or t.is_quantized or type(t) not in (torch.Tensor, torch.nn.Parameter):
            return t.detach().clone().requires_grad_(t.requires_grad)
        key = t.untyped_storage()._cdata
        if key not in storages:
            storages[key] = t.untyped_storage().clone()
        copy = torch.empty(0, dtype=t.dtype).set_(storages[key], t.storage_offset(), t.size(), t.stride())
        copy = copy.conj() if t.is_conj() else copy
        copy = copy._neg_view() if t.is_neg() else copy
        return copy.requires_grad_(t.requires_grad)

    with torch.no_grad():
        return rebuild(obj, leaf)


def double(obj):
    """The same in float64 (complex128), or None where nothing would change."""
    changed = False

    def leaf(x):
        nonlocal changed
        if isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float16, torch.bfloat16):
            changed = True
            return x.detach().double()
        if isinstance(x, torch.Tensor) and x.dtype == torch.complex64:
            changed = True
            return x.detach().to(torch.complex128)
        if x in (torch.float32, torch.float16, torch.bfloat16) if isinstance(x, torch.dtype) else False:
            changed = True
            return torch.float64
        if isinstance(x, torch.dtype) and x == torch.complex64:
            changed = True
            return torch.complex128
        return x.detach() if isinstance(x, torch.Tensor) else x

    copy = rebuild(obj, leaf)
    return copy if changed else None


def plain(t):
    """Values as float64 or complex128, without lazy bits."""
    t = t.detach().resolve_conj().resolve_neg()
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def close(want, got, exact, where, times=TIMES, ulps=ULPS):
    """Floats: no further from float64's result than TIMES what eager's are; where there is none, assert_close."""
    infinite = torch.isnan(want) if not want.is_complex() else torch.isnan(want.real) | torch.isnan(want.imag)
    found = torch.isnan(got) if not got.is_complex() else torch.isnan(got.real) | torch.isnan(got.imag)
    assert torch.equal(infinite, found), f"{where}: NaN in {int(found.sum())} places, expected in {int(infinite.sum())}"
    w, g = plain(want), plain(got)
    ends = torch.isinf(w)
    assert torch.equal(ends, torch.isinf(g)) and torch.equal(w[ends], g[ends]), f"{where}: infinities differ"
    finite = ~ends & ~infinite
    if not finite.any():
        return
    w, g = w[finite], g[finite]
    eps = torch.finfo(want.dtype).eps
    if exact is not None and exact.shape == want.shape and exact.is_complex() == want.is_complex():
        e = plain(exact)[finite]
        if torch.isfinite(e).all():
            ours, eagers = (g - e).abs(), (w - e).abs()
            bound = times * eagers.max() + ulps * eps * e.abs().max()
            if eagers.max() <= 0.01 * e.abs().max() + 1e3 * eps or ours.max() <= bound:
                assert ours.max() <= bound, (
                    f"{where}: error {ours.max():.3g}, eager's {eagers.max():.3g}, largest value {e.abs().max():.3g}"
                )
                return
    torch.testing.assert_close(g, w, rtol=1e3 * eps, atol=1e3 * eps, msg=lambda m: f"{where}: {m}")


def same_value(want, got, exact, where, values=True, **bounds):
    assert type(want) is type(got), f"{where}: {type(got).__name__}, expected {type(want).__name__}"
    if not isinstance(want, torch.Tensor):
        if isinstance(want, (float, complex)):
            torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"{where}: {m}")
        elif values:
            assert want == got or want != want, f"{where}: {got!r}, expected {want!r}"
        return
    assert want.dtype == got.dtype, f"{where}: {got.dtype}, expected {want.dtype}"
    assert want.layout == got.layout, f"{where}: {got.layout}, expected {want.layout}"
    assert want.shape == got.shape, f"{where}: {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert want.requires_grad == got.requires_grad, f"{where}: requires_grad {got.requires_grad}"
    if want.layout != torch.strided or want.is_quantized:
        flat = lambda t: t.dequantize() if t.is_quantized else t.to_dense()
        want, got = flat(want), flat(got)
        exact = exact.to_dense() if isinstance(exact, torch.Tensor) else None
    else:
        strides = [(a, b) for n, a, b in zip(want.shape, want.stride(), got.stride()) if n > 1]
        assert want.numel() == 0 or all(a == b for a, b in strides), (
            f"{where}: strides {got.stride()}, expected {want.stride()}"
        )
    if not values or want.numel() == 0:
        return
    if want.is_floating_point() or want.is_complex():
        close(want.detach(), got.detach(), exact.detach() if isinstance(exact, torch.Tensor) else None, where, **bounds)
    else:
        assert torch.equal(want, got), f"{where}: {int((want != got).sum())} of {want.numel()} elements differ"


def storages(values):
    """For each tensor, the first place in the list with the same storage."""
    seen, places = {}, []
    for i, t in enumerate(values):
        if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.untyped_storage().nbytes():
            places.append(seen.setdefault(t.untyped_storage().data_ptr(), i))
        else:
            places.append(None)
    return places


def same(want, got, exact, before_want, before_got, values=True):
    """Results, what they share with each other and with the arguments, and the arguments after the call."""
    a, b = leaves(want), leaves(got)
    assert len(a) == len(b), f"{len(b)} results, expected {len(a)}"
    e = leaves(exact) if exact is not None else []
    e = e if len(e) == len(a) else [None] * len(a)
    for i, (w, g, x) in enumerate(zip(a, b, e)):
        same_value(w, g, x, f"result {i}", values)
    in_want, in_got = leaves(before_want), leaves(before_got)
    for i, (w, g) in enumerate(zip(in_want, in_got)):
        if isinstance(w, torch.Tensor):
            same_value(w, g, None, f"argument {i} after the call", values)
    assert storages(in_want + a) == storages(in_got + b), "results share other storage than eager's"


def outcome(fn, *args, **kwargs):
    try:
        return fn(*args, **kwargs), None
    except Exception as e:
        return None, e


def check(fn, args, kwargs, values=True, seed=True):
    """Calls `fn` eagerly and compiled on equal arguments and compares. Answers the Explanation, or None if eager raises."""
    (args_want, kw_want), (args_got, kw_got) = fresh((args, kwargs)), fresh((args, kwargs))
    torch.manual_seed(0)
    want, error = outcome(fn, *args_want, **kw_want)
    torch.manual_seed(0)
    if error is not None:
        got, raised = outcome(braze.compile(fn, options={"rng": "eager"}), *args_got, **kw_got)
        # Some versions of eager lack a kernel for a dtype; a decomposition may do without it.
        lacks_kernel = isinstance(error, NotImplementedError) and "not implemented for" in str(error)
        assert type(raised) is type(error) or (lacks_kernel and raised is None), (
            f"raised {raised!r}, expected {error!r}"
        )
        return None
    explained = braze.explain(braze.compile(fn, options={"rng": "eager"}), *args_got, **kw_got)
    exact = None
    doubled = double((args, kwargs)) if values else None
    if doubled is not None:
        torch.manual_seed(0)
        exact, _ = outcome(fn, *doubled[0], **doubled[1])
    same(want, explained.output, exact, (args_want, kw_want), (args_got, kw_got), values)
    return explained
