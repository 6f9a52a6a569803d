"""Sizes and numbers that only the run knows: under fullgraph=True they are unbacked symbols, without it graph breaks."""

import pytest
import torch
import torch.nn.functional as F
from dynamic_test import Counted, r
from harness import outcome, same

import braze

T = torch.tensor


def inputs():
    """Data of one size whose values select nothing, one element, some, all."""
    x = r(6, 5)
    return [x, -x.abs(), x.abs() + 1, torch.where(torch.arange(30).view(6, 5) == 7, 1.0, -1.0), torch.zeros(6, 5)]


def sweep(fn, args, most=1, tol=1e-5, **kw):
    """Each tuple of arguments against eager, in one graph without breaks."""
    for backend in ("braze", "eager"):
        c = (
            Counted(fn, fullgraph=True, backend=backend, **kw)
            if backend == "braze"
            else braze.compile(fn, fullgraph=True, backend=backend, **kw)
        )
        for a in args:
            a = a if isinstance(a, tuple) else (a,)
            want, got = outcome(fn, a, {}), outcome(c, a, {})
            assert want[0] == got[0], f"{backend}: {got}, expected {want}"
            same(want[1], got[1], backend, tol) if want[0] == "returned" else None
            if want[0] == "raised":
                assert want[1][0] is got[1][0], f"{backend}: {got}, expected {want}"
        if backend == "braze":
            assert c.count <= most and not c.breaks, c.count


def chain(x):
    i = (x > 0).nonzero()
    return torch.relu(i.float() * 2 + 1).sum(1) - 3


def mask_then_pointwise(x):
    y = x[x > 0]
    return torch.sin(y) * 2 + y


def pairs_of_one_mask(x):
    m = x > 0
    return x[m] + (x * 2)[m], x[m].shape[0]


def rows(x):
    keep = x.sum(1) > 0
    y = x[keep]
    return y * 2, y.sum(0), y @ torch.ones(5, 3), y.shape


def softmax_of_rows(x):
    return torch.softmax(x[x[:, 0] > 0], 1), F.layer_norm(x[x[:, 0] > 0], (5,))


def where_one(x):
    a, b = torch.where(x > 0)
    return a + b, x[a, b]


def select(x):
    return torch.masked_select(x, x > 0) + 1, torch.masked_select(x, T([True, False, True, True, False]))


def unique(x):
    v, inverse, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
    return v * 2, v[inverse], counts.sum()


def unique_rows(x):
    return torch.unique(x.round().clamp(-1, 1), dim=0).sum(1), torch.unique_consecutive(x.round()).cumsum(0)


def repeats(x):
    n = (x.sum(1) > 0).long() + 1
    return x.repeat_interleave(n, dim=0) * 2


def bins(x):
    return torch.bincount((x.abs() * 3).long().flatten(), minlength=2) + 1


def reductions(x):
    y = x[x > 0]
    return y.sum(), y.mean(), (y * 2).prod(), y.cumsum(0), y.any(), torch.linalg.vector_norm(y)


def shapes(x):
    y = x[x[:, 1] > 0]
    n = y.shape[0]
    return (
        y.reshape(-1),
        y.t(),
        y.unsqueeze(1).expand(-1, 2, -1) + 1,
        torch.cat([y, y * 2]),
        torch.stack([y, y]),
        torch.zeros(n, 3),
        y.new_ones(n),
        torch.arange(n),
        y.flip(0),
        y.view(n, 5, 1),
        y.repeat(2, 1),
        F.pad(y, (1, 1)),
        n * 2 + 1,
        y.numel(),
        n >= 0,
    )


def slices(x):
    n = int((x > 0).sum())
    z = torch.arange(20)
    return z[:n], z[n:], z[-n:], z[: n - 4] * 2, z[n - 10 :], z[n : n + 3]


def item_as_operand(x):
    n = (x > 0).sum().item()
    return x * n + n // 3 - (n % 4), n, n + 1, -n


def item_as_size(x):
    n = (x > 0).sum().item()
    torch._check_is_size(n)
    return torch.ones(n, 2).sum(), torch.arange(n).float() * 2, torch.zeros(n + 1)


def narrowed(x):
    n = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.numel())
    return x.view(-1).narrow(0, 0, n) * 2


def listed(x):
    a, b = (x > 0).sum(0)[:2].tolist()
    return x[:a].sum() + x[:, :b].sum(), a, [b, a + b]


def literal(x):
    n = T(3).item()
    return x[:n] if n > 2 else x, [i * 2 for i in T([1, 2]).tolist()]


def truth_as_number(x):
    return x * int(x.sum() > 0), int((x > 0).any())


def element(x):
    i = int((x > 0).sum()) // 7
    torch._check(i < 6)
    return x[i] * 2, x[:, i // 2]


def writes_an_element(x):
    i = int((x > 0).sum()) // 7
    torch._check(i < 6)
    y = x.clone()
    y[i] = 5.0
    y[..., 1, i - 4] = 3.0
    y[i][0] += 1
    return y, x[None, i, 1:3], x[1, ..., -i // 2]


def extremes(x):
    y = x[x[:, 0] > 0]
    return y.amax(1), y.max(1), y.argmax(1), y[:, 0].sort(), y.logsumexp(0), y.norm(), torch.roll(y, 1, 0)


def extremes_of_all(x):
    return x[x > 0].max() * 2


def extremes_of_rows(x):
    return x[x[:, 0] > 0].amax(0) * 2


def place_of_extreme(x):
    return x[x > 0].argmax() * 2


def through_index_put(x):
    m = x > 0
    y = x.clone()
    y[m] = x[m] * 2
    return y


def split_by_sizes(x):
    a, b = [(x[:2] > 0).sum().item(), (x[2:] > 0).sum().item()]
    z = x[x > 0]
    return torch.split(z, [a, b])[1] + 1


PROGRAMS = [
    chain,
    mask_then_pointwise,
    pairs_of_one_mask,
    rows,
    softmax_of_rows,
    where_one,
    select,
    unique,
    unique_rows,
    repeats,
    bins,
    reductions,
    shapes,
    slices,
    item_as_operand,
    item_as_size,
    narrowed,
    listed,
    literal,
    truth_as_number,
    element,
    writes_an_element,
    extremes,
    extremes_of_all,
    extremes_of_rows,
    place_of_extreme,
    through_index_put,
    split_by_sizes,
]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@torch.no_grad()
def test_one_graph_for_all_data(f):
    sweep(f, inputs())


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@torch.no_grad()
def test_with_open_sizes(f):
    sweep(f, [x[:n] for x in inputs() for n in (6,)] + [r(6, 5).repeat(k, 1) for k in (2, 3)], most=3, dynamic=True)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@torch.no_grad()
def test_without_fullgraph(f):
    c = braze.compile(f)
    for x in inputs():
        want, got = outcome(f, (x,), {}), outcome(c, (x,), {})
        assert want[0] == got[0]
        if want[0] == "returned":
            same(want[1], got[1])


@torch.no_grad()
def test_a_chain_after_nonzero_is_one_kernel():
    def f(x):
        i = (x > 0).nonzero()
        return torch.relu(i * 2.5 + 1) - torch.sigmoid(i.float())

    c = Counted(f, fullgraph=True)
    x = r(8, 3)
    same(f(x), c(x))
    (event,) = c.events
    assert event["kernels"] == 2 and event["externs"] == 1, event  # the comparison; the rest


def data_branch(x):
    n = (x > 0).sum().item()
    if n > 3:
        return x * 2
    return x


def test_a_branch_names_line_rule_and_remedy():
    with pytest.raises(braze.Unsupported) as e:
        braze.compile(data_branch, fullgraph=True)(r(4, 4))
    text = str(e.value)
    line = data_branch.__code__.co_firstlineno + 2
    for part in (f"{__file__}:{line}", "if n > 3:", "only the run knows", "torch._check", "u0", f"line {line - 1}"):
        assert part in text, text


def test_a_check_decides_the_branch():
    def f(x):
        n = (x > 0).sum().item()
        torch._check(n > 3, lambda: "too few of them")
        return x * 2 if n > 3 else x

    x = torch.ones(4, 4)
    c = Counted(f, fullgraph=True)
    same(f(x), c(x))
    for fn in (f, c, braze.compile(f, fullgraph=True, backend="eager")):
        with pytest.raises(RuntimeError, match="too few of them"):
            fn(-x)
    same(f(x), c(x))
    assert c.count == 1


def test_checks_that_fail():
    def f(x, i):
        n = i.item()
        torch._check_is_size(n, max=8)
        return torch.zeros(n) + x

    c = Counted(f, fullgraph=True)
    for n in (0, 3, 8):
        same(f(T(1.0), T(n)), c(T(1.0), T(n)))
    for n in (-1, 9, 2**40, -(2**62)):
        for fn in (f, c):
            with pytest.raises(RuntimeError):
                fn(T(1.0), T(n))
    assert c.count == 1


@pytest.mark.parametrize(
    "check, error",
    [
        (torch._check, RuntimeError),
        (torch._check_value, ValueError),
        (torch._check_index, IndexError),
        (torch._check_type, TypeError),
    ],
)
def test_classes_of_errors(check, error):
    def f(i):
        n = i.item()
        check(n != 4, lambda: "not four")
        return i + n

    c = Counted(f, fullgraph=True)
    same(f(T(3)), c(T(3)))
    for fn in (f, c):
        with pytest.raises(error, match="^not four"):
            fn(T(4))


def test_assert_statement():
    scope = {"torch": torch}  # out of pytest's reach, which rewrites assertions
    exec(
        "def f(i):\n n = i.item()\n assert n >= 2, 'at least two'\n return torch.ones(n).sum() + (1 if n >= 1 else 2)",
        scope,
    )
    f = scope["f"]
    c = Counted(f, fullgraph=True)
    same(f(T(3)), c(T(3)))
    for fn in (f, c):
        with pytest.raises(AssertionError, match="at least two"):
            fn(T(1))


def test_negative_sizes_raise_as_in_eager():
    f = lambda i: torch.zeros(i.item() - 2) + 1
    c = Counted(f, fullgraph=True)
    same(f(T(2)), c(T(2))), same(f(T(5)), c(T(5)))
    for fn in (f, c):
        with pytest.raises(RuntimeError, match="egative"):
            fn(T(1))


def test_sizes_that_do_not_match_raise_as_in_eager():
    f = lambda x, y: x[x > 0] + y[y > 0]
    c = Counted(f, fullgraph=True)
    a, b = T([1.0, -1, 2]), T([3.0, 4, -5])
    same(f(a, b), c(a, b))
    for fn in (f, c):
        with pytest.raises(
            RuntimeError,
            match=r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 0",
        ):
            fn(a, b.abs())
    g = lambda x, y: x[x > 0] @ y
    c = Counted(g, fullgraph=True)
    same(g(a, b[:2]), c(a, b[:2]))
    for fn in (g, c):
        with pytest.raises(RuntimeError):
            fn(a.abs(), b[:2])


def test_index_out_of_bounds():
    f = lambda x, i: x[i.item()] * 2
    c = Counted(f, fullgraph=True)
    x = r(4, 3)
    for i in (0, 3, -1, -4):
        same(f(x, T(i)), c(x, T(i)))
    for i in (4, -5):
        for fn in (f, c):
            with pytest.raises(IndexError, match=f"index {i} is out of bounds for dimension 0 with size 4"):
                fn(x, T(i))


def test_equal_sizes_by_a_check():
    def f(x, y):
        a, b = x[x > 0], y[y > 0]
        torch._check(a.shape[0] == b.shape[0])
        return a * b if a.shape[0] == b.shape[0] else a

    c = Counted(f, fullgraph=True)
    x = T([1.0, -2, 3])
    same(f(x, x), c(x, x))
    with pytest.raises(RuntimeError):
        c(x, x.abs())


def test_unused_sizes_of_an_unused_tensor():
    f = lambda x: (x > 0).nonzero().shape[0]
    c = Counted(f, fullgraph=True)
    for x in inputs():
        same(f(x), c(x))
    assert c.count == 1


def test_dtypes_of_numbers():
    def f(x):
        n = x.item()
        return n, n * 2, torch.ones(3) * n

    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        c = Counted(f, fullgraph=True)
        for v in (0, 1, 100) if dtype == torch.uint8 else (0, 1, 100, -7):
            same(f(T(v, dtype=dtype)), c(T(v, dtype=dtype)))
        assert c.count == 1


def test_mutation_beside_a_read():
    def f(x, y):
        n = (x > 0).sum().item()
        y.add_(n)
        x[x > 0] = 7.0
        m = (x > 1).sum().item()
        return y * m, n, m

    for backend in ("braze", "eager"):
        c = braze.compile(f, fullgraph=True, backend=backend)
        for x in inputs():
            a, b = x.clone(), x.clone()
            p, q = torch.ones(3), torch.ones(3)
            same(f(a, p), c(b, q))
            same(a, b), same(p, q)


def test_results_of_one_mask_are_tensors_of_their_own():
    f = lambda x: ((x > 0).nonzero(), (x > 0).nonzero())
    a, b = braze.compile(f, fullgraph=True)(r(4, 4).abs())
    a.zero_()
    assert b.sum() > 0


def with_parts(x, w):
    a, b = (x > 0).sum(0)[:2].tolist()
    return torch.cat([torch.ones(a) * w.sum(), torch.ones(b) * w[0]]) * 2


def rows_to_layers(x, w):
    y = x[x[:, 0] > 0]
    return torch.relu(y @ w[:, None]).sum(0), F.softmax(y * w, 1), y.shape[0]


def masked_write(x, w):
    y = x * w
    y[x > 0] = 0
    return y * x


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: (x[x > 0] * 2).sum() * w,
        lambda x, w: x[x > 0],
        lambda x, w: torch.masked_select(x * w, x > 0) * 3,
        with_parts,
        rows_to_layers,
        masked_write,
        lambda x, w: x.index_put(((x > 0).nonzero(as_tuple=True)), w.sum()) * w,
        lambda x, w: torch.repeat_interleave(x, (x[:, 0] > 0).long() * 2, dim=0) * w,
        lambda x, w: (x * w).index_put((x > 0,), torch.ones((x > 0).sum().item()) * w[0]),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_are_compiled(f, dynamic):
    c = Counted(f, fullgraph=True, dynamic=dynamic)
    for x in inputs():
        found = []
        for g in (f, c):
            a, w = x.clone().requires_grad_(), torch.arange(1.0, 6).requires_grad_()
            out = [o for o in (lambda o: o if isinstance(o, tuple) else (o,))(g(a, w)) if isinstance(o, torch.Tensor)]
            sum((o * torch.arange(1.0, o.numel() + 1).view(o.shape)).sum() for o in out).backward()
            found.append([[o.detach() for o in out], a.grad, w.grad])
        same(*found)
    assert c.count == 1


def test_second_derivatives_and_what_is_kept_of_sizes():
    f = lambda x: (torch.sin(x[x > 0]) * x[x > 0]).sum()
    c = braze.compile(f, fullgraph=True)
    for x in inputs():
        found = []
        for g in (f, c):
            a = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(g(a), a, create_graph=True)
            found.append([first.detach(), torch.autograd.grad(first.sum(), a, allow_unused=True)[0]])
        same(*found)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.relu(x * 2).sum(1),
        lambda x: torch.cat([x, x]) + 1,
        lambda x: x @ torch.ones(3, 4),
        lambda x: x[: x.shape[0] // 2],
    ],
)
@pytest.mark.parametrize(
    "mark", [braze.mark_unbacked, lambda t, d: setattr(t, "_dynamo_unbacked_indices", {d})], ids=["braze", "dynamo"]
)
@torch.no_grad()
def test_a_marked_size_is_never_looked_at(f, mark):
    c = Counted(f)
    for n in (0, 1, 2, 7):
        x = r(n, 3)
        mark(x, 0)
        same(f(x), c(x))
    assert c.count == 1


@torch.no_grad()
def test_a_branch_on_a_marked_size():
    x = r(5, 3)
    braze.mark_unbacked(x, 0)
    with pytest.raises(braze.Unsupported, match="dimension 0 of an argument that was marked"):
        braze.compile(lambda x: x * 2 if x.shape[0] > 3 else x, fullgraph=True)(x)


EMPTY = {
    "pad": lambda x: F.pad(x[x > 0], (1, 0)),
    "pad below": lambda x: F.pad(x[x > 0], (0, 2), value=5.0),
    "pad rows": lambda x: F.pad(x[x > 0][:, None].expand(-1, 9) * 2, (0, 0, 1, 1)),
    "pad of a gather": lambda x: F.pad(torch.arange(8)[x[x > 0].long()], (1, 1)),
    "pad of products": lambda x: F.pad(x[x > 0] * x[x > 0].flip(0), (1, 1)) + 1,
    "pad of what was gathered twice": lambda x: F.pad(x[x > 0].flip(0)[x[x > 0] > 1], (1, 1)),
    "slices": lambda x: torch.cat([x[x > 0][1:], x[x > 0][:1]]),
    "scatter": lambda x: torch.zeros(9).index_add(0, x[x > 0].long(), x[x > 0]),
    "count": lambda x: x[x > 0].long().bincount(),
    "beside": lambda x: torch.cat([F.pad(x[x > 0], (1, 0)), x, x[x > 5]]),
}


@pytest.mark.parametrize("f", EMPTY.values(), ids=EMPTY)
@torch.no_grad()
def test_nothing_is_read_of_what_turns_out_empty(f):
    c = braze.compile(f)
    for x in ([1.0, 2, 3, 0], [-1.0, -2, 0, 0], [0.0, 0, 0, 7], [-3.0, 0, 0, 0], [3.0, 3, 3, 3]):
        x = torch.tensor(x)
        for _ in range(3):
            same(f(x), c(x))
