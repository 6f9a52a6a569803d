"""Compiled optimizer steps: parameters and states are eager's, and a learning rate that changes from step to step is an operand."""

import copy

import pytest
import torch
from torch import nn

import braze

OPTIMIZERS = {
    "SGD": (
        torch.optim.SGD,
        [
            {},
            {"momentum": 0.9, "weight_decay": 0.1},
            {"momentum": 0.9, "nesterov": True},
            {"maximize": True, "dampening": 0.1, "momentum": 0.5},
        ],
    ),
    "Adam": (torch.optim.Adam, [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True, "betas": (0.8, 0.9)}]),
    "AdamW": (torch.optim.AdamW, [{}, {"weight_decay": 0.5, "amsgrad": True}]),
    "NAdam": (torch.optim.NAdam, [{}, {"weight_decay": 0.1, "decoupled_weight_decay": True}]),
    "RMSprop": (torch.optim.RMSprop, [{}, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}]),
    "Rprop": (torch.optim.Rprop, [{}, {"maximize": True}]),
    "Adamax": (torch.optim.Adamax, [{}, {"weight_decay": 0.1}]),
    "Adadelta": (torch.optim.Adadelta, [{}, {"weight_decay": 0.1}]),
    "Adagrad": (torch.optim.Adagrad, [{}, {"lr_decay": 0.1, "weight_decay": 0.1}]),
}
CASES = [(name, kw) for name, (_, kws) in OPTIMIZERS.items() for kw in kws]
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")


def training(make, compiled, steps=12, dtype=torch.float32, lr=None, device="cpu"):
    """The parameters and the optimizer's state after some steps, and the compilations after each."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device, dtype)
    x = torch.randn(5, 4, dtype=dtype).to(device)
    o = make([{"params": list(m[0].parameters())}, {"params": list(m[2].parameters()), "weight_decay": 0.01}])
    step = braze.compile(o.step) if compiled else o.step
    counts = []
    for i in range(steps):
        o.zero_grad()
        m(x).pow(2).sum().backward()
        for n, g in enumerate(o.param_groups):
            rate = (lr or (lambda i, n: 1e-3 * (1 + (i + n) % 5)))(i, n)
            if isinstance(g["lr"], torch.Tensor):
                g["lr"].fill_(rate)
            else:
                g["lr"] = rate
        step()
        counts.append(braze._C.compilations(step) if compiled else 0)
    return list(m.parameters()), o.state_dict(), counts


def same_training(make, most=3, **kw):
    want, want_state, _ = training(make, False, **kw)
    got, got_state, counts = training(make, True, **kw)
    tolerance = (
        dict(rtol=1e-4, atol=1e-6) if want[0].dtype == torch.float32 else dict(rtol=0.02, atol=0.02)
    )  # a few roundings to bfloat16
    for a, b in zip(want, got):
        torch.testing.assert_close(b, a, **tolerance)
    assert list(got_state["state"]) == list(want_state["state"])
    for k, state in want_state["state"].items():
        assert list(got_state["state"][k]) == list(state)
        for name, v in state.items():
            g = got_state["state"][k][name]
            assert type(g) is type(v), name
            torch.testing.assert_close(g, v, **(tolerance if isinstance(v, torch.Tensor) else {}))
    assert 0 < counts[-1] <= most, counts
    assert counts[-1] == counts[4], f"compiled again for another learning rate: {counts}"
    return counts


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("name, kw", CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v) or "default")
def test_a_changing_learning_rate(name, kw, foreach, device):
    same_training(lambda p: OPTIMIZERS[name][0](p, lr=1e-3, foreach=foreach, **kw), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name, kw", [c for c in CASES if c[0] in FUSED], ids=lambda v: v if isinstance(v, str) else "-".join(v) or "default"
)
def test_fused(name, kw, device):
    make = lambda p: OPTIMIZERS[name][0](p, lr=1e-3, fused=True, **kw)
    try:
        training(make, False, steps=1, device=device)
    except RuntimeError as e:
        pytest.skip(f"eager has none: {e}")
    same_training(make, device=device)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph(name):
    cls, kws = OPTIMIZERS[name]
    w = torch.randn(4, 3, requires_grad=True)
    for kw in kws:
        o = cls([w], lr=1e-3, **kw)
        w.grad = torch.randn(4, 3)
        e = braze.explain(o.step)
        assert e.graph_break_count == 0 and e.graph_count >= 1, e
        assert all("runs compiled" in g for g in e.graphs), e


def test_after_torch_compile_was_used():
    torch.compile(nn.Linear(3, 3), backend="eager")(torch.randn(2, 3))
    w = torch.randn(4, 3, requires_grad=True)
    w.grad = torch.randn(4, 3)
    e = braze.explain(torch.optim.AdamW([w]).step)
    assert e.graph_break_count == 0 and e.graph_count == 1, e


@pytest.mark.parametrize("cls", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_a_learning_rate_in_a_tensor(cls):
    same_training(lambda p: cls(p, lr=torch.tensor(1e-3)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("cls", [torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD])
def test_capturable(cls, foreach, device):
    """Eager takes this on a GPU only; it changes no values."""
    want, _, _ = training(lambda p: cls(p, lr=1e-3), False, device=device)
    got, _, counts = training(lambda p: cls(p, lr=1e-3, capturable=True, foreach=foreach), True, device=device)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-5)
    assert counts[4] == counts[-1] <= 4


def test_sixteen_bit_parameters():
    for cls in (torch.optim.SGD, torch.optim.RMSprop):
        same_training(lambda p: cls(p, lr=1e-2), dtype=torch.bfloat16, steps=6)


def test_schedulers():
    def run(compiled):
        torch.manual_seed(0)
        m = nn.Linear(3, 2)
        o = torch.optim.AdamW(m.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(o, 20)
        step = braze.compile(o.step) if compiled else o.step
        for _ in range(20):
            o.zero_grad()
            m(torch.ones(4, 3)).square().sum().backward()
            step()
            schedule.step()
        return m, (braze._C.compilations(step) if compiled else 0)

    (a, _), (b, count) = run(False), run(True)
    torch.testing.assert_close(b.state_dict(), a.state_dict(), rtol=1e-4, atol=1e-6)
    assert count == 2


def test_the_state_of_one_continues_in_the_other():
    def make():
        torch.manual_seed(0)
        m = nn.Linear(3, 2)
        return m, torch.optim.Adam(m.parameters(), lr=0.1)

    def go(m, o, step, n):
        for _ in range(n):
            o.zero_grad()
            m(torch.ones(4, 3)).square().sum().backward()
            step()

    m, o = make()
    go(m, o, o.step, 6)
    n, p = make()
    go(n, p, braze.compile(p.step), 3)
    saved, weights = copy.deepcopy(p.state_dict()), copy.deepcopy(n.state_dict())
    n, p = make()
    n.load_state_dict(weights)
    p.load_state_dict(saved)
    go(n, p, p.step, 3)
    torch.testing.assert_close(n.state_dict(), m.state_dict(), rtol=1e-4, atol=1e-6)


TENSOR_SCALARS = {
    "add": lambda a, b, c, s: (torch.add(a, b, alpha=s), a.add(b, alpha=s), a.clone().add_(b, alpha=s)),
    "sub": lambda a, b, c, s: (torch.sub(a, b, alpha=s), a.clone().sub_(b, alpha=s)),
    "addcmul": lambda a, b, c, s: (torch.addcmul(a, b, c, value=s), a.clone().addcmul_(b, c, value=s)),
    "addcdiv": lambda a, b, c, s: (torch.addcdiv(a, b, c, value=s), a.clone().addcdiv_(b, c, value=s)),
    "foreach": lambda a, b, c, s: (torch._foreach_add([a, b], [b, c], alpha=s), torch._foreach_sub([a], [c], alpha=s)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", TENSOR_SCALARS)
def test_tensors_as_numbers_of_operators(name, dtype):
    torch.manual_seed(0)
    a, b, c = (torch.rand(3, 4, dtype=dtype) + 0.5 for _ in range(3))
    s = torch.tensor(0.3)
    e = braze.explain(TENSOR_SCALARS[name], a, b, c, s)
    assert e.graph_break_count == 0
    torch.testing.assert_close(e.output, TENSOR_SCALARS[name](a, b, c, s))


def test_numbers_computed_from_numbers_that_vary():
    f = braze.compile(lambda x, s: (x * (1 - s * 0.5), torch.add(x, x, alpha=-s), x.clone().mul_(s / 3.0), s * 2))
    x = torch.randn(3)
    for s in (0.1, 0.2, 0.7, -1.5, 0.0):
        want = (x * (1 - s * 0.5), torch.add(x, x, alpha=-s), x.clone().mul_(s / 3.0), s * 2)
        torch.testing.assert_close(f(x, s), want)
    assert braze._C.compilations(f) == 2


def test_division_by_a_number_that_becomes_zero():
    f = braze.compile(lambda x, s: x * (1.0 / s))
    x = torch.ones(2)
    for s in (1.0, 2.0, 4.0):
        torch.testing.assert_close(f(x, s), x / s)
    with pytest.raises(ZeroDivisionError):
        f(x, 0.0)


def test_gradients_set_to_zero_as_a_list():
    """What `zero_grad(set_to_none=False)` of optimizers with `foreach` calls."""

    def f(grads):
        torch._foreach_zero_(grads[1:])
        return [g + 1 for g in grads]

    compiled = braze.compile(f, fullgraph=True)
    for _ in range(2):
        want, got = ([torch.full((3,), 2.0), torch.randn(2, 4).t(), torch.full((), float("nan"))] for _ in range(2))
        for a, b in zip(f(want), compiled(got)):
            torch.testing.assert_close(a, b)
        for a, b in zip(want, got):
            torch.testing.assert_close(a, b)
