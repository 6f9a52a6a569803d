"""Models, leaves and comparisons that the tests of second derivatives share."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import grad

import braze


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out((F.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v).transpose(1, 2).flatten(2))


MODELS = {
    "tanh": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), (5, 4)),
    "softplus": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(beta=3), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1)),
        (5, 4),
    ),
    "layer_norm": (lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)), (5, 4)),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Sigmoid(), nn.Linear(8, 2)), (6, 4)),
    "group_norm": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.ELU()), (3, 2, 7)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.LeakyReLU(0.2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 1)
        ),
        (3, 2, 4, 4),
    ),
    "max_pool": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2), nn.Softplus()), (3, 2, 4, 4)),
    "attention": (Attention, (2, 3, 8)),
    "gru_cell": (lambda: nn.GRUCell(4, 4), (3, 4)),
    "bilinear": (
        lambda: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2, 1, 3), nn.Tanh()),
        (2, 2, 3, 3),
    ),
}


def leaf(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def compiled_whole(f, **options):
    """Compiled, with a check that it was."""
    run = braze.compile(f, fullgraph=True, **options)

    def call(*args, **kwargs):
        result = run(*args, **kwargs)
        assert any(t.grad_fn.name() == "CompiledFunctionBackward" for t in tensors(result)), "no compiled region"
        return result

    return call


def tensors(value):
    if isinstance(value, torch.Tensor):
        history = [value] if value.grad_fn is not None else []
        if history and value._is_view() and value._base.grad_fn is not None:
            history.append(value._base)
        return history
    return [t for v in value for t in tensors(v)] if isinstance(value, (tuple, list)) else []


def both(f, act, **options):
    """What `act` gives with the function and with the function compiled: results or the exception, twice."""
    call = compiled_whole(f, **options)
    for _ in range(2):
        outcomes = []
        for g in (f, call):
            torch.manual_seed(1)
            try:
                outcomes.append(act(g))
            except RuntimeError as e:
                outcomes.append(e)
        want, got = outcomes
        if isinstance(want, RuntimeError):
            assert isinstance(got, RuntimeError), f"{got}, expected {want!r}"
            for part in (
                "modified by an inplace operation",
                "a second time",
                "does not require grad",
                "is not implemented",
            ):
                assert (part in str(want)) == (part in str(got)), f"{got}, expected {want}"
        else:
            if isinstance(got, RuntimeError):
                raise got
            torch.testing.assert_close(got, want)
    return want


def penalty(model, x, leaves):
    """First derivatives, and those of a function of them."""
    out = model(x)
    first = grad(out.sin().sum(), leaves, create_graph=True, allow_unused=True, materialize_grads=True)
    second = grad(out.sum() + sum(g.pow(2).sum() for g in first), leaves, allow_unused=True, materialize_grads=True)
    return [out.detach(), *(g.detach() for g in first), *second]
