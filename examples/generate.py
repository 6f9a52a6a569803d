"""Text by a tiny GPT-2 with a static cache: transformers compiles the decoding step by itself, and braze.install() makes that Braze."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.configuration_utils import CompileConfig

import braze

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=64)).eval()
prompt = torch.randint(0, 64, (2, 5))
how = dict(do_sample=False, max_new_tokens=12, pad_token_id=0, cache_implementation="static")
want = model.generate(prompt, **how)

config = CompileConfig()
config._compile_all_devices = True  # transformers leaves CPUs uncompiled otherwise
with braze.install():
    got = model.generate(prompt, compile_config=config, **how)

print(got[0].tolist(), braze.counters()["graphs"], "graphs")
assert torch.equal(got, want) and braze.counters()["graphs"] >= 1
