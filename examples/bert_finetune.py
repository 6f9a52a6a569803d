"""Fine-tunes a tiny BERT (random weights, made-up sentences) with compiled training steps: forward, backward and loss."""

import torch
from transformers import BertConfig, BertForSequenceClassification

import braze

torch.manual_seed(0)
config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=2
)
model = BertForSequenceClassification(config).train()
fast = braze.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

# A sentence is of class 1 if the word 7 is in it.
words = torch.randint(8, 100, (64, 16))
labels = torch.arange(64) % 2
words[labels == 1, 3] = 7

losses = []
for epoch in range(30):
    for batch in torch.randperm(64).split(16):
        loss = fast(input_ids=words[batch], labels=labels[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item())

print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last; compiled {braze.counters()['graphs']} graphs")
assert losses[-1] < 0.5 * losses[0]
