"""Lazy conjugates and negatives: x.conj() is a view of x that carries a bit. What compiled code returns carries the same bits
and lies on the same memory as what eager PyTorch returns."""

import pytest
import torch
from harness import Cases, Graphs, same

import braze


def x(*shape, dtype=torch.complex64, grad=False):
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def bits(v):
    if isinstance(v, torch.Tensor):
        return v.is_conj(), v.is_neg(), v.stride()
    return [bits(i) for i in v] if isinstance(v, (tuple, list)) else v


def flat(v):
    return (
        [v] if isinstance(v, torch.Tensor) else [t for i in v for t in flat(i)] if isinstance(v, (tuple, list)) else []
    )


def shared(tensors):
    return [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in tensors] for a in tensors]


def after_writes(tensors):
    """What all hold after a write to each: aliases show it."""
    seen = []
    with torch.no_grad():
        for i, t in enumerate(tensors):
            t += i + 1
            seen.append([u.clone() for u in tensors])
    return seen


RETURNED = Cases()
case = RETURNED


@case()
def conjugate(x):
    return x.conj()


@case()
def conjugate_of_a_result(x):
    return (x * 2).conj()


@case()
def both(x):
    y = x * 2
    return y, y.conj(), y.conj().conj()


@case()
def two_conjugates_of_what_is_not_returned(x):
    y = x * 2
    return y.conj(), y.conj()


@case()
def twice_the_same(x):
    y = (x * 2).conj()
    return y, y


@case()
def transposed(x):
    y = x * 2
    return y.mH, x.mH, torch.adjoint(x), x.conj().T[1:]


@case()
def imaginary_part(x):
    y = x.conj()
    return y.imag, y.real, x.imag


@case()
def negative_view(x):
    return torch._neg_view(x.real), torch._neg_view((x * 2).real)


@case()
def asked(x):
    y = x.conj()
    return y.is_conj(), x.is_conj(), y.conj().is_conj(), y.imag.is_neg(), y.resolve_conj().is_conj(), y.mH.is_conj()


@case()
def resolved(x):
    y = x.conj()
    return (
        y.resolve_conj(),
        y.imag.resolve_neg(),
        torch.conj_physical(y),
        y.clone(),
        y.contiguous(),
        x.resolve_conj() is x,
    )


@case()
def written(x):
    y = x * 2
    z = y.conj()
    z += x
    return y, z


@case()
def written_in_part(x):
    y = x * 2
    z = y.conj().T
    z[1:].mul_(x.T[1:])
    return y, z, z.conj()


@case()
def base_written(x):
    y = x * 2
    z = y.conj()
    y[0] += x[1]
    return y, z


@case()
def imaginary_part_written(x):
    y = x * 2
    z = y.conj().imag
    z += 3
    return y, z


@case()
def used(x):
    y = x.conj()
    return y @ x.T, torch.vdot(y[0], x[1]), y.abs(), (y * y).sum(), y.view(-1), y.reshape(2, -1), torch.stack([y, x])


@case()
def detached(x):
    y = (x * 2).conj()
    return y, y.detach()


@case()
def split(x):
    a, b = (x * 2).conj().split(2, 1)
    return a, b, a.is_conj()


@case()
def of_real_numbers(x):
    return x.real.conj(), x.real.conj().is_conj()


def run(fn, make, mode):
    arg = make()
    with mode():
        out = fn(arg)
        tensors = [*flat(out), arg]
        facts = bits(out), shared(tensors)
        return facts, out, tensors


# Whose writes or results have no form in a graph: they may break it.
PARTS = {
    "imaginary_part",
    "imaginary_part_written",
    "negative_view",
    "of_real_numbers",
    "written_in_part",
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fn, args, kw", RETURNED)
def test_results_carry_bits_and_alias_as_in_eager(fn, args, kw, mode):
    compiled = braze.compile(fn, fullgraph=fn.__name__ not in PARTS)
    for _ in range(2):
        want_facts, want, want_tensors = run(fn, lambda: x(3, 4), mode)
        got_facts, got, got_tensors = run(compiled, lambda: x(3, 4), mode)
        assert got_facts == want_facts
        same(want, got)
        with mode():
            same(after_writes(want_tensors), after_writes(got_tensors))


@pytest.mark.parametrize("fn, args, kw", RETURNED)
def test_gradients_of_lazy_results(fn, args, kw):
    def gradient(f):
        arg = x(3, 4, grad=True)
        out = f(arg)
        tensors = [t for t in flat(out) if t.requires_grad]
        loss = sum(((i + 1) * t * t.conj() * t).real.sum() for i, t in enumerate(tensors))
        if not tensors:
            return bits(out), None
        loss.backward()
        return bits(out), arg.grad.resolve_conj()

    compiled = braze.compile(fn)
    for _ in range(2):
        want, got = gradient(fn), gradient(compiled)
        assert want[0] == got[0]
        same(want[1], got[1])


def test_writes_to_an_input_through_its_conjugate():
    def f(x):
        x.conj().mul_(torch.complex(x.imag, x.real))
        x.conj().imag.add_(2)
        return x.conj()

    compiled = braze.compile(f, fullgraph=True)
    a, b = x(3, 4), x(3, 4)
    want, got = f(a), compiled(b)
    same(a, b)
    same(want, got)
    assert got.is_conj() and got.data_ptr() == b.data_ptr()
    b += 1j
    same(b.conj().resolve_conj(), got.resolve_conj())


def test_the_conjugate_of_a_leaf_is_not_written():
    def f(x):
        return x.conj().add_(1)

    with pytest.raises(RuntimeError, match="view of a leaf"):
        braze.compile(f)(x(3, grad=True))


def test_the_memory_of_a_lazy_conjugate_is_no_pair_of_reals():
    def f(x):
        return torch.view_as_real(x.conj())

    def g(x):
        return x.conj().view(torch.float32)

    for fn in (f, g):
        with pytest.raises(RuntimeError) as want:
            fn(x(3, 4))
        with pytest.raises(RuntimeError) as got:
            braze.compile(fn)(x(3, 4))
        assert str(got.value).split(".")[0] == str(want.value).split(".")[0]


@pytest.mark.parametrize("backend", ["braze", Graphs()])
def test_arguments_with_bits_are_told_from_plain_ones(backend):
    def f(x):
        return x * 2, x.is_conj(), x.is_neg()

    compiled = braze.compile(f, backend=backend)
    for arg in (
        x(3, 4),
        x(3, 4).conj(),
        torch._neg_view(x(3, 4)),
        x(3, 4).conj(),
        x(3, 4),
        torch._neg_view(x(3, 4).conj()),
    ):
        same(f(arg), compiled(arg))


def test_arguments_with_bits_are_written():
    def f(x):
        x += 1j
        return x

    compiled = braze.compile(f)
    for make in (lambda: x(3, 4).conj(), lambda: torch._neg_view(x(3, 4)), lambda: x(3, 4).conj().imag):
        a, b = make(), make()
        if not a.is_complex():
            continue
        same(f(a).resolve_conj().resolve_neg(), compiled(b).resolve_conj().resolve_neg())
        same(a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg())


def test_a_lazy_conjugate_beyond_a_graph_break():
    def f(x):
        y = (x * 2).conj()
        braze.graph_break()
        y += 1j
        return y, y.is_conj(), torch.view_as_real(y.resolve_conj())

    want, got = f(x(3, 4)), braze.compile(f)(x(3, 4))
    assert bits(want) == bits(got)
    same(want, got)


def test_saved_for_the_backward():
    def f(x, w):
        y = (x * w).conj()
        return y, (y * y).real.sum()

    def step(fn):
        a, w = x(3, 4, grad=True), x(3, 4, grad=True)
        y, s = fn(a, w)
        (s + y.imag.sum()).backward()
        return y.is_conj(), y.detach().resolve_conj(), a.grad.resolve_conj(), w.grad.resolve_conj()

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        same(step(f), step(compiled))


def test_a_result_written_between_forward_and_backward_is_noticed():
    def f(x):
        y = (x * 2).conj()
        return y, (y * y).real.sum()

    y, s = braze.compile(f, fullgraph=True)(x(3, 4, grad=True))
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        s.backward()


def test_second_derivatives():
    def f(x):
        y = (x * x).conj()
        return y, y.conj()

    def twice(fn):
        a = x(3, dtype=torch.complex128, grad=True)
        y, z = fn(a)
        (g,) = torch.autograd.grad((y * y * z).real.sum(), a, create_graph=True)
        (h,) = torch.autograd.grad((g * g.conj()).real.sum(), a)
        return g.detach().resolve_conj(), h.resolve_conj()

    same(twice(f), twice(braze.compile(f, fullgraph=True)))


def test_numpy_refuses_them():
    for f in (lambda a: a.conj().numpy(), lambda a: a.conj().imag.numpy(), lambda a: torch._neg_view(a).numpy()):
        for fn in (f, braze.compile(f)):
            with pytest.raises(RuntimeError, match="bit set"):
                fn(x(3))
    assert (braze.compile(lambda a: a.conj().numpy(force=True))(x(3)) == x(3).conj().resolve_conj().numpy()).all()
