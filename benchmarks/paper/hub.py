"""Architectures of transformers and timm, with random weights: nothing is downloaded.

transformers' configurations are made small by the table `SIZES`; whatever a configuration nests is made small with it.
"""

from __future__ import annotations

from torch import nn

from benchmarks.paper.plain import ids, noise

TEXT = """albert bert bloom ctrl deberta-v2 distilbert electra falcon gemma2 gpt2 gpt_neo gpt_neox jamba llama longformer mamba mistral mixtral
 modernbert mpt opt phi3 qwen2 qwen3_moe recurrent_gemma roberta rwkv xlm xlnet""".split()
TWO_TEXTS = "bart fsmt m2m_100 mbart pegasus t5".split()
IMAGE = "beit deit dinov2 mobilevit resnet segformer swinv2 vit".split()
SOUND = "hubert wav2vec2".split()
TIMM = """convnext_atto densenet121 edgenext_xx_small efficientnet_b0 ghostnet_050 levit_128s mobilenetv3_small_050 mobilevit_xxs regnetx_002
 repvgg_a0 resnet18 resnet50 swin_tiny_patch4_window7_224 vit_tiny_patch16_224""".split()

# What a configuration says of its size: (tiny, for capture; small, for timing).
SIZES = {
    "hidden_size d_model n_embd dim embedding_size word_embed_proj_dim emb_dim attention_hidden_size lru_width": (
        64,
        256,
    ),
    "intermediate_size ffn_dim d_ff d_inner n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dff": (128, 1024),
    "moe_intermediate_size shared_expert_intermediate_size": (32, 128),
    "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers": (2, 4),
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads": (4, 4),
    "num_key_value_heads": (2, 2),
    "head_dim d_kv": (16, 64),
    "vocab_size src_vocab_size tgt_vocab_size n_vocab": (128, 1000),
    "num_experts num_local_experts": (4, 4),
    "num_experts_per_tok": (2, 2),
    "image_size": (32, 128),
}


def shrink(config, small: bool):
    import transformers

    for names, sizes in SIZES.items():
        for name in names.split():
            value = getattr(config, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                try:
                    setattr(config, name, min(value, sizes[small]))
                except (AttributeError, NotImplementedError):  # of two names of one value, the one that can't be set
                    pass
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            shrink(value, small)
        elif "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif name.endswith("token_id") and isinstance(value, int) and value >= 100:
            setattr(config, name, 1)
        elif name == "layer_types" and isinstance(value, list):
            config.layer_types = value[: config.num_hidden_layers]
    return config


class Plain(nn.Module):
    """A model of transformers with tensors as arguments and the first result: what every system takes."""

    def __init__(self, model):
        super().__init__()
        self.model = model


class Text(Plain):
    def forward(self, input_ids):
        return self.model(input_ids=input_ids)[0]


class TwoTexts(Plain):
    def forward(self, input_ids, decoder_input_ids):
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids)[0]


class Image(Plain):
    def forward(self, pixel_values):
        return self.model(pixel_values=pixel_values)[0]


class Sound(Plain):
    def forward(self, input_values):
        return self.model(input_values=input_values)[0]


def transformers_model(name: str, small: bool):
    import transformers

    config = shrink(transformers.AutoConfig.for_model(name), small)
    config.use_cache = False
    model = transformers.AutoModel.from_config(config)
    length, size = (64, 128) if small else (16, 32)
    if name in TWO_TEXTS:
        return TwoTexts(model), lambda b, s: (ids(s, 100, b, length), ids(s + 100, 100, b, length))
    if name in IMAGE:
        return Image(model), lambda b, s: (noise(s, b, 3, size, size),)
    if name in SOUND:
        return Sound(model), lambda b, s: (noise(s, b, 250 * length),)
    return Text(model), lambda b, s: (ids(s, 100, b, length),)


def timm_model(name: str, small: bool):
    import timm

    model = timm.create_model(name, pretrained=False)
    channels, size, _ = model.default_cfg["input_size"]
    if not model.default_cfg.get("fixed_input_size", False):
        size = min(size, 128 if small else 64)
    return model, lambda b, s: (noise(s, b, channels, size, size),)


MAKERS = {
    **{f"transformers/{name}": transformers_model for name in (*TEXT, *TWO_TEXTS, *IMAGE, *SOUND)},
    **{f"timm/{name}": timm_model for name in TIMM},
}
