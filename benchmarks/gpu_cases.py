"""What is timed on a GPU: models and their training steps from public model code with random weights, and an encoder written out
so that JAX can run the same."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


def whole(out):
    return out


def hidden(out):
    return out.last_hidden_state


def ids(batch, n, vocab=30000):
    return torch.randint(0, vocab, (batch, n))


def bert(batch=8, n=128):
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(attn_implementation="sdpa")), (ids(batch, n),), hidden


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)), (ids(4, 256, 50000),), lambda o: o.logits


def t5():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12)
    return T5EncoderModel(config), (ids(8, 128),), hidden


def torchvision(name, shape):
    def make():
        import torchvision

        return getattr(torchvision.models, name)(), (torch.randn(shape),), whole

    return make


def with_a_head(make):
    """The model with a last layer that is not zero, as torchvision's vision transformer has it."""

    def made():
        module, args, read = make()
        for p in module.parameters():
            if p.dim() == 2 and not p.any():
                nn.init.normal_(p, std=0.02)
        return module, args, read

    return made


def mlp():
    layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024), nn.LayerNorm(1024)]
    return nn.Sequential(*layers, *layers), (torch.randn(512, 1024),), whole


class SoftmaxNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        return self.norm(torch.softmax(x, -1))


class Chain(nn.Module):
    def forward(self, x):
        return torch.tanh((x * 0.5 + 1).sigmoid() * x).relu() - F.gelu(x).abs()


def small_mlp():
    layers = [nn.Linear(512, 512), nn.GELU()]
    return nn.Sequential(*layers, *layers, *layers), (torch.randn(4, 512),), whole


class EncoderLayer(nn.Module):
    """Post-norm, attention written with softmax, tanh GELU: the same as jax_encoder's."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // self.heads), -1)
        x = self.norm1(x + self.out((p @ v).transpose(1, 2).reshape(b, n, width)))
        return self.norm2(x + self.down(F.gelu(self.up(x), approximate="tanh")))


def encoder():
    return nn.Sequential(*[EncoderLayer(768, 12) for _ in range(12)]), (torch.randn(8, 128, 768),), whole


def jax_encoder(module, x):
    """The encoder's forward and its gradients under jax.jit, with the module's weights: two functions that wait for their result."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    weights = [{k: jnp.asarray(v.detach().cpu().numpy()) for k, v in layer.named_parameters()} for layer in module]
    x = jnp.asarray(x.detach().cpu().numpy())

    def linear(p, name, x):
        return x @ p[name + ".weight"].T + p[name + ".bias"]

    def norm(p, name, x):
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p[name + ".weight"] + p[name + ".bias"]

    def layer(p, x):
        b, n, width = x.shape
        q, k, v = jnp.transpose(linear(p, "qkv", x).reshape(b, n, 3, 12, width // 12), (2, 0, 3, 1, 4))
        s = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / math.sqrt(width // 12), -1)
        x = norm(p, "norm1", x + linear(p, "out", jnp.swapaxes(s @ v, 1, 2).reshape(b, n, width)))
        return norm(p, "norm2", x + linear(p, "down", jax.nn.gelu(linear(p, "up", x), approximate=True)))

    def forward(weights, x):
        for p in weights:
            x = layer(p, x)
        return x

    run, grad = jax.jit(forward), jax.jit(jax.grad(lambda w, x: forward(w, x).sum()))
    return lambda: jax.block_until_ready(run(weights, x)), lambda: jax.block_until_ready(grad(weights, x))


MODELS = {
    "chain": lambda: (Chain(), (torch.randn(4096, 1024),), whole),
    "softmax_norm": lambda: (SoftmaxNorm(), (torch.randn(4096, 1024),), whole),
    "mlp": mlp,
    "bert": bert,
    "gpt2": gpt2,
    "t5": t5,
    "resnet50": torchvision("resnet50", (32, 3, 224, 224)),
    "vit": with_a_head(torchvision("vit_b_16", (16, 3, 224, 224))),
    "convnext": torchvision("convnext_tiny", (16, 3, 224, 224)),
}
TRAINING = ["bert", "gpt2", "resnet50", "vit"]
REPLAYS = {"small_mlp": small_mlp, "small_bert": lambda: bert(1, 64)}


def on_gpu(make, dtype=torch.float32):
    torch.manual_seed(0)
    module, args, read = make()
    args = [a.cuda().to(dtype) if a.is_floating_point() else a.cuda() for a in args]
    return module.cuda().eval().to(dtype), args, read


def without_dropout(module):
    """The module in training mode, so that its gradients can be compared."""
    module.train()
    for m in module.modules():
        for name, value in vars(m).items():
            if isinstance(value, float) and ("drop" in name or isinstance(m, nn.Dropout) and name == "p"):
                setattr(m, name, 0.0)
    return module


def stepper(module, fn, args, read):
    """A training step: forward, the output's mean weighted by fixed random numbers, backward; gradients dropped before."""
    weights = []

    def step():
        for p in module.parameters():
            p.grad = None
        out = read(fn(*args))
        if not weights:
            g = torch.Generator(device="cuda").manual_seed(0)
            weights.append(torch.randn(out.shape, generator=g, device="cuda").to(out.dtype))
        (out * weights[0]).mean().backward()
        return [p.grad for p in module.parameters() if p.grad is not None]

    return step
