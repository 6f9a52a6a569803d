"""Operators that check values when they run (linalg), and recurrent layers: compiled in one graph."""

import pytest
import torch
from harness import same

import braze

a = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])


@pytest.mark.parametrize(
    "fn",
    [
        torch.linalg.inv,
        torch.linalg.cholesky,
        lambda t: torch.linalg.solve(t, t + 1),
        lambda t: torch.cholesky_solve(t, torch.linalg.cholesky(t)),
        lambda t: torch.linalg.lu_factor(t)[0],
        lambda t: torch.linalg.eigh(t)[0],
        lambda t: torch.linalg.svd(t)[1],
        lambda t: torch.linalg.qr(t)[1].abs(),
        lambda t: torch.linalg.det(t) + torch.logdet(t),
    ],
)
def test_linalg(fn):
    compiled = braze.compile(fn, fullgraph=True)
    for t in (a, a + torch.eye(3)):
        same(fn(t), compiled(t))
    report = braze.explain(fn, a)
    assert report.graph_count == 1 and report.graph_break_count == 0


@pytest.mark.parametrize("fn", [torch.linalg.inv, torch.linalg.cholesky, lambda t: torch.linalg.inv(t).shape])
def test_what_linalg_refuses_is_refused(fn):
    compiled = braze.compile(fn, fullgraph=True)
    compiled(a)
    singular = torch.zeros(3, 3)
    with pytest.raises(torch.linalg.LinAlgError) as want:
        fn(singular)
    with pytest.raises(torch.linalg.LinAlgError) as got:
        compiled(singular)
    assert str(want.value) == str(got.value)


def test_gradient_of_a_checked_operator():
    t, u = a.clone().requires_grad_(), a.clone().requires_grad_()
    torch.linalg.inv(t).sum().backward()
    braze.compile(lambda v: torch.linalg.inv(v).sum(), fullgraph=True)(u).backward()
    same(t.grad, u.grad)


@pytest.mark.parametrize(
    "fn, call",
    [
        (torch.linalg.svdvals, ", false, false, none)"),
        (torch.linalg.cond, ", false, false, none)"),
        (torch.linalg.eigvalsh, ', "L", false)'),
        (torch.linalg.eigvals, "_linalg_eigvals("),
    ],
)
def test_values_of_a_matrix_are_computed_without_its_vectors(fn, call):
    explained = braze.explain(fn, a)
    assert call in explained.plans[0], explained.plans[0]
    assert torch.equal(explained.output, fn(a))
    # A gradient needs the vectors.
    t, u = a.clone().requires_grad_(), a.clone().requires_grad_()
    fn(t).abs().sum().backward()
    braze.compile(lambda v: fn(v).abs().sum(), fullgraph=True)(u).backward()
    same(t.grad, u.grad)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("make", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers(make, train):
    torch.manual_seed(0)
    m = make(3, 4, num_layers=2, bidirectional=True).train(train)
    t = torch.randn(5, 2, 3)
    compiled = braze.compile(m, fullgraph=True)
    with torch.no_grad():
        same(m(t), compiled(t))
    want = m(t)[0]
    want.sum().backward()
    grads = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    got = compiled(t)[0]
    got.sum().backward()
    same(want, got)
    same(grads, [p.grad for p in m.parameters()], tol=1e-4)


def test_the_truth_of_a_tensor_that_a_function_returns():
    def positive(x):
        return bool(torch._is_all_true(x > 0))

    def f(x):
        if not positive(x):
            raise ValueError(f"not all of {tuple(x.shape)} are positive")
        return x + 1

    compiled = braze.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(ValueError, match=r"not all of \(3,\) are positive"):
        compiled(-torch.ones(3))
