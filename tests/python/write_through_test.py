"""What compiled code writes to its inputs: once, in their own memory, where nothing can see the difference."""

import pytest
import torch

import braze


def inputs_of(*tensors):
    return [t.data_ptr() for t in tensors]


def test_what_is_written_is_written_once():
    """An optimizer's step in one kernel: no copy of a result over a parameter."""

    def step(p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(m, alpha=0.1)

    p, g, m = (torch.randn(64, 64) for _ in range(3))
    want_p, want_m = p.clone(), m.clone()
    at, fast = inputs_of(p, m), braze.compile(step, fullgraph=True)
    for _ in range(3):
        versions = p._version, m._version
        fast(p, g, m), step(want_p, g, want_m)
        torch.testing.assert_close(p, want_p), torch.testing.assert_close(m, want_m)
        assert inputs_of(p, m) == at and p._version > versions[0] and m._version > versions[1]
    with torch.profiler.profile() as profile:
        fast(p, g, m)
    assert "aten::copy_" not in {e.name for e in profile.events()}


@pytest.mark.parametrize("first", [0, 1, 5])
def test_memory_that_begins_anywhere(first):
    """More than the caches hold goes past them, in whole vectors, which only aligned memory takes."""
    n = 24 << 20
    whole, x = torch.zeros(n + 8), torch.linspace(-1, 1, n)
    braze.compile(lambda y, x: y.copy_(x * 2 + 1), fullgraph=True)(whole[first : first + n], x)
    assert torch.equal(whole[first : first + n], x * 2 + 1)
    assert whole[:first].eq(0).all() and whole[first + n :].eq(0).all()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: x.add_(x.flip(0)),
        lambda x, y: x[1:].add_(x[:-1].clone()),
        lambda x, y: x.copy_(x.t().contiguous()),
        lambda x, y: (x.add_(1), (x * 2).sum()),
        lambda x, y: (y.copy_(x), x.add_(1), y * 3),
        lambda x, y: [t.copy_(u) for t, u in zip((x, y), (y.clone(), x.clone()))],
        lambda x, y: (old := x * 1, x.mul_(y), old + x),
        lambda x, y: (x.mul_(2), x.t()),
        lambda x, y: (before := x.sum(), x.mul_(2), before),
        lambda x, y: x.cumsum_(0),
        lambda x, y: (x.add_(y), x.sub_(x.mean(0))),
        lambda x, y: x.t().add_(y),
    ],
)
def test_what_reads_an_input_that_is_written(fn):
    fast = braze.compile(fn)
    for _ in range(2):
        x, y = torch.randn(6, 6), torch.randn(6, 6)
        for make in (lambda t: t.clone(), lambda t: t.t().clone().t(), lambda t: torch.cat([t, t], 1)[:, 1:7]):
            ours, theirs = [make(x), make(y)], [make(x), make(y)]
            got, want = fast(*ours), fn(*theirs)
            torch.testing.assert_close(ours, theirs)
            flat = lambda v: list(v) if isinstance(v, (tuple, list)) else [v]
            torch.testing.assert_close(flat(got), flat(want))


def test_a_run_that_fails_has_changed_nothing():
    def f(x, table, i):
        x.add_(1)
        return x * table[i]

    fast = braze.compile(f)
    x, table = torch.zeros(3), torch.randn(4)
    fast(x, table, torch.tensor([0, 1, 2]))
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(IndexError):
        fast(x, table, torch.tensor([0, 1, 9]))
    assert x.tolist() == [2, 2, 2], "eager adds before it fails"


def test_memory_that_is_shared_until_it_is_written():
    def f(x):
        x.add_(1)

    fast, x = braze.compile(f), torch.zeros(4)
    fast(x)
    y = torch._lazy_clone(x)
    fast(y)
    assert x.tolist() == [1] * 4 and y.tolist() == [2] * 4
    fast(x)
    assert x.tolist() == [2] * 4 and y.tolist() == [2] * 4
