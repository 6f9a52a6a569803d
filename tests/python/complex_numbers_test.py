"""Python's complex numbers beside tensors: part of the graph, with eager's dtypes, values and gradients."""

import pytest
import torch
from harness import Graphs

import braze

OPERATIONS = {
    "add": lambda x: x + 1j,
    "mul": lambda x: x * (1 + 2j),
    "rmul": lambda x: 2j * x,
    "div": lambda x: x / (1 - 1j),
    "sub": lambda x: x - 1j,
    "phase": lambda x: torch.exp(1j * x),
    "several": lambda x: (x + 1j) * (2 - 1j) * abs(3 + 4j) + (1 + 2j).conjugate() * x + (1j).real,
    "made": lambda x: x * complex(1, 2),
    "in_place": lambda x: x.to(torch.complex64).mul_(1j),
    "third": lambda x: x * (1 / 3 + 1e-9j),
}


@pytest.mark.parametrize("size", [(3,), (), (2, 0)])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int64, torch.complex64, torch.complex128], ids=str
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operators(name, dtype, size):
    fn, graphs = OPERATIONS[name], Graphs()
    x = torch.arange(float(torch.Size(size).numel())).view(size).to(dtype) + 1
    want = fn(x)
    for backend in (graphs, "braze"):
        compiled = braze.compile(fn, backend=backend, fullgraph=True)
        for _ in range(2):
            got = compiled(x)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=1e-6 if want.dtype == torch.complex64 else 1e-14, atol=0)
    assert graphs.count == 1


@pytest.mark.parametrize("name", ["add", "mul", "rmul", "div", "phase", "several"])
def test_gradients(name):
    fn = OPERATIONS[name]
    x, y = (torch.tensor([0.5, -1.0, 2.0], requires_grad=True) for _ in range(2))
    torch.view_as_real(fn(x)).square().sum().backward()
    torch.view_as_real(braze.compile(fn, fullgraph=True)(y)).square().sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


def test_numbers_that_change_are_seen():
    class Rotation:
        factor = 1j

    def f(x, z):
        return x * z + Rotation.factor

    compiled, x = braze.compile(f, fullgraph=True), torch.ones(3)
    for z in (1j, 2j, 1j, -1j + 3):
        for Rotation.factor in (1j, 0.5 - 2j):
            torch.testing.assert_close(compiled(x, z), f(x, z))
