"""Models of the transformers library, small and with random weights: one graph each, with eager's results and gradients."""

import pytest
import torch
from dynamic_test import Counted
from harness import same

transformers = pytest.importorskip("transformers")


def mamba():
    config = transformers.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4)
    return transformers.MambaModel(config), dict(input_ids=torch.randint(0, 50, (2, 7)), use_cache=False)


def wav2vec2():
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8, 8), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_length=2,
    )  # fmt: skip
    return transformers.Wav2Vec2Model(config), dict(input_values=torch.randn(2, 800))


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_mel_bins=8, max_source_positions=20, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    return model, dict(input_features=torch.randn(2, 8, 40), labels=torch.randint(3, 60, (2, 6)), use_cache=False)


@pytest.mark.parametrize(
    "make, train", [(mamba, False), (mamba, True), (wav2vec2, False), (whisper, False), (whisper, True)]
)
def test_in_one_graph(make, train):
    model, inputs = make()
    model.train(train)
    compiled = Counted(model, fullgraph=True)
    with torch.set_grad_enabled(train):
        for _ in range(2):
            want, got = model(**inputs, return_dict=False)[0], compiled(**inputs, return_dict=False)[0]
            same(want, got, tol=1e-4)
            grads = []
            for out in (want, got):
                if train:
                    model.zero_grad()
                    out.square().sum().backward()
                    grads.append([p.grad for p in model.parameters()])
            if train:
                same(grads[0], grads[1], tol=1e-3)
    assert compiled.count == 1 and not compiled.breaks
