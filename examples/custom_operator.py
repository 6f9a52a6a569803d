"""An operator of your own, opaque to the compiler, with a gradient: torch.library.custom_op, in one graph with what surrounds it."""

import numpy as np
import torch

import braze


@torch.library.custom_op("examples::running_max", mutates_args=())
def running_max(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.maximum.accumulate(x.detach().numpy(), axis=-1))


@running_max.register_fake
def _(x):
    return torch.empty_like(x)  # what the compiler needs to know: shape, dtype, device


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


def backward(ctx, grad):
    x, out = ctx.saved_tensors
    return grad * (x == out)  # to those elements that are a maximum where they stand


running_max.register_autograd(backward, setup_context=setup_context)


def f(x):
    return (running_max(x.sin()) * 2).sum()


torch.manual_seed(0)
x = torch.randn(3, 8, requires_grad=True)
y = x.detach().clone().requires_grad_()
f(x).backward()
loss = braze.compile(f, fullgraph=True)(y)
loss.backward()
print(f"loss {loss.item():.4f}")
torch.testing.assert_close(loss, f(x))
torch.testing.assert_close(y.grad, x.grad)
