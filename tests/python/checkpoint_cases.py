"""Checkpointed models and what is asked of them, for checkpoint_test.py and checkpoint_policies_test.py."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import braze

BOTH = pytest.mark.parametrize("reentrant", [False, True])


class Block(nn.Module):
    def __init__(self, n=32, dropout=0.0):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Chain(nn.Module):
    """Blocks, each checkpointed; `options` go to checkpoint()."""

    def __init__(self, blocks, wrapped=True, **options):
        super().__init__()
        self.blocks, self.wrapped, self.options = nn.ModuleList(blocks), wrapped, {"use_reentrant": False, **options}

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, **self.options) if self.wrapped else block(x)
        return x


def explained(fn, *args, breaks=0):
    """Of one graph, compiled, with gradients."""
    e = braze.explain(fn, *args)
    assert e.graph_count == 1 and e.graph_break_count == breaks and "runs compiled" in e.graphs[0], str(e)
    return e


def saved_bytes(fn, *args):
    return explained(fn, *args).saved_bytes


def saved(fn, *args):
    """The operators whose results are kept for the backward."""
    lines = explained(fn, *args).partitions[0].split("recomputed")[0].splitlines()[1:]
    return sorted(line.split()[1] for line in lines)


def recomputed(fn, *args):
    return [line.split()[1] for line in explained(fn, *args).partitions[0].split("recomputed")[1].splitlines()[1:]]


def gradients(fn, params, *args):
    torch.manual_seed(3)
    for p in params:
        p.grad = None
    out = fn(*args)
    (out.float() ** 2).mean().backward()
    return [out.detach(), *(p.grad for p in params)]


def check(model, *args, calls=2, **options):
    """Eager against compiled, gradients too."""
    other = copy.deepcopy(model)
    compiled = braze.compile(other, fullgraph=True, **options)
    for _ in range(calls):
        leaves = [a for a in args if a.requires_grad]
        want = gradients(model, [*model.parameters(), *leaves], *args)
        got = gradients(compiled, [*other.parameters(), *leaves], *args)
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
