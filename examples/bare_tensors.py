"""What one pass of a model did, on tensors that you made."""

import torch

import lorgnette as lo

subject = lo.load("minilm")  # any Hugging Face model will do: AutoModel.from_pretrained(…)
model, tokenizer = subject.model, subject.tokenizer

inputs = tokenizer(["The cat sat on the mat.", "It was tired."], padding=True, return_tensors="pt")
with torch.no_grad():
    seen = lo.attention(model, layers=[2, 3], **inputs)

weights = seen["encoder.2.weights"]  # [batch head query key]
norms = seen["encoder.2.norms"]  # ‖α f(x)‖: how much each token contributes
print("weights", tuple(weights.shape), "norms", tuple(norms.shape))

first = 0  # [CLS]
share = norms[..., first].sum() / norms.sum()
print(
    f"[CLS] receives {weights[0, ..., first].mean():.0%} of the weight and supplies {share:.0%} of the norm in layer 2"
)
print(seen.data("encoder.2.weights").sizes)
