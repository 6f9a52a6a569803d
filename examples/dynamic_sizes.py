"""One compilation for every batch and length: what varies is found out at the second call, or said before the first."""

import torch
from torch import nn

import braze

torch.manual_seed(0)
model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def run(fast, sizes):
    braze.counters(clear=True)
    for batch, length in sizes:
        x = torch.randn(batch, length, 32)
        torch.testing.assert_close(fast(x), model(x))
    return braze.counters()["graphs"]


sizes = [(4, 10), (3, 12), (5, 7), (6, 31), (2, 19)]
found_out = run(braze.compile(model), sizes)

fast = braze.compile(model)
x = torch.randn(4, 10, 32)
braze.mark_dynamic(x, [0, 1], min=2)
fast(x)
said_before = 1 + run(fast, sizes)

print(
    f"{len(sizes)} sizes: {found_out} compilations where they were found out, {said_before} where they were said before"
)
assert found_out == 2 and said_before == 1
