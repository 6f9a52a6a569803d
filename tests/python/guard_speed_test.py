"""options={"guard_speed": True}: a region that is slower than PyTorch's calls runs as those, and nothing else is seen of it."""

import logging
import threading
import time

import pytest
import torch
import torch.nn.functional as F

import braze

GUARDED = {"guard_speed": True}


class Counts:
    def __init__(self):
        self.slow = self.quick = 0


@pytest.fixture
def airy():
    """torch.special.airy_ai as a program may override it: quick where PyTorch's calls come through autograd's dispatch key, 2 ms below it,
    where compiled code calls it. Counts both."""
    counts = Counts()

    def below(x):
        counts.slow += 1
        time.sleep(0.002)
        return x * 2

    def above(x):
        if braze.is_compiling():
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.aten.special_airy_ai(x)
        counts.quick += 1
        return x * 2

    lib = torch.library.Library("aten", "IMPL")
    lib.impl("special_airy_ai", below, "CPU")
    lib.impl("special_airy_ai", above, "AutogradCPU")
    yield counts
    lib._destroy()


def speeds(compiled):
    return braze._C.speeds(compiled)


def only(compiled):
    (found,) = speeds(compiled)
    return found


def test_a_slower_region_runs_as_calls(airy, caplog):
    def f(x):
        return torch.special.airy_ai(x) + 1

    g = braze.compile(f, options=GUARDED)
    x = torch.randn(8)
    with caplog.at_level(logging.WARNING, "braze"):
        for _ in range(32):
            torch.testing.assert_close(g(x), x * 2 + 1)
    found = only(g)
    assert found["form"] == "calls" and found["samples"] == 3 and found["calls"] == 32
    assert found["compiled_seconds"] > 0.002 > found["calls_seconds"] > 0
    assert "slower than PyTorch's calls" in found["why"] and "guard_speed_test.py" in found["place"]
    assert any("slower than PyTorch's calls" in r.getMessage() for r in caplog.records)
    # In the other form from the 32nd call on: no more runs than the program asks for.
    slow, quick = airy.slow, airy.quick
    for _ in range(100):
        g(x)
    assert (airy.slow, airy.quick) == (slow, quick + 100)
    lines = [line for line in str(braze.explain(g, x)).splitlines() if line.startswith("runs as PyTorch's calls: ")]
    assert len(lines) == 1 and found["why"] in lines[0]


def test_trials_are_counted(airy):
    g = braze.compile(lambda x: torch.special.airy_ai(x) + 1, options=GUARDED)
    x = torch.randn(8)
    for _ in range(7):
        g(x)
    assert (airy.slow, airy.quick) == (7, 0)
    g(x)  # a run in vain of the compiled form, one of the calls, and one before that is not timed
    assert (airy.slow, airy.quick) == (9, 2)
    for _ in range(7):
        g(x)
    assert (airy.slow, airy.quick) == (16, 2)


def test_off_by_default(airy):
    g = braze.compile(lambda x: torch.special.airy_ai(x) + 1)
    for _ in range(20):
        g(torch.ones(3))
    assert speeds(g) == [] and airy.quick == 0 and braze.explain(g, torch.ones(3)).speeds == []


def test_a_faster_region_stays_compiled():
    def f(x):
        for _ in range(12):
            x = torch.sin(x) * 1.01 + 0.1
        return x

    g = braze.compile(f, options=GUARDED)
    x = torch.randn(512)
    for _ in range(1100):
        g(x)
    found = only(g)
    assert found["form"] == "compiled" and found["samples"] >= 1
    assert found["compiled_seconds"] < found["calls_seconds"]
    assert not any(line.startswith("runs as") for line in str(braze.explain(g, x)).splitlines())
    assert braze.explain(g, x).speeds == speeds(g)


def counter(body):
    """A custom operator that counts its runs."""
    runs = []

    @torch.library.custom_op("guard_speed_test::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x.clone()

    @count.register_fake
    def _(x):
        return torch.empty_like(x)

    return count, runs


class Twice(torch.autograd.Function):
    runs = 0

    @staticmethod
    def forward(ctx, x):
        Twice.runs += 1
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def writes(x):
    x.add_(1)
    return x * 2


def running_statistics(x, norm=torch.nn.BatchNorm1d(4)):  # noqa: B008
    return norm(x)


def checks(x):
    assert (x.abs() < 1e9).all()
    return x + 1


WEIGHT = torch.randn(4, 4, requires_grad=True)

NOT_TIMED = {
    "writes": (writes, "writes to its inputs"),
    "statistics": (running_statistics, ""),
    "random": (lambda x: F.dropout(x + 1), "random"),
    "a drawn tensor": (lambda x: x + torch.randn(4, 4), "random"),
    "training": (lambda x: (x @ WEIGHT).relu(), "history"),
    "checks": (checks, "checks"),
    "sizes that depend on data": (lambda x: x[x > 0].sum() + x[x < 0].sum(), "depends on data"),
}


@pytest.mark.parametrize("name", NOT_TIMED)
def test_what_leaves_a_trace_is_not_timed(name):
    f, why = NOT_TIMED[name]
    g = braze.compile(f, options=GUARDED)
    x = torch.randn(4, 4)
    expected = f(x.clone()) if name == "writes" else None
    for _ in range(40):
        got = g(x.clone())
    if expected is not None:
        torch.testing.assert_close(got, expected)
    assert speeds(g)
    for found in speeds(g):
        assert found["form"] == "compiled" and found["samples"] == 0
        assert found["why"].startswith("not timed: ") and why in found["why"], found


def test_running_statistics_are_updated_once_a_call():
    norm, reference = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    g = braze.compile(norm, options=GUARDED)
    with torch.no_grad():
        for _ in range(40):
            x = torch.randn(8, 4)
            g(x), reference(x)
    assert norm.num_batches_tracked == 40
    torch.testing.assert_close(norm.running_mean, reference.running_mean)


def test_an_operator_of_the_programs_is_not_called_in_vain():
    count, runs = counter("clone")
    g = braze.compile(lambda x: count(x) + 1, options=GUARDED)
    for _ in range(40):
        g(torch.ones(3))
    assert len(runs) == 40
    assert "guard_speed_test::count" in only(g)["why"]


def test_a_function_of_the_programs_is_not_called_in_vain():
    g = braze.compile(lambda x: Twice.apply(x) + 1, options=GUARDED)
    g(torch.ones(3))
    before = Twice.runs
    for _ in range(40):
        g(torch.ones(3))
    assert Twice.runs == before + 40 and only(g)["form"] != "calls"
    assert only(g)["why"].startswith("not timed: ")


def test_the_state_of_generators_is_kept():
    def f(x):
        return x.sin().cos()

    g = braze.compile(f, options=GUARDED)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for _ in range(40):
        g(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), before)


def test_no_history_is_made(airy):
    """Results without a history of inputs that have one."""
    made = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: made.append(1) or t, lambda t: t)

    def f(x):
        with torch.no_grad():
            return torch.special.airy_ai(x) * 3

    g = braze.compile(f, options=GUARDED)
    x = torch.ones(3, requires_grad=True)
    with hooks:
        for _ in range(40):
            assert not g(x).requires_grad
    assert not made


def test_large_results_are_not_timed():
    def f(x):
        return (x + 1).sum() + (x * 2).cumsum(0).max()

    g = braze.compile(f, options=GUARDED)
    for n, timed in ((1 << 10, True), (70 << 20, False)):
        x = torch.zeros(n)
        for _ in range(10):
            g(x)
        found = speeds(g)
        assert any((s["samples"] > 0) == timed for s in found)
    assert any("MiB" in s["why"] for s in found)


def test_a_profiler_sees_the_programs_calls_alone(airy):
    g = braze.compile(lambda x: torch.special.airy_ai(x) + 1, options=GUARDED)
    x = torch.ones(3)
    for _ in range(5):
        g(x)
    with torch.profiler.profile() as p:
        for _ in range(20):
            g(x)
    assert airy.slow == 25 and airy.quick == 0
    assert sum(e.key == "aten::special_airy_ai" and e.count for e in p.key_averages()) == 20


def test_classes_of_sizes(airy):
    g = braze.compile(lambda x: torch.special.airy_ai(x) + 1, options=GUARDED, dynamic=True)
    for _ in range(40):
        for n in (5, 6):
            torch.testing.assert_close(g(torch.ones(n)), torch.full((n,), 3.0))
    g(torch.ones(100))
    found = {tuple(s["sizes"]): s for s in speeds(g)}
    assert found[(5,)]["form"] == "calls" and found[(100,)]["form"] == "open"
    assert found[(5,)]["calls"] == 80
    slow = airy.slow
    g(torch.ones(7)), g(torch.ones(100))
    assert airy.slow == slow + 1
    assert "(sizes like 5)" in str(braze.explain(g, torch.ones(5)))


def test_exceptions_of_a_trial_are_not_the_programs(airy):
    broken = []

    def f(x):
        return torch.special.airy_ai(x) + torch.special.bessel_j0(x)

    lib = torch.library.Library("aten", "IMPL")

    def above(x):
        if broken:
            raise broken[0]
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.aten.special_bessel_j0(x)

    lib.impl("special_bessel_j0", above, "AutogradCPU")
    try:
        g, h = braze.compile(f, options=GUARDED), braze.compile(f, options=GUARDED)
        x = torch.ones(3)
        want = g(x)
        h(x)
        broken.append(RuntimeError("not today"))
        for _ in range(20):
            torch.testing.assert_close(g(x), want)
        assert only(g)["form"] == "compiled" and "not today" in only(g)["why"]
        broken[0] = KeyboardInterrupt()  # as a signal's handler would raise it
        with pytest.raises(KeyboardInterrupt):
            for _ in range(20):
                h(x)
    finally:
        lib._destroy()


def test_results_are_views_and_inputs_as_before(airy):
    """Aliases, containers, None and effects after the switch as before it."""
    seen = {"last": None}

    def f(x, y):
        z = torch.special.airy_ai(x)
        seen["last"] = z
        return {"view": z[1:], "whole": z, "input": y, "part": y.t(), "none": None}

    g = braze.compile(f, options=GUARDED)
    x, y = torch.ones(3), torch.zeros(2, 3)
    for _ in range(60):
        r = g(x, y)
        assert r["view"]._is_view() and r["view"]._base is r["whole"]
        assert r["input"] is y and r["part"].data_ptr() == y.data_ptr() and r["none"] is None
        assert r["part"].stride() == (1, 3) and seen["last"] is r["whole"]
    assert only(g)["form"] == "calls"


def test_modes_and_autocast(airy):
    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.special.airy_ai(x) @ w

    g = braze.compile(f, options=GUARDED)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(40):
        got = g(x, w)
        assert got.dtype == torch.bfloat16
    assert only(g)["form"] == "calls"
    torch.testing.assert_close(got, f(x, w))


def test_numbers_that_vary(airy):
    def f(x, scale, n):
        return torch.special.airy_ai(x) * scale + n

    g = braze.compile(f, options=GUARDED)
    x = torch.randn(4)
    for i in range(60):
        n = 4 + i % 4
        got, want = g(x, i * 0.5 + 0.1, n), x * 2 * (i * 0.5 + 0.1) + n
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want)
    assert any(s["form"] == "calls" for s in speeds(g))


def test_modules_follow_their_parameters(airy):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return torch.special.airy_ai(x) * self.scale

    m = Scaled()
    g, x = braze.compile(m, options=GUARDED), torch.ones(3)
    with torch.no_grad():
        for i in range(60):
            m.scale.fill_(i)
            assert torch.equal(g(x), torch.full((3,), 2.0 * i))
    assert only(type(g).__dict__["__call__"])["form"] == "calls"
    assert any(line.startswith("runs as") for line in str(braze.explain(g, x)).splitlines())
    assert g(x).grad_fn is not None  # with a history: code of its own


def test_what_is_not_compiled_is_not_timed():
    """A graph that PyTorch runs in any case, because a device in it has no kernels."""

    def f(x):
        return torch.ones(2, device="meta"), x + 1

    g = braze.compile(f, options=GUARDED)
    for _ in range(40):
        assert torch.equal(g(torch.ones(2))[1], torch.full((2,), 2.0))
    assert speeds(g) == []


def test_gradients_inside_of_the_region():
    def f(x):
        w = torch.ones(4, requires_grad=True)
        (x @ w).sum().backward()
        return w.grad

    g = braze.compile(f, options=GUARDED)
    x = torch.ones(3, 4)
    for _ in range(40):
        assert torch.equal(g(x), torch.full((4,), 3.0))
    assert all(s["form"] == "compiled" and s["why"].startswith("not timed: ") for s in speeds(g))


def test_graph_breaks(airy):
    def f(x):
        y = torch.special.airy_ai(x) + 1
        braze.graph_break()
        return y.sin() * 2

    g = braze.compile(f, options=GUARDED)
    x = torch.randn(5)
    for _ in range(40):
        torch.testing.assert_close(g(x), f(x))
    assert sorted(s["form"] for s in speeds(g))[0] == "calls" and len(speeds(g)) == 2


def test_threads(airy):
    """Calls that overlap are not timed, and all are right; each thread's count adds up."""
    g = braze.compile(lambda x: torch.special.airy_ai(x) + 1, options=GUARDED)
    x = torch.randn(8)
    g(x)
    wrong = []

    def work():
        for _ in range(100):
            if not torch.equal(g(x), x * 2 + 1):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and only(g)["calls"] == 601
    for _ in range(200):
        g(x)
    assert only(g)["form"] == "calls"


def test_one_region_at_a_time(airy):
    """Another region's first calls inside of one that is being timed."""
    inner = braze.compile(lambda x: torch.special.airy_ai(x) - 1, options=GUARDED)

    @braze.disable
    def outside(x):
        return inner(x)

    g = braze.compile(lambda x: outside(torch.special.airy_ai(x)) + 1, options=GUARDED)
    x = torch.ones(3)
    for _ in range(40):
        assert torch.equal(g(x), torch.full((3,), 4.0))


@pytest.mark.parametrize("value", [1, "sampled", None, 0.5])
def test_a_wrong_value_says_so(value):
    with pytest.raises(TypeError, match="option 'guard_speed' takes a bool"):
        braze.compile(lambda x: x, options={"guard_speed": value})
