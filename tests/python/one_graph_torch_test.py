"""Features of PyTorch in one graph: transforms of functions, recurrent layers, hooks, random state, modes, operators."""

import copy

import pytest
import torch
import torch.nn.functional as F
from dynamic_test import Counted
from harness import same
from one_graph import Rows, check
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

import braze

ROWS = Rows()
row = ROWS.row
x3 = [lambda: (torch.randn(3, 4),), lambda: (torch.randn(3, 4),), lambda: (torch.randn(5, 4),)]
g3 = [lambda n=n: (torch.randn(n, 4, requires_grad=True),) for n in (3, 5, 6)]

# ---- transforms of functions ----


def vectorised(x):
    w = x[0] * 2
    return (
        vmap(lambda v: (v * w).sum())(x),
        vmap(lambda a, b: a * b + 1, in_dims=(1, None), out_dims=1)(x, x[:, 0]),
        vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))(x, x),
    )


def gradients(x):
    y, seen = x * 2, []

    def f(v, power):
        seen.append(power)
        return (v * y).sin().pow(power).sum(), v.cos()

    return grad(f, has_aux=True)(x, 3), grad_and_value(lambda v: (v.sin() ** 2).sum())(x), seen


def products(x):
    out, back, aux = vjp(lambda v: (v.sin(), v * 2), x, has_aux=True)
    return jvp(torch.sin, (x,), (torch.ones_like(x),)), out, back(torch.ones_like(x)), aux


def jacobians(x):
    return (
        jacrev(lambda v: v.sin().sum(0), chunk_size=2)(x),
        jacfwd(lambda v: v.sin().sum(0))(x),
        hessian(lambda v: (v**3).sum())(x),
    )


ROWS.functions("func", g3, [vectorised, gradients, products, jacobians])


class PerSampleGradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        loss = lambda p, v: (functional_call(self.layer, p, (v[None],)) ** 2).sum()
        return vmap(grad(loss), in_dims=(None, 0))(dict(self.layer.named_parameters()), x)


ROWS.row(*g3)(PerSampleGradients)


@row(*x3)
def ensemble():
    models = [nn.Linear(4, 2) for _ in range(3)]
    base = copy.deepcopy(models[0]).to("meta")

    def f(x):
        parameters, buffers = stack_module_state(models)
        call = lambda p, b, v: functional_call(base, (p, b), (v,))
        return vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)

    return f


# ---- modes ----


def attention_by_one_kernel(x):
    with sdpa_kernel(SDPBackend.MATH):
        a = F.scaled_dot_product_attention(x[None], x[None], x[None])
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        return a, F.scaled_dot_product_attention(x[None], x[None], x[None]), SDPBackend.MATH == SDPBackend.ERROR


def default_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3) + 1
    torch.set_default_dtype(before)
    return x.sin(), y, torch.get_default_dtype(), torch.zeros(2)


def grad_mode(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(x.shape[0] > 4):
        z = x * 3
    return y, z, torch.is_grad_enabled()


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.autocast("cpu", enabled=False):
            # Not a sum of gradients in bfloat16, which a kernel does not round before it is used.
            z = y.detach().float() @ x
        state = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return y, z, state


ROWS.functions("mode", g3, [attention_by_one_kernel, default_dtype, grad_mode, autocast], tol=1e-4)

# ---- recurrent layers ----

series = [lambda n=n: (torch.randn(n, 2, 4, requires_grad=True),) for n in (3, 5, 6)]


def recurrent(name, cls, layer, **kw):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = cls(4, 6, **layer)

        def forward(self, x):
            return self.layer(x)

    Recurrent.__name__ = f"{cls.__name__}_{name}"
    ROWS.row(*series, tol=1e-4, **kw)(Recurrent)


for cls in (nn.LSTM, nn.GRU, nn.RNN):
    recurrent("plain", cls, {})
    recurrent("deep", cls, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False})
    recurrent("dropout", cls, {"num_layers": 2, "dropout": 0.5}, options={"rng": "eager"})


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LSTMCell(4, 6), nn.GRUCell(6, 3), nn.RNNCell(3, 3)

    def forward(self, x):
        state = None
        for t in x:
            state = self.a(t, state)
        return self.c(self.b(state[0]))


ROWS.row(*series[:2], tol=1e-4)(Cells)

# ---- hooks ----


@row(*g3)
def hooks_of_tensors():
    log = []

    def f(x):
        x.register_hook(lambda g: (log.append(1), g * 3)[1])
        y = x * 2
        y.register_hook(lambda g: g * y.detach())
        gone = y.register_hook(lambda g: g * 100)
        gone.remove()
        return y.sin(), len(log)

    return f


class ModuleHooks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.a.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2 + go[0],))
        self.a.register_full_backward_hook(lambda m, gi, go: (gi[0].clamp(-1, 1),))
        self.b.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
        self.c.register_full_backward_hook(lambda m, gi, go: None)

    def forward(self, x):
        return self.c(self.b(self.a(x)).relu())


ROWS.row(*g3)(ModuleHooks)


class AccumulateHooks(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.layer, self.inside = nn.Linear(4, 2), inside
        if not inside:
            self.layer.weight.register_post_accumulate_grad_hook(self.double)

    @staticmethod
    def double(p):
        p.grad.mul_(2)

    def forward(self, x):
        if self.inside:
            self.layer.weight.register_post_accumulate_grad_hook(self.double)
        return self.layer(x).sin()


@row(*g3)
def accumulate_hooks_before():
    return AccumulateHooks(False)


@row(*g3)
def accumulate_hooks_inside():
    return AccumulateHooks(True)


def test_hooks_with_effects_are_called():
    """Where a hook does more than compute, the graph ends, and it is called once a backward."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.seen = nn.Linear(4, 2), []
            self.layer.register_full_backward_hook(lambda m, gi, go: self.seen.append(go[0].norm()))

        def forward(self, x):
            return self.layer(x.sin()).cos()

    eager, net = Net(), Net()
    compiled = braze.compile(net)
    for _ in range(3):
        x = torch.randn(3, 4)
        for m in (eager, compiled):
            m(x.clone().requires_grad_()).sum().backward()
        assert len(eager.seen) == len(net.seen)
    torch.testing.assert_close(eager.seen, net.seen)


# ---- fake quantisation ----


def test_quantisation_aware_training():
    """Observers of channels get the sizes of their ranges in the first call, which ends the graph there."""
    quantisation = pytest.importorskip("torch.ao.quantization")

    def make(train):
        torch.manual_seed(0)
        m = nn.Sequential(
            quantisation.QuantStub(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), quantisation.DeQuantStub()
        ).train()
        m.qconfig = quantisation.get_default_qat_qconfig("x86")
        return quantisation.prepare_qat(m).train(train)

    for train in (True, False):
        eager, m = make(train), make(train)
        compiled = braze.compile(m)
        for i in range(3):
            x = torch.randn(5, 4)
            if i == 2:
                compiled = Counted(m, fullgraph=True)
            want, got = eager(x), compiled(x)
            same(want, got, tol=1e-4)
            want.sum().backward(), got.sum().backward()
            same([p.grad for p in eager.parameters()], [p.grad for p in m.parameters()], tol=1e-4)
            same(list(eager.buffers()), list(m.buffers()), tol=1e-4)
        assert compiled.count == 1 and not compiled.breaks


# ---- random state ----

RANDOM = {"rng": "eager"}


def seeded(x):
    a = torch.rand(2)
    torch.manual_seed(5)
    return (
        x + torch.rand_like(x),
        a,
        torch.randn(3),
        torch.manual_seed(2**63 + 1) is torch.default_generator,
        F.dropout(x),
    )


def state_read_and_set(x):
    s = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(s)
    return x, a, torch.rand(3), torch.get_rng_state(), torch.rand(20)


def forked(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        a = torch.rand(3)
    return x, a, torch.rand(3)


def generators_made(x):
    g = torch.Generator().manual_seed(3)
    fresh = torch.Generator(device="cpu")
    return (
        x + torch.rand(x.shape, generator=g),
        torch.randperm(5, generator=g),
        g,
        torch.rand(2, generator=fresh),
        torch.rand(2, generator=torch.default_generator),
    )


def trained_with_dropout(x):
    torch.manual_seed(7)
    return F.dropout(x.sin(), 0.4) * torch.rand_like(x)


ROWS.functions("random", x3, [seeded, state_read_and_set, forked, generators_made], options=RANDOM)
ROWS.functions("random", g3, [trained_with_dropout], options=RANDOM)


@row(*x3, options=RANDOM)
def generator_of_the_closure():
    g = torch.Generator().manual_seed(3)

    def f(x):
        before = g.get_state()
        a = (
            torch.rand(2, generator=g),
            x.clone().normal_(generator=g),
            torch.bernoulli(x.abs().clamp(0, 1), generator=g),
        )
        g.set_state(before)
        b = (
            torch.multinomial(x.abs(), 2, generator=g),
            torch.randint(0, 9, (3,), generator=g),
            nn.init.uniform_(x.clone(), generator=g),
        )
        return a, b, g.device, torch.rand(2)

    return f


@row(
    *[lambda s=s: (torch.ones(3), torch.Generator().manual_seed(s), torch.Generator()) for s in (7, 8, 7)],
    most=1,
    options=RANDOM,
)
def generators_handed_in():
    return lambda x, g, h: x + torch.rand(3, generator=g) + torch.rand(3, generator=h) + torch.rand(3, generator=g)


def test_random_state_by_default():
    """Kernels with random bits of their own draw them from the generator's state all the same."""

    def f(x):
        torch.manual_seed(5)
        a = torch.rand_like(x)
        s = torch.get_rng_state()
        b = torch.rand_like(x)
        torch.set_rng_state(s)
        return a, b, torch.rand_like(x)

    compiled = braze.compile(f, fullgraph=True)
    x = torch.zeros(100)
    a, b, again = compiled(x)
    assert torch.equal(b, again) and not torch.equal(a, b)
    torch.rand(7)
    assert all(torch.equal(u, v) for u, v in zip((a, b, again), compiled(x)))


@pytest.mark.parametrize("name", ROWS)
def test_in_one_graph(name):
    make, calls, options = ROWS[name]
    check(make, calls, **options)
