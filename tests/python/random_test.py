"""Random numbers in kernels: what they are, that PyTorch's generator governs them, and that they are random."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import braze

LOW = 0xFFFFFFFF


def philox2x32(c0, c1, key):
    """Ten rounds, as in the paper (Salmon et al., SC 2011)."""
    for _ in range(10):
        product = 0xD256D193 * c0
        c0, c1, key = (product >> 32) ^ key ^ c1, product & LOW, (key + 0x9E3779B9) & LOW
    return c0, c1


def compiled(fn, *args, **kw):
    """The compiled function; asserts that it is one graph, whose only calls draw seeds."""
    made = braze.compile(fn, fullgraph=True, **kw)
    e = braze.explain(made, *args)
    assert e.graph_count == 1 and not e.breaks, e
    assert kw or all(
        "aten::randint.low(-9223372036854775808" in line
        for line in e.plans[0].splitlines()
        if line.startswith("  call ")
    ), e.plans[0]
    return made


def test_the_reference_has_the_papers_numbers():
    assert philox2x32(0, 0, 0) == (0xFF1DAE59, 0x6CD10DF2)
    assert philox2x32(LOW, LOW, LOW) == (0x2C3F628B, 0xAB4FD7AD)
    assert philox2x32(0x243F6A88, 0x85A308D3, 0x13198A2E) == (0xDD7CE038, 0xF62A4C12)


@pytest.mark.parametrize(
    "dtype, digits", [(torch.float32, 24), (torch.float64, 53), (torch.float16, 11), (torch.bfloat16, 8)]
)
def test_numbers_are_philox_of_seed_and_position(dtype, digits):
    fn = compiled(lambda: torch.rand(7, 37, dtype=dtype))
    torch.manual_seed(11)
    got = fn()
    torch.manual_seed(11)
    seed = torch.randint(-(2**63), 2**63 - 1, ()).item()
    words = [philox2x32(i, (seed >> 32) & LOW, seed & LOW) for i in range(got.numel())]
    want = torch.tensor([((a << 32 | b) >> (64 - digits)) * 2.0**-digits for a, b in words], dtype=torch.float64).view(
        7, 37
    )
    assert got.dtype == dtype and torch.equal(got.double(), want)


def everything(x):
    return (
        torch.rand(50, 3),
        torch.rand_like(x),
        torch.randn(4, 5),
        torch.randn_like(x),
        torch.randint(10, (20,)),
        torch.randint(-5, 1 << 40, (20,)),
        torch.randint_like(x.long(), 100),
        torch.empty(20).uniform_(-2, 3),
        torch.empty(30).normal_(1, 2),
        torch.empty(20).exponential_(0.5),
        torch.empty(30).bernoulli_(0.3),
        torch.empty(20).log_normal_(1, 2),
        torch.empty(20).cauchy_(1, 2),
        torch.empty(20).geometric_(0.1),
        torch.normal(x, 0.5),
        F.rrelu(x, training=True),
        F.dropout(x, 0.4),
        F.dropout1d(x, 0.4),
        F.alpha_dropout(x, 0.4, True),
        F.gumbel_softmax(x),
        x,
    )


def test_the_default_generator_governs():
    x = torch.randn(40, 6)
    fn = compiled(everything, x)
    torch.manual_seed(5)
    first, second = fn(x), fn(x)
    assert not any(torch.equal(a, b) for a, b in zip(first[:-1], second[:-1]))
    torch.manual_seed(5)
    assert all(map(torch.equal, first, fn(x)))
    state = torch.get_rng_state()
    assert all(map(torch.equal, second, fn(x)))
    torch.set_rng_state(state)
    assert all(map(torch.equal, second, fn(x)))
    torch.set_rng_state(state)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert not torch.equal(fn(x)[0], second[0])
    assert all(map(torch.equal, second, fn(x)))
    for eager, ours in zip(everything(x), second):
        assert eager.shape == ours.shape and eager.dtype == ours.dtype and eager.stride() == ours.stride()


def test_eager_numbers_on_request():
    x = torch.randn(40, 6)
    fn = compiled(everything, x, options={"rng": "eager"})
    torch.manual_seed(5)
    want = everything(x)
    torch.manual_seed(5)
    for w, g in zip(want, fn(x)):
        torch.testing.assert_close(g, w)
    with pytest.raises(TypeError, match="'philox' or 'eager'"):
        braze.compile(lambda x: x, options={"rng": "mt"})


def test_a_generator_of_ones_own_is_used():
    def fn(x, g):
        return x + torch.rand(8, generator=g), torch.empty(8).normal_(generator=g), torch.rand(8)

    g = torch.Generator()
    got = braze.compile(fn)(torch.zeros(8), g.manual_seed(3))
    want = fn(torch.zeros(8), g.manual_seed(3))
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
    state = torch.get_rng_state()
    braze.compile(lambda g: torch.rand(8, generator=g))(g)
    assert torch.equal(state, torch.get_rng_state())


def test_functions_of_uniform_and_normal_numbers():
    def f(x):
        made = torch.empty(1 << 16)
        return (
            made.log_normal_(1, 2).log(),
            made.clone().cauchy_(1, 2),
            made.clone().geometric_(0.25),
            F.rrelu(x, 0.1, 0.3, True),
        )

    x = torch.linspace(-4, 4, 1 << 12)
    torch.manual_seed(3)
    normal, cauchy, tries, leaky = compiled(f, x)(x)
    assert normal.mean() == pytest.approx(1, abs=0.05) and normal.std() == pytest.approx(2, abs=0.05)
    assert cauchy.median() == pytest.approx(1, abs=0.1) and cauchy.sub(1).abs().median() == pytest.approx(2, abs=0.1)
    assert tries.min() == 1 and torch.equal(tries, tries.round()) and tries.mean() == pytest.approx(4, abs=0.1)
    slopes = (leaky / x)[x < 0]
    assert torch.equal(leaky[x > 0], x[x > 0]) and slopes.min() >= 0.1 and slopes.max() <= 0.3 and slopes.std() > 0.05


def near(value, want, deviation, what):
    assert abs(value - want) < 5 * deviation, f"{what}: {value}, expected {want} ± {deviation}"


N = 1 << 18


def check_uniform(u, what):
    """Moments, even spread over cells, no correlation with neighbours at several distances."""
    u = u.double().flatten()
    n = u.numel()
    assert 0 <= u.min() and u.max() < 1, what
    near(u.mean().item(), 0.5, math.sqrt(1 / 12 / n), what + ", mean")
    near(u.var().item(), 1 / 12, math.sqrt(1 / 180 / n), what + ", variance")
    cells = torch.histc(u, 64, 0, 1)
    near(((cells - n / 64) ** 2 / (n / 64)).sum().item(), 63, math.sqrt(2 * 63), what + ", cells")
    c = u - 0.5
    for lag in (1, 2, 3, 7, 8, 16, 64, 512, 4096):
        near((c[:-lag] * c[lag:]).mean().item(), 0, 1 / 12 / math.sqrt(n), f"{what}, neighbours {lag} apart")


def test_uniform_and_independent():
    fn = compiled(
        lambda: (
            torch.rand(512, N // 512),
            torch.rand(N, dtype=torch.float64),
            torch.randint(1000, (N,)),
            torch.randint(1 << 50, (N,)),
        )
    )
    a, b, c, d = fn()
    check_uniform(a, "rand")
    check_uniform(a.t(), "rand by columns")
    check_uniform(b, "rand in double")
    check_uniform((c + torch.rand(N, dtype=torch.float64)) / 1000, "randint")
    check_uniform(d.double() / (1 << 50), "randint of 50 bits")
    e = fn()[0]
    near(((a - 0.5) * (e - 0.5)).double().mean().item(), 0, 1 / 12 / math.sqrt(N), "two calls")
    near(((a.flatten() - 0.5) * (b - 0.5)).double().mean().item(), 0, 1 / 12 / math.sqrt(N), "two operators")


def test_normal_and_exponential():
    fn = compiled(
        lambda: (
            torch.randn(N),
            torch.randn(N, dtype=torch.float64),
            torch.empty(N).normal_(0, 1),
            torch.empty(N).exponential_(2.0),
        )
    )
    *normals, waits = fn()
    for k, z in enumerate(normals):
        assert z.isfinite().all()
        check_uniform((0.5 * (1 + torch.erf(z.double() / math.sqrt(2)))).clamp(0, 1 - 1e-12), f"normal {k}")
        near((z.double() ** 4).mean().item(), 3, math.sqrt(96 / N), f"normal {k}, fourth moment")
    assert waits.min() > 0 and waits.isfinite().all()
    check_uniform(1 - torch.exp(-2 * waits.double()).clamp(1e-12), "exponential")


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("training", [True, False])
def test_dropout_keeps_what_it_says(p, training):
    x = torch.randn(300, 400)
    y = x.clone().requires_grad_()
    out = compiled(lambda y: F.dropout(y, p, training), y)(y)
    out.sum().backward()
    if not training:
        assert torch.equal(out, x) and torch.equal(y.grad, torch.ones_like(x))
        return
    kept = out != 0
    scale = 1 / (1 - p) if p < 1 else 0.0
    torch.testing.assert_close(out.detach(), torch.where(kept, x * scale, 0.0))
    torch.testing.assert_close(y.grad, kept * scale)
    near(kept.double().mean().item(), 1 - p, math.sqrt(p * (1 - p) / x.numel()) + 1e-12, "rate")
    rows = kept.double().mean(1)
    assert (rows - (1 - p)).abs().max() <= 6 * math.sqrt(p * (1 - p) / 400) + 1e-12


def test_the_backward_computes_masks_again():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(64, 64), nn.Linear(64, 64), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(torch.relu(self.b(self.drop(torch.tanh(self.a(x))))))

    net, x = Net(), torch.randn(256, 64)
    e = braze.explain(net, x)
    assert "bernoulli" not in e.partitions[0].split("recomputed")[0], e.partitions[0]
    fn = braze.compile(net, fullgraph=True)
    x.requires_grad_()
    torch.manual_seed(1)
    fn(x).sum().backward()
    slope = x.grad.clone()
    # The derivative in a direction, by differences under the same masks.
    net.double()
    fn, wide, step = (
        braze.compile(net, fullgraph=True),
        x.detach().double(),
        1e-6 * torch.randn(256, 64, dtype=torch.float64),
    )
    values = []
    for s in (step, -step):
        torch.manual_seed(1)
        values.append(fn(wide + s).sum())
    torch.testing.assert_close(
        (slope.double() * step).sum(), (values[0] - values[1]).detach() / 2, rtol=1e-3, atol=1e-9
    )


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_sees_the_same_masks(reentrant):
    fn = braze.compile(lambda x: F.dropout(torch.sin(x), 0.5) * x)
    x = torch.randn(1000, requires_grad=True)

    def around(x):
        return checkpoint(fn, x, use_reentrant=reentrant)

    for f in (
        around,
        braze.compile(lambda x: checkpoint(lambda x: F.dropout(torch.sin(x), 0.5) * x, x, use_reentrant=reentrant)),
    ):
        x.grad = None
        out = f(x)
        kept = out != 0
        out.sum().backward()
        s = x.detach()
        torch.testing.assert_close(x.grad, kept * 2 * (s.cos() * s + s.sin()))


def test_what_eager_refuses_is_refused():
    for fn in (
        lambda: torch.empty(3).bernoulli_(1.5),
        lambda: torch.randint(3, 3, (2,)),
        lambda: torch.empty(3).uniform_(2, 1),
        lambda: torch.empty(3).normal_(0, -1),
        lambda: torch.empty(3).exponential_(-1),
    ):
        with pytest.raises(RuntimeError) as want:
            fn()
        with pytest.raises(RuntimeError) as got:
            braze.compile(fn)()
        assert str(want.value).split("\n")[0] == str(got.value).split("\n")[0]


def test_empty_scalar_and_open_sizes():
    fn = compiled(lambda: (torch.rand(0, 3), torch.rand(()), torch.randn(1)))
    a, b, c = fn()
    assert a.shape == (0, 3) and 0 <= b < 1 and c.shape == (1,)
    fn = braze.compile(lambda x: F.dropout(x, 0.5), dynamic=True)
    for n in (5, 1000, 77, 4096):
        out = fn(torch.ones(n))
        assert out.shape == (n,) and ((out == 0) | (out == 2)).all()
    assert 0.4 < (fn(torch.ones(4096)) == 0).double().mean() < 0.6
