"""Arguments that are written to: what they are afterwards, what the code asks of them, and what is read through their views. The cases stand
for what `tests/fuzz/effects.py` found."""

import math

import braze
import pytest
import torch
import torch.nn.functional as F

SIZES = ((3, 4), (5, 4), (4, 4))
LAYOUTS = {
    "dense": lambda n, m: torch.randn(n, m),
    "turned": lambda n, m: torch.randn(m, n).t(),
    "gaps": lambda n, m: torch.randn(n + 1, m + 1)[1:, 1:],
    "turned, gaps": lambda n, m: torch.randn(m + 1, n + 1)[1:, 1:].t(),
    "every other": lambda n, m: torch.randn(n, 2 * m)[:, ::2],
    "channel": lambda n, m: torch.randn(n, m, 3)[..., 1],
}


def stride(a):
    a.mul_(2)
    return a * a.stride(0)


def flattened(a):
    a.floor_()
    return a.flatten().add_(1)


def made_contiguous(a):
    a.add_(1)
    return a.contiguous().mul_(3)


def asked_whether_contiguous(a):
    a.add_(1)
    return a + 5 if a.is_contiguous() else a - 5


def part_flattened(a):
    a.add_(1)
    return a[1:].reshape(-1).mul_(3)


def written_through_a_part(a):
    a[0].add_(1)
    return a.reshape(-1).mul_(3)


def indexed(a):
    a.index_add_(0, torch.tensor([0]), a[:1].clone())
    return a.contiguous()


def returned(a):
    return a.relu_()


def part_returned(a):
    return a.add_(1)[1:]


def written_by_out(a):
    torch.add(a, 1, out=a)
    return a.flatten().mul_(3), torch.copysign(a, a)


def often(a):
    a.add_(1)
    a[:, 1:].mul_(2)
    a.relu_()
    a.t().reshape(-1).add_(1)
    return a.cumsum(0)


def offset(a):
    a.add_(1)
    return a + a.storage_offset(), a.as_strided((2, 2), a.stride(), 0) * 2, a.as_strided((2, 2), a.stride()) * 3


def activated(a):
    F.silu(a, inplace=True)
    F.leaky_relu(a, 0.5, True)
    torch.ops.aten.hardtanh_.default(a)
    return a.flatten().add_(1), a.contiguous().mul_(2)


def between(a):
    a.fill_(2)
    return a.as_strided((2,), (1,)), a.as_strided((2, 2), (1, 2))[1:] * 2


def through_all_of_it(a):
    a.mT.index_add_(0, torch.tensor([0]), a.mT[:1].clone())
    a.permute(1, 0)[None].sigmoid_()
    return torch.maximum(a, a), a.flatten().add_(1)


WRITERS = [
    stride, flattened, made_contiguous, asked_whether_contiguous, part_flattened, written_through_a_part, indexed, returned, part_returned,
    written_by_out, often, offset, activated, between,
    through_all_of_it,
]  # fmt: skip


def check_layout(f, layout, dynamic):
    """Results, their strides and on whose memory they are, and the memory around the argument."""
    compiled = braze.compile(f, dynamic=dynamic)
    for sizes in SIZES:
        mine = LAYOUTS[layout](*sizes)
        whole = mine._base if mine._base is not None else mine
        copy = whole.clone()
        theirs = copy.as_strided(mine.shape, mine.stride(), mine.storage_offset())
        got, want = compiled(mine), f(theirs)
        torch.testing.assert_close(whole, copy)
        for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
            torch.testing.assert_close(g, w)
            assert g.stride() == w.stride()
            same = [
                r.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for r, a in ((g, mine), (w, theirs))
            ]
            assert same[0] == same[1]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("f", WRITERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_written_keeps_its_strides(f, layout, dynamic):
    check_layout(f, layout, dynamic)


@pytest.mark.parametrize("value", [1e8, math.inf, -3.0])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_writes_through_a_tensor_that_is_expanded_to_its_own_sizes_are_exact(value, dynamic):
    def f(a, like):
        a.expand(like.shape).mul_(1e-9)
        a.expand(1, *like.shape).add_(0.25)
        a[:1].expand_as(a[:1]).sub_(1)
        return a * 1

    compiled = braze.compile(f, dynamic=dynamic, fullgraph=True)
    for n in (3, 4, 5):
        mine, theirs, like = torch.full((n,), value), torch.full((n,), value), torch.zeros(n)
        torch.testing.assert_close(compiled(mine, like), f(theirs, like), rtol=0, atol=0)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_writes_to_a_row_of_an_expanded_tensor():
    def f(a):
        rows = a[a > 0][None].expand(2, -1)
        rows[:-1] += 1
        return rows * 1

    for a in (torch.tensor([1.0, -1.0, math.inf]), torch.tensor([1, 0, 3])):
        torch.testing.assert_close(braze.compile(f)(a), f(a))


@pytest.mark.parametrize("dim", [0, 1])
def test_what_is_unbound_of_open_sizes_is_written(dim):
    def f(a, b):
        for i, row in enumerate(a.unbind(dim)):
            row.add_(i)
        b.unbind(0)[0].mul_(2)
        return a * 2

    compiled = braze.compile(f)
    for sizes in SIZES:
        a, b = torch.randn(sizes), torch.randn(sizes[::-1])
        mine = a.clone(), b.clone()
        torch.testing.assert_close(compiled(*mine), f(a, b))
        torch.testing.assert_close(mine, (a, b))


def unsqueezed(x, target):
    target.unsqueeze_(1)
    return F.binary_cross_entropy_with_logits(x, target)


def turned(x, target):
    target.t_()
    return (x[:2, 0] * target[-1, 0]).sum()


def written_and_turned(x, target):
    target.mul_(0.5)
    target.t_()
    target.add_(1)
    return (x[:2, 0] * target[-1, 0]).sum()


@pytest.mark.parametrize("f", [unsqueezed, turned, written_and_turned], ids=lambda f: f.__name__)
def test_what_is_saved_of_an_argument_that_gets_another_geometry(f):
    compiled = braze.compile(f)
    for _ in range(2):
        seen = []
        for g in (f, compiled):
            torch.manual_seed(0)
            x = torch.randn(4, 1, requires_grad=True)
            target = torch.rand(4) if f is unsqueezed else torch.rand(2, 2)
            loss = g(x, target)
            loss.backward()
            seen.append((loss.detach(), x.grad, target, torch.tensor(target._version)))
        torch.testing.assert_close(*seen)
    assert braze.counters()["failures"] == 0


def test_a_hook_on_a_view_of_an_argument_that_is_returned():
    def f(a):
        v = a.flatten()
        v.register_hook(lambda g: g * 2)
        return v

    grads = []
    for g in (f, braze.compile(f)):
        a = torch.ones(2, 3, requires_grad=True)
        g(a).sum().backward()
        grads.append(a.grad)
    torch.testing.assert_close(*grads)


def test_a_view_of_an_argument_that_is_given_requires_grad():
    def f(a):
        v = a.view(-1)
        v.requires_grad_()
        return v[:2], (v * 3).sum()

    for g in (f, braze.compile(f)):
        part, loss = g(torch.ones(2, 3))
        assert part.requires_grad and loss.requires_grad


def test_results_that_a_backward_does_not_read_may_be_written_to():
    def f(x):
        logits = x * 2
        return logits.exp().sum(), logits.softmax(-1)

    grads = []
    for g in (f, braze.compile(f)):
        x = torch.arange(3.0, requires_grad=True)
        loss, shares = g(x)
        with torch.no_grad():
            shares.mul_(100)
        loss.backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_results_that_a_backward_reads_may_not_be_written_to():
    for g in (f := lambda x: (x.exp(), x.sum()), braze.compile(f)):
        x = torch.arange(3.0, requires_grad=True)
        y, _ = g(x)
        with torch.no_grad():
            y.mul_(100)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_and_or_of_tensors_that_overlap_stay_in_the_graph():
    def f(x):
        return x[1:] & x[:-1], x[1:] | x[:-1], x[1:] ^ x[:-1]

    x = torch.tensor([1, 3, 2, 7])
    torch.testing.assert_close(braze.compile(f, fullgraph=True)(x), f(x))


def test_a_result_that_keeps_its_gradient_is_written():
    def f(a):
        first = a.sum(0)
        first.retain_grad()
        second = first * 2
        F.relu(first, inplace=True)
        return first, second

    seen = []
    for g in (f, braze.compile(f)):
        torch.manual_seed(0)
        a = torch.randn(3, 4, requires_grad=True)
        first, second = g(a)
        (first.sum() + second.square().sum()).backward()
        seen.append((first.detach(), second.detach(), a.grad, first.grad))
    torch.testing.assert_close(*seen)


@pytest.mark.parametrize("dynamic", [None, True])
def test_integers_that_require_a_gradient(dynamic):
    """What was written to them did; eager takes them for numbers that do, though nothing can be derived."""

    def f(a, b):
        mask = b == b
        mask[mask] = b[:1] > 0
        a[a > 0] = b[0]
        return [b <= mask, (b * 2).int()]

    compiled = braze.compile(f, dynamic=dynamic)
    for n in (3, 4, 5):
        b = torch.linspace(-1, 2, n, requires_grad=True)
        a = torch.arange(n)

        torch.testing.assert_close(compiled(a.clone(), b), f(a.clone(), b))
    assert braze.counters()["failures"] == 0


def test_writes_to_a_part_of_an_expanded_argument():
    def f(a):
        a.narrow(0, 0, 1).fill_(3)
        return a + 1

    for n in (2, 3):
        mine, theirs = torch.ones(1).expand(n), torch.ones(1).expand(n)
        torch.testing.assert_close(braze.compile(f)(mine), f(theirs))
        torch.testing.assert_close(mine, theirs)


def copied(a, b):
    b.t_()
    b.copy_(a)
    return b * 2


def scaled(a, b):
    b.unsqueeze_(0)
    b.mul_(a)
    return b + a


@pytest.mark.parametrize("f", [copied, scaled], ids=lambda f: f.__name__)
def test_an_argument_that_gets_another_geometry_and_then_a_history(f):
    compiled = braze.compile(f)
    for _ in range(2):
        seen = []
        for g in (f, compiled):
            a, b = torch.tensor([2.0], requires_grad=True), torch.ones(3, 4)
            loss = g(a, b).sum() + b.square().sum()
            loss.backward()
            seen.append((loss.detach(), a.grad, b.detach(), torch.tensor(b.requires_grad)))
        torch.testing.assert_close(*seen)


def hook_after_its_use(a):
    mean = a.mean(-1)
    count = torch.arange(int((a < 0.5).sum()))
    mean.cumsum_(-1)
    used = mean.add(len(count))
    mean.register_hook(lambda g: g * 2)
    return used


def gradient_of_a_result(a):
    a.register_hook(lambda g: g * 2)
    x = a * 3
    y = x.erf()
    return y * torch.autograd.grad((x * x).sum(), x, retain_graph=True)[0].detach()


def backward_to_a_result(a):
    a.register_hook(lambda g: g * 2)
    x = a * 3
    x.sin().sum().backward(inputs=[x])
    return a.cos()


@pytest.mark.parametrize(
    "f", [hook_after_its_use, gradient_of_a_result, backward_to_a_result], ids=lambda f: f.__name__
)
def test_histories_among_results(f):
    compiled = braze.compile(f)
    for _ in range(2):
        seen = []
        for g in (f, compiled):
            a = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
            out = g(a)
            out.sum().backward()
            seen.append((out.detach(), a.grad))
        torch.testing.assert_close(*seen)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kernel", [1, 2])
def test_columns_of_a_turned_image_are_contiguous(kernel, dynamic):
    def f(x):
        columns = F.unfold(x, kernel)
        return columns.view(-1, columns.shape[-1])

    compiled = braze.compile(f, dynamic=dynamic, fullgraph=True)
    for n in (3, 4):
        x = torch.randn(n, 4, 5, 6).permute(3, 1, 2, 0)
        got, want = compiled(x), f(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_an_argument_true_is_not_taken_for_inplace():
    def f(a):
        wide = a.expand(3, 4)
        return F.gumbel_softmax(wide, 1.0, True).sum() + F.dropout(wide, 0.0, True)

    a = torch.randn(4)
    assert braze.compile(f, fullgraph=True)(a).shape == f(a).shape
    assert braze.explain(f, a).graph_break_count == 0
