"""Real models, made small: one graph, eager's results within twice eager's own error against float64."""

import copy

import pytest
import torch
from benchmarks import suites
from harness import Graphs

import braze


def small(name):
    torch.manual_seed(0)
    if name == "bert":
        from transformers import BertConfig, BertModel

        m = BertModel(
            BertConfig(
                hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=100
            )
        )
        return m, (suites.ids(2, 16, 100),), {}, lambda o: [o.last_hidden_state, o.pooler_output]
    if name == "bert_masked":
        m, args, _, read = small("bert")
        mask = torch.ones(2, 16, dtype=torch.long)
        mask[1, 10:] = 0
        return m, args, {"attention_mask": mask}, read
    if name == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        m = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, use_cache=False))
        return m, (suites.ids(2, 16, 100),), {}, lambda o: [o.logits]
    if name == "t5_encoder":
        from transformers import T5Config, T5EncoderModel

        m = T5EncoderModel(T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100))
        return m, (suites.ids(2, 16, 100),), {}, lambda o: [o.last_hidden_state]
    if name == "vit":
        from transformers import ViTConfig, ViTModel

        m = ViTModel(
            ViTConfig(
                hidden_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=128,
                image_size=32,
                patch_size=8,
            )
        )
        return m, (torch.randn(2, 3, 32, 32),), {}, lambda o: [o.last_hidden_state]
    if name == "llama":
        from transformers import LlamaConfig, LlamaModel

        m = LlamaModel(
            LlamaConfig(
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                vocab_size=100,
                use_cache=False,
            )
        )
        return m, (suites.ids(2, 16, 100),), {}, lambda o: [o.last_hidden_state]
    if name in ("resnet18", "resnet50"):
        from transformers import ResNetConfig, ResNetForImageClassification

        kind = "basic" if name == "resnet18" else "bottleneck"
        m = ResNetForImageClassification(
            ResNetConfig(embedding_size=16, depths=[1, 2], hidden_sizes=[16, 32], layer_type=kind, num_labels=10)
        )
        for module in m.modules():
            if isinstance(module, torch.nn.BatchNorm2d):  # statistics that are not the identity
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
        return m, (torch.randn(2, 3, 64, 64),), {}, lambda o: [o.logits]
    return suites.Mixer(32, 8, 32, 2, 16, 64, 10), (torch.randn(2, 3, 32, 32),), {}, lambda o: [o]


NAMES = ["bert", "bert_masked", "gpt2", "t5_encoder", "vit", "llama", "resnet18", "resnet50", "mixer"]


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_model_is_one_graph_with_eagers_results(name):
    model, args, kwargs, read = small(name)
    model.eval()
    counter = Graphs()
    braze.compile(model, backend=counter)(*args, **kwargs)
    assert counter.count == 1

    want, compiled = read(model(*args, **kwargs)), braze.compile(model, fullgraph=True)
    double = lambda v: v.double() if v.is_floating_point() else v
    exact = read(copy.deepcopy(model).double()(*map(double, args), **kwargs))
    for call in range(2):
        for g, w, e in zip(read(compiled(*args, **kwargs)), want, exact, strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape and g.stride() == w.stride()
            own, eager = (g.double() - e).abs().max(), (w.double() - e).abs().max()
            assert own <= 2 * eager + 1e-7, f"call {call}: error {own:.3g}, eager's {eager:.3g}"


@torch.no_grad()
def test_output_type_and_module_surface_stay():
    model, args, _, _ = small("bert")
    model.eval()
    compiled = braze.compile(model)
    assert isinstance(compiled, type(model))
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert compiled.config is model.config
    assert type(compiled(*args)) is type(model(*args))
    assert list(compiled(*args).keys()) == list(model(*args).keys())


@torch.no_grad()
def test_torch_compile_with_our_backend():
    model, args, _, read = small("mixer")
    model.eval()
    got = torch.compile(model, backend="braze")(*args)
    torch.testing.assert_close(got, model(*args), rtol=1e-4, atol=1e-4)
