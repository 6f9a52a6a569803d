"""Results of a step that runs a backward inside: what their history still gives, and what the backward has freed."""

import pytest
import torch
import torch.nn.functional as F

import braze


def loss_scaled(w, u, x, y):
    loss = F.cross_entropy(x @ w, y)
    (loss / 4).backward()
    return loss


def loss_and_logits(w, u, x, y):
    logits = x @ w
    loss = F.cross_entropy(logits, y)
    loss.backward()
    return loss, logits


def two_losses_added(w, u, x, y):
    logits = x @ w
    a, b = F.cross_entropy(logits, y), logits.square().mean()
    (a + 0.5 * b).backward()
    return {"a": a, "b": b, "all": a + b}


def on_a_freed_trunk(w, u, x, y):
    h = torch.tanh(x @ w)
    h.square().sum().backward()
    return (h @ u).sum()


def apart_from_it(w, u, x, y):
    F.cross_entropy(x @ w, y).backward()
    return (x @ w @ u).sum()


def detached(w, u, x, y):
    logits = x @ w
    F.cross_entropy(logits, y).backward()
    return logits.detach(), logits.argmax(1)


def of_gradients_asked_for(w, u, x, y):
    logits = (x @ w).exp()
    (g,) = torch.autograd.grad(logits.sum(), w)
    return g, logits


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * 2

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * 2 + t * 0


def through_a_function(w, u, x, y):
    h = Doubled.apply(w)
    h.sum().backward()
    return h + 1


def that_saves_nothing(w, u, x, y):
    h = w + 1
    h.sum().backward()
    return h


STEPS = {
    f.__name__: f
    for f in (
        loss_scaled,
        loss_and_logits,
        two_losses_added,
        on_a_freed_trunk,
        apart_from_it,
        detached,
        of_gradients_asked_for,
        through_a_function,
        that_saves_nothing,
    )
}


def tensors(r):
    return [r] if isinstance(r, torch.Tensor) else list(r.values() if isinstance(r, dict) else r)


def seen(step):
    """What a caller sees of the step's results, and of a backward from each of them."""
    torch.manual_seed(0)
    w, u = torch.randn(3, 5, requires_grad=True), torch.randn(5, 2, requires_grad=True)
    x, y = torch.randn(4, 3), torch.randint(5, (4,))
    out = []
    for r in tensors(step(w, u, x, y)):
        out += [r.detach(), r.requires_grad, r.is_leaf]
        if not r.requires_grad:
            continue
        before = [p.grad for p in (w, u)]
        w.grad = u.grad = None
        try:
            r.sum().backward(retain_graph=True)
            out += [w.grad, u.grad]
        except RuntimeError as e:
            out.append("second time" in str(e))
        w.grad, u.grad = before
    return [*out, w.grad, u.grad]


@pytest.mark.parametrize("name", STEPS)
def test_what_is_left(name):
    step = STEPS[name]
    want = seen(step)
    compiled = braze.compile(step)
    for _ in range(2):
        for g, e in zip(seen(compiled), want, strict=True):
            if isinstance(e, torch.Tensor):
                torch.testing.assert_close(g, e)
            else:
                assert g is e


@pytest.mark.parametrize("name", [n for n in STEPS if n != "that_saves_nothing"])
def test_it_is_one_graph(name):
    before = braze.counters()["graphs"]
    seen(braze.compile(STEPS[name], fullgraph=True))
    assert braze.counters()["graphs"] == before + 1
