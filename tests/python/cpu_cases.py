"""Kernels of every class, each against eager PyTorch: what cpu_test.py runs with the instructions of older CPUs.

As a program: runs all cases, prints {name: "" or what is wrong} as JSON. BRAZE_CPU says with which instructions.
"""

import copy
import json
import sys
import traceback

import torch
import torch.nn.functional as F
from harness import same
from op_samples import check
from random_test import LOW, philox2x32
from torch import nn
from triton_cases import BF16, CASES, F16, F64, I32, I64, POSITIVE, r

import braze

FLOATS = (torch.float32, F64, BF16, F16)
UNARY = (
    "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid floor ceil trunc round sign abs neg".split()
)
OF_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal".split()
OF_UNIT = "asin acos atanh".split()


def functions(x):
    unit = torch.sin(x)
    return tuple(
        getattr(torch, n)(v)
        for names, v in ((UNARY, x), (OF_POSITIVE, POSITIVE(x)), (OF_UNIT, unit * 0.99))
        for n in names
    )


def tails(x, i):
    """One of each kind of loop over the last axis: vectors, a masked rest, gathers, casts and reductions."""
    y = torch.tanh(x) * torch.sigmoid(x) + torch.erf(x)
    return (y, torch.softmax(x, -1), x.sum(-1), x.amax(-1), x.argmax(-1), x.var(-1, correction=0), y.to(BF16), y.to(F16), (x > 0), x.to(torch.int8),
            x[:, i], x.t() + 1, x.flip(-1), F.layer_norm(x, x.shape[-1:]))  # fmt: skip


def numbers(dtype, *shape):
    return r(*shape, dtype=dtype)


def rng(n):
    made = braze.compile(lambda: torch.rand(n), fullgraph=True)
    torch.manual_seed(11)
    got = made()
    torch.manual_seed(11)
    seed = torch.randint(-(2**63), 2**63 - 1, ()).item()
    words = [philox2x32(i, (seed >> 32) & LOW, seed & LOW) for i in range(n)]
    want = torch.tensor([((a << 32 | b) >> 40) * 2.0**-24 for a, b in words])
    assert torch.equal(got, want), "the numbers are not Philox's"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 12).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 12**0.5, -1)
        return x + F.gelu(self.out((weights @ v).transpose(1, 2).reshape(x.shape)))


def train(make, *args):
    """Two steps of training: outputs, gradients and parameters."""
    torch.manual_seed(0)
    eager = make()
    ours = copy.deepcopy(eager)
    compiled = braze.compile(ours, fullgraph=True)
    for _ in range(2):
        for model, call in ((eager, eager), (ours, compiled)):
            model.zero_grad()
            out = call(*args)
            out.float().square().mean().backward()
            model.last = out.detach()
        same(eager.last, ours.last, "output", 2e-5)
        for (name, p), q in zip(eager.named_parameters(), ours.parameters()):
            same(p.grad, q.grad, f"gradient of {name}", 2e-5)
        with torch.no_grad():
            for p in (*eager.parameters(), *ours.parameters()):
                p -= 0.1 * p.grad
    for p, q in zip(eager.buffers(), ours.buffers()):
        same(p, q, "buffer", 2e-5)


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 5, 3),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(20, 7),
    )


def row_ends(a, b, g):
    """Rows that no vector divides, written where what they are made of was, or read beyond their ends."""
    x = a @ b
    y = x * g.sigmoid()[:, None]
    z = F.softmax(a @ (b + 1), -1) * 2
    w = F.pad(y, (1, 2)) + F.pad(z, (2, 1))
    image = (a @ (b - 1)).sin()[None, None]
    return (
        (a @ (b * 2)).exp() + g[:, None],
        y.relu(),
        z,
        w[:, 1::2] + 1,
        F.pad(z[None], (3, 1), mode="reflect"),
        F.pad(image, (2, -1, 1, 0), value=3.0),
        F.max_pool2d(image, 3, 2, 1),
        F.avg_pool2d(image, 3, 1, 1),
        F.interpolate(image, scale_factor=2.0, mode="bilinear"),
    )


MORE = {f"functions_{str(d)[6:]}": (functions, numbers(d, 3, 45)) for d in FLOATS}
MORE |= {
    f"transpose_{str(d)[6:]}": (lambda x, y: x + y.t(), numbers(d, 70, 45), numbers(d, 45, 70))
    for d in (*FLOATS, torch.int8, I32, I64)
}
MORE |= {f"reductions_{str(d)[6:]}": (lambda x: (x.sum(-1), x.sum(0), x.amax(-1), x.amin(0), x.argmax(-1), x.argmin(0), x.mean(), x.var(-1), x.prod(-1)),
                                      numbers(d, 9, 67)) for d in FLOATS}  # fmt: skip
MORE |= {f"row_ends_{n}": (row_ends, r(6, 5), r(5, n), r(6)) for n in (4, 5, 7, 9, 13, 18, 27, 49, 100)}
MORE |= {
    "half_conversions": (lambda x: tuple(y.to(d).to(e) for y in (x, x * 1e-6, x * 1e-39, x * 1e5) for d in (BF16, F16, F64) for e in FLOATS), r(5, 37)),
    "double_to_half": (lambda x: (x.to(F16), x.to(BF16)), r(67, dtype=F64)),
    "masked_scatter": (lambda x, i: (x.index_put((i,), x[i] * 2), x.index_fill(0, i, 3.0), x.index_copy(0, i, x[i] + 1)), r(40, 37), torch.arange(1, 40, 3)),
    "scatter_reduce": (lambda x, i: torch.zeros(5, 37).scatter_reduce(0, i, x, "amax"), r(9, 37), torch.arange(9 * 37).view(9, 37) % 5),
    "embedding_bf16": (lambda i, w: F.embedding(i, w) * 2, torch.tensor([[3, 0, 4], [1, 1, 2]]), r(5, 37, dtype=BF16)),
    "gather_i64": (lambda x, i: torch.gather(x, 1, i) + 1, r(5, 39, dtype=I64), torch.arange(5 * 37).view(5, 37) % 39),
    "gather_bool": (lambda x, i: ~torch.gather(x, 1, i), r(5, 39) > 0, torch.arange(5 * 37).view(5, 37) % 39),
    "pool": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.interpolate(x, scale_factor=2, mode="bilinear"), F.pad(x, (1, 2, 1, 1), mode="reflect")), r(2, 3, 9, 11)),
    "cumulative": (lambda x: (x * 2).cumsum(-1) + 1, r(3, 37)),
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), r(5, 300), r(67, 300), r(67)),
    "few_rows": (lambda x, w, b: F.linear(x, w, b), r(16, 512), r(130, 512), r(130)),
    "conv_bn_relu": (lambda x, w, b: F.relu(F.batch_norm(F.conv2d(x, w, padding=1), b, b.abs() + 1, b, b)), r(2, 3, 9, 9), r(6, 3, 3, 3), r(6)),
    "convolutions": (lambda x, d, w: tuple(F.conv2d(F.hardswish(F.conv2d(y, d, stride=s, padding=1, groups=12)), w) for y in (x, x.to(memory_format=torch.channels_last)) for s in (1, 2)), r(2, 12, 27, 29), r(12, 1, 3, 3), r(30, 12, 1, 1)),
    "large_streamed": (lambda x, y: torch.tanh(x) * y + 1, r(2100, 2050), r(2100, 2050, seed=1)),
}  # fmt: skip

TRAINING = {
    "train_linear": (lambda: nn.Sequential(nn.Linear(37, 45), nn.Tanh(), nn.LayerNorm(45), nn.Linear(45, 3)), r(9, 37)),
    "train_attention": (Attention, r(2, 13, 24)),
    "train_conv": (conv_net, r(3, 3, 9, 9)),
    "train_embedding": (
        lambda: nn.Sequential(nn.Embedding(11, 37), nn.SiLU(), nn.Linear(37, 5)),
        torch.tensor([[1, 3, 10], [1, 1, 0]]),
    ),
}

SIZES = range(1, 68)


def all_sizes():
    for n in SIZES:
        check(tails, (r(3, n, seed=n), torch.arange(n).flip(0)), {})


NAMES = [*CASES, *MORE, *TRAINING, "tails", "rng"]


def run(name):
    if name in TRAINING:
        return train(*TRAINING[name])
    with torch.no_grad():
        if name == "tails":
            return all_sizes()
        if name == "rng":
            return [rng(n) for n in (1, 7, 16, 37, 1000)]
        fn, *args = (CASES | MORE)[name]
        explained = check(lambda *a: fn(*a), args, {})
        assert explained.graph_break_count == 0, explained.breaks


if __name__ == "__main__":
    found = {}
    for case in sys.argv[1:] or NAMES:
        try:
            run(case)
            found[case] = ""
        except Exception:
            found[case] = traceback.format_exc()
        braze.reset()
    print(json.dumps(found))
