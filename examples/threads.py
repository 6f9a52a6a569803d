"""One compiled model, called from a pool of threads."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import braze

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).eval()
fast = braze.compile(model)
requests = [torch.randn(1 + i % 5, 16) for i in range(200)]


def answer(x):
    with torch.inference_mode():  # modes are of a thread: each sets its own
        return fast(x)


with ThreadPoolExecutor(4) as pool:
    answers = list(pool.map(answer, requests))

for x, y in zip(requests, answers):
    torch.testing.assert_close(y, model(x))
print(f"{len(answers)} answers")
