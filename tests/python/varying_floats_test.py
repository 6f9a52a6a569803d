"""Floats that vary from call to call: compiled once as a value, then as an operand that serves all of them."""

import pytest
import torch
from dynamic_test import Counted, r
from harness import outcome, same

VALUES = (0.5, 0.25, -3.0, 1e-3, 0.0, -0.0, float("inf"), 7.125, 1e30, float("nan"))


def sweep(f, arguments, most, values=VALUES, **kw):
    c = Counted(f, **kw)
    for v in values:
        args = arguments(v)
        want, got = outcome(f, args, {}), outcome(c, args, {})
        assert want[0] == got[0], f"{v}: {got}, expected {want}"
        same(want[1], got[1], f"{v}", 1e-6)
    assert not c.breaks and c.count <= most, c.count
    return c


OPERATIONS = {
    "mul": lambda x, s: x * s,
    "rmul": lambda x, s: s * x,
    "add": lambda x, s: x + s,
    "rsub": lambda x, s: s - x,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / (x.abs() + 1),
    "twice": lambda x, s: torch.relu(x * s) + s,
    "in place": lambda x, s: x.clone().mul_(2).add_(1) * s,
    "augmented": lambda x, s: [y := x + 0, y.sum(), y * s],
    "result": lambda x, s: (x * s, s, [s]),
    "double": lambda x, s: x.double() * s,
    "softmax": lambda x, s: torch.softmax(x / s, -1) * s,
    "keyword": lambda x, s: (lambda *, scale: x * scale)(scale=s),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dynamic", [None, True])
@torch.no_grad()
def test_one_code_serves_all_values(name, dynamic):
    sweep(OPERATIONS[name], lambda s: (r(4, 3), s), 2, dynamic=dynamic)


@torch.no_grad()
def test_one_code_serves_all_values_and_sizes():
    sizes = iter(range(3, 30))
    sweep(lambda x, s: (x * s).sum(0) / x.shape[0], lambda s: (r(next(sizes), 3), s), 2)


@torch.no_grad()
def test_augmented_assignment():
    def f(x, s):
        x = x.clone()
        x *= s
        x -= s
        return x

    sweep(f, lambda s: (r(3, 2), s), 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, s: x * s if s > 0.3 else x - s,
        lambda x, s: (x * s, f"{s}"),
        lambda x, s: (x * s, s * 2),
        lambda x, s: x.long() * s,
        lambda x, s: x.sum() * s,
        lambda x, s: x.bfloat16() * s,
        lambda x, s: x**s,
        lambda x, s: torch.full((2,), s) + x.sum(),
    ],
)
@torch.no_grad()
def test_what_needs_the_value_gets_it(f):
    values = (0.5, 0.25, 2.0, 0.5)
    sweep(f, lambda s: (r(4, 3), s), 4, values)


@torch.no_grad()
def test_the_same_object_twice():
    f = lambda x, s, t: x * s + t
    c = Counted(f)
    for s, t in ((0.5, 0.5), (1.5, 1.5), (2.5, 3.5)):
        same(f(torch.ones(3), s, t), c(torch.ones(3), s, t))
    same(torch.full((3,), 8.0), c(torch.ones(3), *[4.0] * 2))
    assert c.count == 2


@torch.no_grad()
def test_another_type_is_another_code():
    f = lambda x, s: x * s
    c = Counted(f)
    for s in (0.5, 1.5, 2, True, torch.tensor(2.0), 4.5):
        same(f(torch.ones(3), s), c(torch.ones(3), s), f"{s}")


@torch.no_grad()
def test_attribute_of_a_module():
    class M(torch.nn.Module):
        scale = 1.0

        def forward(self, x):
            return x * self.scale

    m = M()
    c = Counted(m)
    for s in VALUES[:6]:
        m.scale = s
        x = r(4, 3)
        same(x * s, c(x), f"{s}")
    assert c.count == 2


@torch.no_grad()
def test_tensor_that_is_written():
    def f(x, s):
        x.mul_(2)
        x += s
        return x * s

    c = Counted(f)
    for s in VALUES[:5]:
        a, b = (torch.arange(6.0).view(2, 3) for _ in range(2))
        same(f(a, s), c(b, s), f"{s}")
        same(a, b)
    assert c.count == 2


def test_gradients():
    f = lambda x, w, s: ((x * s) @ w / s + s).sin()
    c = Counted(f)
    for s in (0.5, 1.5, -2.0, 3.0):
        leaves = [t.requires_grad_() for t in (r(4, 3), r(3, 2))]
        mine = [t.detach().clone().requires_grad_() for t in leaves]
        want, got = f(*leaves, s), c(*mine, s)
        same(want.detach(), got.detach(), f"{s}")
        for a, b in zip(torch.autograd.grad(want.sum(), leaves), torch.autograd.grad(got.sum(), mine)):
            same(a, b, f"{s}")
    assert c.count == 2


def test_second_derivatives():
    f = lambda x, s: (x * s).sin() * s
    c = Counted(f)
    for s in (0.5, 1.5, -2.0):
        results = []
        for fn in (f, c):
            x = torch.linspace(0, 1, 5).requires_grad_()
            (g,) = torch.autograd.grad(fn(x, s).sum(), x, create_graph=True)
            results.append((g.detach(), *torch.autograd.grad(g.sum(), x)))
        for a, b in zip(*results):
            same(a, b, f"{s}")


@torch.no_grad()
def test_across_a_break():
    import braze

    def f(x, s):
        y = x * s
        braze.graph_break()
        return y + s, s

    c = braze.compile(f)
    for s in VALUES[:6]:
        x = r(4, 3)
        same(f(x, s), c(x, s), f"{s}")


@torch.no_grad()
def test_many_values_do_not_end_compiling():
    c = Counted(lambda x, s: torch.relu(x * s))
    for i in range(100):
        x = r(2, 2)
        same(torch.relu(x * (i / 7)), c(x, i / 7))
    assert c.count == 2


MORE = {
    "alpha": lambda x, s: (torch.add(x, x * 2, alpha=s), x.sub(x * 3, alpha=s)),
    "in place alpha": lambda x, s: x.clone().add_(x, alpha=-s),
    "addcmul": lambda x, s: (torch.addcmul(x, x, x, value=s), x.clone().addcdiv_(x, x.abs() + 1, value=-s)),
    "methods": lambda x, s: (x.mul(s), x.clone().mul_(s).add_(s), x.clone().sub_(s).div_(4.0), x.div(s)),
    "arithmetic": lambda x, s: (x * (s * 0.5 + 1) - (1 - s), x * -s, x + s / 3, (2 - s * 4) * x),
    "arithmetic result": lambda x, s: (x * 2, s * 2, -s, 1 - s, s / 4, s - 1),
    "half": lambda x, s: (x.bfloat16() * s, x.half() + s, s - x.bfloat16()),
    "integers": lambda x, s: ((x * 10).long() * s, (x > 0) + s, s / ((x * 10).int().abs() + 1)),
    "scalars": lambda x, s: (x.sum() * s, s - x.mean().double(), x.sum().bfloat16() * s, x.long().sum() * s),
    "two": lambda x, s: x * (s * (s - 1) * 0.25),
}


@pytest.mark.parametrize("name", MORE)
@torch.no_grad()
def test_more_places(name):
    values = tuple(v for v in VALUES if abs(v) < 1e20)
    sweep(MORE[name], lambda s: (r(4, 3), s), 2, values + (0.75, -1.25))


def test_gradients_beside_a_varying_number():
    f = lambda x, s: (torch.add(x, x * x, alpha=s) * (1 - s)).sum() + (x.bfloat16() * s).sum().float()
    c = Counted(f)
    for s in (0.5, 0.25, -3.0, 2.0):
        a = r(4, 3).requires_grad_()
        b = a.detach().clone().requires_grad_()
        f(a, s).backward(), c(b, s).backward()
        same(a.grad, b.grad, f"{s}", 1e-5)
    assert c.count == 2


@pytest.mark.parametrize(
    "make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop], ids=lambda c: c.__name__
)
@pytest.mark.parametrize("kw", [{}, {"weight_decay": 0.1}], ids=str)
def test_an_optimizer_under_a_schedule(make, kw):
    def params():
        g = torch.Generator().manual_seed(3)
        return [torch.nn.Parameter(torch.randn(4, 3, generator=g)) for _ in range(2)]

    p, q = params(), params()
    eager, fast = make(p, lr=0.1, **kw), make(q, lr=0.1, **kw)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in (eager, fast)]
    step = Counted(lambda: fast.step())
    before = 0
    for i in range(8):
        if i == 4:
            before = step.count  # the state was made, then the rate was seen to vary
        for a, b in zip(p, q):
            a.grad = torch.randn(4, 3)
            b.grad = a.grad.clone()
        eager.step(), step()
        [s.step() for s in schedules]
    for a, b in zip(p, q):
        same(a.detach(), b.detach(), tol=1e-5)
    assert step.count == before, f"{step.count - before} compilations for new values"


def bounded(x, lo, hi):
    return (
        x.clamp(lo, hi),
        torch.clamp(x, min=lo),
        x > lo,
        hi <= x,
        torch.full((2,), lo),
        torch.where(x > 0, x, hi),
        torch.tensor(lo),
        torch.full_like(x, lo),
    )


def powers(x, lo, hi):
    return x.abs() ** hi, x.abs().pow(lo), lo**x, x.lerp(x + 1, hi), x.masked_fill(x > 0, lo), x % hi


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("fn", [bounded, powers])
def test_operators_with_numbers_that_vary(fn, dtype):
    if dtype is torch.int64 and fn is powers:
        pytest.skip("lerp takes no ints")
    c = Counted(fn)
    for i in range(6):
        x = (r(6) * 4).to(dtype)
        same(
            fn(x, 0.1 + i / 7, 0.5 + i / 5),
            c(x, 0.1 + i / 7, 0.5 + i / 5),
            tol=2e-2 if dtype is torch.bfloat16 else 1e-5,
        )
    assert c.count <= 2
