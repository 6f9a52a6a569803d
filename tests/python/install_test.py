"""braze.install(): torch.compile is ours, for the process or a block, and libraries that call it use it unchanged."""

import logging
import re
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from harness import same
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.configuration_utils import CompileConfig

import braze
from braze import _C, _install


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return self.inner(x).relu()


def test_in_a_block_only():
    before = torch.compile
    with braze.install():
        assert torch.compile is not before
        with braze.install():
            pass
        compiled = torch.compile(lambda x: x + 1)
        assert isinstance(compiled, _C.Compiled)
    assert torch.compile is before
    same(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert _C.compilations(compiled) == 1


def test_for_the_process():
    before = torch.compile
    installed = braze.install()
    try:

        @torch.compile(fullgraph=True, dynamic=True)
        def f(x):
            return x.sin() * 2

        for n in (3, 4, 5):
            same(f(torch.ones(n)), torch.ones(n).sin() * 2)
        assert _C.compilations(f) == 1
    finally:
        installed.remove()
        installed.remove()
    assert torch.compile is before


def test_modules_compile_in_place():
    net, x = Net(), torch.randn(2, 3)
    want, names = net(x), list(net.state_dict())
    with braze.install():
        net.compile(fullgraph=True)
    assert isinstance(net._compiled_call_impl, _C.Compiled) and type(net) is Net
    same(net(x), want)
    assert _C.compilations(net._compiled_call_impl) == 1 and list(net.state_dict()) == names
    net(x).sum().backward()
    assert net.inner.weight.grad is not None


def test_a_module_keeps_its_class():
    net = Net()
    with braze.install():
        compiled = torch.compile(net)
    assert isinstance(compiled, Net) and compiled._orig_mod is net
    same(compiled(torch.ones(1, 3)), net(torch.ones(1, 3)))


def test_backends_and_disable():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    f = lambda x: x + 1
    with braze.install():
        assert torch.compile(f, disable=True) is f
        assert torch.compile(disable=True)(f) is f
        same(torch.compile(f, backend=backend)(torch.ones(2)), f(torch.ones(2)))
        same(torch.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))
        with pytest.raises(ValueError, match="no backend 'nothing'"):
            torch.compile(f, backend="nothing")
        with pytest.raises(RuntimeError, match="both can't be specified"):
            torch.compile(f, mode="default", options={"fuse": True})
        with pytest.raises(ValueError, match="shapes_spec"):
            torch.compile(f, shapes_spec={})
    assert len(graphs) == 1


def test_options_that_are_known_are_those_that_there_are():
    rows = (Path(__file__).parents[2] / "src/base/options.def").read_text()
    assert list(_install._known) == re.findall(r"^BRAZE_OPTION\([\w:]+, (\w+),", rows, re.M)


def test_options_of_inductor_are_left_out(caplog):
    f = lambda x: x * 2
    with braze.install(), caplog.at_level(logging.INFO, logger="braze"):
        compiled = torch.compile(f, options={"epilogue_fusion": True, "triton.cudagraphs": False, "fuse": False})
        same(compiled(torch.ones(2)), f(torch.ones(2)))
    assert "left out options epilogue_fusion" in caplog.text and _C.compilations(compiled) == 1


@pytest.mark.skipif(
    not hasattr(torch.compiler, "set_default_backend"), reason="this PyTorch has no default backend to set"
)
def test_the_default_backend():
    graphs, before = [], torch.compiler.get_default_backend()

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    torch.compiler.set_default_backend(backend)
    try:
        with braze.install():
            same(torch.compile(lambda x: x - 1)(torch.ones(2)), torch.zeros(2))
    finally:
        torch.compiler.set_default_backend(before)
    assert len(graphs) == 1


def test_a_trainer_compiles_itself(tmp_path):
    pytest.importorskip("accelerate")
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    small = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertForSequenceClassification(BertConfig(**small, num_labels=2))
    data = [dict(input_ids=torch.randint(0, 50, (8,)), labels=torch.tensor(i % 2)) for i in range(32)]
    quiet = dict(report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True)
    braze.counters(clear=True)
    with braze.install():
        how = TrainingArguments(
            str(tmp_path), torch_compile=True, max_steps=3, per_device_train_batch_size=8, use_cpu=True, **quiet
        )
        Trainer(model, how, train_dataset=data).train()
    n = braze.counters()
    assert n["training_graphs"] >= 1 and n["failures"] == 0 and n["graph_breaks"] == {}


def test_generate_compiles_itself():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=64)).eval()
    ids = torch.randint(0, 64, (2, 5))
    kw = dict(do_sample=False, max_new_tokens=6, pad_token_id=0, cache_implementation="static")
    want = model.generate(ids, **kw)
    config = CompileConfig()
    config._compile_all_devices = True
    with braze.install():
        got = model.generate(ids, compile_config=config, **kw)
    assert torch.equal(got, want)
    assert isinstance(model._compiled_call, _C.Compiled) and _C.compilations(model._compiled_call) >= 1


def test_another_backend_is_told_of_mode_and_options():
    told = []

    def backend(gm, example_inputs, **given):
        told.append(given)
        return gm.forward

    x = torch.ones(2)
    with braze.install():
        torch.compile(lambda x: x + 1, backend=backend, options={"a": 1})(x)
        torch.compile(lambda x: x + 2, backend=backend, mode="reduce-overhead")(x)
        torch.compile(lambda x: x + 3, backend=backend)(x)
        assert torch.equal(torch.compile(lambda x: x + 4, backend="eager", mode="reduce-overhead")(x), x + 4)
    assert told == [{"options": {"a": 1}}, {"mode": "reduce-overhead"}, {}]
