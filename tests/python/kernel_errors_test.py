"""Data that eager refuses: compiled kernels raise the same exception with the same words."""

import pytest
import torch
import torch.nn.functional as F

import braze


def ids(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


W = torch.arange(20.0).view(5, 4)
INDEXING = {
    "embedding": (lambda i: F.embedding(i, W) * 2, 5),
    "embedding_scalar": (lambda i: F.embedding(i[1], W) * 2, 5),
    "index_select": (lambda i: torch.index_select(W, 0, i) * 2, 5),
    "index_select_columns": (lambda i: torch.index_select(W, 1, i) * 2, 4),
    "gather": (lambda i: torch.gather(W, 0, i.view(-1, 1)) * 2, 5),
    "gather_columns": (lambda i: torch.gather(W, 1, i.view(1, -1)) * 2, 4),
    "gather_sum": (lambda i: torch.gather(W, 1, i.view(1, -1)).sum(), 4),
    "index": (lambda i: W[i] * 2, 5),
    "index_columns": (lambda i: W[:, i] * 2, 4),
    "index_pairs": (lambda i: W[torch.zeros_like(i), i] * 2, 4),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("name", INDEXING)
def test_indices(name):
    fn, size = INDEXING[name]
    compiled = braze.compile(fn, fullgraph=True)
    for bad in (size - 1, size, size + 100, -1, -size, -size - 1, 2**40):
        i = ids(0, bad, 1)
        want, got = outcome(fn, i), outcome(compiled, i)
        if isinstance(want, tuple):
            assert got == want, f"index {bad}"
        else:
            assert isinstance(got, torch.Tensor) and torch.equal(got, want), f"index {bad}"
    assert torch.equal(compiled(ids(0, 1, 2)), fn(ids(0, 1, 2))), "the next call is sound"


def test_many_indices_some_wrong():
    # More than one task, and the wrong one in the masked remainder.
    table = torch.randn(1000, 33)
    compiled = braze.compile(lambda i: F.embedding(i, table).sum(-1), fullgraph=True)
    i = torch.randint(0, 1000, (40001,))
    torch.testing.assert_close(compiled(i), F.embedding(i, table).sum(-1))
    i[-1] = 1000
    with pytest.raises(IndexError, match="index out of range in self"):
        compiled(i)
    i[-1] = 999
    torch.testing.assert_close(compiled(i), F.embedding(i, table).sum(-1))


def test_nothing_is_written_after_a_fault():
    def f(x, i):
        x.add_(W[i].sum())
        return x

    x = torch.zeros(3)
    compiled = braze.compile(f, fullgraph=True)
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 5"):
        compiled(x, ids(9))
    assert torch.equal(x, torch.zeros(3))
    compiled(x, ids(1))
    assert torch.equal(x, f(torch.zeros(3), ids(1)))


LOSSES = {
    "nll": lambda x, t: F.nll_loss(x, t),
    "cross_entropy": lambda x, t: F.cross_entropy(x, t),
    "sum": lambda x, t: F.cross_entropy(x, t, reduction="sum"),
    "none": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "weights": lambda x, t: F.cross_entropy(x, t, weight=torch.ones(5)),
    "ignored": lambda x, t: F.cross_entropy(x, t, ignore_index=2),
    "pixels": lambda x, t: F.nll_loss(x.view(3, 5, 1, 1).expand(-1, -1, 2, 1), t.view(3, 1, 1).expand(-1, 2, 1)),
    "pixels_weights": lambda x, t: F.nll_loss(x.view(3, 5, 1), t.view(3, 1), weight=torch.ones(5)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("grad", [False, True])
def test_classes_of_losses(name, grad):
    fn = LOSSES[name]
    compiled = braze.compile(fn, fullgraph=True)
    for bad in (4, 5, 100, -1, -100, 0):
        x = torch.randn(3, 5, requires_grad=grad)
        t = ids(0, bad, 1)
        want, got = outcome(fn, x, t), outcome(compiled, x, t)
        if isinstance(want, tuple):
            assert got == want, f"class {bad}"
        else:
            assert isinstance(got, torch.Tensor), got
            torch.testing.assert_close(got, want)


DIVISIONS = {
    "floordiv": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "reversed": lambda a, b: 7 // b + a,
    "by_number": lambda a, b: a // 0 + b,
    "summed": lambda a, b: (a // b).sum(0),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_division(name, dtype):
    fn = DIVISIONS[name]
    compiled = braze.compile(fn, fullgraph=True)
    a = torch.arange(37).to(dtype)
    b = (torch.arange(37) % 5 + 1).to(dtype)
    for zero_at in (None, 0, 17, 36):
        d = b.clone()
        if zero_at is not None:
            d[zero_at] = 0
        want, got = outcome(fn, a, d), outcome(compiled, a, d)
        if isinstance(want, tuple):
            assert got == want
        else:
            assert torch.equal(want, got)


def test_float_division_by_zero_is_no_error():
    compiled = braze.compile(lambda a, b: (a // b, a % b, a / b), fullgraph=True)
    a, b = torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)
    for x, y in zip(compiled(a, b), (a // b, a % b, a / b)):
        torch.testing.assert_close(x, y, equal_nan=True)
