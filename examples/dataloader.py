"""Forked workers of a DataLoader that use compiled code, beside a compiled training step in the parent."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import braze


@braze.compile
def augment(x):
    return (x - x.mean()) / (x.std() + 1e-6) * 0.5


class Noise(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        x = torch.linspace(-1, 1, 12) * (1 + i % 7)
        return augment(x), torch.tensor(float(i % 2))


if __name__ == "__main__":
    torch.manual_seed(0)
    augment(torch.ones(12))  # compiled in the parent: the workers find it
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
    fast = braze.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = 0
    for x, y in DataLoader(Noise(), batch_size=16, num_workers=2, multiprocessing_context="fork"):
        torch.testing.assert_close(x.mean(1), torch.zeros(16), atol=1e-5, rtol=0)
        loss = nn.functional.binary_cross_entropy_with_logits(fast(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(x)
    print(f"{seen} samples, loss {loss.item():.3f}")
    assert seen == 64
