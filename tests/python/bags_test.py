"""embedding_bag of bags of one length is a kernel; of others, and with gradients, PyTorch's."""

import pytest
import torch
import torch.nn.functional as F

import braze

ROWS, WIDTH = 50, 24


def table(dtype=torch.float32):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)


def bags(count=6, length=5, dtype=torch.int64):
    return torch.randint(0, ROWS, (count, length), generator=torch.Generator().manual_seed(1), dtype=dtype)


def check(f, *args, kernel=True):
    with torch.no_grad():
        got, want = braze.compile(f, fullgraph=True)(*args), f(*args)
        found = braze.explain(f, *args)
    tol = {torch.float64: 1e-12, torch.float32: 1e-5}.get(want.dtype, 2e-2)
    torch.testing.assert_close(got, want, rtol=tol, atol=tol, equal_nan=True)
    assert got.stride() == want.stride()
    assert (found.extern_count == 0) == kernel


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_one_length(mode, padding, index, dtype):
    idx = bags(dtype=index)
    idx[0] = 3  # a bag of padding alone
    check(lambda i, w: F.embedding_bag(i, w, mode=mode, padding_idx=padding), idx, table(dtype))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (40, 1), (3, 100)])
def test_lengths(shape):
    check(lambda i, w: F.embedding_bag(i, w, mode="mean") + 1, bags(*shape), table())


def test_scaled():
    scale = torch.randn(6, 5)
    check(lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s), bags(), table(), scale)


def test_the_module():
    for mode in ("sum", "mean"):
        module = torch.nn.EmbeddingBag(ROWS, WIDTH, mode=mode)
        check(lambda i: module(i), bags())  # noqa: B023


def test_infinite_rows_beside_padding():
    w = table()
    w[3] = torch.inf
    w[4] = torch.nan
    idx = bags()
    idx[0, 0], idx[1, 1] = 3, 4
    check(lambda i, w: F.embedding_bag(i, w, mode="sum", padding_idx=3), idx, w)
    check(lambda i, w: F.embedding_bag(i, w, mode="mean"), idx, w)


def test_others_stay_calls():
    flat, offsets = bags().view(-1), torch.tensor([0, 4, 4, 11])
    check(lambda i, o, w: F.embedding_bag(i, w, o, mode="sum"), flat, offsets, table(), kernel=False)
    check(lambda i, w: F.embedding_bag(i, w, mode="max"), bags(), table(), kernel=False)
    check(
        lambda i, o, w: F.embedding_bag(i, w, o, mode="mean", include_last_offset=True),
        flat,
        torch.tensor([0, 4, 30]),
        table(),
        kernel=False,
    )


@pytest.mark.parametrize("bad", [ROWS, ROWS + 7, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode, padding", [("sum", None), ("mean", None), ("sum", 2), ("mean", 2)])
def test_places_outside_the_table(mode, padding, dtype, bad):
    f = lambda i, w: F.embedding_bag(i, w, mode=mode, padding_idx=padding)  # noqa: E731
    idx = bags()
    compiled = braze.compile(f, fullgraph=True)
    with torch.no_grad():
        compiled(idx, table(dtype))
        idx[2, 3] = bad
        said = []
        for run in (f, compiled):
            with pytest.raises(RuntimeError) as e:
                run(idx, table(dtype))
            said.append(str(e.value).split("\n")[0])
    assert said[0] == said[1]


def test_gradients():
    found = []
    for run in (lambda f: f, lambda f: braze.compile(f, fullgraph=True)):
        w = table().requires_grad_()
        run(lambda i, w: F.embedding_bag(i, w, mode="mean").square().sum())(bags(), w).backward()
        found.append(w.grad)
    torch.testing.assert_close(found[1], found[0])


def test_open_numbers_of_bags():
    f = lambda i, w: F.embedding_bag(i, w, mode="sum")  # noqa: E731
    compiled = braze.compile(f, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for count in (6, 9, 31):
            torch.testing.assert_close(compiled(bags(count), table()), f(bags(count), table()), rtol=1e-5, atol=1e-5)


def test_sums_of_rows_that_a_program_gathers():
    """Read along the rows, not across them."""
    for f in (lambda i, w: F.embedding(i, w).sum(1), lambda i, w: w[i].mean(1), lambda i, w: w[i].amax(1)):
        check(f, bags(33, 9), table())
        check(f, bags(33, 9).t().contiguous().t(), table())
