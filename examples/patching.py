"""Heads switched off and patched between two texts that differ in one word: exactly, and by gradient."""

import torch
from transformers import BertConfig, BertForSequenceClassification

import lorgnette as lo

tokenizer = lo.load("minilm").tokenizer
torch.manual_seed(0)
shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **shape)).eval()

good, bad = (tokenizer(text, return_tensors="pt") for text in ("a good film", "a bad film"))

off = lo.effect(model, good, without=["1.2", "2.3"])
print("two heads off:", [round(change, 4) for change in off.logits[0].tolist()])

other = lo.attention(model, parts=["context"], **bad)
for head in ("1.1", "2.4"):
    patched = lo.effect(model, good, patched=(other, [head]))
    print(f"head {head} from the other text: divergence {patched.divergence:.2e} nats")

estimates = lo.gradient_effects(model, good, from_=other, metric=lambda output: output.logits[0, 0])
exact = lo.effect(model, good, patched=(other, ["2.4"])).logits[0, 0]
slope = float(estimates.sel(layer=2, head=4).squeeze())
print(f"head 2.4 on the first logit: exact {exact:+.5f}, by gradient {slope:+.5f}")
