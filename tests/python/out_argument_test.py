"""out=: what eager raises or warns of is raised and warned of, and what it gives is given: memory shared with operands, other dtypes and sizes."""

import warnings

import pytest
import torch
from harness import Graphs

import braze


def numbers(*sizes):
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).view(sizes)


def run(fn, args):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = fn(*args)
        except Exception as e:
            result = type(e), str(e)
    return result, sorted({str(w.message) for w in told})


def agree(fn, make, calls=2):
    compiled = braze.compile(fn)
    for _ in range(calls):
        args, mine = make(), make()
        (want, told), (got, mine_told) = run(fn, args), run(compiled, mine)
        assert told == mine_told
        if isinstance(want, torch.Tensor):
            assert got.dtype == want.dtype and got.shape == want.shape and torch.equal(got, want), (got, want)
            assert got.data_ptr() == mine[-1].data_ptr() or args[-1].data_ptr() != want.data_ptr()
        else:
            assert type(got) is type(want) and str(got) == str(want), (got, want)
        if not isinstance(want, tuple):  # else memory may be left half written
            for a, b in zip(args, mine):
                assert a.shape == b.shape and torch.equal(a, b)


# Eager raises for most; the others do what their kernels happen to do.
SHARED = {
    "cat": (lambda x: torch.cat([x], out=x), lambda: (numbers(2, 3),)),
    "cat_part": (lambda x, b: torch.cat([b[:1], x], out=b[:2]), lambda: (numbers(1, 3), numbers(4, 3))),
    "cat_apart": (lambda x, b: torch.cat([b[2:3], x], out=b[:2]), lambda: (numbers(1, 3), numbers(4, 3))),
    "stack": (lambda b: torch.stack([b[0], b[1]], out=b), lambda: (numbers(2, 3),)),
    "stack_expanded": (lambda x: torch.stack([x, x], out=x.expand(2, 3)), lambda: (numbers(3),)),
    "add_itself": (lambda y, x: torch.add(x, y, out=x), lambda: (numbers(2, 3), numbers(2, 3))),
    "add_shifted": (lambda b: torch.add(b[1:], 1, out=b[:-1]), lambda: (numbers(5),)),
    "add_transposed": (lambda b: torch.add(b.t(), 1, out=b), lambda: (numbers(3, 3),)),
    "add_broadcast": (lambda b: torch.add(b[0], numbers(2, 3), out=b), lambda: (numbers(2, 3),)),
    "add_expanded": (lambda b: torch.add(numbers(3, 3), 1, out=b.expand(3, 3)), lambda: (numbers(3),)),
    "max": (
        lambda i, x: torch.max(x, 0, out=(x[0], i)).values,
        lambda: (torch.zeros(3, dtype=torch.int64), numbers(2, 3)),
    ),
    "index_select": (lambda i, x: torch.index_select(x, 0, i, out=x), lambda: (torch.tensor([2, 1, 0]), numbers(3))),
    "gather": (lambda i, x: torch.gather(x, 0, i, out=x), lambda: (torch.tensor([2, 1, 0]), numbers(3))),
    "take": (lambda i, x: torch.take(x, i, out=x), lambda: (torch.tensor([2, 1, 0]), numbers(3))),
    "vstack": (lambda x: torch.vstack([x[:1], x[:1]], out=x), lambda: (numbers(2, 3),)),
    "sum": (lambda x: torch.sum(x, 0, out=x[0]), lambda: (numbers(2, 3),)),
    "cumsum": (lambda x: torch.cumsum(x, 0, out=x), lambda: (numbers(4, 3),)),
    "mm": (lambda x: torch.mm(x, x, out=x), lambda: (numbers(3, 3),)),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_of_an_operand(name):
    agree(*SHARED[name])


DTYPES = {
    "ceil": torch.ceil,
    "round": torch.round,
    "frac": torch.frac,
    "sign": torch.sign,
    "nan_to_num": torch.nan_to_num,
    "gelu": torch._C._nn.gelu,
    "silu": torch._C._nn.silu,
    "leaky_relu": torch._C._nn.leaky_relu,
    "hardtanh": torch._C._nn.hardtanh,
    "elu": torch._C._nn.elu,
    "softplus": torch._C._nn.softplus,
    "log_sigmoid": torch._C._nn.log_sigmoid,
    "heaviside": lambda x, out: torch.heaviside(x, x, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, 3, out=out),
    "where": lambda x, out: torch.where(x > 2, x, x, out=out),
    "sum": lambda x, out: torch.sum(x.view(1, -1), 0, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "add": lambda x, out: torch.add(x, x, out=out),
    "eq": lambda x, out: torch.eq(x, 2, out=out),
    "sqrt": lambda x, out: torch.sqrt(x * x, out=out),
    "cat": lambda x, out: torch.cat([x[:1], x[1:]], out=out),
    "arange": lambda x, out: torch.arange(0, 3, out=out),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("name", DTYPES)
def test_another_dtype(name, dtype):
    fn = DTYPES[name]
    agree(lambda x, out: fn(x, out=out), lambda: (numbers(3), numbers(3).to(dtype)), calls=1)


@pytest.mark.parametrize("size", [(3,), (20,), (0,), (3, 2)])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, out: torch.add(x, x, out=out),
        lambda x, out: torch.mm(x, x.t(), out=out),
        lambda x, out: torch.cat([x, x], out=out),
        lambda x, out: torch.sum(x, 0, out=out),
    ],
)
def test_another_size(fn, size):
    agree(fn, lambda: (numbers(2, 3), numbers(*size)))


@pytest.mark.parametrize("size", [(3,), (20,), (3, 2)])
def test_a_view_of_another_size(size):
    def fn(x, out):
        torch.add(x, x, out=out[:2])
        return out * 1

    agree(fn, lambda: (numbers(2, 3), numbers(*size)))


def test_what_is_not_shared_stays_in_one_graph():
    def fn(x, out, mask):
        torch.add(x, 1, out=out)
        torch.mul(out, x, out=out)
        torch.eq(x, 2, out=mask)
        buffer = torch.empty(4, 3)
        torch.mul(x, 2, out=buffer[1:3])
        return torch.sum(out, 0) + torch.mm(x, x.t(), out=torch.empty(2, 2)).sum() + mask.sum() + buffer[1:3].sum()

    graphs = Graphs()
    args = numbers(2, 3), numbers(2, 3), numbers(2, 3)
    want = fn(*(a.clone() for a in args))
    for backend in (graphs, "braze"):
        torch.testing.assert_close(braze.compile(fn, backend=backend, fullgraph=True)(*(a.clone() for a in args)), want)
    assert graphs.count == 1


RANKS = {
    "plain": lambda x, out: torch.linalg.matrix_rank(x, out=out),
    "tolerance": lambda x, out: torch.linalg.matrix_rank(x, 0.01, out=out),
    "tensor": lambda x, out: torch.linalg.matrix_rank(x, torch.tensor(0.01), out=out),
    "both": lambda x, out: torch.linalg.matrix_rank(x, atol=0.1, rtol=0.2, out=out),
    "hermitian": lambda x, out: torch.linalg.matrix_rank(x @ x.mT, hermitian=True, out=out),
}


@pytest.mark.parametrize("name", RANKS)
def test_functions_of_several_operators(name):
    """Their rule for tensors that are not PyTorch's own leaves `out` unwritten."""

    def inside(x):
        out = torch.full(x.shape[:-2], 9)
        return RANKS[name](x, out) is out, out

    torch.manual_seed(0)
    for shape in ((3, 3), (2, 4, 3)):
        x = torch.randn(shape)
        want, got = torch.full(shape[:-2], 9), torch.full(shape[:-2], 9)
        assert RANKS[name](x, want) is want
        assert braze.compile(RANKS[name], fullgraph=True)(x, got) is got
        assert torch.equal(want, got)
        same, out = braze.compile(inside, fullgraph=True)(x)
        assert same and torch.equal(out, want)


@pytest.mark.parametrize(
    "write",
    [
        lambda y: torch._foreach_add_([y], 1),
        lambda y: torch._foreach_mul_((y,), [y]),
        lambda y: torch._foreach_zero_([y]),
        lambda y: torch._foreach_lerp_([y], [y * 2], 0.5),
    ],
)
def test_lists_that_are_written_keep_their_gaps(write):
    def fn(y):
        write(y)
        y.reshape(-1).mul_(2)  # of a copy: there are gaps
        return y.stride(), y.is_contiguous()

    a, b = (torch.arange(24.0).view(2, 12)[:, :3] for _ in range(2))
    assert braze.compile(fn)(a) == fn(b) == ((12, 1), False)
    assert torch.equal(a, b)


def test_items_that_overlap_what_is_put_there():
    def fn(y):
        y[1:] = y[1:]
        y[1:] = y[:-1]

    x = torch.arange(9.0).view(3, 3)
    for f in (fn, braze.compile(fn)):
        with pytest.raises(RuntimeError, match="single memory location"):
            f(x)
    assert torch.equal(x, torch.arange(9.0).view(3, 3))
