"""Queries and keys captured on one side, lenses on the other: the numbers are those of the model itself."""

import torch
from safetensors.torch import load_file, save_file
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

import lorgnette as lo

subject = lo.load("minilm")
texts = ["The cat sat on the mat.", "It was tired."]
inputs = subject.tokenizer(texts, padding=True, return_tensors="pt")

# On one side: no Lorgnette, only an attention function that keeps what it is given. vLLM's hooks would do as well.
kept = {}


def keeping(module, query, key, value, mask, scaling=None, **more):
    kept[f"{len(kept) // 2 + 1}.query"] = query.contiguous()
    kept[f"{len(kept) // 2 + 1}.key"] = key.contiguous()
    return sdpa_attention_forward(module, query, key, value, mask, scaling=scaling, **more)


AttentionInterface.register("keeping", keeping)
AttentionMaskInterface.register("keeping", sdpa_mask)  # without it, transformers masks nothing under a name of your own
subject.model.set_attn_implementation("keeping")
with torch.no_grad():
    subject.model(**inputs)
subject.model.set_attn_implementation("sdpa")
save_file(kept, "captured.safetensors")

# On the other: the file, and what is not in it (no causality here, and where padding is).
file = load_file("captured.safetensors")
layers = range(1, len(file) // 2 + 1)
calls = lo.calls(
    {layer: file[f"{layer}.query"] for layer in layers},
    {layer: file[f"{layer}.key"] for layer in layers},
    causal=False,
    batch=lo.batch(inputs, subject.tokenizer),
)
print(calls)
found = calls.look("weights")["weights"].data
expected = lo.look(subject, texts, "weights", progress=False)["weights"].data
print(f"mass on [SEP] in layer 4: {found['mass'].sel(category='sep', layer=4).mean():.3f}")
difference = abs(found[["entropy", "mass"]] - expected[["entropy", "mass"]]).max()
print(f"largest difference from the model: {max(map(float, difference.values())):.0e}")
