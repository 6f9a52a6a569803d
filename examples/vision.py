"""A small residual network, compiled in place: the model stays the object that it is."""

import time

import torch
from torch import nn

import braze


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), Block(16), Block(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)
)
model.eval()
images = torch.randn(4, 3, 64, 64)


def milliseconds():
    times = []
    for _ in range(20):
        start = time.perf_counter()
        model(images)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


with torch.no_grad():
    want, eager = model(images), milliseconds()
    braze.compile_module_(model, fullgraph=True)
    got, compiled = model(images), milliseconds()

print(f"eager {eager:.2f} ms, compiled {compiled:.2f} ms")
torch.testing.assert_close(got, want)
assert braze.counters()["graphs"] == 1
