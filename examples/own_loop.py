"""Lenses in a loop of your own: they are torchmetrics metrics."""

import torch

import lorgnette as lo

subject = lo.load("minilm")
model, tokenizer = subject.model, subject.tokenizer
texts = ["The cat sat on the mat.", "Dogs bark at night.", "Slow, but moving.", "Why not?"]

weights, norms = lo.lens.get("weights"), lo.lens.get("norms")
for start in range(0, len(texts), 2):
    inputs = tokenizer(texts[start : start + 2], padding=True, return_tensors="pt")
    with lo.watch(model, weights, norms, batch=lo.batch(inputs, tokenizer)), torch.no_grad():
        model(**inputs)

entropy = weights.compute().data["entropy_normalised"]
print("normalised entropy by layer:", entropy.mean("head").values.round(2).tolist())
print("texts seen:", int(weights.compute().data["entropy_count"].max()))
