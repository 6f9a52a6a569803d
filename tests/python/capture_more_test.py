"""Contexts, queries and modules as models use them: same results as eager, in the stated number of graphs."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from harness import Cases, Graphs, P, check, same
from torch import nn

import braze

cases = Cases()
x = P(3, 4)


@pytest.mark.parametrize("fn, args, kw", cases)
def test_case(fn, args, kw):
    check(fn, *[a.make() if isinstance(a, P) else a for a in args], **kw)


# ---- PyTorch's contexts ----


@cases(x)
def no_grad_inside(a):
    with torch.no_grad():
        b = a * 2
        inside = torch.is_grad_enabled()
    return b, inside, torch.is_grad_enabled()


@torch.no_grad()
def not_recorded(t):
    return t * 2, torch.is_grad_enabled()


@cases(x)
def no_grad_decorator(a):
    return not_recorded(a), torch.is_grad_enabled()


@cases(x)
def enable_grad_nested(a):
    with torch.no_grad():
        with torch.enable_grad():
            one = torch.is_grad_enabled()
        two = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        three = torch.is_grad_enabled()
    return a + 1, one, two, three


@cases(P(4, 4))
def autocast_inside(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        b = a @ a
    return b, b.dtype, (a @ a).dtype


@cases(x)
def factories_like_inputs(a):
    m = torch.finfo(a.dtype).min
    z = torch.zeros(a.shape[0], 2, device=a.device, dtype=a.dtype)
    return (
        torch.full_like(a, m).isinf(),
        z,
        torch.arange(a.size(1), device=a.device) + 1,
        a.new_ones((2, 2)),
        torch.tensor(3.0) * a,
    )


@cases(x)
def device_and_dtype_tests(a):
    if (
        a.device.type == "cpu"
        and a.dtype.is_floating_point
        and not a.is_cuda
        and a.dtype in (torch.float32, torch.float64)
    ):
        return a.to("cpu") + 1, a.to(torch.float64), str(a.dtype), a.element_size()
    return a


@cases(x)
def functional_calls(a):
    return (
        F.gelu(a),
        F.layer_norm(a, (4,)),
        F.pad(a, (1, 1)),
        F.normalize(a, dim=-1),
        F.silu(a, inplace=False),
        F.cosine_similarity(a, a),
    )


@cases(x)
def tensor_tests(a):
    if torch.is_tensor(a) and isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter) and a is not None:
        return a * 2
    return None


@cases(P(2, 3, 4))
def shapes(a):
    b, s, d = a.shape
    *lead, last = a.shape
    q = a.view(b, s, 2, d // 2).transpose(1, 2)
    return (
        q.reshape(b, -1, *lead[1:2]),
        math.prod(a.shape),
        a.size()[:-1] + (7,),
        a.shape.numel(),
        len(a.shape),
        torch.Size([1, 2]) == (1, 2),
        a.shape[-1:] == (4,),
    )


# ---- modules ----


def module_case(make, *args, graphs=1, train=False, id=None):
    CASES_M.append(pytest.param(make, args, graphs, train, id=id or make.__name__))


CASES_M = []


@pytest.mark.parametrize("make, args, graphs, train", CASES_M)
def test_module(make, args, graphs, train):
    torch.manual_seed(0)
    m = make().train(train).requires_grad_(False)
    counter = Graphs()
    g = braze.compile(m, backend=counter)
    inputs = [a.make() if isinstance(a, P) else a for a in args]
    for _ in range(2):
        same(m(*inputs), g(*inputs))
    assert counter.count == graphs


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for name, act in self.table.items():
            x = act(x)
        for layer in self.layers[1:]:
            x = layer(x)
        for w in self.weights:
            x = x * w
        return self.table["a"](x) + len(self.layers), self.layers[-1](x)


class Inherit(Stack):
    scale = 3

    def forward(self, x):
        out, _ = super().forward(x)
        return out * self.scale

    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 1


class Walks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        total = sum(p.sum() for p in self.parameters())
        names = [n for n, _ in self.named_parameters()]
        kinds = [type(m).__name__ for m in self.modules()]
        return self.body(x) + total + len(names) + len(kinds) + len(list(self.children())), self.training


class WithProperty(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self._k = 2

    @property
    def k(self):
        return self._k

    @functools.cached_property
    def cached(self):
        return 7

    def helper(self, x, *, by=1):
        return self.inner(x) * by

    def forward(self, x):
        f = getattr(self, "helper")
        return f(x, by=self.k) + self.cached + hasattr(self, "nope")


module_case(Stack, x)
module_case(Inherit, x)
module_case(Walks, x)
module_case(WithProperty, x)
module_case(lambda: nn.MultiheadAttention(8, 2, batch_first=True), P(2, 3, 8), P(2, 3, 8), P(2, 3, 8), id="mha")
module_case(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), P(2, 3, 8), id="encoder_layer")
module_case(
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    P(2, 3, 8, 8),
    id="conv",
)
module_case(
    lambda: nn.Sequential(nn.Embedding(10, 4), nn.GroupNorm(1, 5), nn.Linear(4, 2)),
    P(make=lambda: torch.arange(5)[None]),
    id="embedding",
)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.last = None

    def forward(self, x):
        self.seen += 1
        self.last = x * 2
        return x + self.seen


def test_module_state_changes_are_replayed():
    m, c = Counts(), Counts()
    g = braze.compile(c, backend="eager")
    for k in range(3):
        t = torch.randn(2)
        same(m(t), g(t))
        same(m.seen, c.seen)
        same(m.last, c.last)


def test_forward_hooks_are_inlined():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    m[0].register_forward_hook(lambda mod, i, o: o * 2)
    m[1].register_forward_pre_hook(lambda mod, i: (i[0] + 1,))
    m.register_forward_hook(lambda mod, i, o: (o, 1))
    m.requires_grad_(False)
    counter = Graphs()
    g = braze.compile(m, backend=counter)
    t = torch.randn(2, 4)
    for k in range(2):
        same(m(t), g(t))
    assert counter.count == 1
