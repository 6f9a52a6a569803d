"""Arguments and results on an NVIDIA GPU that are views of memory: where they begin, kernels may not be able to read them in vectors."""

import pytest
import torch
from written_inputs_test import LAYOUTS, WRITERS, check_layout

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("f", WRITERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_written_keeps_its_strides(f, layout, dynamic):
    with torch.device("cuda"):
        check_layout(f, layout, dynamic)


def turned(a):
    return a + a.numel(), a.mT


def diagonal(a):
    first = a.diagonal()
    a /= 2
    return first, a.sum()


def parts(a):
    return [*(row * 2 for row in a), a[1:], a[0].sin()]


def of_itself(a):
    return a.detach(), a.cos(), a


@pytest.mark.parametrize("f", [turned, diagonal, parts, of_itself], ids=lambda f: f.__name__)
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_an_argument_that_begins_anywhere(f, offset, options, grad):
    if grad and f is diagonal:
        pytest.skip("a leaf is not written to")
    compiled = braze.compile(f, **options)
    for _ in range(4):
        seen, shared = [], []
        for g in (f, compiled):
            memory = torch.arange(64.0, device="cuda")
            a = memory[offset : offset + 36].view(6, 6)
            if grad:
                a.requires_grad_()
            results = g(a)
            shared.append([r.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr() for r in results])
            wanted = [r for r in results if r.requires_grad]
            if wanted:
                sum(r.square().sum() for r in wanted).backward()
            seen.append((*(r.detach().clone() for r in results), memory.detach(), a.grad))
        torch.testing.assert_close(*seen)
        assert shared[0] == shared[1]
    assert braze.counters()["runs_made_again"] == 0


def test_rows_of_an_argument_are_arguments():
    def f(a):
        kept = torch.cat([row[None] for row in a if row.sum() > 0])
        kept.add_(a[: len(kept)])
        return kept

    a = torch.tensor([1.0, -1.0, 2.0, 0.5, -0.25], device="cuda")
    for _ in range(3):
        torch.testing.assert_close(braze.compile(f)(a), f(a))
    assert braze.counters()["runs_made_again"] == 0
