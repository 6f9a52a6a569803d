"""options={"freezing": True}: inference on parameters that stay; what is made of them follows them when they do not."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import braze


def trained(model):
    """With statistics, scales and shifts that are not those of an identity."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in list(model.named_parameters()) + list(model.named_buffers()):
            if not t.is_floating_point():
                continue
            t.copy_(
                torch.rand(t.shape, generator=generator) * 0.5 + (0.5 if t.dim() == 1 and "bias" not in name else -0.25)
            )
    return model.eval()


def frozen(f, **how):
    return braze.compile(f, fullgraph=True, options={"freezing": True}, **how)


def close(got, want, **within):
    torch.testing.assert_close(got, want, check_stride=True, **(within or {"rtol": 1e-4, "atol": 1e-4}))


def check(model, *args, **within):
    """Twice: the first call makes what later ones read."""
    compiled = frozen(model)
    with torch.no_grad():
        for _ in range(2):
            close(compiled(*args), model(*args), **within)
    return compiled


def run(compiled, *args):
    with torch.no_grad():
        return compiled(*args)


def block(convolution, norm, *after):
    return trained(nn.Sequential(convolution, norm, *after))


IMAGE, LINE, VOLUME = torch.randn(2, 6, 9, 11), torch.randn(2, 6, 20), torch.randn(1, 6, 5, 6, 7)
CONVOLUTIONS = {
    "bias": (block(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), IMAGE),
    "no bias, strides": (block(nn.Conv2d(6, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()), IMAGE),
    "of each channel": (
        block(nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), nn.BatchNorm2d(6), nn.SiLU()),
        IMAGE,
    ),
    "groups, dilation": (block(nn.Conv2d(6, 9, 3, dilation=2, groups=3), nn.BatchNorm2d(9)), IMAGE),
    "norm without scale": (block(nn.Conv2d(6, 8, 1), nn.BatchNorm2d(8, affine=False)), IMAGE),
    "one dimension": (block(nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8)), LINE),
    "three dimensions": (block(nn.Conv3d(6, 4, 2), nn.BatchNorm3d(4)), VOLUME),
    "transposed": (block(nn.ConvTranspose2d(6, 8, 3, 2), nn.BatchNorm2d(8)), IMAGE),
    "norm first": (block(nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3)), IMAGE),
    "channels last": (block(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8)), IMAGE.to(memory_format=torch.channels_last)),
    "a pool between": (block(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.AvgPool2d(2), nn.Conv2d(8, 4, 1)), IMAGE),
    "doubles": (block(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8)).double(), IMAGE.double()),
    "one place": (block(nn.Conv2d(6, 8, (9, 11)), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 3)), IMAGE),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    check(*CONVOLUTIONS[name])


def test_batch_norm_takes_no_kernel():
    model, x = CONVOLUTIONS["channels last"]
    plain, made = braze.compile(model), frozen(model)
    with torch.no_grad():
        assert braze.explain(plain, x).kernel_count > 0
        alone = braze.explain(made, x)
    assert (alone.kernel_count, alone.extern_count) == (0, 1)


class Products(nn.Module):
    def __init__(self, normed=False, width=12):
        super().__init__()
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width, bias=False)
        self.table = nn.Parameter(
            torch.randn(width, 7 * width) / width
        )  # a column for each result, as GPT-2 keeps them
        if normed:
            self.first = nn.utils.parametrizations.weight_norm(self.first)

    def forward(self, x):
        return (x + self.second(F.gelu(self.first(x)))) @ self.table


@pytest.mark.parametrize("shape", [(12,), (3, 12), (64, 12), (4, 20, 12), (0, 12)])
@pytest.mark.parametrize("normed", [False, True])
def test_products(shape, normed):
    check(Products(normed), torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_that_are_worth_packing(dtype):
    model, x = Products(width=384).to(dtype), torch.randn(2, 64, 384).to(dtype)
    compiled = check(model, x, **({} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)
            close(compiled(x), model(x), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_other_layers(kind):
    check(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), torch.randn(2, 20, 32))
    model = kind(8, 16, batch_first=True)
    check(lambda x: model(x)[0], torch.randn(2, 5, 8))


@pytest.mark.parametrize("autocast", [False, True])
def test_halves(autocast):
    model = block(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(504, 10))
    x = IMAGE
    exact = copy.deepcopy(model).double()(x.double())
    if not autocast:
        model, x = model.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), torch.no_grad():
        compiled = frozen(model)
        compiled(x)
        error = lambda y: (y.double() - exact).abs().max().item()
        assert error(compiled(x)) <= 2 * error(model(x)) + 1e-3
        assert compiled(x).dtype == model(x).dtype


# ---- parameters that change ----


def in_place(p):
    p.mul_(1.5).add_(0.25)


def other_memory(p):
    p.data = torch.rand_like(p)


def a_view_of_it(p):
    p[0] += 1


def detached(p):
    p.detach().add_(1)


WRITES = [in_place, other_memory, a_view_of_it, detached]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(6, 8, 3)
        self.n = nn.BatchNorm2d(8)
        self.l = nn.Linear(8, 5)
        self.register_buffer("scale", torch.rand(5))
        trained(self)

    def forward(self, x):
        return self.l(F.relu(self.n(self.c(x))).mean((2, 3))) * self.scale.exp()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["c.weight", "c.bias", "n.weight", "n.running_mean", "l.weight", "l.bias", "scale"])
def test_writes_are_seen(write, name):
    before = braze.counters()["graphs"]
    model = Net()
    compiled = check(model, IMAGE.repeat(16, 1, 1, 1))
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    for _ in range(2):
        with torch.no_grad():
            write(tensors[name])
            close(compiled(IMAGE.repeat(16, 1, 1, 1)), model(IMAGE.repeat(16, 1, 1, 1)))
    assert braze.counters()["graphs"] == before + 1  # what is made is made again, not compiled


def test_state_that_is_loaded_or_replaced():
    model = Net()
    compiled = check(model, IMAGE)
    with torch.no_grad():
        model.load_state_dict(
            {k: torch.rand_like(v) if v.is_floating_point() else v for k, v in model.state_dict().items()}
        )
        close(compiled(IMAGE), model(IMAGE))
        model.l.weight = nn.Parameter(torch.randn(5, 8))
        close(compiled(IMAGE), model(IMAGE))
        model.n.running_var = torch.rand(8) + 1
        close(compiled(IMAGE), model(IMAGE))


def test_a_step_of_training_between():
    model = Net().train()
    compiled = braze.compile(model, options={"freezing": True})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model.train()
        want = copy.deepcopy(model)
        want(IMAGE).square().sum().backward()
        optimizer.zero_grad()
        compiled(IMAGE).square().sum().backward()
        for a, b in zip(model.parameters(), want.parameters(), strict=True):
            close(a.grad, b.grad, rtol=1e-3, atol=1e-3)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            close(compiled(IMAGE), model(IMAGE))


def test_statistics_that_the_graph_itself_writes():
    model, want = Net().train(), Net().train()
    compiled = frozen(model)
    with torch.no_grad():
        for _ in range(3):
            close(compiled(IMAGE), want(IMAGE))
            close(model.n.running_mean, want.n.running_mean)


def test_inference_mode():
    with torch.inference_mode():
        model = Net()
    compiled = frozen(model)
    with torch.inference_mode():
        for _ in range(2):
            close(compiled(IMAGE), model(IMAGE))
        model.c.weight.add_(1)  # tensors of inference mode count no writes
        close(compiled(IMAGE), model(IMAGE))


def test_shared_with_code_that_was_compiled_without_freezing():
    model = Net()
    plain, made = braze.compile(model), frozen(model)
    with torch.no_grad():
        close(made(IMAGE), plain(IMAGE))
        model.l.weight.mul_(2)
        close(made(IMAGE), plain(IMAGE))


# ---- results ----


class Handed(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        twice = self.w * 2
        return x @ twice.exp(), twice, twice.t(), self.w.exp().sum(0)


def test_results_are_each_calls_own():
    model = Handed()
    compiled, x = frozen(model), torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(3):
            results = compiled(x)
            for got, want in zip(results, model(x), strict=True):
                close(got, want)
            for got in results:
                got.add_(1)


class Sized(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * (self.w.exp() * x.shape[0]) + self.w.exp().expand(x.shape[0], 4).cumsum(0)


def test_sizes_that_vary():
    before = braze.counters()["graphs"]
    model = Sized()
    compiled = frozen(model, dynamic=True)
    with torch.no_grad():
        for n in (3, 5, 2, 7):
            x = torch.randn(n, 4)
            close(compiled(x), model(x))
        image = frozen(Net(), dynamic=True)
        want = Net()
        for n in (2, 5, 3):
            close(image(torch.ones(n, 6, 9, 9)), want(torch.ones(n, 6, 9, 9)))
    assert braze.counters()["graphs"] == before + 2


def test_random_numbers_are_drawn_in_each_call():
    w = nn.Parameter(torch.ones(1000))
    compiled = frozen(lambda x: x + F.dropout(w.exp(), 0.5, True))
    x = torch.zeros(1000)
    assert not torch.equal(run(compiled, x), run(compiled, x))


def test_errors_of_parameters_are_raised():
    model = nn.Embedding(4, 3)
    model.register_buffer("places", torch.tensor([1, 2, 9]))
    compiled = frozen(lambda x: x + model(model.places))
    with pytest.raises(IndexError):
        run(compiled, torch.zeros(3, 3))
    model.places.fill_(3)
    close(run(compiled, torch.zeros(3, 3)), model.weight[[3, 3, 3]].detach())


def test_threads():
    model = Net()
    compiled, x = check(model, IMAGE), IMAGE
    failed = []

    def work():
        try:
            with torch.no_grad():
                want = model(x)
                for _ in range(50):
                    close(compiled(x), want)
        except Exception as e:
            failed.append(e)

    for _ in range(3):
        with torch.no_grad():
            model.c.weight.add_(0.1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not failed


def test_takes_a_bool():
    with pytest.raises(TypeError, match="freezing"):
        braze.compile(Net(), options={"freezing": 1})
