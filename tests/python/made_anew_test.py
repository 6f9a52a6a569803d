"""Programs whose objects or numbers differ in each call: they are compiled for what stays the same, and not for ever."""

import braze
import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    braze.reset()
    braze.counters(clear=True)
    yield
    braze.reset()


class Scaled(nn.Module):
    def __init__(self, inner, scale):
        super().__init__()
        self.inner, self.scale = inner, scale

    def forward(self, x):
        return self.inner(x) * self.scale


class Solver:
    def __init__(self, module):
        self.module = module

    def step(self, x):
        return x + self.module(x)


def test_modules_made_in_each_call_are_compiled_for_a_few_times():
    @braze.compile
    def run(solver, x):
        return solver.step(x)

    net, x = nn.Linear(4, 4), torch.randn(3, 4)
    with torch.no_grad():
        for i in range(20):
            solver = Solver(Scaled(nn.Sequential(net, nn.Tanh()), 2.0))
            torch.testing.assert_close(run(solver, x), solver.step(x))
    assert braze.counters()["captures"] <= 6
    assert braze.counters()["left_out"] == 0


def passing(run, make, *args):
    """The state in which modules of the place are guarded by their content."""
    for _ in range(5):
        run(Solver(make()), *args)
    before = braze.counters()["captures"]
    run(Solver(make()), *args)
    assert braze.counters()["captures"] == before


def changed_scale(m):
    m.scale = 3.0


def changed_class(m):
    m.inner = nn.Tanh()


def other_mode(m):
    m.inner.eval()


def hooked(m):
    m.inner.register_forward_hook(lambda module, args, out: out + 1)


def own_forward(m):
    m.inner.forward = lambda x: x - 1


def other_weight(m):
    m.inner[0].weight = nn.Parameter(torch.ones(4, 4))


def no_bias(m):
    m.inner[0].bias = None


def frozen(m):
    m.inner[0].weight.requires_grad_(False)


@pytest.mark.parametrize(
    "change",
    [changed_scale, changed_class, other_mode, hooked, own_forward, other_weight, no_bias, frozen],
    ids=lambda f: f.__name__,
)
def test_what_differs_in_a_module_made_anew_is_seen(change):
    @braze.compile
    def run(solver, x):
        return solver.step(x)

    torch.manual_seed(0)
    weight = torch.randn(4, 4)

    def make():
        linear = nn.Linear(4, 4)
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.fill_(0.5)
        return Scaled(nn.Sequential(linear, nn.BatchNorm1d(4)), 2.0)

    x = torch.randn(3, 4)
    passing(run, make, x)
    for _ in range(2):
        module = make()
        change(module)
        solver = Solver(module)
        got, want = run(solver, x), solver.step(x)
        torch.testing.assert_close(got, want)
        wanted = [p for p in module.parameters() if p.requires_grad]
        if want.requires_grad:
            for g, w in zip(
                torch.autograd.grad(got.sum(), wanted, allow_unused=True),
                torch.autograd.grad(want.sum(), wanted, allow_unused=True),
                strict=True,
            ):
                assert (g is None) == (w is None)
                if g is not None:
                    torch.testing.assert_close(g, w)


def test_one_module_at_two_places_of_an_object_made_anew():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    @braze.compile
    def run(pair, x):
        y = pair.a(x)
        pair.b.scale = 5.0
        return y + pair.a(x) + pair.b(x), pair.a is pair.b

    def make(same):
        a = Scaled(nn.Identity(), 2.0)
        return Pair(a, a if same else Scaled(nn.Identity(), 2.0))

    x = torch.randn(3)
    for same in [False] * 5 + [True, False, True, True, False]:
        y, is_same = run(make(same), x)
        assert is_same == same
        torch.testing.assert_close(y, x * (2 + (5 if same else 2) + 5))


def test_buffers_of_a_module_made_anew_are_written():
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.calls = 0

        def forward(self, x):
            self.count += x
            self.calls += 1
            return self.count * 2

    @braze.compile
    def run(solver, x):
        return solver.step(x)

    x = torch.ones(2)
    for _ in range(8):
        m = Count()
        for i in range(1, 4):
            torch.testing.assert_close(run(Solver(m), x), x + 2 * i)
            assert m.calls == i
            assert m.count.tolist() == [i, i]


def test_modules_that_stay_are_compared_by_identity_alone():
    @braze.compile
    def run(solver, x):
        return solver.step(x)

    x, modules = torch.randn(3, 4), []
    with torch.no_grad():
        for i in range(3):
            module = Scaled(nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]), 2.0)
            modules.append(module)
            for _ in range(3):
                torch.testing.assert_close(run(Solver(module), x), x + module(x))
    assert braze.counters()["captures"] == 3


def ever_new(x, n):
    for i in range(n.item() % 1000 // 3 + 1):
        x = x + i
    return x * 2


def test_numbers_that_are_ever_new_are_not_compiled_for_ever():
    run = braze.compile(ever_new)
    x = torch.randn(4)
    for n in range(0, 900, 3):
        n = torch.tensor(n)
        torch.testing.assert_close(run(x, n), ever_new(x, n))
    counters = braze.counters()
    assert counters["captures"] < 100
    assert counters["left_out"] > 200


def test_programs_that_settle_are_compiled_again():
    def f(x, word):
        return x * len(word) if word > "5" else x + len(word)

    run = braze.compile(f)
    x = torch.randn(4)
    for i in range(40):
        torch.testing.assert_close(run(x, str(i)), f(x, str(i)))
    assert 0 < braze.counters()["left_out"] < 40
    for _ in range(100):
        for word in ("one", "two", "three"):
            torch.testing.assert_close(run(x, word), f(x, word))
    before = braze.counters()
    for word in ("one", "two", "three"):
        run(x, word)
    assert braze.counters() == before


def test_many_versions_that_are_used_are_all_compiled():
    run = braze.compile(lambda x, word: x * len(word))
    x = torch.randn(4)
    for i in range(48):
        for _ in range(3):
            torch.testing.assert_close(run(x, "x" * i), x * i)
    assert braze.counters()["captures"] == 48
    assert braze.counters()["left_out"] == 0


def test_whole_graphs_are_always_compiled():
    run = braze.compile(lambda x, word: x * len(word), fullgraph=True)
    x = torch.randn(4)
    for i in range(30):
        torch.testing.assert_close(run(x, "x" * i), x * i)
    assert braze.counters()["captures"] == 30
