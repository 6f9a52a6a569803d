"""A kernel of your own in Triton's language: its launch is part of the one graph, and what it writes is known. Without a GPU Triton interprets it."""

import importlib.util
import os
import sys

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before the kernel is defined
if importlib.util.find_spec("triton") is None:
    print("this example needs the package triton")
    sys.exit()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

import braze  # noqa: E402


@triton.jit
def gate(x_ptr, gate_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x, g = tl.load(x_ptr + offsets, mask=mask), tl.load(gate_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * tl.sigmoid(g), mask=mask)


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        out = torch.empty_like(x)
        gate[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, g, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, g = ctx.saved_tensors
        s = torch.sigmoid(g)
        return grad * s, grad * x * s * (1 - s)


def f(x, g):
    return (Gate.apply(x.sin(), g * 2) ** 2).sum()


compiled = braze.compile(f, fullgraph=True)
for n in (1000, 700, 300):  # the grid follows the sizes: one compilation for the last two
    x, g = torch.randn(n, device=device, requires_grad=True), torch.randn(n, device=device, requires_grad=True)
    expected = torch.autograd.grad(f(x, g), (x, g))
    loss = compiled(x, g)
    loss.backward()
    torch.testing.assert_close((x.grad, g.grad), expected)
print(f"loss {loss.item():.2f}, {braze.counters()['captures']} compilations")
