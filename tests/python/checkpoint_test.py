"""torch.utils.checkpoint: what a region computes is computed again in the backward, and not kept."""

import copy
import functools
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from checkpoint_cases import BOTH, Block, Chain, check, explained, gradients, recomputed, saved, saved_bytes
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, noop_context_fn

import braze


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


PEAK = """
import sys, braze, torch
sys.path.insert(0, sys.argv[1])
from checkpoint_cases import Block, Chain

def memory(what):
    return 1024 * int(dict(line.split(":", 1) for line in open("/proc/self/status"))[what].split()[0])

chain = Chain([Block() for _ in range(12)], wrapped=sys.argv[2] == "wrapped")
x = torch.randn(32768, 32)
def whole(x):
    chain(x).sum().backward()
if sys.argv[3] == "whole":  # the backward is part of the graph
    step = braze.compile(whole, fullgraph=True)
else:
    compiled = braze.compile(chain, fullgraph=True)
    step = lambda x: compiled(x).sum().backward()
step(x[:16])
before = memory("VmRSS")
for _ in range(2):
    chain.zero_grad()
    step(x)
print((memory("VmHWM") - before) / (x.numel() * 4))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for its peak memory")
@pytest.mark.parametrize("how", ["halves", "whole"])
def test_peak_memory_of_a_long_chain(how):
    """In units of the chain's input: a block has about ten of them, the regions' inputs are twelve.

    The smaller of two peaks: what a busy system does only adds to one.
    """

    def measured(which):
        command = [sys.executable, "-c", PEAK, os.path.dirname(__file__), which, how]
        return float(subprocess.run(command, capture_output=True, check=True).stdout)

    peak = {which: min(measured(which), measured(which)) for which in ("wrapped", "plain")}
    assert peak["wrapped"] < 12 + 3 * 10 < 80 < peak["plain"], peak


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
