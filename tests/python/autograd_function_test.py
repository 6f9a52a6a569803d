"""torch.autograd.Function in compiled training: its own backward runs, inside of the compiled graph, with eager's results."""

import pytest
import torch
from harness import same
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import braze


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def check(fn, *args, compiled=True, calls=2, loss=None):
    """Eager against compiled: results and gradients; `compiled`: forward and backward are one graph each."""
    loss = loss or (
        lambda out: sum((o * torch.arange(1.0, o.numel() + 1).view(o.shape)).sum() for o in out if o.requires_grad)
    )
    e = braze.explain(
        fn, *[a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args]
    )
    if compiled:
        assert e.graph_count == e.training_graph_count == 1 and not e.breaks, e
    fast = braze.compile(fn)
    for _ in range(calls):
        found = []
        for f in (fn, fast):
            mine = [
                a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in args
            ]
            out = f(*mine)
            out = list(out) if isinstance(out, (tuple, list)) else [out]
            loss([o for o in out if isinstance(o, torch.Tensor)]).backward()
            found.append(
                [
                    [o.detach() if isinstance(o, torch.Tensor) else o for o in out],
                    [o.requires_grad for o in out if isinstance(o, torch.Tensor)],
                    [a.grad for a in mine if isinstance(a, torch.Tensor)],
                ]
            )
        same(found[0], found[1])
    return e


class Straight(Function):  # through a rounding, with the gradient clipped where the input was saturated
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high).round()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ((x >= ctx.low) & (x <= ctx.high)), None, None


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        index = x.argmax(-1)
        ctx.mark_non_differentiable(index)
        return x * y, index, x + y

    @staticmethod
    def backward(ctx, g, _, h):
        x, y = ctx.saved_tensors
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = 3 * g * y + h
        if ctx.needs_input_grad[1]:
            gy = 5 * g * x + h
        return gx, gy


class Lazy(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if h is None:
            return g * 7
        return g * 7 + h * 11


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 2


class NewStyle(Function):
    @staticmethod
    def forward(x, w):
        return x @ w, x.sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.shape = inputs[0].shape

    @staticmethod
    def vjp(ctx, g, s):
        x, w = ctx.saved_tensors
        return 2 * (g @ w.t()) + s.expand(ctx.shape), x.t() @ g


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = leaf.sin() * leaf
        ctx.leaf, ctx.y = leaf, y
        return y.detach()

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            (d,) = torch.autograd.grad(ctx.y, ctx.leaf, g)
        return d * 2


def test_context_and_saved_tensors():
    check(lambda x: Straight.apply(x * 3, -1, 2) * x, leaf(4, 5))


@pytest.mark.parametrize("both", [True, False])
def test_several_results_and_needs_input_grad(both):
    def f(x, y):
        a, i, b = Pair.apply(x.tanh(), y)
        return a, i, (b * 2).relu()

    check(f, leaf(3, 4), leaf(3, 4) if both else torch.randn(3, 4))


def test_gradients_that_are_not_there():
    check(lambda x: Lazy.apply(x)[0] * 2, leaf(4))
    # Several results that need gradients: the backward is to know which were given one.
    with pytest.raises(braze.Unsupported, match="set_materialize_grads"):
        braze.compile(Lazy.apply, fullgraph=True)(leaf(4))


def test_once_differentiable():
    check(lambda x: Once.apply(x).sum(0) + x, leaf(3, 4))


def test_setup_context_and_vjp():
    check(lambda x, w: NewStyle.apply(x, w), leaf(3, 4), leaf(4, 2))


def test_a_function_in_a_module_is_trained():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)

        def forward(self, x):
            return self.b(Straight.apply(self.a(x), -0.5, 3) * 0.3)

    import copy

    net = Net()
    other = copy.deepcopy(net)
    fast = braze.compile(other, fullgraph=True)
    x = torch.randn(16, 6)
    for n in (net, fast):
        optimizer = torch.optim.SGD(n.parameters(), 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            n(x).pow(2).mean().backward()
            optimizer.step()
    for a, b in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(a, b)


def test_a_gradient_taken_inside():
    check(lambda x: Inner.apply(x) + x, leaf(5), compiled=False)


def test_recursion_and_closures():
    def power(n):
        class Power(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**n

            @staticmethod
            def backward(ctx, g):
                return g * n * ctx.saved_tensors[0] ** (n - 1) * 10

        return Power

    two, three = power(2), power(3)
    check(lambda x: two.apply(three.apply(x)) + two.apply(x), leaf(4))


seen = []
counts = {"backward": 0}
total = torch.zeros(4)


class Appends(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        seen.append(1)
        counts["backward"] += 1
        return g * 2


class Prints(Appends):
    @staticmethod
    def backward(ctx, g):
        print("in the backward")
        return g * 2


class WritesTensor(Appends):
    @staticmethod
    def backward(ctx, g):
        total.add_(g)
        return g * 2


class ReadsAndWritesTensor(WritesTensor):
    @staticmethod
    def forward(ctx, x):
        return x * (total + 1)


class ChangesContext(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.uses = [0]
        return x * 2

    @staticmethod
    def backward(ctx, g):
        ctx.uses[0] += 1
        return g * ctx.uses[0]


def test_effects_of_the_backward_are_the_backwards(capsys):
    fast = braze.compile(lambda x: Appends.apply(x) + 1)
    x = leaf(4)
    for call in range(3):
        out = fast(x)
        assert len(seen) == counts["backward"] == call
        out.sum().backward()
        assert len(seen) == counts["backward"] == call + 1
    fast = braze.compile(lambda x: Prints.apply(x) + 1)
    out = fast(x)
    assert capsys.readouterr().out == ""
    out.sum().backward()
    assert capsys.readouterr().out == "in the backward\n"
    fast = braze.compile(lambda x: WritesTensor.apply(x) + 1)
    for call in range(3):
        out = fast(x)
        assert torch.equal(total, torch.full((4,), float(call)))
        out.sum().backward()
    assert torch.equal(total, torch.full((4,), 3.0))
    fast = braze.compile(lambda x: ReadsAndWritesTensor.apply(x))
    for call in range(2):
        x = leaf(4)
        torch.testing.assert_close(fast(x), x * (call + 4))
        fast(x).sum().backward()
        assert torch.equal(total, torch.full((4,), call + 4.0))


def test_what_the_backward_changes_on_its_context_lasts():
    x, y = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    for f, v in ((ChangesContext.apply, x), (braze.compile(lambda v: ChangesContext.apply(v)), y)):
        out = f(v)
        out.sum().backward(retain_graph=True)
        out.sum().backward()
    same(x.grad, y.grad)


class Bad(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise KeyError("from the backward")


class Wrong(Bad):
    @staticmethod
    def backward(ctx, g):
        return g, g


@pytest.mark.parametrize("cls", [Bad, Wrong])
def test_errors_of_the_backward(cls):
    x = leaf(3)
    with pytest.raises(Exception) as want:
        cls.apply(x).sum().backward()
    out = braze.compile(lambda x: cls.apply(x))(x)
    with pytest.raises(type(want.value)) as got:
        out.sum().backward()
    assert str(got.value).replace(cls.__name__, "") == str(want.value).replace(cls.__name__, "")


def test_values_in_the_backward_are_read_in_the_backward():
    class Branches(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3 if g.sum() > 0 else g * 5

    fast = braze.compile(lambda x: Branches.apply(x))
    for sign in (1, -1):
        x = leaf(3)
        fast(x).backward(torch.full((3,), float(sign)))
        assert torch.equal(x.grad, torch.full((3,), 3.0 if sign > 0 else -5.0))


class Sine(Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x.cos()


class Transformed(Sine):
    generate_vmap_rule = True


class Batched(Sine):
    @staticmethod
    def vmap(info, in_dims, x):
        return Batched.apply(x) * 5, in_dims[0]


@pytest.mark.parametrize(
    "transform",
    [
        torch.vmap,
        lambda f: torch.func.grad(lambda x: f(x).sum()),
        lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum())),
    ],
    ids=["vmap", "grad", "vmap_grad"],
)
@pytest.mark.parametrize("cls", [Transformed, Batched])
def test_below_transforms_of_functions(cls, transform):
    check(lambda x: transform(cls.apply)(x), leaf(3, 4))


class Reversal(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -2 * g


class ViewReversal(Reversal):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)


class OneOfTwo(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return y, x * 2

    @staticmethod
    def backward(ctx, g, h):
        return ctx.saved_tensors[0] * h, 3 * g


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: Reversal.apply(x),
        lambda x, y: ViewReversal.apply(x),
        lambda x, y: Reversal.apply(x).view(-1),
        lambda x, y: (Reversal.apply(x), x.view(-1)),
        lambda x, y: OneOfTwo.apply(x, y),
        lambda x, y: (x * 2, Reversal.apply(x * 2)),
        lambda x, y: (lambda z: (z, Reversal.apply(z), z[0]))(x * 2),
    ],
)
def test_a_result_on_the_memory_of_the_operand_has_the_functions_backward(f):
    check(f, leaf(2, 3), leaf(2, 3), compiled=False)


def test_views_of_one_call_may_not_be_written_to():
    for f in (lambda x: x.unbind(0), lambda x: (x * 2).unbind(0)):
        x = leaf(2, 3) + 0
        with pytest.raises(RuntimeError, match="returns multiple views|multiple views"):
            braze.compile(f)(x)[0].mul_(2)


class Reversible(Function):
    @staticmethod
    def forward(ctx, x, layers, seen):
        ctx.layers = layers
        with torch.no_grad():
            for layer in layers:
                x = layer(x)
        seen.append(len(layers))
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * 2 if y.sum().item() < 1e9 else None, None, None


def test_containers_where_the_backward_is_not_traced():
    layers = [torch.nn.Linear(5, 5), torch.nn.Tanh()]

    def f(x):
        seen = []
        y = Reversible.apply(x * 2, layers, seen)
        return y * 3 + len(seen)

    ours, theirs = leaf(4, 5), leaf(4, 5)
    ours.data = theirs.data.clone()
    compiled = braze.compile(f)
    braze.counters(clear=True)
    got, want = compiled(ours), f(theirs)
    got.sum().backward(), want.sum().backward()
    assert torch.allclose(got, want, atol=1e-6) and torch.allclose(ours.grad, theirs.grad)
    told = braze.counters()
    assert told["graphs"] == 2 and told["failures"] == 0 and sum(told["graph_breaks"].values()) == 1, told


class Scale:
    def __init__(self, k):
        self.k = k

    def __call__(self, t):
        return t * self.k


class ScaledProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale, rhs, lhs):
        ctx.scale = scale
        ctx.save_for_backward(rhs, lhs)
        return scale(lhs) @ rhs

    @staticmethod
    def backward(ctx, g):
        rhs, lhs = ctx.saved_tensors
        return None, ctx.scale(lhs).mT @ g, ctx.scale(g @ rhs.mT)


def test_a_graph_of_torch_calls_does_not_hold_an_object_that_stood_in_for_another(capfd):
    """The region returns a leaf that it made, for which it runs as PyTorch's calls: with the program's own objects."""

    def f(x, y, scale=None):
        c = x.detach().requires_grad_(True)
        return ScaledProduct.apply(scale or Scale(3.0), y, c).sin(), c

    logs = braze.set_logs("graph_breaks")
    for extra in ((), (Scale(2.0),)):
        results = []
        for g in (f, braze.compile(f)):
            torch.manual_seed(0)
            x, y = torch.randn(3, 3), leaf(3, 3)
            out, c = g(x, y, *extra)
            out.sum().backward()
            results.append((out.detach(), c.grad, y.grad))
        torch.testing.assert_close(results[1], results[0])
    braze.set_logs(*logs)
    assert "the call is made again uncompiled" not in capfd.readouterr().err


def test_tensors_of_the_programs_classes():
    """What the backward does with a tensor may depend on its class: samples' own gradients are attributes that it sets."""
    from torch.nn.utils import _per_sample_grad

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(5, 3)

    def samples(x):
        for p in model.parameters():
            p.grad_sample = None
        _per_sample_grad.call_for_per_sample_grads(model)(x).sum().backward()
        return [p.grad_sample for p in model.parameters()]

    torch.testing.assert_close(braze.compile(samples)(x), samples(x))


def test_arguments_by_name():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor=2, other=None):
            ctx.factor = factor
            return x * factor if other is None else x * factor + other[0]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor, None, None

    def named(x, z):
        return Scaled.apply(x, factor=6)

    def with_a_list(x, z):
        return Scaled.apply(x, other=[z.detach()], factor=3)

    for fn in (named, with_a_list):
        got = []
        for c in (fn, braze.compile(fn, fullgraph=True)):
            x, z = torch.ones(2, requires_grad=True), torch.ones(2)
            try:
                y = c(x, z)
            except TypeError as e:  # versions of PyTorch that take none by name
                got.append(str(e))
                continue
            y.sum().backward()
            got.append((y.tolist(), x.grad.tolist()))
        assert got[0] == got[1]
