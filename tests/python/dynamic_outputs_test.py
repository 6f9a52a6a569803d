"""Sizes that depend on data stay in the graph without being asked for: as eager for any number of elements, none and one included."""

import functools
import warnings

import pytest
import torch
from harness import Graphs, outcome, same

import braze
from braze import _C


def sum_of_two(a, m, b, n):
    return a[m] + b[n]


def sum_that_may_be_refused(a, m, b, n):
    try:
        return a[m] + b[n]
    except RuntimeError as e:
        return str(e)


def stack_that_may_be_refused(a, m, b, n):
    try:
        return torch.stack([a[m], b[n]])
    except RuntimeError as e:
        return 5, str(e)


def decided_by_the_number(a, m, b, n):
    y = a[m]
    if y.numel() == 0:
        return b
    return y.max()


def greatest(a, m, b, n):
    return a[m].max()


def greatest_or_why_not(a, m, b, n):
    try:
        return a[m].max()
    except Exception as e:
        return str(e)


def rows_of_three(a, m, b, n):
    return a[m].view(3, -1)


def first(a, m, b, n):
    return torch.nonzero(m)[0], a[m][0]


def one_by_one(a, m, b, n):
    return [v * 2 for v in a[m]]


def squeezed(a, m, b, n):
    return a[m].squeeze(), a[m].squeeze(0).dim(), a[m].unsqueeze(0).squeeze()


def lists(a, m, b, n):
    return torch.where(m), a[m].tolist(), len(a[m])


def written_where_the_mask_is(a, m, b, n):
    c = a.clone()
    c[m] = b[n]
    return c


def padded(a, m, b, n):
    return torch.nn.functional.pad(a[m], (0, 5 - int(m.sum())))


def reductions(a, m, b, n):
    y = a[m]
    return torch.softmax(y, 0), y.mean(), y.sort()[0], y.median(), y.sum(), y.cumsum(0)


def pieces(a, m, b, n):
    return a[m].split(2), a[m].chunk(2)


def joined(a, m, b, n):
    return torch.cat([a[m], b[n]]), a[m][:2], a[m][-1:], a[m][::2]


def products(a, m, b, n):
    return a[m] @ a[m], torch.outer(a[m], b[n]), a[m] @ b[n]


def widened(a, m, b, n):
    y = a[m]
    return y.expand(3, -1), y.repeat(2), y.is_contiguous(), y.stride()


def places(a, m, b, n):
    i = m.nonzero()
    return i.shape, i.t().stride(), i.flatten(), a.index_select(0, i.squeeze(1)), a.gather(0, i.squeeze())


def written(a, m, b, n):
    y = a[m]
    y += 1
    y[0] = 3
    return y, y == b[n]


def alike(a, m, b, n):
    return torch.equal(a[m], b[n]), a[m].allclose(b[n])


def unique_columns(a, m, b, n):
    return torch.unique(torch.stack([m, n, m]), dim=1), torch.unique_consecutive(a.detach().view(1, -1) // 2, dim=1)


PROGRAMS = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__]
MASKS = [
    tuple(torch.tensor(list(map(int, digits)), dtype=torch.bool) for digits in pair)
    for pair in (
        ("11100", "01110"),
        ("10000", "01110"),
        ("11000", "01110"),
        ("00000", "01110"),
        ("11110", "00010"),
        ("00000", "00000"),
    )
]


@pytest.mark.parametrize("wants_gradient", [False, True])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_any_number(f, wants_gradient):
    a, b = torch.arange(5.0), torch.arange(5.0) * 2
    for before in range(0, len(MASKS), 2):
        compiled = braze.compile(f)
        for m, n in (MASKS[before], *MASKS):
            x, y = (a.clone().requires_grad_(wants_gradient) for _ in range(2))
            want, got = outcome(f, (x, m, b, n), {}), outcome(compiled, (y, m, b, n), {})
            assert want[0] == got[0], (want, got)
            if want[0] == "raised":
                assert want[1][0] is got[1][0]
                continue
            same(want[1], got[1])
            for result, leaf in ((want[1], x), (got[1], y)):
                parts = [t for t in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(t)]
                if loss := [t.square().sum() for t in parts if t.requires_grad]:
                    functools.reduce(torch.add, loss).backward()
            same(x.grad, y.grad)


def test_one_graph_and_no_compilation_for_another_number():
    def f(x):
        y = x[x > 0]
        k = torch.where(y < 0.7)[0]
        return y[k] * 2, torch.unique((y * 4).int()).float() + 1

    graphs = Graphs()
    compiled = braze.compile(f, backend=graphs)
    for k in range(1, 6):
        x = torch.linspace(-1, 1, 10 * 5).roll(k) * k / 3
        same(f(x), compiled(x))
    assert graphs.count == 1


def test_a_decision_ends_the_graph_and_the_next_goes_on_with_the_size():
    def f(x):
        y = x[x > 0] * 2
        if y.shape[0] > 3:
            return y + 1, y.shape[0]
        return y - 1, y.shape[0]

    compiled = braze.compile(f)
    for n in (2, 8, 3, 6, 0):
        x = torch.arange(8.0) - 7 + n
        same(f(x), compiled(x))
    with pytest.raises(braze.Unsupported, match="only the run knows"):
        braze.compile(f, fullgraph=True)(torch.ones(5))


def test_what_has_no_backward_for_any_number_is_compiled_for_each():
    def f(x):
        y = x[x > 0]
        return y.sort()[0], y.median(), y.std(), torch.softmax(y, 0)

    compiled = braze.compile(f)

    def call(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # std() of one
            loss = sum(t.square().sum() for t in compiled(x)[:1])
        loss.backward()

    x = torch.linspace(-1, 1, 10, requires_grad=True)
    _, events = _C.record(compiled, lambda: call(x))
    assert all(e["status"] in ("", "compiled") for e in events) and events, [e["status"] for e in events]
