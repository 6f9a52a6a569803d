"""torch.cond of a tensor and its kin: results and gradients as eager Python's, in one compiled graph where both branches may run."""

import pytest
import torch
import torch.nn as nn
from harness import same

import braze


def python_cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def differentiated(fn, args):
    mine = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    out = fn(*mine)
    leaves = [o for o in torch.utils._pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
    loss = sum(o.sum() for o in leaves if o.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
    # What only the branch that was not taken reads has a gradient of zeros.
    grads = [torch.zeros_like(a) if a.grad is None and a.requires_grad else a.grad for a in mine]
    return (
        torch.utils._pytree.tree_map(lambda o: o.detach() if isinstance(o, torch.Tensor) else o, out),
        [o.requires_grad for o in leaves],
        grads,
    )


def check(make, *calls, compiled=True):
    """make(cond) gives the function; `compiled`: it is one graph."""
    want, got = make(python_cond), make(torch.cond)
    fast = braze.compile(got, fullgraph=compiled)
    if compiled:
        e = braze.explain(got, *calls[0])
        assert e.graph_count == 1 and not e.breaks, e
    for args in calls * 2:
        same(differentiated(want, args), differentiated(fast, args))


POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])
W = torch.tensor([0.5, -1.5, 2.0], requires_grad=True)


def leaf(t):
    return t.clone().requires_grad_()


def test_chooses_and_differentiates():
    def make(cond):
        return lambda x, w: cond(x.sum() > 0, lambda x, w: (x * w).sin(), lambda x, w: x.cos() + w * w, (x, w))

    check(make, (leaf(POSITIVE), W), (leaf(NEGATIVE), W))


def test_nothing_of_the_other_branch_reaches_the_gradients():
    """log of a negative number is NaN in the branch that is not taken; so are its gradients."""

    def make(cond):
        def f(x, w):
            y = x * w.abs()
            return cond(x.sum() > 0, lambda: (y.log() * w).sum(), lambda: ((-y).sqrt() * w.exp()).sum())

        return f

    check(make, (leaf(POSITIVE), W), (leaf(NEGATIVE), W))


def test_branches_of_branches():
    def make(cond):
        def inner(x):
            return cond(x.mean() > 2.5, lambda x: x.log() * 3, lambda x: x.exp(), (x,))

        return lambda x: cond(x.sum() > 0, inner, lambda x: (-x).log().cos(), (x,)) * x

    check(make, (leaf(POSITIVE),), (leaf(POSITIVE * 5),), (leaf(NEGATIVE),))


def test_structures():
    def make(cond):
        def f(x, w):
            out = cond(
                x.sum() > 0,
                lambda x, w: {"a": (x + w, [x * w]), "b": None},
                lambda x, w: {"a": (x - w, [x / w]), "b": None},
                (x, w),
            )
            return out["a"][0] @ out["a"][1][0], out

        return f

    check(make, (leaf(POSITIVE), W), (leaf(NEGATIVE), W))


class Choice(nn.Module):
    def __init__(self, cond):
        super().__init__()
        torch.manual_seed(0)
        self.cond, self.a, self.b = cond, nn.Linear(3, 4), nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))

    def forward(self, x):
        return self.cond(x.sum() > 0, lambda x: self.a(x).softmax(-1), lambda x: self.b(x).relu(), [x])


def test_parameters_of_both_branches():
    want, got = Choice(python_cond), Choice(torch.cond)
    fast = braze.compile(got, fullgraph=True)
    for x in (POSITIVE, NEGATIVE, POSITIVE):
        for m in (want, got):
            m.zero_grad()
        a, b = want(x), fast(x)
        a.square().sum().backward()
        b.square().sum().backward()
        same(a.detach(), b.detach())
        for p, q in zip(want.parameters(), got.parameters()):
            same(torch.zeros_like(p) if p.grad is None else p.grad, q.grad)


def test_a_condition_of_python_is_a_branch():
    def make(cond):
        return lambda x: cond(x.shape[0] > 2, lambda x: x.sin(), lambda x: x.cos(), (x,))

    check(make, (leaf(POSITIVE),))
    fast = braze.compile(make(torch.cond), fullgraph=True)
    same(fast(POSITIVE[:2]), POSITIVE[:2].cos())


@pytest.mark.parametrize(
    "branch",
    [
        lambda x, i: x[i],
        lambda x, i: x.gather(0, i),
        lambda x, i: (i // (i - 1)) + x,
        lambda x, i: torch.linalg.inv(x.diag() * 0).sum() + x,
        lambda x, i: x.nonzero().sum() + x,
    ],
    ids=["index", "gather", "division", "inverse", "nonzero"],
)
def test_what_may_fail_only_runs_where_it_is_taken(branch):
    def make(cond):
        return lambda x, i: cond(x.sum() > 0, lambda: branch(x, i), lambda: x * 2)

    check(make, (NEGATIVE, torch.tensor([7, 1, 1])), compiled=False)
    with pytest.raises(braze.Unsupported):
        braze.compile(make(torch.cond), fullgraph=True)(NEGATIVE, torch.tensor([0, 1, 1]))


def test_effects_happen_where_the_branch_is_taken():
    seen = []

    def f(x, y):
        def yes(x):
            seen.append("yes")
            return x + 1

        def no(x):
            y.add_(1)
            return x - 1

        return torch.cond(x.sum() > 0, yes, no, (x,))

    fast, y = braze.compile(f), torch.zeros(3)
    for x in (POSITIVE, NEGATIVE, POSITIVE):
        same(fast(x, y), x + (1 if x.sum() > 0 else -1))
    assert seen == ["yes", "yes"]
    same(y, torch.ones(3))


def test_running_statistics_change_where_the_branch_is_taken():
    norm, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    f = braze.compile(lambda x: torch.cond(x.sum() > 0, lambda x: norm(x), lambda x: x * 2, (x,)))
    for x in (POSITIVE, NEGATIVE):
        x = x.expand(4, 3) * torch.arange(1.0, 5).view(4, 1)
        same(f(x).detach(), (other(x) if x.sum() > 0 else x * 2).detach())
    same(dict(norm.named_buffers()), dict(other.named_buffers()))


@pytest.mark.parametrize(
    "no", [lambda x: x.double(), lambda x: (x,), lambda x: None], ids=["dtype", "structure", "none"]
)
def test_branches_that_disagree(no):
    fast = braze.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x * 1, no, (x,)))
    with pytest.raises(RuntimeError, match="one branch returns"):
        fast(POSITIVE)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cond(x > 0, torch.sin, torch.cos, (x,)),
        lambda x: torch.cond("a", torch.sin, torch.cos, (x,)),
        lambda x: torch.cond(x.sum() > 0, 1, torch.cos, (x,)),
    ],
    ids=["elements", "type", "callable"],
)
def test_misuse(call):
    with pytest.raises(RuntimeError):
        braze.compile(call)(POSITIVE)


def test_second_derivatives():
    def make(cond):
        def f(x):
            y = cond(x.sum() > 0, lambda: x.pow(3).log().sum(), lambda: (-x).pow(3).log().sum())
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            return (g * g).sum()

        return f

    check(make, (leaf(POSITIVE),), (leaf(NEGATIVE),), compiled=False)


def test_while_loop():
    from torch._higher_order_ops import while_loop

    def f(i, x, w):
        i, x = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * w + i), (i, x))
        return x.sum(), i

    def python(i, x, w):
        while i < 3:
            i, x = i + 1, x * w + i
        return x.sum(), i

    fast = braze.compile(f)
    for start in (0, 1, 5):
        args = (torch.tensor(start), leaf(POSITIVE), W)
        same(differentiated(python, args), differentiated(fast, args))


def test_map_and_scan():
    from torch._higher_order_ops import map, scan

    def f(xs, w):
        mapped = map(lambda x, w: (x.sin() * w, x), xs, w)
        carry, out = scan(lambda c, x: (c * 0.5 + x, {"y": c * x}), torch.zeros(3), xs, reverse=True)
        return mapped, carry, out

    def python(xs, w):
        mapped = (torch.stack([x.sin() * w for x in xs]), torch.stack([x for x in xs]))
        carry, out = torch.zeros(3), []
        for x in reversed(xs):
            carry, y = carry * 0.5 + x, carry * x
            out.insert(0, y)
        return mapped, carry, {"y": torch.stack(out)}

    fast, args = braze.compile(f, fullgraph=True), (leaf(torch.stack([POSITIVE, NEGATIVE])), W)
    same(differentiated(python, args), differentiated(fast, args))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 13, 64])
def test_associative_scan_of_pairs(count, reverse):
    """What state-space models compute: the gradients are those of a loop, without its steps or the square of them."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(a, b):
        return {"decay": a["decay"] * b["decay"], "x": b["decay"] * a["x"] + b["x"]}

    def f(decay, x):
        both = associative_scan(combine, {"decay": decay, "x": x}, dim=-2, reverse=reverse, combine_mode="generic")
        return both["x"].contiguous()

    def python(decay, x):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in reversed(range(count)) if reverse else range(count):
            h = decay[:, t] * h + x[:, t]
            out.append(h)
        return torch.stack(out[::-1] if reverse else out, 1)

    torch.manual_seed(count)
    args = (torch.rand(2, count, 5, requires_grad=True), torch.randn(2, count, 5, requires_grad=True))
    same(differentiated(python, args), differentiated(braze.compile(f, fullgraph=True), args))


def test_associative_scan_of_matrices_and_of_open_sizes():
    """A function of whole elements: they are multiplied as matrices."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def f(ms):
        return associative_scan(lambda a, b: a @ b, ms, 0, combine_mode="generic")

    def python(ms):
        out = [ms[0]]
        for m in ms[1:]:
            out.append(out[-1] @ m)
        return torch.stack(out)

    fast = braze.compile(f, fullgraph=True)
    for count in (5, 6, 9, 4):
        same(python(ms := torch.randn(count, 3, 3)), fast(ms))


def test_associative_scan_of_what_it_cannot_take():
    from torch._higher_order_ops.associative_scan import associative_scan

    x = torch.randn(3, 4)
    for args, error in (
        ((torch.add, x, 2), ValueError),
        ((torch.add, x[:0], 0), ValueError),
        ((torch.add, [], 0), ValueError),
        ((torch.add, (x, 3), 0), ValueError),
        ((torch.add, x, 0, False, "other"), ValueError),
    ):
        with pytest.raises(error):
            braze.compile(lambda args: associative_scan(*args))(args)
