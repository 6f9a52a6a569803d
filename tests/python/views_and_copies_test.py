"""What a view is of: places in the storage of copies, views that sizes forbid, histories that end, casts that are refused."""

import pytest
import torch
import torch.nn.functional as F
from harness import outcome

import braze

X = torch.arange(1.0, 7)


def agree(f, *inputs, **options):
    compiled = braze.compile(f, **options)
    for given in inputs:
        (want, got) = (
            outcome(c, tuple(t.clone() if t.is_contiguous() else t for t in given()), {}) for c in (f, compiled)
        )
        assert want[0] == got[0], f"{got}, expected {want}"
        if want[0] == "returned":
            torch.testing.assert_close(got[1], want[1])


@pytest.mark.parametrize("dynamic", [None, True])
def test_places_in_the_storage_of_a_copy(dynamic):
    row = lambda: (torch.zeros(4, 2)[2:],)
    agree(lambda x: torch.clone(x).fill_diagonal_(1), row, dynamic=dynamic)
    agree(lambda x: x.clone().as_strided((2,), (3,)), row, dynamic=dynamic)
    agree(lambda x: x.contiguous().as_strided_scatter(torch.ones(2), (2,), (1,), 1), row, dynamic=dynamic)


@pytest.mark.parametrize("f", [lambda x: x.view(-1), lambda x: (x * 2).view(-1, 1), lambda x: x.reshape(-1)])
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_that_sizes_forbid(f, dynamic):
    turned = lambda n: lambda: (torch.arange(6.0 * n).view(3, 2 * n).t().unsqueeze(1),)
    agree(f, turned(1), turned(2), dynamic=dynamic)


def test_views_of_views_of_open_sizes():
    def f(x):
        v = x[:, 1:] * 1
        w = v.view(-1)
        return w, w.view(v.shape), v

    agree(f, lambda: (torch.ones(2, 3, 2),), lambda: (torch.ones(4, 3, 4),), dynamic=True)


@pytest.mark.parametrize("part", [lambda v: v.chunk(2)[-1], lambda v: v.split(1)[0], lambda v: v.unbind()[1]])
def test_parts_of_a_view_without_gradients(part):
    def f(y):
        with torch.no_grad():
            v = y.view(-1)
        return part(v)

    gradients = []
    for c in (f, braze.compile(f)):
        x = torch.ones(4, requires_grad=True)
        y = x * 1
        (c(y).sum() + y.sum() * 3).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda y: y[0].mul_(2j),
        lambda y: y.t().add_(torch.full((2,), 1j)),
        lambda y: y.mul_(torch.full((2,), 1j)),
        lambda y: y[:, 0].copy_(torch.ones(2)),
    ],
)
def test_in_place_arithmetic_does_not_leave_the_reals(f, dynamic):
    agree(f, lambda: (torch.ones(2, 2),), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
def test_in_place_arithmetic_does_not_leave_the_integers(dynamic):
    def f(y):
        y[:, 0] *= 1.5
        return y

    agree(f, lambda: (torch.ones(3, 3, dtype=torch.int64),), lambda: (torch.ones(2, 2),), dynamic=dynamic)


def test_parts_are_scattered_from_their_own_sizes():
    f = lambda x, y: torch.select_scatter(x, y.select(0, 0), 0, 0)
    pair = lambda *sizes: lambda: tuple(torch.ones(s) for s in sizes)
    agree(f, pair((2, 2), (2, 2)), pair((3, 3), (3, 3)), pair((1, 4), (4, 1)))


def test_bags_of_turned_rows():
    f = lambda i, w, o: F.embedding_bag(i, w, o, mode="sum")
    given = lambda n: lambda: (
        torch.tensor([5, 1, 6, 5, 6]) % n,
        torch.arange(5.0 * n).view(5, n).t().requires_grad_(),
        torch.tensor([0, 3]),
    )
    agree(f, given(10), given(12), given(7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_turned_copies_seen_as_other_arrays(dtype):
    x = torch.randn(3, 5, 6, 4).to(dtype).contiguous(memory_format=torch.channels_last)
    for f in (F.instance_norm, lambda x: x.contiguous().view(3, 10, -1).sum(1), lambda x: x.flatten(1).relu()):
        want, got = f(x), braze.compile(f, fullgraph=True)(x)
        torch.testing.assert_close(got, want, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-2)
        assert got.stride() == want.stride()
