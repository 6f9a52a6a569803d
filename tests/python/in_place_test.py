"""In-place operators: what eager computes, and what eager refuses. Which of them are tried on PyTorch's Meta kernels first, and
which are known to succeed without, must not show."""

import os
import subprocess
import sys

import pytest
import torch
from harness import check, outcome

import braze


def r(*shape, dtype=torch.float32):
    torch.manual_seed(0)
    return torch.randn(*shape).to(dtype) if dtype.is_floating_point else torch.randint(1, 9, shape, dtype=dtype)


GOOD = {
    "number": (lambda a, b: (a * 2).add_(1.5), r(3, 4), r(4)),
    "broadcast": (lambda a, b: (a * 2).add_(b).mul_(b), r(3, 4), r(4)),
    "compared": (lambda a, b: (a * 2).gt_(b), r(3, 4), r(4)),
    "integer takes integer": (lambda a, b: (a * 2).add_(b), r(3, 4, dtype=torch.int64), r(4, dtype=torch.int32)),
    "float takes integer": (lambda a, b: (a * 2).sub_(b, alpha=2), r(3, 4), r(4, dtype=torch.int64)),
    "narrow takes wide": (lambda a, b: (a * 2).mul_(b), r(3, 4, dtype=torch.bfloat16), r(4, dtype=torch.float64)),
    "permuted": (lambda a, b: (a * 2).t().add_(b), r(4, 3), r(4)),
    "every second": (lambda a, b: (a * 2)[::2].add_(b), r(6, 4), r(4)),
    "no element": (lambda a, b: (a * 2).add_(b), r(0, 4), r(4)),
    "no dimension": (lambda a, b: a.sum().add_(b.sum().double()), r(3), r(4)),
    "masked": (lambda a, b: (a * 2).masked_fill_(b > 0, 0.25), r(3, 4), r(4)),
    "chain": (lambda a, b: (a * 2).clamp_(min=-1).sqrt_().nan_to_num_(0.5).lerp_(b.expand(3, 4), 0.25), r(3, 4), r(4)),
    "shape changes": (lambda a, b: (a * 2).t_().unsqueeze_(0).add_(1), r(3, 4), r(4)),
}


@pytest.mark.parametrize("name", GOOD)
def test_gives_what_eager_gives(name):
    fn, a, b = GOOD[name]
    check(fn, a, b)


BAD = {
    "result larger than what is written": (lambda a, b: (b * 2).add_(a), r(3, 4), r(4)),
    "sizes do not match": (lambda a, b: (a * 2).add_(b), r(3, 4), r(3)),
    "float into integer": (lambda a, b: (a * 2).add_(b), r(3, 4, dtype=torch.int64), r(4)),
    "number into integer": (lambda a, b: (a * 2).mul_(0.5).div_(2), r(3, 4, dtype=torch.int64), r(4)),
    "elements that share memory": (lambda a, b: (b * 2).expand(3, 4).add_(a), r(3, 4), r(4)),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_what_eager_refuses(name):
    fn, a, b = BAD[name]
    want = outcome(fn, (a, b), {})
    got = outcome(braze.compile(fn), (a.clone(), b.clone()), {})
    assert want[0] == got[0] == "raised", (want, got)
    assert type(want[1]) is type(got[1])


TURNED = {  # of what is written, in another order than its memory's
    "tril_": lambda t: t.tril_(),
    "cumsum_": lambda t: t.cumsum_(0),
    "scatter_": lambda t: t.scatter_(0, torch.zeros(2, 2, dtype=torch.long), 1.0),
    "index_add_": lambda t: t.index_add_(0, torch.tensor([0, 1]), torch.ones(2, t.shape[1])),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 0.5),
    "sort": lambda t: t.copy_(t.sort(0).values),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("own", [True, False])
def test_what_is_written_keeps_its_strides(name, own):
    write = TURNED[name]

    def f(x):
        t = (x * 2 if own else x).t()
        write(t)
        return t, t.t().view(-1), t.stride(), t.is_contiguous()

    compiled = braze.compile(f, dynamic=False)
    for size in (3, 4, 5):
        x = torch.randn(size, size)
        (want, flat, *told), (got, got_flat, *got_told) = f(x.clone()), compiled(x.clone())
        assert torch.equal(want, got) and torch.equal(flat, got_flat) and told == got_told
        assert want.stride() == got.stride() and flat.stride() == got_flat.stride()


def test_a_training_step_loads_no_sympy():
    code = """
import sys, torch, braze
layer = torch.nn.Linear(8, 8)
def f(x):
    y = layer(x) * 2
    y.add_(x).mul_(3)
    y += x.sum(-1, keepdim=True)
    return y.masked_fill_(x > 1, 0.5)
x = torch.randn(4, 8)
got = braze.compile(f, fullgraph=True)(x)
assert "sympy" not in sys.modules
torch.testing.assert_close(got, f(x))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, BRAZE_STRICT="1"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("dynamic", [None, True])
def test_rows_of_other_strides_are_written(dynamic):
    def fn(x):
        x.unbind(0)[0].add_(1)
        for row in x:
            row.mul_(2)

    compiled = braze.compile(fn, dynamic=dynamic)
    for make in (lambda: torch.ones(3, 3), lambda: torch.ones(3, 12)[:, :3], lambda: torch.ones(4, 5).t()):
        a, b = make(), make()
        compiled(a)
        fn(b)
        assert torch.equal(a, b)


def test_what_may_not_be_written_is_not():
    def add(v):
        v.add_(1)
        return v * 2

    def view_first(x):
        y = x * 2
        x.add_(1)
        return y

    for fn in (add, view_first):
        compiled = braze.compile(fn)
        for _ in range(2):
            after = []
            for c in (fn, compiled):
                x = torch.zeros(2, 3, requires_grad=True)
                with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being used"):
                    c(x[0])
                with torch.inference_mode():
                    v = torch.zeros(3)
                with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
                    c(v)
                after.append((x.tolist(), v.tolist()))
            assert after[0] == after[1]


def test_a_buffer_gets_a_history():
    def fn(buffer, w):
        buffer.add_(w * 2)
        return buffer.sum()

    for c in (fn, braze.compile(fn, fullgraph=True)):
        buffer, w = torch.zeros(3), torch.ones(3, requires_grad=True)
        c(buffer, w).backward()
        assert buffer.requires_grad and w.grad.tolist() == [2.0, 2.0, 2.0]
