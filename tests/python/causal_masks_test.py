"""Masks that a program makes of positions alone: attention without reading one, with eager's results and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

import braze

S = 64
INFINITY = float("inf")


def at(n=S):
    return torch.arange(n)


CAUSAL = {
    "tril of truths": lambda: torch.ones(S, S, dtype=torch.bool).tril(),
    "tril of ones": lambda: torch.tril(torch.ones(S, S)).view(1, 1, S, S) != 0,
    "triu of infinity": lambda: torch.triu(torch.full((S, S), -INFINITY), diagonal=1),
    "triu, filled": lambda: torch.zeros(S, S).masked_fill(torch.ones(S, S, dtype=torch.bool).triu(1), -INFINITY),
    "not triu": lambda: ~torch.triu(torch.ones(S, S, dtype=torch.bool), 1),
    "at least": lambda: at()[:, None] >= at()[None, :],
    "less than the next": lambda: at()[None, :] < at()[:, None] + 1,
    "difference": lambda: (at()[:, None] - at()[None, :]) >= 0,
    "chosen": lambda: torch.where(at()[None, :] <= at()[:, None], 0.0, -INFINITY),
    "lowest number": lambda: torch.where(at()[None, :] <= at()[:, None], 0.0, torch.finfo(torch.float32).min),
    "for each head": lambda: (at()[:, None] >= at()[None, :])[None, None].expand(2, 4, S, S),
    "and all": lambda: torch.ones(2, 1, 1, S, dtype=torch.bool) & (at()[:, None] >= at()[None, :]),
    "cut out": lambda: torch.tril(torch.ones(1, 1, 2 * S, 2 * S))[:, :, :S, :S].bool(),
    "transposed": lambda: torch.triu(torch.ones(S, S, dtype=torch.bool)).t(),
}
ALL = {
    "ones": lambda: torch.ones(S, S, dtype=torch.bool),
    "zeros": lambda: torch.zeros(2, 1, 1, S),
    "always": lambda: at()[None, :] < at()[:, None] + S,
}
OTHERS = {
    "one more": lambda: at()[None, :] <= at()[:, None] + 1,
    "later ones": lambda: at()[None, :] >= at()[:, None],
    "window": lambda: (at()[None, :] <= at()[:, None]) & (at()[None, :] > at()[:, None] - 8),
    "prefix": lambda: (at()[None, :] <= at()[:, None]) | (at()[None, :] < 5),
    "every second": lambda: torch.arange(0, 2 * S, 2)[None, :] <= at()[:, None],
    "reversed": lambda: at().flip(0)[None, :] <= at()[:, None],
    "not low enough": lambda: torch.triu(torch.full((S, S), -100.0), 1),
    "a bias": lambda: torch.where(at()[None, :] <= at()[:, None], 1.0, -INFINITY),
    "a diagonal further": lambda: torch.ones(S, S, dtype=torch.bool).tril(2),
    "two blocks": lambda: (at()[None, :] <= at()[:, None]) & (at()[None, :] // 32 == at()[:, None] // 32),
}


def inputs(queries=S, keys=S, features=32):
    torch.manual_seed(0)
    return [torch.randn(2, 4, n, features, requires_grad=True) for n in (queries, keys, keys)]


def same(f, compiled, *args):
    want, got = f(*args), compiled(*args)
    torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-5)
    for a, b in zip(torch.autograd.grad(got.square().sum(), args), torch.autograd.grad(want.square().sum(), args)):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [*CAUSAL, *ALL, *OTHERS])
def test_a_mask(name):
    mask = {**CAUSAL, **ALL, **OTHERS}[name]

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask())

    same(f, braze.compile(f, fullgraph=True), *inputs())
    e = braze.explain(f, *inputs())
    assert e.graph_count == 1, e
    # Without a mask nothing but the operator is left.
    assert (e.kernel_count == 0) == (name not in OTHERS), e


def test_a_mask_of_data_is_read():
    def f(q, k, v, length):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(at()[None, :] <= at()[:, None]) & (at() < length))

    compiled = braze.compile(f, fullgraph=True)
    for length in (S, 20, 3):
        args = [*inputs(), torch.tensor(length)]
        torch.testing.assert_close(compiled(*args), f(*args), atol=2e-6, rtol=1e-5)


def test_other_numbers_of_queries_and_keys():
    def f(q, k, v):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    for dynamic in (False, True):
        compiled = braze.compile(f, fullgraph=True, dynamic=dynamic)
        for queries, keys in ((S, S), (5, S), (1, S), (40, 48), (1, 1), (2, 2)):
            same(f, compiled, *inputs(queries, keys))


def test_open_sizes_have_one_graph_without_a_mask():
    def f(q, k, v):
        n = q.shape[-2]
        mask = torch.triu(torch.full((n, n), -INFINITY), diagonal=1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, None])

    compiled = braze.compile(f, fullgraph=True, dynamic=True)
    for n in (96, 130, 7):
        same(f, compiled, *inputs(n, n))
    e = braze.explain(compiled, *inputs(33, 33))
    assert e.kernel_count == 0, e


@pytest.mark.parametrize("form", ["filled", "added", "chosen"])
def test_attention_that_is_written_out(form):
    def f(q, k, v):
        n = q.shape[-2]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if form == "filled":
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -INFINITY)
        elif form == "added":
            scores = scores + torch.triu(torch.full((n, n), -INFINITY), 1)
        else:
            scores = torch.where(torch.ones(n, n, dtype=torch.bool).tril(), scores, torch.finfo(scores.dtype).min)
        return scores.softmax(-1) @ v

    q, k, v = (x.detach() for x in inputs(256, 256))
    compiled = braze.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), f(q, k, v), atol=2e-6, rtol=1e-5)
    e = braze.explain(f, q, k, v)
    operator = braze.explain(F.scaled_dot_product_attention, q, k, v)  # two products on some CPUs
    assert e.extern_count == operator.extern_count, e


def test_a_model_of_transformers_is_causal():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    ids = torch.randint(0, 100, (2, 33))
    compiled = braze.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    e = braze.explain(model, ids)
    assert e.graph_count == 1 and "aten::where" not in "".join(e.partitions)


def masks_read(f):
    """The sizes of the masks that PyTorch's attention on the CPU was given, forward and backward, in order."""
    with torch.profiler.profile(record_shapes=True) as profile:
        f()
    place = {
        "aten::_scaled_dot_product_flash_attention_for_cpu": 5,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 8,
    }
    return [e.input_shapes[place[e.name]] for e in profile.events() if e.name in place]


PADDED = {
    "ones": lambda m: None,
    "the first": lambda m: m[0, :5].zero_(),
    "the last": lambda m: m[1, -1:].zero_(),
    "one in the middle": lambda m: m[1, S // 2].zero_(),
}


@pytest.mark.parametrize("joined", ["truths", "numbers", "lowest number", "half", "every head"])
@pytest.mark.parametrize("name", PADDED)
def test_a_mask_of_padding_is_read_where_it_forbids_something(name, joined):
    def f(q, k, v, padding):
        mask = (at()[:, None] >= at()[None, :]) & padding[:, None, None, :].bool()
        if joined in ("numbers", "half"):
            mask = torch.where(mask, 0.0, -INFINITY).to(q.dtype)
        elif joined == "lowest number":
            mask = ((1 - mask.float()) * torch.finfo(torch.float32).min).to(q.dtype)
        elif joined == "every head":
            mask = mask.repeat(1, 4, 1, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    args = inputs()
    padding = torch.ones(2, S, dtype=torch.long)
    PADDED[name](padding)
    dtype = torch.bfloat16 if joined == "half" else torch.float32
    args = [x.detach().to(dtype).requires_grad_() for x in args]
    compiled = braze.compile(f, fullgraph=True)
    exact = f(*[x.double() for x in args], padding)

    def step(g):
        out = g(*args, padding)
        return out, torch.autograd.grad(out.square().sum(), args)

    step(compiled)
    got = []
    shapes = masks_read(lambda: got.extend(step(compiled)))
    want = step(f)
    at_most = 0.02 if joined == "half" else 1e-5
    # Queries before the first key that is no padding see nothing: NaN, in eager as well.
    torch.testing.assert_close(got[0].double(), exact, atol=at_most, rtol=at_most, equal_nan=True)
    for a, b in zip(got[1], want[1]):
        torch.testing.assert_close(a, b, atol=4 * at_most, rtol=4 * at_most, equal_nan=True)
    assert len(shapes) == 2 and all(bool(s) == (name != "ones") for s in shapes), shapes


def test_a_given_mask_that_changes():
    def f(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v = (x.detach() for x in inputs())
    compiled = braze.compile(f, fullgraph=True)
    causal = torch.ones(S, S, dtype=torch.bool).tril()
    one_off = causal.clone()
    one_off[S // 3, S // 3 + 1] = True
    one_less = causal.clone()
    one_less[S - 2, 1] = False
    strided = torch.ones(S, 2 * S, dtype=torch.bool).tril()[:, :S]
    masks = [
        causal,
        ~causal,
        one_off,
        one_less,
        torch.ones(S, S, dtype=torch.bool),
        strided,
        causal.t(),
        causal.t().contiguous(),
    ]
    masks += [torch.where(m, 0.0, -INFINITY) for m in masks]
    masks += [torch.where(causal, 0.0, -100.0), torch.where(causal, 1e-3, -INFINITY), torch.where(causal, -0.0, -1e38)]
    for i, mask in enumerate(masks):
        torch.testing.assert_close(
            compiled(q, k, v, mask), f(q, k, v, mask), atol=2e-6, rtol=1e-5, equal_nan=True, msg=str(i)
        )


@pytest.mark.parametrize("queries, keys", [(S, 2 * S), (2 * S, S), (1, S), (1, 1)])
def test_as_many_keys_as_queries_are_asked_for(queries, keys):
    def f(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v = (x.detach() for x in inputs(queries, keys))
    compiled = braze.compile(f, fullgraph=True, dynamic=False)
    for mask in (torch.ones(queries, keys).tril().bool(), torch.ones(queries, keys).bool(), torch.zeros(queries, keys)):
        torch.testing.assert_close(compiled(q, k, v, mask), f(q, k, v, mask), atol=2e-6, rtol=1e-5)
