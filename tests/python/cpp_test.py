"""options={"codegen": "cpp"}: kernels by way of the system's C++ compiler give what eager gives."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import braze

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def compiled(f, **more):
    return braze.compile(f, fullgraph=True, options={"codegen": "cpp"}, **more)


def check(f, *args, **tolerance):
    torch.testing.assert_close(compiled(f)(*args), f(*args), equal_nan=True, **tolerance)


def test_the_text_is_c_plus_plus():
    text = str(braze.explain(compiled(lambda x: torch.relu(x) + 1), torch.randn(100), code=True))
    assert "parallel_for(" in text and "load(lanes, " in text and 'extern "C" void kernel' in text


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype):
    x, y = torch.randn(37, 83).to(dtype), torch.randn(83).to(dtype)
    # Fused kernels keep in float what eager rounds to a half type after each operator.
    room = {torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2}, torch.float16: {"rtol": 4e-3, "atol": 4e-3}}.get(dtype, {})
    for f in (
        lambda x, y: (x * y).sigmoid() + torch.where(x > y, x, y.tanh()),
        lambda x, y: (x.sum(1), x.amax(0), x.mean(), x.softmax(1)),
    ):
        check(f, x, y, **room)
        torch.testing.assert_close(compiled(f)(x, y), braze.compile(f)(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    x, y = torch.arange(1, 101).to(dtype), torch.arange(3, 103).flip(0).to(dtype)
    check(lambda x, y: (x + y, x * y, x // y, x % y, x & y, torch.maximum(x, y), x.sum(), x.float() / 3), x, y)


def test_bools_and_complex():
    b = torch.rand(51) > 0.5
    check(lambda b: (b & ~b.flip(0), b.any(), b.all(), b.sum(), b.float()), b)
    z = torch.randn(20, dtype=torch.complex64)
    check(lambda z: z * z.conj() + 1, z)


def test_float8():
    x = torch.randn(70) * 50
    check(lambda x: (x.to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()), x)


def test_functions():
    x = torch.cat([torch.randn(60) * 3, torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40])])
    for f in (torch.exp, torch.log, torch.log1p, torch.sin, torch.cos, torch.tan, torch.erf, torch.asinh, torch.expm1):
        check(f, x)
        check(f, x.double())


def test_norms_and_attention():
    x = torch.randn(4, 33, 64)
    norm = torch.nn.LayerNorm(64)
    check(lambda x: F.gelu(norm(x)), x)
    check(lambda x: F.softmax(x @ x.transpose(1, 2), -1) @ x, x)


def test_variances_far_from_zero():
    check(lambda x: x.var(1), torch.randn(5, 1000) + 1e4, rtol=1e-3, atol=1e-3)
    check(lambda x: x.var(0), torch.randn(1000, 5) + 1e4, rtol=1e-3, atol=1e-3)


def test_transposes_and_strides():
    x = torch.randn(65, 130)
    check(lambda x: x.t().contiguous() + 1, x)
    check(lambda x: x[:, ::3] * x[:, 1:].flip(1)[:, ::3][:, :1], x)


def test_indices():
    table, at = torch.randn(50, 24), torch.randint(0, 50, (33,))
    check(lambda t, i: F.embedding(i, t) * 2, table, at)
    check(lambda t, i: torch.zeros(50, 24).index_add(0, i, t[:33]), table, at)
    check(lambda t, i: t.scatter_add(0, i[:, None].expand(33, 24), t[:33]), table, at)
    f = compiled(lambda t, i: t[i] + 1)
    f(table, at)
    with pytest.raises(IndexError, match="out of bounds"):
        f(table, torch.tensor([50] * 33))


def test_sizes_that_vary():
    f = compiled(lambda x: (x * 2).softmax(1))
    for n in (3, 17, 64, 129):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(f(x), (x * 2).softmax(1))


def test_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.LayerNorm(40), torch.nn.Linear(40, 3)
    )
    x, y = torch.randn(9, 20), torch.randint(0, 3, (9,))

    def gradients(step):
        model.zero_grad()
        loss = step(x, y)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    def step(x, y):
        return F.cross_entropy(model(x), y)

    torch.testing.assert_close(gradients(compiled(step)), gradients(step))


def test_random_numbers_are_those_of_the_other_target():
    def f(x):
        return F.dropout(x, 0.5), torch.rand_like(x)

    x, results = torch.ones(500), []
    for codegen in ("llvm", "cpp"):
        torch.manual_seed(3)
        results.append(braze.compile(f, options={"codegen": codegen})(x))
    torch.testing.assert_close(results[0], results[1])


def test_without_a_compiler_one_sentence(tmp_path):
    program = (
        "import braze, torch\ntry:\n    braze.compile(torch.relu, options={'codegen': 'cpp'})\n"
        "except RuntimeError as e:\n    print(e)"
    )
    env = {**os.environ, "CXX": "no-such-compiler", "BRAZE_CACHE_DIR": str(tmp_path)}
    out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert out.stdout.strip() == (
        "options={'codegen': 'cpp'} needs a C++ compiler: install g++ or clang++, or name one in the variable CXX"
    ), out.stderr
