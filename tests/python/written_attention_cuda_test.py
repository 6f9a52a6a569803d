"""Attention of half types that a model writes out, on a GPU: one operator, with eager's results and its NaN."""

import pytest
import torch
import torch.nn.functional as F
import written_attention_test as cases

import braze

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
STEP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
# These make their masks on the CPU, or have a number that float16 lacks.
LEFT_OUT = {"causal", "gpt2", "added products"}


def check(f, args, dtype, fused=True):
    args = [(a.to(dtype) if a.is_floating_point() else a).cuda() for a in args]
    doubles = [a.double() if a.is_floating_point() else a for a in args]
    with torch.no_grad():
        want, got, exact = f(*args), braze.compile(f, fullgraph=True)(*args), f(*doubles)
        assert braze.explain(f, *args).extern_count == (1 if fused else 2)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    assert torch.equal(got.isnan(), exact.isnan())
    far = lambda t: (t.double() - exact).nan_to_num().abs().max().item()  # noqa: E731
    assert far(got) <= 2 * far(want) + STEP.get(dtype, 1e-5) * exact.nan_to_num().abs().max().item()


@pytest.mark.parametrize("dtype", STEP, ids=str)
@pytest.mark.parametrize("form", sorted(cases.FORMS.keys() - LEFT_OUT))
def test_forms(form, dtype):
    f, keys, *masks = cases.FORMS[form]
    if dtype == torch.float16 and form.endswith("-1e9"):
        pytest.skip("-1e9 is no float16")
    check(f, (cases.heads(64, 1), cases.heads(keys, 2), cases.heads(keys, 3), *masks), dtype)


def test_float32_stays_products():
    check(cases.plain, (cases.heads(64, 1), cases.heads(80, 2), cases.heads(80, 3)), torch.float32, fused=False)


def test_one_query_stays_products():
    args = [cases.heads(n, 1).to(torch.bfloat16).cuda() for n in (1, 80, 80)]
    with torch.no_grad():
        torch.testing.assert_close(braze.compile(cases.plain)(*args), cases.plain(*args), rtol=2e-2, atol=2e-2)


def test_a_mask_of_more_digits_is_kept():
    """A bias of float32 onto scores made float32 is not rounded to the query's type."""

    def f(q, k, v, bias):
        return F.softmax((q @ k.transpose(-2, -1)).float() + bias, -1).to(q.dtype) @ v

    args = [cases.heads(n, n).to(torch.bfloat16).cuda() for n in (64, 80, 80)] + [cases.rand(1, 8, 64, 80).cuda() * 30]
    with torch.no_grad():
        assert braze.explain(f, *args).extern_count == 2
        torch.testing.assert_close(braze.compile(f)(*args), f(*args), rtol=2e-2, atol=2e-2)


def test_recorded():
    f = braze.compile(cases.joined, mode="reduce-overhead")
    for seed in range(4):
        args = [cases.heads(n, seed + n).to(torch.bfloat16).cuda() for n in (64, 80, 80)]
        with torch.no_grad():
            torch.testing.assert_close(f(*args), cases.joined(*args), rtol=2e-2, atol=2e-2)
