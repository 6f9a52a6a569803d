"""Arrays of NumPy inside of compiled functions: one graph, NumPy's own types, shapes and values, and shared memory where it shares."""

import copy

import numpy as np
import pytest
import torch
from harness import Graphs, outcome

import braze


def alike(want, got):
    assert type(want) is type(got), f"{type(got)}, expected {type(want)}"
    if isinstance(want, (tuple, list)):
        assert len(want) == len(got)
        for a, b in zip(want, got):
            alike(a, b)
    elif isinstance(want, (np.ndarray, np.generic)):
        assert want.dtype == got.dtype and want.shape == got.shape, (
            f"{got.dtype} {got.shape}, expected {want.dtype} {want.shape}"
        )
        if isinstance(want, np.ndarray):
            assert want.flags.writeable == got.flags.writeable
            steps = [[s for s, n in zip(a.strides, a.shape) if n > 1] for a in (want, got)]
            assert want.size == 0 or steps[0] == steps[1], f"strides {steps[1]}, expected {steps[0]}"
        if want.dtype.kind in "biufc":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        else:
            assert np.array_equal(want, got)
    elif isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    else:
        assert want == got


def check(fn, *args, graphs=1, fullgraph=True, calls=2):
    counter = Graphs()
    for backend in (counter, "braze"):
        compiled = braze.compile(fn, backend=backend, fullgraph=fullgraph)
        for call in range(calls):
            mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
            want, got = outcome(fn, mine, {}), outcome(compiled, theirs, {})
            assert want[0] == got[0], f"{got}, expected {want}"
            alike(want[1] if want[0] == "returned" else want[1][0], got[1] if got[0] == "returned" else got[1][0])
            alike(mine, theirs)
    if graphs is not None:
        assert counter.count == graphs, f"{counter.count} graphs, expected {graphs}"


A = np.linspace(-1, 1, 12).reshape(3, 4)
F = A.astype(np.float32)
I = np.arange(6)
X = torch.linspace(-1, 1, 12).reshape(3, 4)

FUNCTIONS = {
    "operators": (lambda a: (a + a, a * 2, 1 - a, a / 3, a**2, -a, abs(a), a > 0, a @ a.T, a // 0.3), F),
    "integers": (lambda i: (i + 1, i / 2, i // 2, i % 4, i**2, i << 1, i & 3, ~i, i >= 3, i + 1.5), I),
    "promotion": (lambda a, i: (a * i, a + np.float32(2), a.sum() + i, np.add(a, 1)), F[0], np.arange(4)),
    "ufuncs": (lambda a: (np.exp(a), np.sign(a), np.maximum(a, 0), np.isnan(a), np.where(a > 0, a, 0)), F),
    "reductions": (
        lambda a: (
            a.sum(),
            a.mean(0),
            np.var(a, axis=1),
            a.max(axis=0, keepdims=True),
            np.argmax(a),
            np.cumsum(a, 1),
            a.any(),
        ),
        A,
    ),
    "shapes": (
        lambda a: (
            a.reshape(-1),
            a.T,
            a[:, None],
            np.concatenate([a, a]),
            np.stack((a, a), 1),
            a.ravel(),
            np.swapaxes(a, 0, 1),
        ),
        A,
    ),
    "indexing": (lambda a: (a[0], a[0, 1], a[1:, ::2], a[..., 0], a[[0, 2]], a[-1]), A),
    "attributes": (
        lambda a: (a.shape, a.ndim, a.size, a.itemsize, a.nbytes, a.strides, a.dtype == np.float32, len(a)),
        F,
    ),
    "made": (
        lambda: (
            np.zeros((2, 3)),
            np.arange(5),
            np.ones(3, dtype=np.float32),
            np.linspace(0, 1, 5),
            np.array([1.0, 2]),
            np.eye(3),
        ),
    ),
    "types": (lambda a: (a.astype(int), a.astype(np.float64), a.astype("float32"), a.astype(np.dtype("int32"))), F),
    "linalg": (lambda a: (np.linalg.norm(a), np.dot(a, a.T), np.einsum("ij,kj->ik", a, a)), A),
    "fft": (lambda a: np.fft.fftshift(a), A),
    "parts": (lambda a: (np.array([a, a + 1]), np.array([a[0], a[1]])), A),
    "iteration": (lambda a: [row * 2 for row in a], A),
    "unpacking": (lambda a: (lambda p, q, r: (p + q, r))(*a), A),
    "instance": (lambda a, x: x + 1 if isinstance(a, np.ndarray) else x - 1, A, X),
    "of a tensor": (lambda x: (x.numpy() * 2, np.sum(x.numpy(), 1), np.ones_like(x, dtype=np.float64)), X),
    "to a tensor": (
        lambda a, x: (torch.from_numpy(a) + x, torch.as_tensor(a, dtype=torch.float64), torch.tensor(a)),
        F,
        X,
    ),
    "there and back": (lambda x: torch.from_numpy(np.tanh(x.numpy())).relu(), X),
    "of constants": (lambda x: x.reshape(int(np.prod((3, 4)))), X),
    "no elements": (lambda a: (np.conjugate(a), np.fliplr(a), a + 1, a.sum()), np.zeros((0, 3))),
    "quotients of whole numbers": (lambda i: (i / i.max(), np.divide(i, 2), np.arctan2(i, 3), 1 / (i + 1)), I),
    "divisions by zero": (lambda i, j: (i // j, i % j, np.fmod(i, j), np.divmod(j, i)), I, I[::-1].copy()),
    "numbers": (lambda x: x + np.iinfo(np.int16).max + np.finfo(np.float32).eps, X),
    "list of numbers": (lambda i: i.tolist(), I),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    check(*FUNCTIONS[name], graphs=None)


def test_arrays_change_in_place():
    def fn(a):
        a += 1
        a[0] = 7
        b = a.T
        b *= 2
        return a, b

    check(fn, A)
    a = A.copy()
    result, view = braze.compile(fn, fullgraph=True)(a)
    assert result is a and np.shares_memory(view, a)


def test_a_copy_shares_nothing():
    def fn(a):
        b = a.astype(a.dtype)
        b += 1
        c = a.copy()
        c[0] = 0
        return a, b, c

    check(fn, A)
    a = A.copy()
    result = braze.compile(fn, fullgraph=True)(a)
    assert result[0] is a and not np.shares_memory(result[1], a) and not np.shares_memory(result[2], a)


def test_the_array_of_a_tensor_is_its_memory():
    def fn(x):
        a = x.numpy()
        a += 1
        return a

    x = X.clone()
    a = braze.compile(fn, fullgraph=True)(x)
    assert np.shares_memory(a, x.numpy())
    torch.testing.assert_close(x, X + 1)


@pytest.mark.parametrize("name", ["asarray", "ravel", "squeeze", "transpose", "atleast_2d", "split", "diagonal"])
def test_views_of_a_tensor_are_its_memory(name):
    fn = (lambda x: np.split(x, 3)[1]) if name == "split" else getattr(np, name)
    want, got = fn(X), braze.compile(lambda x: fn(x), fullgraph=True)(X)
    alike(want, got)
    assert np.shares_memory(got, X.numpy()) == np.shares_memory(want, X.numpy())


def test_what_can_be_read_alone():
    def fn(a):
        return np.broadcast_to(a, (2, 3, 4)), np.diagonal(a), np.broadcast_to(a, (2, 3, 4))[0]

    check(fn, F)

    def write(a):
        np.diagonal(a)[0] = 1

    check(write, F, graphs=None, fullgraph=False)


@pytest.mark.parametrize("indices", [[[1]], [[1], [0], [2]], [[0, 1]]])
def test_places_along_an_axis(indices):
    def fn(a):
        b = a.copy()
        np.put_along_axis(b, np.array(indices), 7, axis=1)
        return b, np.take_along_axis(a, np.array(indices), axis=1)

    check(fn, F)


def test_copies_of_turned_arrays():
    check(lambda a: (a.T.copy(), np.copy(a.T), a.T.astype(np.float64), np.array(a.T), a.T + 1, a.T.flatten()), F)


def test_results_in_place_of_others():
    def fn():
        x = np.arange(5)
        out = np.empty(5)
        assert np.sin(x, out=out) is out
        return out

    check(fn)


def test_views_that_torch_does_not_have_are_numpys():
    def fn(a):
        b = a[::-1]
        b[0] = 9
        return a

    check(fn, np.arange(4.0), graphs=None, fullgraph=False)


def test_arrays_that_share_memory_are_told_apart():
    def fn(a, b):
        a += 1
        return b * 2

    compiled = braze.compile(fn)
    whole = np.ones(5)
    alike(np.full(5, 2.0), compiled(whole, np.ones(5)))
    whole[:] = 1
    alike(np.array([2.0, 4, 4, 4]), compiled(whole[1:], whole[:4]))


def test_an_array_found_elsewhere_may_change():
    class Holder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.array = np.ones(3, dtype=np.float32)

        def forward(self, x):
            return x + torch.from_numpy(self.array * 2)

    module = Holder()
    compiled = braze.compile(module, fullgraph=True)
    x = torch.zeros(3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))
        module.array[0] += 5
        torch.testing.assert_close(compiled(x), module(x))
        module.array = np.zeros(3, dtype=np.float32)


def test_other_sizes_and_types():
    counter = Graphs()
    fn = lambda a: np.sum(a * 2, axis=0)
    compiled = braze.compile(fn, backend=counter, fullgraph=True)
    for n in (2, 3, 4, 5, 6):
        a = np.random.randn(n, 3)
        alike(fn(a), compiled(a))
    assert counter.count == 2
    alike(fn(I), compiled(I))


def test_gradients_flow_past_arrays():
    x = torch.ones(3, requires_grad=True)
    braze.compile(lambda x, a: (x * torch.from_numpy(a)).sum(), fullgraph=True)(
        x, np.arange(3, dtype=np.float32)
    ).backward()
    torch.testing.assert_close(x.grad, torch.arange(3.0))


OTHERS = {
    "strings": (lambda: np.asarray(["L", "U"]),),
    "objects": (lambda a, x: x + len(a), np.array([1, "a", None], dtype=object), X),
    "masked": (lambda a: (a * 2).sum(), np.ma.masked_array([1, 2, 3], mask=[0, 1, 0])),
    "other byte order": (lambda a: a + a, np.array([1, 2], dtype=">f4")),
    "read only": (lambda a: a + 1, np.broadcast_to(np.arange(3), (2, 3))),
    "backwards": (lambda a: a + 1, np.arange(4.0)[::-1]),
    "sizes that do not fit": (lambda a, b: a + b, np.ones(3), np.ones(4)),
    "a type that does not fit": (lambda a: a.__iadd__(1.5), np.arange(3)),
    "no truth": (lambda a: 1 if a else 2, np.ones(3)),
    "no attribute": (lambda a: a.foo, np.ones(3)),
    "a tensor with gradients": (lambda x: x.numpy(), torch.ones(3, requires_grad=True)),
    "roots of negative numbers": (lambda a: np.cbrt(a), A),
    "parts of numbers": (lambda a: (np.fix(a), np.modf(a)), A),
    "several shifts": (lambda a: np.roll(a, (1, 2)), A),
    "bools that are rounded": (lambda a: np.ceil(a > 0), A),
    "bytes": (lambda a: (a + 1).tobytes(), I),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_numpys_own(name):
    check(*OTHERS[name], graphs=None, fullgraph=False)
