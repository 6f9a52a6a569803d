"""Policies of torch.utils.checkpoint.create_selective_checkpoint_contexts: what a region saves."""

import functools

import pytest
import torch
import torch.nn.functional as F
from checkpoint_cases import Chain, check, explained, saved, saved_bytes
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import braze

aten = torch.ops.aten


def noop():
    return noop_context_fn()[0]


def selective(policy):
    return functools.partial(create_selective_checkpoint_contexts, policy)


class Products(nn.Module):
    def __init__(self, context_fn=None):
        super().__init__()
        self.context_fn = context_fn or noop_context_fn
        self.w, self.v = nn.Parameter(torch.randn(32, 32) / 6), nn.Parameter(torch.randn(32, 32) / 6)

    def inside(self, x):
        return torch.sigmoid(torch.exp(x @ self.w) @ self.v) * x

    def forward(self, x):
        return checkpoint(self.inside, x, use_reentrant=False, context_fn=self.context_fn)


def products_kept(context_fn):
    model, x = Products(context_fn), torch.randn(16, 32, requires_grad=True)
    check(model, x)
    return [op for op in saved(model, x) if op not in ("input", "parameter")]


def test_a_list_says_what_is_saved():
    assert products_kept(None) == []
    assert products_kept(selective([aten.mm.default])) == ["aten::mm"] * 2
    assert products_kept(selective([aten.exp.default])) == ["aten::exp"]
    assert products_kept(selective([aten.exp.default, aten.sigmoid.default])) == ["aten::exp", "aten::sigmoid"]
    assert products_kept(selective([])) == []


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
def test_policies_are_followed_operator_by_operator(policy):
    seen = []

    def policy_fn(ctx, op, *args, **kwargs):
        assert not ctx.is_recompute
        if op is aten.mm.default:
            assert args[0].shape[1] == args[1].shape[0] == 32 and not kwargs
            return policy
        return CheckpointPolicy.MUST_RECOMPUTE

    save = policy in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
    assert products_kept(lambda: create_selective_checkpoint_contexts(policy_fn)) == ["aten::mm"] * (2 * save), seen


def test_a_policy_is_asked_what_eager_asks():
    seen = []

    def policy_fn(ctx, op, *args, **kwargs):
        seen.append((str(op), len(args), sorted(kwargs), tuple(ctx.op_output.shape)))
        return CheckpointPolicy.PREFER_RECOMPUTE

    class Asked(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)

        def inside(self, x):
            h = torch.tanh(self.a(x)).to(torch.float64).clamp(min=-1)
            return F.softmax(h, -1).view(2, 2, 8).transpose(0, 1).contiguous() + torch.zeros(8)

        def forward(self, x):
            return checkpoint(self.inside, x, use_reentrant=False, context_fn=selective(policy_fn))

    model, x = Asked(), torch.randn(4, 8, requires_grad=True)
    model(x)
    want = seen[:]
    seen.clear()
    explained(model, x)
    assert seen[: len(want)] == want, (seen, want)


def test_a_policy_that_counts():
    """Every second product is saved, as torchtitan's policy does."""

    def contexts():
        count = {"mm": 0}

        def policy_fn(ctx, op, *args, **kwargs):
            if op == aten.mm.default:
                count["mm"] += 1
            return op == aten.mm.default and count["mm"] % 2 == 1

        return create_selective_checkpoint_contexts(policy_fn)

    assert products_kept(contexts) == ["aten::mm"]


def test_a_policy_is_guarded():
    ops = [aten.mm.default]
    model = Products(lambda: create_selective_checkpoint_contexts(lambda ctx, op, *a, **k: op in ops))
    x = torch.randn(16, 32, requires_grad=True)
    compiled = braze.compile(model)
    compiled(x)
    assert saved(compiled, x).count("aten::mm") == 2
    ops[:] = [aten.exp.default]
    assert saved(compiled, x).count("aten::mm") == 0


def test_a_decomposed_operator_is_saved_whole():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(32, 32)

        def forward(self, x):
            fn = selective([aten._softmax.default])
            return checkpoint(lambda x: F.softmax(self.a(x).tanh(), -1), x, use_reentrant=False, context_fn=fn) * 2

    x = torch.randn(16, 32, requires_grad=True)
    check(Norm(), x)
    assert saved_bytes(Norm(), x) == 2 * x.numel() * 4


def test_policies_of_views_save_what_they_view():
    def f(x):
        fn = selective([aten.t.default])
        return checkpoint(lambda x: torch.exp(torch.sin(x).t()).sum(0), x, use_reentrant=False, context_fn=fn)

    x = torch.randn(16, 32, requires_grad=True)
    assert "aten::sin" in saved(f, x)


def test_every_result_saved():
    keep = products_kept(selective(lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE))
    assert keep.count("aten::mm") <= 2 and "aten::sigmoid" in keep, keep


def test_a_policy_inside_of_another_region():
    model = Products(selective([aten.mm.default]))
    x = torch.randn(16, 32, requires_grad=True)
    outer = Chain([model])
    check(outer, x)
    assert [op for op in saved(outer, x) if op not in ("input", "parameter")] == []


@pytest.mark.parametrize(
    "context_fn",
    [lambda: (noop(), noop()), lambda: create_selective_checkpoint_contexts([aten.mm])],
)
def test_other_contexts_break_the_graph(context_fn):
    model, x = Products(context_fn), torch.randn(4, 32, requires_grad=True)
    compiled = braze.compile(model)
    try:
        want = model(x)
    except ValueError as e:
        with pytest.raises(ValueError) as got:
            compiled(x)
        assert str(got.value) == str(e)
        return
    torch.testing.assert_close(compiled(x), want)
    e = braze.explain(model, x)
    assert e.graph_break_count and "context_fn of a checkpoint" in str(e), str(e)


def test_a_policy_that_raises():
    def policy_fn(ctx, op, *args, **kwargs):
        raise KeyError("of a policy")

    model = Products(selective(policy_fn))
    with pytest.raises(KeyError, match="of a policy"):
        braze.compile(model)(torch.randn(4, 32, requires_grad=True))


def test_contexts_outside_of_checkpoints_are_pytorchs():
    def f(x):
        contexts = create_selective_checkpoint_contexts([aten.mm.default])
        return torch.sin(x), type(contexts[0]).__name__

    assert braze.compile(f)(torch.ones(2))[1] == f(torch.ones(2))[1]
