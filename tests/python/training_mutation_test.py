"""Compiled regions that write to tensors with a history: data, histories, gradients and errors are eager's, and the region is one graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import braze


def leaf(*shape, **kw):
    return torch.randn(shape, requires_grad=True, **kw)


def tensors(out):
    if isinstance(out, (list, tuple)):
        return [t for o in out for t in tensors(o)]
    return [out] if isinstance(out, torch.Tensor) else []


def observe(fn, make):
    """What a call shows: results, arguments, histories, memory, and the gradients of the leaves by a weighted sum of all."""
    torch.manual_seed(0)
    leaves, args = make()
    out = tensors(fn(*args))
    everything = [*args, *out]
    shown = [t.detach().clone() for t in everything]
    facts = [(t.requires_grad, t.is_leaf, t.grad_fn is None) for t in everything]
    memory = [
        [i for i, u in enumerate(everything) if u.untyped_storage()._cdata == t.untyped_storage()._cdata]
        for t in everything
    ]
    roots = [t for t in everything if t.requires_grad and not t.is_leaf]
    sum(
        ((i + 1) * (t * torch.linspace(1, 2, t.numel()).view(t.shape)).sum() for i, t in enumerate(roots)),
        torch.zeros((), requires_grad=True),
    ).backward()
    return shown, facts, memory, [x.grad for x in leaves]


def check(fn, make, compiled=True):
    if compiled:
        torch.manual_seed(0)
        e = braze.explain(fn, *make()[1])
        assert e.graph_count == 1 and e.graph_break_count == 0 and "runs compiled" in e.graphs[0], e
    want, f = observe(fn, make), braze.compile(fn)
    for _ in range(2):
        got = observe(f, make)
        for part, (a, b) in enumerate(zip(want, got)):
            if part in (0, 3):
                torch.testing.assert_close(b, a)
            else:
                assert a == b, (part, a, b)


def inner(*shape):
    """A tensor that was computed from a leaf."""

    def make():
        x = leaf(*shape)
        return [x], (x * 1.5,)

    return make


def inner_and_leaf():
    x, y = leaf(3, 4), leaf(3, 4)
    return [x, y], (x * 1.5, y)


def plain_and_leaf():
    y = leaf(3, 4)
    return [y], (torch.randn(3, 4), y)


def part_of_inner():
    x = leaf(4, 4)
    base = x * 1.5
    return [x], (base[1:3], base.sum(0))


def scaled(a):
    a.mul_(2)
    return a * 3


def returned(a):
    a.mul_(2).add_(1)
    return a


def views(a):
    a.sin_()
    return a.view(-1), a[0], a.t()


def through_a_view(a):
    a.view(-1)[2:5].mul_(3)
    return a.cos()


def filled(a):
    a[0] = 1.0
    return a.exp()


def emptied(a):
    a.zero_()
    return a + 1


def nothing(a):
    a.mul_(2)


def under_no_grad(a):
    with torch.no_grad():
        a.mul_(2)
    return a.sin()


@pytest.mark.parametrize("fn", [scaled, returned, views, through_a_view, filled, emptied, nothing, under_no_grad])
def test_a_computed_argument(fn):
    check(fn, inner(3, 4))


def added(a, b):
    a.add_(b)
    return a.sum() + b


def copied(a, b):
    a.copy_(b)
    return (a * b).sum()


def part_copied(a, b):
    a[1:].copy_(b[:1] * 2)
    return a.sin()


def swapped(a, b):
    old = a.clone()
    a.copy_(b * 2)
    return old * b


@pytest.mark.parametrize("make", [inner_and_leaf, plain_and_leaf])
@pytest.mark.parametrize("fn", [added, copied, part_copied, swapped])
def test_the_history_of_another_argument(fn, make):
    check(fn, make)


def test_a_part_of_a_computed_tensor():
    def fn(part, other):
        part.mul_(other)
        return part.sum()

    check(fn, part_of_inner, compiled=False)  # the two share memory


def test_the_base_of_a_part_takes_part():
    def run(fn):
        torch.manual_seed(0)
        x = leaf(4, 4)
        base = x * 1.5
        fn(base[1:3])
        (base * torch.arange(16.0).view(4, 4)).sum().backward()
        return x.grad

    def fn(part):
        part.mul_(3)

    torch.testing.assert_close(run(braze.compile(fn)), run(fn))


def test_leaves_are_not_written_to():
    f = braze.compile(lambda a: a.mul_(2))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        f(leaf(3))


def test_one_of_several_views_is_not_written_to():
    def run(fn):
        a, b = (leaf(4) * 2).chunk(2)
        fn(a)

    for f in (lambda a: a.mul_(2), braze.compile(lambda a: a.mul_(2))):
        with pytest.raises(RuntimeError, match="multiple views"):
            run(f)


def test_steps_that_pass_a_state_on():
    def run(fn):
        torch.manual_seed(0)
        w, state = leaf(3, 3), torch.zeros(3)
        losses = []
        for i in range(4):
            losses.append(fn(state, w, torch.full((3,), float(i + 1))))
        sum(losses).backward()
        return state.detach(), w.grad

    def fn(state, w, x):
        state.add_(torch.tanh(w @ x))
        return state.sum()

    torch.testing.assert_close(run(braze.compile(fn)), run(fn))


# ---- what a tensor made inside keeps ----


def test_a_result_keeps_its_gradient():
    def fn(x):
        y = x.sin()
        y.retain_grad()
        return y, y * 2

    x = leaf(3)
    y, z = braze.compile(fn)(x)
    z.sum().backward()
    torch.testing.assert_close(y.grad, torch.full((3,), 2.0))


def test_a_gradient_that_was_taken_inside_is_kept():
    def fn(x):
        y = x.sin()
        y.retain_grad()
        w = torch.ones(3, requires_grad=True)
        (y * w).sum().backward()
        return y, w

    x = leaf(3)
    for f in (fn, braze.compile(fn)):
        x.grad = None
        y, w = f(x)
        torch.testing.assert_close(y.grad, torch.ones(3))
        torch.testing.assert_close(w.grad, x.detach().sin())
        torch.testing.assert_close(x.grad, x.detach().cos())


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_of_modules(register):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.b(self.a(x.sin()).relu()).cos()

    def run(compiled):
        torch.manual_seed(0)
        m, seen = Two(), []

        def hook(module, grads, *more):
            seen.append([g is not None and tuple(g.shape) for g in grads])
            return tuple(g * 2 for g in grads)

        getattr(m.a, register)(hook)
        x = leaf(3, 4)
        f = braze.compile(m) if compiled else m
        for _ in range(2):
            f(x).sum().backward()
        return x.grad, [p.grad for p in m.parameters()], seen

    want, got = run(False), run(True)
    torch.testing.assert_close(got[:2], want[:2])
    assert got[2] == want[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("indices", [torch.int64, torch.int32])
def test_embedding_bags_are_trained(mode, dtype, indices):
    i, o = torch.tensor([0, 1, 1, 5], dtype=indices), torch.tensor([0, 2])
    for kw in ({}, {"include_last_offset": True}, {"padding_idx": 1}):
        w = leaf(6, 3, dtype=dtype)
        fn = lambda w: F.embedding_bag(
            i, w, torch.tensor([0, 2, 4]) if kw.get("include_last_offset") else o, mode=mode, **kw
        )  # noqa: B023
        e = braze.explain(fn, w)
        assert e.training_graph_count == 1
        e.output.float().pow(2).sum().backward()
        got, w.grad = w.grad, None
        fn(w).float().pow(2).sum().backward()
        torch.testing.assert_close(got, w.grad)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: F.multi_margin_loss(x, torch.tensor([0, 2, 1])),
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 2, -1], [1, -1, 0], [2, 1, 0]])),
    ],
)
def test_losses_whose_backward_has_no_meta_kernel(loss):
    x = leaf(3, 3)
    e = braze.explain(loss, x)
    assert e.training_graph_count == 1
    e.output.backward()
    got, x.grad = x.grad, None
    loss(x).backward()
    torch.testing.assert_close(got, x.grad)


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.l1_loss])
def test_losses_of_nothing(loss):
    x = leaf(0, 3)
    e = braze.explain(loss, x, torch.zeros(0, 3))
    assert e.training_graph_count == 1
    assert e.output.isnan()
    e.output.backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize(
    "fn, counts",
    [
        (lambda a: a.mul_(2).add_(1), 2),
        (lambda a: a.data.mul_(2), 0),
        (lambda a: a[0].add_(1), 1),
        (lambda a: (a.view(-1).mul_(2), a.add_(1)), 2),
    ],
    ids=["twice", "data", "part", "view"],
)
@pytest.mark.parametrize("make", [lambda: torch.zeros(3, 4), lambda: leaf(3, 4) * 2])
def test_version_counters(fn, counts, make):
    for f in (fn, braze.compile(lambda a: (fn(a), None)[1])):
        a = make()
        before = a._version
        f(a)
        assert a._version - before == counts


def test_running_statistics_count_no_versions():
    m = nn.BatchNorm1d(4)
    other = nn.BatchNorm1d(4)
    m(torch.randn(3, 4)), braze.compile(other)(torch.randn(3, 4))
    assert [b._version for b in other.buffers()] == [b._version for b in m.buffers()]


# ---- leaves made inside, recurrent layers ----


def forces(w, positions):
    positions = positions.detach().requires_grad_()
    energy = torch.tanh(positions @ w).pow(2).sum()
    (g,) = torch.autograd.grad(energy, positions, create_graph=True)
    return energy.detach(), -g


def test_a_gradient_with_respect_to_a_leaf_made_inside_is_trained():
    w, x = leaf(3, 5), torch.randn(4, 3)
    e = braze.explain(forces, w, x)
    assert e.graph_break_count == 0 and e.training_graph_count == 1, e
    results = []
    for f in (forces, braze.compile(forces)):
        energy, force = f(w, x)
        results.append((energy, force.detach(), torch.autograd.grad(force.pow(2).sum(), w)))
    torch.testing.assert_close(results[1], results[0])


def test_a_result_of_nothing_but_a_leaf_made_inside():
    def fn(x):
        w = torch.ones(3, requires_grad=True)
        return (w * x).sum()

    y = braze.compile(fn)(torch.ones(3))
    assert y.requires_grad and not y.is_leaf
    y.backward()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("kw", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}])
def test_recurrent_layers_are_trained(kind, kw):
    m, x = kind(4, 5, **kw), leaf(3, 6, 4)
    e = braze.explain(m, x)
    assert e.graph_break_count == 0 and e.training_graph_count == 1, e
    results = []
    for f in (m, braze.compile(m)):
        m.zero_grad()
        x.grad = None
        out, state = f(x)
        (out.sin().sum() + sum(s.pow(2).sum() for s in (state if isinstance(state, tuple) else [state]))).backward()
        results.append((out.detach(), x.grad, [p.grad for p in m.parameters()]))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def copied_result(a, t):
    u = a - t
    return u, u.clone() * t


def result_computed_twice(a, t):
    u = a - t
    v = a - t
    return u, v * v * t


def copied_argument(a, t):
    return a, a.clone() * t


def copied_part(a, t):
    u = a[:, 1:]
    return u, u.clone() * t[:, 1:]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("fn", [copied_result, result_computed_twice, copied_argument, copied_part])
def test_the_backward_keeps_a_copy_of_what_the_program_may_write_to(fn, written):
    """Eager keeps other memory with the same content there, so that a write before the backward is allowed."""

    def gradients(f, order):
        torch.manual_seed(0)
        x, y = leaf(4, 4), leaf(4, 4)
        first, second = f(x * 1, y * 1)
        if written:
            first.detach().data.add_(5)
        got = torch.autograd.grad(second.sin().sum(), [x, y], create_graph=order == 2)
        return got if order == 1 else torch.autograd.grad(sum(g.tanh().sum() for g in got), [x, y])

    compiled = braze.compile(fn, fullgraph=True)
    for order in (1,) if written else (1, 2):
        torch.testing.assert_close(gradients(compiled, order), gradients(fn, order))


@pytest.mark.parametrize(
    "mask, value", [((2, 5), (4,)), ((2, 5), (1,)), ((2, 5), ()), ((2, 5, 4), ()), ((2,), (5, 4)), ((2,), (4,))]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_value_put_where_a_mask_says(mask, value, dynamic):
    def f(h, mask, v):
        h = h * 2
        h[mask] = v.to(h.dtype)
        return h.sin()

    torch.manual_seed(0)
    h, m, v = torch.randn(2, 5, 4, requires_grad=True), torch.rand(mask) > 0.5, torch.randn(value, requires_grad=True)
    got = braze.compile(f, fullgraph=True, dynamic=dynamic)(h, m, v)
    torch.testing.assert_close(got, f(h, m, v))
    torch.testing.assert_close(torch.autograd.grad(got.sum(), (h, v)), torch.autograd.grad(f(h, m, v).sum(), (h, v)))


def test_a_value_of_another_size_put_where_a_mask_says():
    def f(h, mask, v):
        h = h * 2
        h[mask] = v
        return h

    h, m, v = torch.randn(2, 3, requires_grad=True), torch.tensor([True, False]), torch.randn(2, requires_grad=True)
    for g in (f, braze.compile(f)):
        with pytest.raises(Exception, match="shape mismatch"):
            g(h, m, v)
