"""Gradients through what was computed before the captured code: its arguments, and results of the part before a graph break."""

import random

import pytest
import torch

import braze


def leaf():
    return torch.arange(1.0, 4.0).requires_grad_()


def loss_alone(loss, x):
    loss.backward()
    return x.grad


def loss_of_several(losses, x):
    torch.autograd.backward(losses)
    return x.grad


def loss_by_name(loss, x):
    torch.autograd.backward(tensors=[loss], retain_graph=True)
    torch.autograd.backward(inputs=[x], tensors=loss)
    return x.grad


def on_from_it(loss, x):
    (loss * 2).backward()
    return x.grad


def gradient_of_it(loss, x):
    (g,) = torch.autograd.grad(loss, x)
    return g


def gradient_past_it(loss, x):
    return torch.autograd.grad([(loss * x).sum()], [x])


def gradient_to_it(loss, x):
    return torch.autograd.grad((loss * loss).sum(), loss)


def made_once(x):
    return (x * x).sum()


def made_twice(x):
    return [(x * x).sum(), (x * 3).sum()]


CASES = [
    (loss_alone, made_once),
    (loss_of_several, made_twice),
    (loss_by_name, made_once),
    (on_from_it, made_once),
    (gradient_of_it, made_once),
    (gradient_past_it, made_once),
    (gradient_to_it, made_once),
]


@pytest.mark.parametrize("f, make", CASES, ids=[f.__name__ for f, _ in CASES])
def test_arguments_with_a_history(f, make):
    compiled, seen = braze.compile(f), []
    for g in (f, compiled, compiled):
        x = leaf()
        gradient = g(make(x), x)
        seen.append((gradient, None if x.grad is None else x.grad.tolist()))
    assert repr(seen[1]) == repr(seen[2]) == repr(seen[0])


def test_a_leaf_and_then_a_result():
    compiled = braze.compile(loss_alone)
    x, loss = leaf(), torch.tensor(2.0, requires_grad=True)
    assert compiled(loss, x) is None and loss.grad == 1
    x = leaf()
    assert compiled(made_once(x), x).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("pause", [lambda loss: loss.item(), lambda loss: braze.graph_break()], ids=["item", "break"])
def test_a_training_step_that_looks_at_its_loss(pause):
    def train(compile_step):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            pause(loss)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = braze.compile(step) if compile_step else step
        return [step(torch.ones(4, 3)).item() for _ in range(4)]

    eager = train(False)
    assert train(True) == pytest.approx(eager, rel=1e-5)
    assert eager[3] < eager[0]


def late_gradient(x):
    y = x * 2
    z = (y * y).sum()
    y.retain_grad()
    z.backward()
    return y.grad


def test_a_gradient_that_is_retained_late():
    compiled = braze.compile(late_gradient)
    for _ in range(2):
        x = leaf()
        assert compiled(x).tolist() == late_gradient(leaf()).tolist()
        assert x.grad.tolist() == [8.0, 16.0, 24.0]


def views_of_a_detached_result(x):
    y = x * 2
    a, b = y.detach().unbind(0)
    d = y.detach()
    return y, a, b, d[0]


def test_views_of_a_detached_result():
    for f in (views_of_a_detached_result, braze.compile(views_of_a_detached_result)):
        x = torch.ones(2, 3, requires_grad=True)
        y, *views = f(x)
        assert [v.requires_grad for v in views] == [False] * 3
        (y[0] * views[0]).sum().backward()
        assert x.grad.tolist() == [[4.0] * 3, [0.0] * 3]


def autocast_forward(layer, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x).sum()


def autocast_step(layer, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = layer(x)
    loss = h.float().sum()
    loss.backward()
    return loss, h


@pytest.mark.parametrize(
    "f, options", [(autocast_forward, {"backend": "eager"}), (autocast_step, {}), (autocast_forward, {})]
)
def test_weights_that_autocast_converts(f, options):
    def run(call):
        layer, seen = torch.nn.Linear(4, 3), []
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        for _ in range(3):
            result = call(layer, torch.ones(2, 4))
            seen.append((result[0] if isinstance(result, tuple) else result).item())
            with torch.no_grad():
                layer.weight.add_(1)
        return seen

    assert run(braze.compile(f, **options)) == run(f) == [24.0, 48.0, 72.0]


class Queue(torch.nn.Module):
    """A contrast with what was seen before (MoCo): the buffer is written before the backward, which reads a copy of it."""

    def __init__(self, through_data):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("queue", torch.ones(4, 3))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))
        self.through_data = through_data

    def forward(self, x):
        z = self.layer(x)
        logits = z @ self.queue.clone().detach().T
        at = int(self.at)
        if self.through_data:
            self.queue.data.zero_()
        else:
            self.queue[at : at + 2] = z.detach()
        return logits.sum()


@pytest.mark.parametrize("through_data", [False, True])
def test_a_copy_of_a_buffer_that_is_written_before_the_backward(through_data):
    seen = []
    for wrap in (lambda m: m, braze.compile):
        torch.manual_seed(0)
        module = Queue(through_data)
        wrap(module)(torch.ones(2, 3)).backward()
        seen.append(module.layer.weight.grad.tolist())
    assert seen[0] == seen[1] == [[8.0] * 3] * 3


def triple(parameters, how):
    for p in parameters if how else ():
        if how == "data":
            p.data.mul_(3)
        else:
            with torch.no_grad():
                p.mul_(3)


class Codebook(torch.nn.Module):
    """A quantiser (VQ-VAE) whose entries follow the inputs by an average that is made before the backward."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.codes = torch.nn.Embedding(4, 3)
        self.followers = [self.codes.weight]

    def forward(self, x, how):
        z = self.layer(x)
        with torch.no_grad():
            nearest = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(nearest)
        loss = (z - q.detach()).square().mean() + (q - z.detach()).square().mean()
        triple(self.followers, how)
        return (z + (q - z).detach()).sum() + loss


class Teacher(torch.nn.Module):
    """A student and a teacher that follows it by an average that is made before the backward."""

    def __init__(self):
        super().__init__()
        self.student = torch.nn.Linear(3, 3)
        self.followers = torch.nn.ParameterList(torch.rand(3) for _ in range(2))

    def forward(self, x, how):
        with torch.no_grad():
            target = x * self.followers[0] + self.followers[1]
        loss = (self.student(x) - target).square().mean()
        triple(self.followers, how)
        return loss


@pytest.mark.parametrize("how", ["data", "no_grad"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", [Codebook, Teacher])
def test_parameters_that_are_written_before_the_backward(kind, inside, how):
    seen = []
    for wrap in (lambda m: m, braze.compile):
        torch.manual_seed(0)
        module = kind()
        f = wrap(module)
        for _ in range(2):
            loss = f(torch.rand(5, 3), how if inside else None)
            triple(module.followers, None if inside else how)
            loss.backward()
        seen.append({n: p.grad for n, p in module.named_parameters()})
    assert seen[0].keys() == seen[1].keys()
    for n, g in seen[0].items():
        torch.testing.assert_close(seen[1][n], g)


class Announced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        print("backward")
        return g * 3


def test_effects_of_a_function_whose_backward_runs_uncompiled(capsys):
    for f in (Announced.apply, braze.compile(lambda x: Announced.apply(x))):
        for _ in range(2):
            f(torch.ones(2, requires_grad=True)).sum().backward()
        assert capsys.readouterr().out == "forward\nbackward\n" * 2


class Counted(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * random.random()

    @staticmethod
    def backward(ctx, g):
        Counted.calls += 1
        return g if g.sum() > 0 else g * 2


class PartOfAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g / len(g.nonzero())


def test_what_a_function_draws_and_counts():
    seen = []
    for f in (Counted.apply, braze.compile(lambda x: Counted.apply(x))):
        random.seed(0)
        Counted.calls = 0
        values = []
        for _ in range(3):
            y = f(torch.ones(1, requires_grad=True))
            y.sum().backward()
            values.append(y.item())
        seen.append((pytest.approx(values), Counted.calls, random.random()))
    assert seen[1][0] == seen[0][0].expected and seen[0][1:] == seen[1][1:] == (3, seen[0][2])


def test_sizes_of_data_in_a_backward():
    for f in (PartOfAll.apply, braze.compile(lambda x: PartOfAll.apply(x))):
        x = torch.ones(4, requires_grad=True)
        f(x).backward(torch.tensor([1.0, 0.0, 1.0, 1.0]))
        assert x.grad.tolist() == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])


def guarded_draw(x):
    r = random.random()
    assert (x < 3).all()
    return x * r


def test_random_state_behind_an_assertion_that_fails():
    compiled = braze.compile(guarded_draw)
    compiled(torch.ones(3))
    for f in (guarded_draw, compiled):
        random.seed(1)
        with pytest.raises(AssertionError):
            f(torch.full((3,), 4.0))
        assert random.random() == pytest.approx(0.8474337369372327)
