"""Options that leave a part of the compiler out: results stay eager's, and the part is not there. `python -m benchmarks.paper` measures them."""

import pytest
import torch
import torch.nn.functional as F

import braze

torch.manual_seed(0)
MATRIX, ROWS, WIDE = torch.randn(64, 96), torch.randn(96, 64), torch.randn(8, 40000)
LAYER = torch.nn.Linear(64, 64)


def shared(x):
    y = torch.exp(x) + 1
    return y * 2, y.sum(-1)


def one_after_the_other(x):
    return torch.relu(x * 2 + 1).sin()


def transposed(x, y):
    return x + y.t()


def biased(x):
    return F.gelu(LAYER(x))


def softmax(x):
    return torch.softmax(x, -1)


def three(a, b, c):
    return (a.t() + 1).relu(), b * 2 + c, (b + c).tanh()


CASES = {
    "fuse": (shared, (MATRIX,)),
    "inlining": (one_after_the_other, (MATRIX,)),
    "reordering": (transposed, (MATRIX, ROWS)),
    "patterns": (biased, (ROWS,)),
    "vectors": (one_after_the_other, (MATRIX,)),
}
PROGRAMS = [
    (shared, (MATRIX,)),
    (transposed, (MATRIX, ROWS)),
    (biased, (ROWS,)),
    (softmax, (WIDE,)),
    (three, (MATRIX, ROWS, ROWS)),
]
SWITCHES = ["fuse", "inlining", "reordering", "patterns", "vectors", "fusion_score"]


def code(f, args, **options):
    braze.reset()
    compiled = braze.compile(f, options=options)
    with torch.no_grad():
        compiled(*args)
        return braze.explain(compiled, *args, code=True).code


@pytest.mark.parametrize("switch", CASES)
def test_the_part_is_left_out(switch):
    f, args = CASES[switch]
    off = {"fuse": False} if switch == "inlining" else {}  # else fusion makes one loop of both again
    assert code(f, args, **off) != code(f, args, **off, **{switch: False})


@pytest.mark.parametrize("codegen", ["llvm", "cpp"])
@pytest.mark.parametrize("f, args", PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_results_stay(f, args, codegen):
    want = f(*args)
    for off in [*([s] for s in SWITCHES), SWITCHES]:
        compiled = braze.compile(f, options={"codegen": codegen, **dict.fromkeys(off, False)})
        with torch.no_grad():
            torch.testing.assert_close(compiled(*args), want if not isinstance(want, torch.Tensor) else want.detach())


@pytest.mark.parametrize("switch", SWITCHES)
def test_gradients_stay(switch):
    def step(f):
        x = MATRIX.clone().requires_grad_()
        F.cross_entropy(f(x), torch.arange(64) % 64).backward()
        return x.grad, [p.grad.clone() for p in LAYER.parameters()]

    def model(x):
        return LAYER(F.layer_norm(x[:, :64], (64,)))

    LAYER.zero_grad()
    want = step(model)
    LAYER.zero_grad()
    torch.testing.assert_close(step(braze.compile(model, options={switch: False})), want)
