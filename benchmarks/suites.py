"""What is timed: small functions (`micro`), whole models (`models`), their training steps (`training`) and one token of a language
model (`decode`), with random weights and fixed seeds.

`build(name)` returns a `Case`: the module or function, its inputs, and how to read the tensors out of its result.
Models come from public model code (transformers) where there is some; no weights are loaded.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Case:
    fn: Any
    args: tuple
    read: Callable[[Any], list[torch.Tensor]]
    targets: list[torch.Tensor] | None = None  # training: what the outputs are multiplied with to make the loss
    # Given `args` before each call: puts back what a call changes in them.
    before: Callable[..., None] | None = dataclasses.field(default=None, kw_only=True)

    def step(self, fn) -> list[torch.Tensor]:
        """One call of `fn` (the case's own function, or it compiled): its outputs, or the loss and every parameter's gradient."""
        if self.before:
            self.before(*self.args)
        if self.targets is None:
            with torch.no_grad():
                return self.read(fn(*self.args))
        parameters = [p for p in self.fn.parameters() if p.requires_grad]
        for p in parameters:
            p.grad = None
        loss = sum((o * t).mean() for o, t in zip(self.read(fn(*self.args)), self.targets))
        loss.backward()
        return [loss.detach(), *(p.grad for p in parameters if p.grad is not None)]


def tensor(out):
    return [out]


def build(name: str) -> Case:
    torch.manual_seed(0)
    if name.endswith(TRAIN):
        return training(MODELS[name.removesuffix(TRAIN)]())
    return (MICRO.get(name) or MODELS.get(name) or DECODE[name])()


def training(case: Case) -> Case:
    """The case as a training step, with dropout off so that gradients can be compared."""
    case.fn.train()
    for m in case.fn.modules():
        for name, value in vars(m).items():
            if "drop" in name and isinstance(value, float) or isinstance(m, nn.Dropout) and name == "p":
                setattr(m, name, 0.0)
    with torch.no_grad():
        targets = [torch.randn_like(o) for o in case.read(case.fn(*case.args))]
    return dataclasses.replace(case, targets=targets)


def in_double(case: Case) -> Case:
    """The same case in float64: the reference that says how wrong float32 itself is."""

    def double(x):
        if hasattr(x, "layers"):  # a cache
            x = copy.deepcopy(x)
            for layer in x.layers:
                layer.keys, layer.values = layer.keys.double(), layer.values.double()
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    fn = copy.deepcopy(case.fn).double() if isinstance(case.fn, nn.Module) else case.fn
    targets = case.targets and [double(t) for t in case.targets]
    return dataclasses.replace(case, fn=fn, args=tuple(double(a) for a in case.args), targets=targets)


# ---- micro: bandwidth-bound functions -------------------------------------------------------------------------------


def pointwise(fn, *shapes):
    return lambda: Case(fn, tuple(torch.randn(s) for s in shapes), tensor)


def one_line(a):
    return torch.relu(a * 2 + 1)


def chain(a):
    for _ in range(2):
        a = torch.tanh(torch.sigmoid(a * 1.5 + 0.5)) * a - 0.25
    return a


def softmax_norm(x, w, b):
    return F.layer_norm(torch.softmax(x, -1), (x.shape[-1],), w, b)


def bias_gelu(x, b):
    return F.gelu(x + b)


def bias_gelu_tanh(x, b):
    return F.gelu(x + b, approximate="tanh")


def residual_norm(x, y, w, b):
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def transposed_add(a, b):
    return a + b.t()


def column_mean(x):
    return (x * x).mean(0)


def row_reduce(x):
    return x.amax(-1) - x.mean(-1)


def full_sum(x):
    return (x * x).sum()


def masked_softmax(s, m):
    return torch.softmax(s * 0.125 + m, -1)


def swiglu(x, y):
    return F.silu(x) * y


N, D = 4096, 1024
MICRO: dict[str, Callable[[], Case]] = {
    "one_line": pointwise(one_line, (256, 256)),
    "chain": pointwise(chain, (1024, 1024)),
    "softmax_norm": pointwise(softmax_norm, (N, D), (D,), (D,)),
    "residual_norm": pointwise(residual_norm, (N, 768), (N, 768), (768,), (768,)),
    "rms_norm": pointwise(rms_norm, (N, D), (D,)),
    "bias_gelu": pointwise(bias_gelu, (N, D), (D,)),
    "bias_gelu_tanh": pointwise(bias_gelu_tanh, (N, D), (D,)),
    "swiglu": pointwise(swiglu, (N, D), (N, D)),
    "masked_softmax": pointwise(masked_softmax, (8, 12, 128, 128), (8, 1, 1, 128)),
    "transposed_add": pointwise(transposed_add, (2048, 2048), (2048, 2048)),
    "column_mean": pointwise(column_mean, (N, D)),
    "row_reduce": pointwise(row_reduce, (N, D)),
    "full_sum": pointwise(full_sum, (N, D)),
}


# ---- models ---------------------------------------------------------------------------------------------------------


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al., 2021): token mixing and channel mixing by two-layer MLPs."""

    def __init__(self, image=224, patch=16, width=512, depth=8, tokens=256, channels=2048, classes=1000):
        super().__init__()
        n = (image // patch) ** 2
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList(MixerBlock(n, width, tokens, channels) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class MixerBlock(nn.Module):
    def __init__(self, n, width, tokens, channels):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token = nn.Sequential(nn.Linear(n, tokens), nn.GELU(), nn.Linear(tokens, n))
        self.channel = nn.Sequential(nn.Linear(width, channels), nn.GELU(), nn.Linear(channels, width))

    def forward(self, x):
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


def ids(batch, n, vocab=30000):
    return torch.randint(0, vocab, (batch, n))


def bert():
    from transformers import BertConfig, BertModel

    return Case(BertModel(BertConfig()).eval(), (ids(4, 128),), lambda o: [o.last_hidden_state, o.pooler_output])


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return Case(GPT2LMHeadModel(GPT2Config(use_cache=False)).eval(), (ids(4, 128),), lambda o: [o.logits])


def t5_encoder():
    from transformers import T5Config, T5EncoderModel

    return Case(T5EncoderModel(T5Config()).eval(), (ids(4, 128),), lambda o: [o.last_hidden_state])


def vit():
    from transformers import ViTConfig, ViTModel

    return Case(
        ViTModel(ViTConfig(num_hidden_layers=6)).eval(), (torch.randn(2, 3, 224, 224),), lambda o: [o.last_hidden_state]
    )


def resnet(depths, kind, hidden):
    def make():
        from transformers import ResNetConfig, ResNetForImageClassification

        model = ResNetForImageClassification(
            ResNetConfig(depths=depths, layer_type=kind, hidden_sizes=hidden, num_labels=1000)
        )
        return Case(model.eval(), (torch.randn(4, 3, 160, 160),), lambda o: [o.logits])

    return make


def mixer():
    return Case(Mixer().eval(), (torch.randn(2, 3, 224, 224),), tensor)


def llama():
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=32000,
        use_cache=False,
    )
    return Case(LlamaModel(config).eval(), (ids(2, 128),), lambda o: [o.last_hidden_state])


MODELS: dict[str, Callable[[], Case]] = {
    "bert": bert,
    "gpt2": gpt2,
    "t5_encoder": t5_encoder,
    "vit": vit,
    "resnet18": resnet([2, 2, 2, 2], "basic", [64, 128, 256, 512]),
    "resnet50": resnet([3, 4, 6, 3], "bottleneck", [256, 512, 1024, 2048]),
    "mixer": mixer,
    "llama": llama,
}

# ---- decode: one token of a small language model --------------------------------------------------------------------


def decode(dtype, prompt=16, room=256):
    """Always the same token: its keys and values go to the place after the prompt's in a static cache."""

    def make():
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

        config = LlamaConfig(
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=8000,
        )
        model = LlamaForCausalLM(config).eval().to(dtype)
        cache = StaticCache(config=config, max_cache_len=room)
        with torch.no_grad():
            model(ids(1, prompt, config.vocab_size), past_key_values=cache)

        def before(ids, mask, places, cache):
            for layer in cache.layers:
                layer.cumulative_length.fill_(prompt)

        return Case(model, (ids(1, 1, config.vocab_size), None, None, cache), lambda o: [o.logits], before=before)

    return make


DECODE: dict[str, Callable[[], Case]] = {"decode": decode(torch.float32), "decode_bf16": decode(torch.bfloat16)}

TRAIN = "_train"
SUITES = {
    "micro": list(MICRO),
    "models": list(MODELS),
    "training": [name + TRAIN for name in MODELS],
    "decode": list(DECODE),
}
