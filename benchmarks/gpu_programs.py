"""Programs that are timed in columns (`benchmarks.gpu columns`): language models, attention, optimizers, losses, products, vision.

Each is `build(size, device, compiled) -> run`, with random weights that are the same in every process: `compiled` is the compiler's function
(eager: the identity), `run()` makes one step and gives the tensors by which the step is compared with eager's. `size` is "full", or "small"
for a machine without a GPU: the same program, with dimensions that a CPU computes in a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

Run = Callable[[], list[torch.Tensor]]


class Program(NamedTuple):
    build: Callable[..., Run]
    tolerance: float = 2e-2  # of the largest element
    exact: Callable[..., Run] | None = (
        None  # the same program in float64: eager itself is further from it than the tolerance
    )
    work: Callable[[str], int] | None = None  # what a step makes, by size: then rates are told, too
    unit: str = ""
    devices: tuple[str, ...] = ("cuda", "cpu")


PROGRAMS: dict[str, Program] = {}


def program(name, **facts):
    def add(build):
        PROGRAMS[name] = Program(build, **facts)
        return build

    return add


def pick(size, full, small):
    return full if size == "full" else small


def half(device):
    return torch.bfloat16 if device == "cuda" else torch.float32


def randn(*shape, device, dtype=None, scale=1.0):
    """Random numbers that are the same on every device."""
    return (torch.randn(*shape) * scale).to(device, dtype or half(device))


def llama(size, device, dtype, *, layers=16, width=2048, vocab=128256, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    small = size != "full"
    width, layers, vocab = (64, 2, 512) if small else (width, layers, vocab)
    heads = width // (16 if small else 64)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=4096,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        **more,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def tokens(model, batch, length):
    vocab = model.config.vocab_size
    return torch.randint(5, vocab, (batch, length), device=model.device)


# ---- language models ----


def decode(batch, exact=False):
    def build(size, device, compiled):
        from transformers import StaticCache

        model = llama(size, device, half(device))
        if exact:
            model.double()
        prompt, room = 16, 512  # the cache counts its steps: room for all that are timed
        cache = StaticCache(config=model.config, max_cache_len=room)
        with torch.no_grad():
            model(
                tokens(model, batch, prompt), past_key_values=cache, cache_position=torch.arange(prompt, device=device)
            )
        step, token = compiled(model.forward), tokens(model, batch, 1)
        place = torch.tensor([prompt + 1], device=device)

        def run():
            with torch.no_grad():
                return [step(input_ids=token, past_key_values=cache, cache_position=place).logits]

        return run

    return build


for _batch in (1, 8):
    program(f"decode_b{_batch}", work=lambda size, b=_batch: b, unit="tokens", exact=decode(_batch, exact=True))(
        decode(_batch)
    )


@program("prefill", work=lambda size: pick(size, 2048, 64), unit="tokens")
def prefill(size, device, compiled):
    model = llama(size, device, half(device), use_cache=False)
    ids, step = tokens(model, 1, pick(size, 2048, 64)), compiled(model)

    def run():
        with torch.no_grad():
            return [step(ids, use_cache=False).logits]

    return run


@program("llama_train", tolerance=5e-2, work=lambda size: 8 * pick(size, 1024, 32), unit="tokens")
def llama_train(size, device, compiled):
    """0.3 B parameters, under autocast, with AdamW."""
    model = llama(size, device, torch.float32, layers=12, width=1024, vocab=32000, use_cache=False).train()
    ids, forward = tokens(model, 8, pick(size, 1024, 32)), compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def run():
        with torch.autocast(device, torch.bfloat16):
            logits = forward(ids).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return [loss.detach()]

    return run


def generate(batch, cache):
    """transformers' own loop, greedy; what is compiled is the model's forward."""

    def build(size, device, compiled):
        model = llama(size, device, half(device), layers=8, width=1024, vocab=32000)
        prompt, new = tokens(model, batch, pick(size, 128, 8)), pick(size, 128, 8)
        model.forward = compiled(model.forward)
        how = {"cache_implementation": "static"} if cache == "static" else {}

        def run():
            with torch.no_grad():
                made = model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=new,
                    min_new_tokens=new,
                    do_sample=False,
                    disable_compile=True,
                    return_dict_in_generate=True,
                    output_logits=True,
                    **how,
                )
            # Later tokens follow from choices that differ where two are equally good.
            return [made.logits[0]]

        return run

    return build


for _cache in ("static", "dynamic"):
    for _batch in (1, 2, 4, 8, 16, 32):
        program(f"generate_{_cache}_b{_batch}", work=lambda size, b=_batch: b * pick(size, 128, 8), unit="tokens")(
            generate(_batch, _cache)
        )


# ---- attention ----


def flex(gradients):
    def build(size, device, compiled):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        heads, length = pick(size, (16, 4096), (2, 256))
        q, k, v = (
            randn(pick(size, 4, 1), heads, length, 64, device=device).requires_grad_(gradients) for _ in range(3)
        )
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=device)
        slopes = torch.logspace(0, -8, heads, base=2, device=device)
        attend = compiled(
            lambda q, k, v: flex_attention(
                q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i), block_mask=mask
            )
        )

        def run():
            out = attend(q, k, v)
            return list(torch.autograd.grad(out.float().square().mean(), (q, k, v))) if gradients else [out]

        return run

    return build


program("flex_forward")(flex(False))
program("flex_backward", tolerance=5e-2, devices=("cuda",))(flex(True))


# ---- optimizers, losses ----


@program("adamw", tolerance=1e-4)
def adamw(size, device, compiled):
    """302 M parameters in 72 tensors."""
    count, shape = pick(size, (72, (1024, 4096)), (6, (64, 64)))
    parameters = [nn.Parameter(torch.randn(shape, device=device)) for _ in range(count)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    step = compiled(torch.optim.AdamW(parameters, lr=1e-3).step)

    def run():
        step()
        return [parameters[0].detach(), parameters[-1].detach()]

    return run


@program("cross_entropy")
def cross_entropy(size, device, compiled):
    rows, vocab = pick(size, (4096, 128256), (64, 1000))
    x, y = randn(rows, vocab, device=device).requires_grad_(), torch.randint(0, vocab, (rows,)).to(device)
    loss = compiled(lambda x: F.cross_entropy(x.float(), y))
    return lambda: list(torch.autograd.grad(loss(x), x))


@program("linear_cross_entropy")
def linear_cross_entropy(size, device, compiled):
    rows, width, vocab = pick(size, (4096, 2048, 128256), (64, 32, 1000))
    x = randn(rows, width, device=device).requires_grad_()
    w = randn(vocab, width, device=device, scale=width**-0.5).requires_grad_()
    y = torch.randint(0, vocab, (rows,)).to(device)
    loss = compiled(lambda x, w: F.cross_entropy(F.linear(x, w).float(), y))
    return lambda: list(torch.autograd.grad(loss(x, w), (x, w)))


# ---- products ----


@program("linear_gelu")
def linear_gelu(size, device, compiled):
    rows, inner, out = pick(size, (8192, 4096, 16384), (64, 64, 128))
    x, w, b = (
        randn(*s, device=device, scale=k) for s, k in (((rows, inner), 1), ((out, inner), inner**-0.5), ((out,), 1))
    )
    f = compiled(lambda x: F.gelu(F.linear(x, w, b), approximate="tanh"))
    return lambda: [f(x)]


@program("gated_mlp")
def gated_mlp(size, device, compiled):
    rows, width, inner = pick(size, (4096, 2048, 8192), (64, 64, 128))
    x, up, gate = (
        randn(rows, width, device=device),
        *(randn(inner, width, device=device, scale=width**-0.5) for _ in "ug"),
    )
    down = randn(width, inner, device=device, scale=inner**-0.5)
    f = compiled(lambda x: x + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down))
    return lambda: [f(x)]


@program("int8_linear")
def int8_linear(size, device, compiled):
    """Weights of eight bits with a scale for each row, one row of the operand."""
    inner, out = pick(size, (4096, 16384), (64, 128))
    x, scale = randn(1, inner, device=device), torch.rand(out).to(device, half(device))
    w = torch.randint(-127, 128, (out, inner), dtype=torch.int8).to(device)
    f = compiled(lambda x: F.linear(x, w.to(x.dtype)) * scale)
    return lambda: [f(x)]


# ---- vision ----


@program("convnext_tiny", work=lambda size: pick(size, 64, 1), unit="images")
def convnext_tiny(size, device, compiled):
    from torchvision.models import convnext_tiny

    model = convnext_tiny().to(device, half(device)).eval()
    edge = pick(size, 224, 64)
    x, f = randn(pick(size, 64, 1), 3, edge, edge, device=device), compiled(model)

    def run():
        with torch.no_grad():
            return [f(x)]

    return run
