"""PyTorch's own machinery inside of captured code: gradients, custom functions, transforms, modes, messages."""

import copy
import functools
import logging
import sys
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from harness import same
from torch.utils.checkpoint import checkpoint

import braze


def run(fn, make, breaks=0, compiled=True):
    """Eager against compiled on equal arguments, twice: results and what became of the arguments. The first call must give one
    compiled graph and `breaks` breaks (None: any number)."""
    eager_args, args = make(), make()
    compiled_fn = None
    for call in range(2):
        torch.manual_seed(1)
        want = fn(*eager_args)
        torch.manual_seed(1)
        if call == 0:
            found = braze.explain(fn, *args)
            got = found.output
            if breaks is not None:
                assert found.graph_break_count == breaks, str(found)
            if compiled:
                assert found.graph_count == 1 and "runs compiled" in found.graphs[0], str(found)
            compiled_fn = braze.compile(fn)
        else:
            got = compiled_fn(*args)
        same(want, got)
        for a, b in zip(eager_args, args):
            same_state(a, b)
    return found


def same_state(a, b):
    if isinstance(a, nn.Module):
        same_state(dict(a.named_parameters()), dict(b.named_parameters()))
        same_state(dict(a.named_buffers()), dict(b.named_buffers()))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            same_state(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same_state(x, y)
    elif isinstance(a, torch.Tensor):
        same(a.detach(), b.detach(), "argument")
        assert (a.grad is None) == (b.grad is None), "argument.grad"
        if a.grad is not None:
            same(a.grad, b.grad, "argument.grad")


def tensor(*shape, grad=False, seed=0):
    return lambda: (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad),)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def net():
    torch.manual_seed(2)
    return Net(), torch.randn(3, 4)


# ---- gradients that the captured code computes itself ----


def test_grad_of_intermediates():
    def f(x):
        y = x.detach().requires_grad_(True)
        (g,) = torch.autograd.grad((y * y).sum(), y)
        return g + x

    run(f, tensor(3))


def test_grad_of_arguments_and_of_gradients():
    def f(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return h

    run(f, tensor(3, grad=True))


def test_backward_fills_and_accumulates_grad():
    def f(m, x):
        loss = m(x).square().mean()
        loss.backward()
        return loss.detach()

    run(f, net)  # the second call adds to what the first left


def test_backward_result_has_no_history_left():
    def f(m, x):
        loss = m(x).square().mean()
        loss.backward()
        return loss

    m, x = net()
    loss = braze.compile(f)(m, x)
    assert loss.requires_grad
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_backward_of_tensors_made_inside():
    def f(x):
        w = torch.ones(4, requires_grad=True)
        (x @ w).sum().backward()
        return w.grad

    run(f, tensor(3, 4))


def test_grad_attribute_is_read_and_guarded():
    def f(x):
        return x * 2 if x.grad is None else x * 3

    x = torch.randn(3, requires_grad=True)
    g = braze.compile(f)
    same(f(x).detach(), g(x).detach())
    x.grad = torch.ones(3)
    same(f(x).detach(), g(x).detach())
    x.grad = None
    same(f(x).detach(), g(x).detach())


def test_grad_is_set():
    def f(x, y):
        x.grad = y * 2
        return y + 1

    run(f, lambda: (torch.ones(3, requires_grad=True), torch.arange(3.0)))

    def none(x, y):
        x.grad = None
        return y + 1

    def make():
        x = torch.ones(3, requires_grad=True)
        x.grad = torch.ones(3)
        return x, torch.arange(3.0)

    run(none, make)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        functools.partial(torch.optim.SGD, lr=0.1),
        functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
        functools.partial(torch.optim.AdamW, lr=0.1),
        functools.partial(torch.optim.Adam, lr=0.1, foreach=True),
        functools.partial(torch.optim.AdamW, lr=0.1, capturable=False, foreach=False),
    ],
    ids=["sgd", "momentum", "adamw", "adam_foreach", "adamw_single"],
)
def test_whole_training_steps(make_optimizer):
    def step(m, optimizer, x):
        optimizer.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def pair():
        m, x = net()
        return m, make_optimizer(m.parameters()), x

    (m1, o1, x), (m2, o2, _) = pair(), pair()
    compiled = braze.compile(step)
    for _ in range(6):
        same(step(m1, o1, x), compiled(m2, o2, x), tol=1e-4)
    for (name, p), q in zip(m1.named_parameters(), m2.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5, msg=name)


def test_backward_with_hooks_of_arguments():
    def f(x):
        (x * x).sum().backward()
        return x.detach() + 1

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    for t in (x, y):
        t.register_hook(lambda g: g * 10)
    same(f(x), braze.compile(f)(y))
    same(x.grad, y.grad)


# ---- autograd.Function ----


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2.5 * x * g * ctx.k, None  # no derivative of the forward: it must be this that runs


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp(), x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.saved_tensors[0]


def test_function_without_gradients():
    run(lambda x: Scaled.apply(x, 3) + 1, tensor(3))
    run(lambda x: TwoResults.apply(x), tensor(3))


@pytest.mark.parametrize(
    "f", [lambda x: Scaled.apply(x, 3) + 1, lambda x: TwoResults.apply(x)[0] * 2], ids=["ctx", "setup_context"]
)
def test_function_with_gradients(f):
    (x,), (y,) = tensor(3, grad=True)(), tensor(3, grad=True)()
    g = braze.compile(f)
    for _ in range(2):
        a, b = f(x), g(y)
        same(a.detach(), b.detach())
        assert b.requires_grad
        a.sum().backward()
        b.sum().backward()
        same(x.grad, y.grad)


def test_function_reads_are_guarded():
    global factor
    factor = 2.0

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * factor

        @staticmethod
        def backward(ctx, g):
            return g * factor

    g = braze.compile(lambda x: Reads.apply(x))
    x = torch.ones(3)
    same(g(x), x * 2)
    factor = 5.0
    same(g(x), x * 5)


# ---- transforms ----


def square_sum(t):
    return (t * t).sum()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.func.grad(square_sum)(x),
        lambda x: torch.func.grad_and_value(square_sum)(x),
        lambda x: torch.vmap(lambda r: r.sum() + r)(x),
        lambda x: torch.func.vmap(torch.dot)(x, x),
        lambda x: torch.vmap(torch.func.grad(square_sum))(x),
        lambda x: torch.func.jacrev(torch.sin)(x[0]),
        lambda x: torch.func.vjp(torch.sin, x)[1](torch.ones_like(x)),
        lambda x: torch.vmap(lambda r, c: r * c, in_dims=(0, None))(x, x[0]),
    ],
    ids=["grad", "grad_and_value", "vmap", "vmap_builtin", "vmap_grad", "jacrev", "vjp", "in_dims"],
)
def test_transforms(f):
    run(f, tensor(3, 4))


def norm_net(x):
    return torch.nn.functional.layer_norm(x.sin() @ x.new_ones(4, 2), (2,)).sum(-1).tanh()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)),
        lambda x: torch.func.jvp(lambda y: (y * 2, y.cos()), (x,), (x,), has_aux=True),
        lambda x: torch.func.jacfwd(lambda y: y.sin() * y)(x[0]),
        lambda x: torch.func.hessian(square_sum)(x[0]),
        lambda x: torch.func.jvp(torch.func.grad(square_sum), (x,), (x,)),
        lambda x: torch.func.grad(lambda y: torch.func.jvp(torch.sin, (y,), (x,))[1].sum())(x),
        lambda x: torch.func.jacfwd(torch.func.jacfwd(torch.sin))(x[0]),
        lambda x: torch.vmap(torch.func.hessian(norm_net))(x),
        lambda x: torch.vmap(torch.func.jacfwd(norm_net))(x),
        lambda x: torch.autograd.functional.jvp(torch.sin, x, x),
        lambda x: torch.autograd.functional.hessian(
            square_sum, x[0], vectorize=True, outer_jacobian_strategy="forward-mode"
        ),
    ],
    ids=[
        "jvp",
        "aux",
        "jacfwd",
        "hessian",
        "jvp_of_grad",
        "grad_of_jvp",
        "jacfwd_twice",
        "vmap_hessian",
        "vmap_jacfwd",
        "functional",
        "functional_hessian",
    ],
)
def test_forward_mode(f):
    run(f, tensor(3, 4))


def test_transforms_of_what_is_around():
    def f(x, w):
        def loss(r):
            return (r * w).sum() * scale

        scale = x.shape[0]
        return torch.vmap(torch.func.grad(loss))(x)

    run(f, lambda: (torch.ones(3, 4), torch.arange(4.0)))


def test_break_inside_of_a_transform():
    def f(x):
        def g(r):
            sys.stdout.flush()
            return r * 2

        return torch.vmap(g)(x) + 1

    run(f, tensor(3, 4), breaks=None, compiled=False)


def test_exception_inside_of_a_transform():
    def f(x):
        def g(r):
            raise KeyError("mine")

        try:
            return torch.vmap(g)(x)
        except KeyError:
            return x + 1

    run(f, tensor(3, 4), breaks=None, compiled=False)
    assert torch.ones(2).add(1).sum() == 4  # no transform is left entered


# ---- checkpoints ----


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def f(m, x):
        return checkpoint(m, x, use_reentrant=reentrant)

    (m1, x1), (m2, x2) = net(), net()
    x1.requires_grad_()
    x2.requires_grad_()
    a, b = f(m1, x1), braze.compile(f)(m2, x2)
    same(a.detach(), b.detach())
    a.sum().backward()
    b.sum().backward()
    same_state(m1, m2)
    same(x1.grad, x2.grad)


def test_reentrant_checkpoint_without_grad_inputs():
    def f(m, x):
        return checkpoint(m, x, use_reentrant=True)

    m, x = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert f(m, x).requires_grad == braze.compile(f)(m, x).requires_grad


# ---- modes ----


def test_inference_mode():
    @torch.inference_mode()
    def f(x):
        return x * 2 + 1

    (x,) = tensor(3)()
    found = braze.explain(f, x)
    assert found.graph_count == 1 and found.graph_break_count == 0, str(found)
    assert found.output.is_inference() and f(x).is_inference()
    assert not torch.is_inference_mode_enabled()


def test_grad_modes():
    def f(x):
        with torch.no_grad():
            a = x * 2
            with torch.enable_grad():
                b = x * 3
        with torch.set_grad_enabled(False):
            c = x * 4
        return a, b, c, torch.is_grad_enabled()

    run(f, tensor(3, grad=True), compiled=False)


def test_profiler_ranges_and_annotations():
    def f(x):
        with torch.profiler.record_function("range"):
            y = torch.jit.annotate(torch.Tensor, x + 1)
        return y

    run(f, tensor(3))


# ---- messages ----


def test_logging_happens_at_each_call(caplog):
    log = logging.getLogger("of the test")

    def f(x):
        log.warning("sizes %s", tuple(x.shape))
        return x + 1

    (x,) = tensor(3)()
    found = braze.explain(f, x)
    assert found.graph_count == 1 and found.graph_break_count == 0, str(found)
    g = braze.compile(f)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        g(x)
        g(x)
    assert [r.getMessage() for r in caplog.records] == ["sizes (3,)"] * 2


def test_warnings_have_their_line():
    def f(x):
        warnings.warn("about x")
        return x + 1

    (x,) = tensor(3)()
    g = braze.compile(f)
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        g(x)
        g(x)
        f(x)
    assert [(str(w.message), w.filename, w.lineno) for w in got] == [
        (str(w.message), w.filename, w.lineno) for w in got[-1:]
    ] * 3


# ---- copies, contexts ----


class Settings:
    def __init__(self):
        self.sizes, self.nested = [1, 2], {"a": (3, [4])}
        self.me = self


def test_deepcopy():
    settings = Settings()

    def f(x):
        c = copy.deepcopy(settings)
        c.sizes.append(5)
        c.nested["a"][1].append(6)
        return x + len(c.sizes), c.me is c, c.sizes, c.nested

    run(f, tensor(3))
    assert settings.sizes == [1, 2] and settings.nested == {"a": (3, [4])}


def test_manager_whose_enter_cannot_be_captured():
    import threading

    lock = threading.Lock()

    def f(x):
        with lock:
            y = x * 2
        return y + 1

    run(f, tensor(3), breaks=None, compiled=False)
    assert not lock.locked()


def test_iterators_from_outside():
    def f(x, it):
        try:
            return x + next(it)
        except TypeError:
            return x

    same(f(torch.ones(3), iter((1, 2))), braze.compile(f)(torch.ones(3), iter((1, 2))))


def test_foreach_operators_fuse():
    def f(x):
        parts = [x.clone(), x * 2]
        torch._foreach_add_(parts, 1.5)
        torch._foreach_mul_(parts, [2.0, 3.0])
        return parts, torch._foreach_sqrt([p.abs() for p in parts])

    found = run(f, tensor(64))
    assert found.extern_count == 0, str(found)


def test_one_hot():
    run(lambda x: F.one_hot(torch.arange(3), 5) + x.sum(), tensor(3))


def test_attention_weights_that_were_not_asked_for():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def f(a, need):
        with torch.no_grad():
            return attention(a, a, a, need_weights=need)

    x = torch.randn(2, 5, 8)
    for need in (False, True):
        want, got = f(x, need), braze.compile(f, fullgraph=True)(x, need)
        same(want[0], got[0])
        assert (want[1] is None) == (got[1] is None)
        if need:
            same(want[1], got[1])


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.grad,
        torch.func.grad_and_value,
        torch.vmap,
        torch.func.jacrev,
        torch.func.jacfwd,
        torch.func.hessian,
        lambda f: torch.vmap(torch.func.grad(f)),
        lambda f: torch.func.functionalize(torch.func.grad(f)),
    ],
)
def test_transforms_made_outside_read_what_is_now(transform):
    scale = 2.0

    def loss(x):
        return (x * x * scale).sum()

    g, x = transform(loss), torch.arange(6.0).view(2, 3)
    compiled = braze.compile(lambda x: g(x))
    for scale in (2.0, 3.0, 2.0):
        same(g(x), compiled(x))
