"""torch.utils.checkpoint: what a region computes is computed again in the backward, and not kept."""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

import braze

aten = torch.ops.aten
BOTH = pytest.mark.parametrize("reentrant", [False, True])


class Block(nn.Module):
    def __init__(self, n=32, dropout=0.0):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 4 * n), nn.Linear(4 * n, n)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class Chain(nn.Module):
    """Blocks, each checkpointed; `options` go to checkpoint()."""

    def __init__(self, blocks, wrapped=True, **options):
        super().__init__()
        self.blocks, self.wrapped, self.options = nn.ModuleList(blocks), wrapped, {"use_reentrant": False, **options}

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, **self.options) if self.wrapped else block(x)
        return x


def explained(fn, *args, breaks=0):
    """Of one graph, compiled, with gradients."""
    e = braze.explain(fn, *args)
    assert e.graph_count == 1 and e.graph_break_count == breaks and "runs compiled" in e.graphs[0], str(e)
    return e


def saved_bytes(fn, *args):
    return explained(fn, *args).saved_bytes


def saved(fn, *args):
    """The operators whose results are kept for the backward."""
    lines = explained(fn, *args).partitions[0].split("recomputed")[0].splitlines()[1:]
    return sorted(line.split()[1] for line in lines)


def recomputed(fn, *args):
    return [line.split()[1] for line in explained(fn, *args).partitions[0].split("recomputed")[1].splitlines()[1:]]


def gradients(fn, params, *args):
    torch.manual_seed(3)
    for p in params:
        p.grad = None
    out = fn(*args)
    (out.float() ** 2).mean().backward()
    return [out.detach(), *(p.grad for p in params)]


def check(model, *args, calls=2, **options):
    """Eager against compiled, gradients too."""
    other = copy.deepcopy(model)
    compiled = braze.compile(other, fullgraph=True, **options)
    for _ in range(calls):
        leaves = [a for a in args if a.requires_grad]
        want = gradients(model, [*model.parameters(), *leaves], *args)
        got = gradients(compiled, [*other.parameters(), *leaves], *args)
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


# ---- what is kept ----


@BOTH
def test_a_chain_keeps_the_inputs_of_its_blocks(reentrant):
    torch.manual_seed(0)
    chain = Chain([Block() for _ in range(8)], use_reentrant=reentrant)
    x = torch.randn(64, 32, requires_grad=True)
    check(chain, x)
    assert saved_bytes(chain, x) == 8 * x.numel() * 4
    chain.wrapped = False
    assert saved_bytes(chain, x) > 4 * 8 * x.numel() * 4


def test_what_eager_keeps_is_no_less():
    chain = Chain([Block() for _ in range(4)])
    x = torch.randn(16, 32, requires_grad=True)
    kept = {}

    def pack(t):
        if t.grad_fn is not None or t is x:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = chain(x)
    assert saved_bytes(chain, x) <= sum(kept.values()), kept
    del out


@BOTH
def test_matrix_products_and_norms_are_done_again(reentrant):
    block = Block()
    x = torch.randn(8, 32, requires_grad=True)
    again = recomputed(Chain([block], use_reentrant=reentrant), x)
    assert "aten::addmm" in again or "aten::mm" in again, again
    assert saved(Chain([block], use_reentrant=reentrant), x).count("input") == 1


def test_outside_of_regions_the_partition_chooses():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Block(), Block()

        def forward(self, x):
            return checkpoint(self.b, torch.tanh(self.a(x)), use_reentrant=False).exp()

    x = torch.randn(16, 32, requires_grad=True)
    check(Mixed(), x)
    kept = saved(Mixed(), x)
    assert kept.count("aten::addmm") + kept.count("aten::mm") in (1, 2, 3), kept  # of the first block alone


def test_peak_memory_of_a_long_chain():
    """By the plan of the compiled backward and what is saved, a checkpointed chain needs one block's memory."""
    n, rows, count = 32, 256, 12
    chain = Chain([Block(n) for _ in range(count)])
    x = torch.randn(rows, n, requires_grad=True)
    with_regions = saved_bytes(chain, x)
    chain.wrapped = False
    without = saved_bytes(chain, x)
    assert with_regions == count * rows * n * 4 and without >= 5 * with_regions, (with_regions, without)


# ---- results ----


@BOTH
@pytest.mark.parametrize("preserve", [True, False])
def test_dropout_draws_the_same_numbers_again(reentrant, preserve):
    x = torch.ones(64, 32, requires_grad=True)

    def dropped(x):
        return F.dropout(torch.sin(x), 0.5) * x

    for rng in ("philox", "eager"):
        fn = braze.compile(
            lambda x: checkpoint(dropped, x, use_reentrant=reentrant, preserve_rng_state=preserve),
            fullgraph=True,
            options={"rng": rng},
        )
        for _ in range(2):
            x.grad = None
            out = fn(x)
            out.sum().backward()
            s = x.detach()
            torch.testing.assert_close(x.grad, (out != 0) * 2 * (s.cos() * s + s.sin()))
    kept = explained(lambda x: checkpoint(dropped, x, use_reentrant=reentrant), x).saved_bytes
    assert kept == x.numel() * 4 + 8  # and a seed


@BOTH
def test_dropout_with_the_seed_of_eager(reentrant):
    chain = Chain([Block(dropout=0.3) for _ in range(3)], use_reentrant=reentrant)
    check(chain, torch.randn(16, 32, requires_grad=True), options={"rng": "eager"})


@BOTH
def test_batch_norm_counts_once(reentrant):
    torch.manual_seed(0)

    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4))

    plain, inner = make(), make()
    chain = Chain([inner], use_reentrant=reentrant)
    compiled = braze.compile(chain, fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, 3, 8, 8, requires_grad=True)
        want = gradients(plain, [*plain.parameters(), x], x)
        got = gradients(compiled, [*inner.parameters(), x], x)
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-5)
        for (name, w), g in zip(plain.named_buffers(), inner.buffers(), strict=True):
            torch.testing.assert_close(g, w, msg=name)
    assert saved_bytes(chain, x) <= x.numel() * 4 + 1024


def test_nested_regions():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Block(), Block()

        def forward(self, x):
            x = checkpoint(self.a, torch.sin(x), use_reentrant=False)
            return checkpoint(self.b, x, use_reentrant=False).tanh()

    chain = Chain([Outer(), Outer()])
    x = torch.randn(16, 32, requires_grad=True)
    check(chain, x)
    assert saved_bytes(chain, x) == 2 * x.numel() * 4


def test_sizes_that_vary():
    chain = Chain([Block() for _ in range(3)])
    compiled = braze.compile(chain, fullgraph=True)
    for rows in (5, 9, 1, 0, 33):
        x = torch.randn(rows, 32, requires_grad=True)
        want = gradients(chain, [*chain.parameters(), x], x)
        got = gradients(compiled, [*chain.parameters(), x], x)
        for w, g in zip(want, got, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype):
    chain = Chain([Block() for _ in range(2)]).to(dtype)
    x = torch.randn(16, 32, dtype=dtype, requires_grad=True)
    out = braze.compile(chain, fullgraph=True)(x)
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(out, chain(x), **tolerance)
    assert saved_bytes(chain, x) == 2 * x.numel() * x.element_size()


def test_autocast():
    chain = Chain([Block() for _ in range(2)])
    x = torch.randn(16, 32, requires_grad=True)

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return chain(x)

    want = gradients(forward, [*chain.parameters(), x], x)
    got = gradients(braze.compile(forward, fullgraph=True), [*chain.parameters(), x], x)
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w, rtol=0.1, atol=0.02)


def test_maxima_find_their_places():
    def f(x, w):
        return checkpoint(lambda x: (x * w + x).amax(1), x, use_reentrant=False)

    x, w = torch.randn(33, 17, requires_grad=True), torch.randn(33, 17, requires_grad=True)
    want = torch.autograd.grad(f(x, w).sum(), [x, w])
    got = torch.autograd.grad(braze.compile(f, fullgraph=True)(x, w).sum(), [x, w])
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b)


def test_writes_inside_of_a_region():
    def f(x, y):
        def inside(x):
            h = torch.exp(x) * 3
            h.mul_(2)
            h[0] = 1
            y.add_(1)
            return torch.sin(h) * y

        return checkpoint(inside, x, use_reentrant=False), y

    def plain(x, y):
        h = torch.exp(x) * 6
        h = torch.cat([torch.ones(1, 4), h[1:]])
        return torch.sin(h) * (y + 1), y + 1

    x, y = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    (want, after), want_y = plain(x, y.clone()), y + 1
    (want_grad,) = torch.autograd.grad(want.sum(), [x])
    z = y.clone()
    got, back = braze.compile(f, fullgraph=True)(x, z)
    (got_grad,) = torch.autograd.grad(got.sum(), [x])
    assert back is z
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(z, want_y)
    torch.testing.assert_close(got_grad, want_grad)


def test_an_input_that_is_written_before_the_backward_is_an_error_as_in_eager():
    def f(x, y):
        return checkpoint(lambda t: torch.exp(t) * x, y, use_reentrant=False)

    for fn in (f, braze.compile(f, fullgraph=True)):
        x, y = torch.randn(4, requires_grad=True), torch.randn(4)
        out = fn(x, y)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_without_gradients_nothing_changes():
    chain = Chain([Block() for _ in range(2)], context_fn=lambda: (noop(), noop())).requires_grad_(False)
    x = torch.randn(4, 32)
    with torch.no_grad():
        e = braze.explain(chain, x)
        assert e.graph_count == 1 and e.graph_break_count == 0, str(e)
        torch.testing.assert_close(e.output, chain(x))
    plain = Chain([Block() for _ in range(2)]).requires_grad_(False)
    e = braze.explain(plain, x)
    plain.wrapped = False
    assert e.kernel_count == braze.explain(plain, x).kernel_count and e.graph_break_count == 0


def noop():
    return noop_context_fn()[0]


@pytest.mark.parametrize(
    "options",
    [
        {"determinism_check": "none"},
        {"determinism_check": "default"},
        {"early_stop": False},
        {"debug": True},
        {"preserve_rng_state": False},
        {"context_fn": noop_context_fn},
    ],
)
def test_options_are_taken(options):
    chain = Chain([Block()], **options)
    x = torch.randn(4, 32, requires_grad=True)
    assert saved_bytes(chain, x) == x.numel() * 4


@pytest.mark.parametrize(
    "options, error",
    [
        ({"determinism_check": "some"}, "determinism_check should be one of"),
        ({"use_reentrant": True, "debug": True}, "only supported when"),
        ({"use_reentrant": True, "context_fn": noop}, "only supported when"),
        ({"use_reentrant": True, "other": 1}, "Unexpected keyword"),
    ],
)
def test_what_eager_refuses_is_refused(options, error):
    chain = Chain([Block()], **options)
    with pytest.raises(ValueError, match=error):
        braze.compile(chain)(torch.randn(4, 32, requires_grad=True))


def test_keyword_arguments_and_structures():
    def inside(x, scale=1.0, *, other=None):
        return {"out": torch.sin(x) * scale + other[0], "same": (x,)}

    def f(x, y):
        out = checkpoint(inside, x, scale=2.0, other=[y], use_reentrant=False)
        return out["out"] * out["same"][0]

    x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    want = torch.autograd.grad(f(x, y).sum(), [x, y])
    got = torch.autograd.grad(braze.compile(f, fullgraph=True)(x, y).sum(), [x, y])
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b)


def test_an_exception_leaves_the_region():
    def f(x):
        def inside(x):
            raise KeyError("no")

        try:
            checkpoint(inside, x, use_reentrant=False)
        except KeyError:
            pass
        return torch.sin(x) * torch.exp(x)

    x = torch.randn(64, requires_grad=True)
    e = explained(f, x)
    torch.testing.assert_close(e.output, f(x))


# ---- policies ----


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


# ---- other doors ----


@BOTH
def test_sequential(reentrant):
    layers = nn.Sequential(*(Block() for _ in range(6)))
    x = torch.randn(64, 32, requires_grad=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            return checkpoint_sequential(self.layers, 3, x, use_reentrant=reentrant)

    check(Model(), x)
    last = saved_bytes(nn.Sequential(*layers[4:]), x)  # the last segment is no region
    assert saved_bytes(Model(), x) == 2 * x.numel() * 4 + last


@pytest.mark.parametrize("impl", list(CheckpointImpl))
def test_wrapped_modules(impl):
    model = nn.Sequential(*(Block() for _ in range(4)))
    x = torch.randn(64, 32, requires_grad=True)
    without = saved_bytes(model, x)
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=impl),
        check_fn=lambda m: isinstance(m, Block),
    )
    check(model, x)
    assert saved_bytes(model, x) == 4 * x.numel() * 4 < without / 4


@pytest.mark.parametrize("which", ["bert", "gpt2", "llama"])
@BOTH
def test_models_of_transformers(which, reentrant):
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=50, max_position_embeddings=64)
    torch.manual_seed(0)
    if which == "bert":
        config = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=128, **sizes
        )
        model = transformers.BertModel(config, add_pooling_layer=False)
    elif which == "gpt2":
        config = transformers.GPT2Config(
            n_embd=32, n_layer=4, n_head=2, vocab_size=50, n_positions=64, use_cache=False,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        model = transformers.GPT2Model(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, intermediate_size=128,
            use_cache=False, **sizes,
        )  # fmt: skip
        model = transformers.LlamaModel(config)
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
    model.config.attention_probs_dropout_prob = 0.0
    model.train()
    ids = torch.randint(0, 50, (4, 32))

    def run(model):
        def f(ids):
            return model(input_ids=ids).last_hidden_state

        return f

    plain, exact = explained(run(model), ids).saved_bytes, copy.deepcopy(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    e = explained(run(model), ids)
    block = 4 * 32 * 32 * 4
    assert 4 * block <= e.saved_bytes <= 8 * block < plain / 4, (e.saved_bytes, plain, e.partitions[0])
    want = gradients(run(exact), list(exact.parameters()), ids)
    got = gradients(braze.compile(run(model), fullgraph=True), list(model.parameters()), ids)
    for w, g in zip(want, got, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-5)
