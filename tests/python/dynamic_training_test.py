"""Training on sizes that vary: one forward and backward for all of them, with eager's gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from dynamic_test import Counted, ids, r
from harness import same
from torch import nn

import braze

PAIRS = [(2, 8), (3, 12), (5, 7), (4, 16), (6, 5)]


def step(fn, loss, args, params):
    for p in params:
        p.grad = None
    out = fn(*args)
    loss(out).backward()
    return out, [p.grad for p in params]


def trained(model, inputs, loss=lambda o: o.square().mean(), most=2, tol=1e-4, breaks=False, **kw):
    """The module on each input: results and gradients as eager's, at most so many compilations."""
    eager = copy.deepcopy(model)
    c = Counted(model, **kw)
    for args in inputs:
        args, own = [
            [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
            for _ in range(2)
        ]
        leaves = lambda m, a: [*m.parameters(), *(t for t in a if isinstance(t, torch.Tensor) and t.requires_grad)]
        want, want_grads = step(eager, loss, args, leaves(eager, args))
        got, got_grads = step(c, loss, own, leaves(model, own))
        where = str([tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args])
        same(loss(want).detach(), loss(got).detach(), where, tol)
        for i, (w, g) in enumerate(zip(want_grads, got_grads, strict=True)):
            same(w, g, f"{where}, gradient {i}", tol)
    assert breaks or not c.breaks, c.breaks
    assert c.count <= most, f"{c.count} compilations, at most {most} expected"
    assert any(e["training"] for e in c.events)
    return c


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 32), nn.Linear(32, 6)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


@pytest.mark.parametrize("dynamic", [None, True])
def test_mlp(dynamic):
    trained(Mlp(), [(r(b, t, 12),) for b, t in PAIRS], most=1 if dynamic else 2, dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
def test_mlp_with_inputs_that_require_grad(dynamic):
    trained(Mlp(), [(r(b, t, 12).requires_grad_(),) for b, t in PAIRS], most=1 if dynamic else 2, dynamic=dynamic)


@pytest.mark.parametrize("name", ["bert", "bert_masked", "gpt2", "llama", "t5_encoder"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_transformer(name, dynamic):
    from models_test import small

    model, _, kwargs, read = small(name)
    model.eval()  # no dropout
    eager = copy.deepcopy(model)
    c = Counted(model, dynamic=dynamic)
    for b, t in PAIRS:
        x, kw = ids(b, t), {}
        if "attention_mask" in kwargs:
            mask = torch.ones(b, t, dtype=torch.long)
            mask[0, t // 2 :] = 0
            kw = {"attention_mask": mask}
        losses = []
        for fn, m in ((eager, eager), (c, model)):
            m.zero_grad()
            loss = sum(o.square().mean() for o in read(fn(x, **kw)))
            loss.backward()
            losses.append(loss.detach())
        same(*losses, f"{b}x{t}", 1e-4)
        for (n, p), q in zip(eager.named_parameters(), model.parameters(), strict=True):
            if p.grad is not None:
                same(p.grad, q.grad, f"{b}x{t}, {n}", 1e-3)
            assert (p.grad is None) == (q.grad is None), n
    assert not c.breaks and c.count <= (1 if dynamic else 2), c.count


FUNCTIONS = {
    "softmax": lambda x, w: torch.softmax(x @ w, 0),
    "expand": lambda x, w: (x.unsqueeze(1).expand(-1, 4, -1) * w[0]).sum(1),
    "broadcast": lambda x, w: x + w[:1] * x[:1],
    "sizes": lambda x, w: (x @ w) * x.shape[0] / x.numel(),
    "cat": lambda x, w: torch.cat([x, x @ w, x[1:]], 0),
    "slices": lambda x, w: (x[1:] - x[:-1]) @ w,
    "reshape": lambda x, w: (x @ w).reshape(-1).cumsum(0),
    "transpose": lambda x, w: (w @ x.t()).contiguous() * 2,
    "norm": lambda x, w: F.layer_norm(x @ w, (3,)).sum(0),
    "pad": lambda x, w: F.pad(x @ w, (1, 2, 0, 1)),
    "masked": lambda x, w: (x @ w).masked_fill(torch.arange(x.shape[0]).unsqueeze(1) < 2, 0.0),
    "gather": lambda x, w: (x @ w)[torch.arange(x.shape[0] - 1)],
    "loss": lambda x, w: F.cross_entropy(x @ w, torch.arange(x.shape[0]) % 3),
    "max": lambda x, w: (x @ w).max(0).values + x.amax(0),
    "std": lambda x, w: (x @ w).std(1) + x.var(1).sum(),
    "repeat": lambda x, w: (x @ w).repeat(2, 1),
    "attention": lambda x, w: F.scaled_dot_product_attention(*((x @ w).reshape(1, 1, -1, 3),) * 3),
    "chunk": lambda x, w: sum(p.sin() for p in (x @ w).chunk(3, 1)),
    "conv": lambda x, w: F.conv1d(x.t().unsqueeze(0), w.unsqueeze(0), padding=1),
    "two": lambda x, w: (x @ w, x.sum(0)),
    "view": lambda x, w: ((x @ w).t(), x * 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_function(name, dynamic):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 3))

        def forward(self, x):
            return FUNCTIONS[name](x, self.w)

    total = lambda o: sum(t.square().sum() for t in o) if isinstance(o, tuple) else o.square().sum()
    trained(
        M(), [(r(n, 3).requires_grad_(),) for n in (4, 7, 3, 19, 33)], total, most=1 if dynamic else 2, dynamic=dynamic
    )


def test_some_outputs_without_gradients():
    f = lambda x: (x.sin(), x.sum(0), x.exp())
    c = Counted(f, dynamic=True)
    for n in (3, 5, 9):
        for which in ((0,), (1, 2), (2,)):
            x, y = (t.requires_grad_() for t in (r(n, 4),) * 2)
            y = x.detach().clone().requires_grad_()
            want, got = f(x), c(y)
            sum(want[i].sum() for i in which).backward()
            sum(got[i].sum() for i in which).backward()
            same(x.grad, y.grad)
    assert c.count == 1


def test_forwards_of_several_sizes_before_their_backwards():
    m = Mlp()
    eager = copy.deepcopy(m)
    c = Counted(m, dynamic=True)
    inputs = [r(b, t, 12) for b, t in PAIRS]
    outs = [c(x).square().mean() for x in inputs]
    for x, out in zip(reversed(inputs), reversed(outs)):
        m.zero_grad(), eager.zero_grad()
        out.backward()
        eager(x).square().mean().backward()
        for p, q in zip(eager.parameters(), m.parameters()):
            same(p.grad, q.grad, tol=1e-4)
    assert c.count == 1


def test_second_derivatives():
    f = lambda x: (x.sin() * x.shape[0]).sum(0)
    c = Counted(f, dynamic=True)
    for n in (3, 5, 8):
        x = r(n, 4).requires_grad_()
        results = []
        for fn in (f, c):
            (g,) = torch.autograd.grad(fn(x).pow(3).sum(), x, create_graph=True)
            results.append((g, *torch.autograd.grad(g.square().sum(), x)))
        for w, g in zip(*results):
            same(w.detach(), g.detach(), f"{n}", 1e-4)
    assert c.count == 1


def test_break_in_the_middle():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x):
            n = x.shape[0]
            y = self.a(x).relu() * n
            torch._dynamo.graph_break()
            return self.b(y) / n

    trained(M(), [(r(n, 4),) for n in (3, 5, 8, 13)], most=6, breaks=True)


def test_a_decision_of_the_backward_is_a_guard():
    class Halves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 if x.shape[0] < 6 else g * 3

    f = lambda x: Halves.apply(x)
    c = Counted(f, dynamic=True)
    for n in (3, 4, 9, 5, 12):
        x, y = r(n, 2).requires_grad_(), None
        y = x.detach().clone().requires_grad_()
        f(x).sum().backward()
        c(y).sum().backward()
        same(x.grad, y.grad, f"{n}")
    assert c.count == 2


def test_optimizer_on_varying_batches():
    m = Mlp()
    eager = copy.deepcopy(m)
    c = Counted(m)
    for model, fn in ((eager, eager), (m, c)):
        torch.manual_seed(1)
        opt = torch.optim.AdamW(model.parameters(), 1e-2)
        for b, t in PAIRS:
            opt.zero_grad()
            fn(r(b, t, 12)).square().mean().backward()
            opt.step()
    for p, q in zip(eager.parameters(), m.parameters()):
        same(p.detach(), q.detach(), tol=1e-3)
    assert c.count == 2


def test_sizes_that_are_one_by_a_formula():
    """The convolutions leave one pixel of 4 x 4, which no rule of arithmetic shows: the dimension that is then summed over and dropped is one."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.Conv2d(4, 5, 3, 2, 1))
            self.mix = torch.nn.Linear(5, 5)

        def forward(self, x):
            x = self.down(x)
            n, channels, height, width = x.shape
            y = x.permute(0, 2, 3, 1).reshape(n, height * width, channels)
            y = self.mix(y) * y.sum(1).unsqueeze(1)
            return x + y.reshape(n, height, width, channels).permute(0, 3, 1, 2)

    torch.manual_seed(0)
    model = Model()
    ours = copy.deepcopy(model)
    compiled = braze.compile(ours, dynamic=True)
    for size in (4, 3, 9, 4, 12):
        x = torch.randn(2, 3, size, size)
        for m, f in ((model, model), (ours, compiled)):
            m.zero_grad()
            f(x).pow(2).sum().backward()
        for want, got in zip(model.parameters(), ours.parameters()):
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)
