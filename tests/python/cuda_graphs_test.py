"""CUDA Graphs on an NVIDIA GPU: reduce-overhead, recordings and what they cannot hold, against eager. Skipped where there is none."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from cuda_test import rand, usable  # noqa: F401  usable is a fixture

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def test_capture_in_a_cuda_graph():
    x = rand(4096, 256)
    f = braze.compile(lambda x: torch.softmax(x, -1) * 2)
    f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    x.copy_(rand(4096, 256, seed=9))
    graph.replay()
    torch.testing.assert_close(y, torch.softmax(x, -1) * 2)


def test_reduce_overhead_replays():
    torch.manual_seed(0)
    m = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)).cuda().eval()
    f = braze.compile(m, mode="reduce-overhead")
    kept = []
    with torch.no_grad():
        for i in range(6):
            x = rand(8, 64, seed=i)
            kept.append((f(x), m(x)))
        for got, want in kept:  # results of earlier calls are not overwritten
            torch.testing.assert_close(got, want)
        for n in (4, 8, 4, 8, 4, 4):
            x = rand(n, 64, seed=n)
            torch.testing.assert_close(f(x), m(x))
        for i in range(3):
            m[0].weight.data = torch.full_like(m[0].weight, i)  # moved
            x = rand(8, 64)
            torch.testing.assert_close(f(x), m(x))


def test_reduce_overhead_with_a_changed_argument():
    f = braze.compile(lambda x, y: x.add_(y).sum(), mode="reduce-overhead")
    x, y = torch.zeros(10, device="cuda"), torch.ones(10, device="cuda")
    for i in range(1, 7):
        assert float(f(x, y)) == 10 * i
    assert torch.equal(x, torch.full((10,), 6.0, device="cuda"))


def test_what_cannot_be_recorded_runs_as_it_is():
    f = braze.compile(lambda x, y: (x.sum() + y.cuda(), x * 2), mode="reduce-overhead")
    x, y = rand(10), torch.ones(3)
    for _ in range(5):
        torch.testing.assert_close(f(x, y), (x.sum() + y.cuda(), x * 2))


def trained(m, fn, x, y, steps=6):
    """Losses and last gradients of steps of SGD, from the same weights each time."""
    state = {k: v.clone() for k, v in m.state_dict().items()}
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(fn(x), y)
        loss.backward()
        losses.append(float(loss))
        grads = [p.grad.clone() for p in m.parameters()]
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
        m.zero_grad()
    m.load_state_dict(state)
    return losses, grads


def small_net(*more):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.GELU(), *more, torch.nn.Linear(128, 10)
    ).cuda()


def test_reduce_overhead_in_training():
    m = small_net()
    x, y = rand(32, 64), torch.randint(0, 10, (32,), device="cuda")
    want, grads = trained(m, m, x, y)
    statistics = m[1].running_mean.clone()
    got, replayed = trained(m, braze.compile(m, mode="reduce-overhead"), x, y)
    assert got == pytest.approx(want, rel=1e-4)
    torch.testing.assert_close(replayed, grads, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(m[1].running_mean, statistics)


def test_reduce_overhead_keeps_gradients_and_activations_that_are_alive():
    m = small_net()
    f = braze.compile(m, mode="reduce-overhead")
    y = torch.randint(0, 10, (32,), device="cuda")
    for _ in range(4):  # recorded by now
        F.cross_entropy(f(rand(32, 64)), y).backward()
        m.zero_grad()
    # Two forwards before their backwards, in the other order; gradients that add up over calls; a gradient that is kept.
    xs = [rand(32, 64, seed=s) for s in range(4)]
    m.eval()
    g = braze.compile(m, mode="reduce-overhead")
    for _ in range(5):
        for fn in (g, m):
            losses = [F.cross_entropy(fn(x), y) for x in xs]
            kept = []
            for loss in reversed(losses):
                loss.backward()
                kept.append(m[0].weight.grad)
                copy = m[0].weight.grad.clone()
                if len(kept) == 2:
                    m.zero_grad()
                    kept.append((kept[-1], copy))
            assert torch.equal(*kept[2])
            grads = [p.grad.clone() for p in m.parameters()]
            m.zero_grad()
            if fn is g:
                got = grads
        torch.testing.assert_close(got, grads, rtol=1e-4, atol=1e-6)


def test_reduce_overhead_draws_new_masks():
    m = small_net(torch.nn.Dropout(0.5))
    f = braze.compile(m, mode="reduce-overhead")
    x = rand(32, 64)
    seen = []
    for _ in range(6):
        out = f(x)
        out.sum().backward()
        # The backward's mask is the forward's: the last layer's weights get the kept activations' sums.
        seen.append((out.detach().clone(), m[-1].weight.grad[0].clone()))
        m.zero_grad()
    for a, b in zip(seen, seen[1:]):
        assert not torch.equal(a[0], b[0]) and not torch.equal(a[1] == 0, b[1] == 0) or not torch.equal(a[1], b[1])


def graph_launches(run):
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as p:
        run()
        torch.cuda.synchronize()
    return sum(e.name == "cudaGraphLaunch" for e in p.events())


def test_recordings_are_split_around_the_cpu(request, capfd):
    before = braze.set_logs("graph_breaks")
    request.addfinalizer(lambda: braze.set_logs(*before))

    def f(x, y):
        a = torch.sin(x) @ x
        b = (y * 2).cuda()
        return a.T + b, (a * 2).sum(0), b.view(-1)

    g = braze.compile(f, mode="reduce-overhead", fullgraph=True)
    for i in range(6):
        x, y = rand(32, 32, seed=i), torch.randn(32, 32)
        got, want = g(x, y), f(x, y)
        torch.testing.assert_close(got, want)
    assert graph_launches(lambda: g(x, y)) == 2
    log = capfd.readouterr().err
    assert "_to_copy" in log and "split around" in log and Path(__file__).name in log


def test_profiles_show_recordings_and_kernels():
    f = braze.compile(lambda x: torch.softmax(x, -1) * 2)
    x = rand(512, 512)
    f(x)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as p:
        f(x)
        torch.cuda.synchronize()
    names = [e.name for e in p.events()]
    assert any(n.startswith("Torch-Compiled Region: ") for n in names)
    assert any(n.startswith("braze_fused_") for n in names)


def test_grad_scaler():
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).cuda()

    def train(compiled):
        m = copy.deepcopy(start)
        fn = braze.compile(m) if compiled else m
        opt = torch.optim.SGD(m.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**17, growth_interval=3)
        losses, scales = [], []
        for i in range(8):
            x, y = rand(32, 64, seed=i), torch.arange(32, device="cuda") % 10
            opt.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = F.cross_entropy(fn(x), y)
            # An overflow: the step is left out and the scale halved.
            scaler.scale(loss * (1e4 if i == 2 else 1)).backward()
            scaler.step(opt)
            scaler.update()
            losses.append(float(loss.detach()))
            scales.append(scaler.get_scale())
        return losses, scales

    (got, got_scales), (want, want_scales) = train(True), train(False)
    assert got_scales == want_scales and len(set(want_scales)) > 1
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=1e-2, atol=1e-3)


def test_arguments_that_stay_and_then_move():
    def step(x, cache, at):
        cache.index_add_(0, at, x)
        return (x * 2).sum() + cache.sum(), cache[1:] * 3

    fast = braze.compile(step, mode="reduce-overhead")
    at = torch.tensor([1, 2], device="cuda")
    x, ours, theirs = torch.zeros(2, 8, device="cuda"), *(torch.zeros(4, 8, device="cuda") for _ in range(2))
    kept = []
    for i in range(24):
        if i == 8:
            x = torch.zeros(2, 8, device="cuda")  # moves once
        if i == 12:
            ours = ours.clone()  # so does what is written
        if i > 15:
            x, ours = x.clone(), ours.clone()  # from call to call
            kept += [x, ours]
        x.fill_(i)
        for a, b in zip(fast(x, ours, at), step(x, theirs, at)):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(ours, theirs)


def test_large_results_are_lent_and_never_overwritten():
    x = torch.randn(2048, 4096, device="cuda")
    c = braze.compile(lambda x, k: (x * k, x[:1] + k), mode="reduce-overhead")
    k = torch.ones((), device="cuda")
    for i in range(6):
        k.fill_(i)
        a, b = c(x, k)
        assert torch.equal(a, x * i) and torch.equal(b, x[:1] + i)
        del a, b
    # What the program holds stays as it is, whoever keeps how many.
    held = []
    for i in range(12):
        k.fill_(i)
        a, b = c(x, k)
        held.append((i, a, b))
    for i, a, b in held:
        assert torch.equal(a, x * i) and torch.equal(b, x[:1] + i), i
    a.zero_()
    held.clear()
    for i in range(6):
        k.fill_(i)
        a, _ = c(x, k)
        assert torch.equal(a, x * i)
        a.zero_()
