"""The step of an optimizer, compiled: every update of every parameter in a few kernels."""

import torch
from torch import nn

import braze

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(8)))
twin = nn.Sequential(*(nn.Linear(32, 32) for _ in range(8)))
twin.load_state_dict(model.state_dict())
optimizers = [torch.optim.AdamW(m.parameters(), lr=torch.tensor(1e-2)) for m in (model, twin)]
schedule = torch.optim.lr_scheduler.StepLR(optimizers[1], 5, 0.5)
reference = torch.optim.lr_scheduler.StepLR(optimizers[0], 5, 0.5)


@braze.compile
def step():
    optimizers[1].step()


for i in range(12):
    x = torch.randn(4, 32)
    for m, o in zip((model, twin), optimizers):
        o.zero_grad()
        m(x).square().mean().backward()
    optimizers[0].step()
    step()
    reference.step(), schedule.step()

print(f"{braze.counters()['graphs']} graphs for 12 steps with 3 learning rates")
for a, b in zip(model.parameters(), twin.parameters()):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
assert braze.counters()["graphs"] <= 3
