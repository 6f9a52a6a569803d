"""Ranges of compiled code in PyTorch's profiles."""

import torch

import braze


def names_of(run):
    with torch.profiler.profile() as p:
        run()
    return [e.name for e in p.events()]


def test_names_of_region_graph_and_kernels():
    f = braze.compile(lambda x: (torch.relu(x * 2) + 1).sum(-1))
    x = torch.randn(64, 64, requires_grad=True)
    f(x).sum().backward()
    names = names_of(lambda: f(x).sum().backward())
    assert sum(n.startswith("Torch-Compiled Region: ") for n in names) == 1
    assert sum(n.startswith("## Call CompiledFxGraph ") for n in names) == 2  # forward and backward
    assert sum(n.startswith("braze_fused_") for n in names) >= 2
    assert "CompiledFunctionBackward" in names


def test_entries_have_numbers_of_their_own():
    f = braze.compile(lambda x: x.sin(), dynamic=False)
    a, b = torch.randn(3), torch.randn(4)
    f(a), f(b)
    region = [n for n in names_of(lambda: (f(a), f(b))) if n.startswith("Torch-Compiled Region: ")]
    assert len(region) == len(set(region)) == 2
    assert region[0].split("/")[0] == region[1].split("/")[0]
