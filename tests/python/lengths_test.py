"""Operators that read lengths, and operators of the program's whose results have sizes that depend on data."""

import pytest
import torch
import torch.nn.functional as F
from dynamic_test import Counted
from harness import same
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import braze

LENGTHS = ([5, 3, 1], [5, 4, 2], [4, 4, 1], [5, 5, 5])


def check(f, calls, most=1, **kw):
    """One graph for all calls; results and gradients of the first argument as eager has them."""
    counted = Counted(f, fullgraph=True, **kw)
    for args in calls:
        x, y = (args[0].detach().clone().requires_grad_(args[0].is_floating_point()) for _ in range(2))
        want, got = f(x, *args[1:]), counted(y, *args[1:])
        same(want, got, tol=1e-4)
        first = (
            next((i for i, t in enumerate(want) if t.requires_grad), None)
            if isinstance(want, tuple)
            else 0
            if want.requires_grad
            else None
        )
        if first is not None:
            for r in (want, got):
                (r[first] if isinstance(r, tuple) else r).sum().backward()
            same(x.grad, y.grad, tol=1e-4)
    assert not counted.breaks and counted.count <= most, counted.count


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("total", [None, 7])
def test_pack_and_pad(batch_first, total):
    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=batch_first)
        packed = PackedSequence(packed.data * 2, packed.batch_sizes)
        return pad_packed_sequence(packed, batch_first=batch_first, padding_value=-1.0, total_length=total)

    x = torch.randn(3, 5, 2) if batch_first else torch.randn(5, 3, 2)
    check(f, [(x, torch.tensor(n)) for n in LENGTHS])


def test_pack_unsorted():
    def f(x, lengths):
        return pad_packed_sequence(
            pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), batch_first=True
        )

    check(f, [(torch.randn(3, 5, 2), torch.tensor(n)) for n in ([1, 5, 3], [2, 2, 4], [5, 1, 1])])


def test_pad_to_less_than_there_is():
    def f(data, sizes):
        return pad_packed_sequence(PackedSequence(data, sizes), total_length=2)[0]

    for g in (f, braze.compile(f, fullgraph=True)):
        with pytest.raises((ValueError, RuntimeError)):
            g(torch.randn(6, 2), torch.tensor([3, 2, 1]))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("kind", [tuple, list, torch.tensor])
def test_ctc_loss(reduction, zero_infinity, kind):
    def f(x, targets, a, b):
        return F.ctc_loss(x.log_softmax(-1), targets, a, b, reduction=reduction, zero_infinity=zero_infinity)

    targets = torch.tensor([[1, 2, 2], [2, 3, 1]])
    calls = [
        (torch.randn(8, 2, 5), targets, kind([8, 7]), kind([2, 1])),
        (torch.randn(8, 2, 5), targets, kind([8, 8]), kind([1, 3])),
    ]
    check(f, calls, 1 if kind is torch.tensor else 2)


def test_ctc_loss_of_one():
    def f(x):
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([1, 2]), (8,), (2,), reduction="none")

    check(f, [(torch.randn(8, 5),)] * 2)
    assert braze.explain(f, torch.randn(8, 5)).graph_count == 1


def test_ctc_module():
    loss = torch.nn.CTCLoss(blank=1)
    check(
        lambda x: loss(x.log_softmax(-1), torch.tensor([[0, 2], [2, 3]]), (8, 7), (2, 2)), [(torch.randn(8, 2, 5),)] * 2
    )


@pytest.mark.parametrize("bins", [4, torch.tensor([-1.0, 0, 0.5, 2])], ids=["count", "edges"])
@pytest.mark.parametrize("density", [False, True])
def test_histogram(bins, density):
    def f(x):
        h = torch.histogram(x.detach(), bins, density=density)
        return h.hist * 2, h.bin_edges + 1

    check(f, [(torch.randn(20),) for _ in range(3)])
    assert braze.explain(f, torch.randn(20)).graph_count == 1


def test_split_at_a_tensor():
    def f(x):
        return tuple(t * 2 for t in torch.tensor_split(x, torch.tensor([1, 3]))) + x.tensor_split(torch.tensor(2))

    check(f, [(torch.randn(5),), (torch.randn(5),)])
    assert braze.explain(f, torch.randn(5)).graph_count == 1  # what the tensor says is written in the code


INDICES = {
    "whole": lambda x, i: x[i],
    "in a tuple": lambda x, i: x[:, i],
    "with none": lambda x, i: x[i, None, 1:],
    "from the end": lambda x, i: x[i - 3],
    "two": lambda x, i: x[i, i],
    "int32": lambda x, i: x[i.int()],
}


@pytest.mark.parametrize("name", INDICES)
def test_index_of_no_dimension(name):
    check(INDICES[name], [(torch.randn(3, 4), torch.tensor(i)) for i in (0, 2, 1)])


def test_written_at_an_index():
    def f(x, i):
        y = x * 2
        y[i] = 0
        y[:, i] += 1
        return y

    check(f, [(torch.randn(3, 4), torch.tensor(i)) for i in (0, 2, 1)])


def test_an_index_that_is_out_of_range():
    fast = braze.compile(INDICES["whole"], fullgraph=True)
    fast(torch.randn(3), torch.tensor(1))
    with pytest.raises(IndexError):
        fast(torch.randn(3), torch.tensor(3))


def test_bytes_and_bools_are_masks():
    for mask in (torch.tensor(1, dtype=torch.uint8), torch.tensor(True)):
        x = torch.randn(3)
        same(x[mask], braze.compile(lambda x, m: x[m])(x, mask))


@pytest.fixture(scope="module")
def library():
    lib = torch.library.Library("braze_lengths_test", "DEF")
    lib.define("above(Tensor x, float bound) -> (Tensor, Tensor)")
    lib.impl("above", lambda x, bound: ((x > bound).nonzero().reshape(-1), x[x > bound] * 2), "CPU")

    @torch.library.register_fake("braze_lengths_test::above", lib=lib)
    def above(x, bound):
        if x.dim() != 1:
            raise ValueError("a vector is wanted")
        n = torch.library.get_ctx().new_dynamic_size(max=x.shape[0])
        return x.new_empty(n, dtype=torch.long), x.new_empty(n)

    yield lib
    lib._destroy()


def test_an_operator_of_the_program(library):
    def f(x, bound):
        where, values = torch.ops.braze_lengths_test.above(x * 2, bound)
        return x[where] + values, values.sum(), values.shape[0] + 1

    counted = Counted(f, fullgraph=True)
    for _ in range(3):
        x = torch.randn(9)
        same(f(x, 0.5), counted(x, 0.5))
    assert counted.count == 1 and not counted.breaks


def test_an_operator_of_the_program_needs_no_fullgraph(library):
    def f(x):
        return torch.ops.braze_lengths_test.above(x * 2, 0.0)[1] + 1

    x = torch.randn(9)
    report = braze.explain(f, x)
    assert report.graph_count == 1 and not report.breaks
    same(f(x), braze.compile(f)(x))
