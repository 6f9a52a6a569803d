"""Models written here, for what model libraries have little of: branches and loops on values, state, sizes that depend on values,
Python in between. Each function returns a module and the maker of its inputs, which takes a batch size and a seed.

Inputs of odd seeds take other ways through the code than those of even seeds.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.suites import Mixer


def noise(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ids(seed, high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def shifted(seed, *shape):
    """Of mean 1 for even seeds, of mean -1 for odd ones."""
    return noise(seed, *shape) + (-1 if seed % 2 else 1)


# ---- layers of every kind --------------------------------------------------------------------------------------------


def mlp(width):
    layers = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width)]
    return nn.Sequential(*layers, *copy.deepcopy(layers)), lambda b, s: (noise(s, 16 * b, width),)


class ResidualNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)) for _ in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3)))


def residual_net(width):
    return ResidualNet(width // 2), lambda b, s: (noise(s, b, 3, 32, 32),)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        two = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())
        self.down1, self.down2, self.middle = two(3, width), two(width, 2 * width), two(2 * width, 2 * width)
        self.up2, self.up1, self.out = two(4 * width, width), two(2 * width, width), nn.Conv2d(width, 3, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = F.interpolate(self.middle(F.max_pool2d(b, 2)), scale_factor=2.0, mode="nearest")
        d = F.interpolate(self.up2(torch.cat([b, c], 1)), scale_factor=2.0, mode="nearest")
        return self.out(self.up1(torch.cat([a, d], 1)))


def u_net(width):
    return UNet(width // 4), lambda b, s: (noise(s, b, 3, 32, 32),)


class Recurrent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(100, width), nn.LSTM(width, width, 2), nn.Linear(width, 100)

    def forward(self, tokens):
        out, _ = self.rnn(self.table(tokens).transpose(0, 1))
        return self.head(out)


def lstm(width):
    return Recurrent(width), lambda b, s: (ids(s, 100, b, 16),)


class UnrolledCell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x):
        state, states = x.new_zeros(x.shape[0], x.shape[2]), []
        for part in x.unbind(1):
            state = self.cell(part, state)
            states.append(state)
        return torch.stack(states, 1)


def gru_cell(width):
    return UnrolledCell(width), lambda b, s: (noise(s, b, 8, width),)


def encoder(width):
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), lambda b, s: (noise(s, b, 32, width),)


class CausalAttention(nn.Module):
    """Attention as products and a softmax, with a mask and rotary angles that are computed."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def turn(self, x):
        half = x.shape[-1] // 2
        rate = 10000.0 ** (-torch.arange(half, device=x.device) / half)
        angle = torch.arange(x.shape[-2], device=x.device)[:, None] * rate
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).to(x.dtype)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        score = self.turn(q) @ self.turn(k).transpose(-2, -1) / (d // self.heads) ** 0.5
        hidden = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        score = score.masked_fill(hidden, float("-inf"))
        return x + self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


def attention(width):
    return CausalAttention(width), lambda b, s: (noise(s, b, 32, width),)


class Recommender(nn.Module):
    """Embedding bags and dense features, dotted with each other (Naumov et al., 2019)."""

    def __init__(self, width):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, width, mode="sum") for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 21, width), nn.ReLU(), nn.Linear(width, 1))
        i, j = torch.tril_indices(7, 7, -1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, dense, sparse):
        parts = [self.bottom(dense)] + [table(s) for table, s in zip(self.tables, sparse.unbind(0))]
        x = torch.stack(parts, 1)
        dots = (x @ x.transpose(1, 2))[:, self.i, self.j]
        return torch.sigmoid(self.top(torch.cat([parts[0], dots], 1)))


def recommender(width):
    return Recommender(width), lambda b, s: (noise(s, 8 * b, 13), ids(s, 1000, 6, 8 * b, 4))


class GraphNet(nn.Module):
    """Messages along edges, added up at their ends."""

    def __init__(self, width):
        super().__init__()
        self.message, self.update = nn.Linear(2 * width, width), nn.GRUCell(width, width)

    def forward(self, nodes, edges):
        for _ in range(3):
            sent = F.relu(self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], -1)))
            nodes = self.update(torch.zeros_like(nodes).index_add(0, edges[1], sent), nodes)
        return nodes


def graph_net(width):
    return GraphNet(width), lambda b, s: (noise(s, 16 * b, width), ids(s, 16 * b, 2, 64 * b))


def mixer(width):
    return Mixer(32, 8, width, 2, width, 2 * width, 10), lambda b, s: (noise(s, b, 3, 32, 32),)


# ---- ways that depend on values --------------------------------------------------------------------------------------


class Branch(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.warm, self.cold = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = torch.tanh(x)
        if x.mean() > 0:
            return self.warm(x).relu()
        return self.cold(x).sigmoid()


def branch(width):
    return Branch(width), lambda b, s: (shifted(s, b, width),)


class Converge(nn.Module):
    """A fixed point: as many steps as the values need."""

    def __init__(self, width):
        super().__init__()
        self.step = nn.Linear(width, width)
        with torch.no_grad():
            self.step.weight.mul_(0.5)

    def forward(self, x):
        z, change = torch.zeros_like(x), torch.tensor(1.0)
        while change > 1e-2:
            new = torch.tanh(self.step(z) + x)
            z, change = new, (new - z).abs().max()
        return z


def converge(width):
    return Converge(width), lambda b, s: (noise(s, b, width) * (0.01 if s % 2 else 3),)


class EarlyExit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = x + torch.tanh(layer(x))
            if x.abs().mean().item() > 2.0:
                return self.head(x), k
        return self.head(x), len(self.layers)


def early_exit(width):
    return EarlyExit(width), lambda b, s: (noise(s, b, width) * (0.1 if s % 2 else 3),)


class Experts(nn.Module):
    """Each token by the two experts that it chooses; how many each gets, only the values say."""

    def __init__(self, width):
        super().__init__()
        self.router = nn.Linear(width, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(4))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == e)
            if len(token):
                out.index_add_(0, token, expert(x[token]) * weight[token, slot, None])
        return out


def experts(width):
    return Experts(width), lambda b, s: (noise(s, 8 * b, width),)


class Greedy(nn.Module):
    """Tokens one by one, until the end token or 12 of them."""

    def __init__(self, width):
        super().__init__()
        self.table, self.cell, self.head = nn.Embedding(20, width), nn.GRUCell(width, width), nn.Linear(width, 20)

    def forward(self, state):
        token, out = torch.zeros(1, dtype=torch.long), []
        while len(out) < 12:
            state = self.cell(self.table(token), state)
            token = self.head(state).argmax(-1)
            out.append(token.item())
            if token.item() < 4:
                break
        return torch.tensor(out), state


def greedy(width):
    return Greedy(width), lambda b, s: (noise(s, 1, width) * 5,)


# ---- state, and Python in between -------------------------------------------------------------------------------------


class Counted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer, self.calls = nn.Linear(width, width), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) / self.calls


def counted(width):
    return Counted(width), lambda b, s: (noise(s, b, width),)


class RunningMean(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.layer(x - self.mean)


def running_mean(width):
    return RunningMean(width), lambda b, s: (shifted(s, b, width),)


@dataclasses.dataclass
class Record:
    name: str
    value: torch.Tensor
    parts: dict = dataclasses.field(default_factory=dict)


class Records(nn.Module):
    """Dataclasses, dicts, closures, comprehensions, exceptions and text."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleDict({f"layer_{k}": nn.Linear(width, width) for k in range(3)})

    def forward(self, x):
        records = [Record(name, layer(x), {"norm": x.norm()}) for name, layer in self.layers.items()]
        scale = {r.name: 1 + int(r.name.split("_")[-1]) for r in records}

        def weigh(record):
            try:
                return record.value * scale[record.name.replace("_1", "_none")]
            except KeyError:
                return -record.value

        total = sum(map(weigh, sorted(records, key=lambda r: r.name, reverse=True)))
        return {"total": total, **{f"{r.name}.norm": r.parts["norm"] for r in records}}


def records(width):
    return Records(width), lambda b, s: (noise(s, b, width),)


class Logged(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        x = self.one(x).relu()
        logging.getLogger("benchmarks.paper").info("half way: %s", tuple(x.shape))
        return self.two(x)


def logged(width):
    return Logged(width), lambda b, s: (noise(s, b, width),)


class ThroughNumpy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        a = x.numpy()
        return self.layer(torch.from_numpy((a - a.mean(0)) / (a.std(0) + 1)))


def through_numpy(width):
    return ThroughNumpy(width), lambda b, s: (noise(s, 4 * b, width),)


PLAIN: dict[str, Callable[[int], tuple[nn.Module, Callable]]] = {
    f.__name__: f
    for f in (
        *(mlp, residual_net, u_net, lstm, gru_cell, encoder, attention, recommender, graph_net, mixer),
        *(branch, converge, early_exit, experts, greedy),
        *(counted, running_mean, records, logged, through_numpy),
    )
}
