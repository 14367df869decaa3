"""The same function with other values and keys: constants that no output of a model can tell."""

import torch
import transformers as hf
from tiny import LLAMA, tokenizer
from tiny.models import peaked

from lorgnette.attending import Tap
from lorgnette.models.linear import linear_weights
from lorgnette.subject import Subject


def grouped_llama(seed=0):
    """Two key heads for four query heads, a norm before each part, and biases everywhere, in float64."""
    torch.manual_seed(seed)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, attention_bias=True))
    return Subject(peaked(model.eval().double()), tokenizer("gpt2"), name="tiny llama with biases")


def shift_values(subject, size=1.0, seed=0):
    """Add a constant to all values of every head, and take it out of the bias behind the heads."""
    generator = torch.Generator().manual_seed(seed)
    for around in subject.anatomy.sites:
        _, bias = around.value.weights(around.groups)
        _move(around, (size * torch.randn(bias.shape, generator=generator)).to(bias))


def mean_values_moved(subject, examples):
    """Take from the values of every head their mean over all tokens of the texts, and add it to the bias behind."""
    totals, counts = {}, {}

    class Values(Tap):
        def see(self, call):
            totals[call.site] = totals.get(call.site, 0.0) + call.grouped_value[0].double().sum(-2)
            counts[call.site] = counts.get(call.site, 0) + call.grouped_value.shape[-2]

    for example in examples:
        with torch.no_grad(), subject.tapped(Values()):
            subject.run(subject.encode([example]), return_dict=True)
    for site, around in zip(subject.sites, subject.anatomy.sites, strict=True):
        _move(around, -totals[site] / counts[site])


def _move(around, constant):
    """A constant of each group of heads from the bias behind the heads into the values."""
    output, _ = around.output_weights()
    _, bias = around.value.weights(around.groups)
    with torch.no_grad():
        bias += constant  # a view of the model's own
        each = constant.repeat_interleave(around.heads // around.groups, 0)
        linear_weights(around.output)[1].sub_(torch.einsum("hd,hdm->m", each.to(output), output))


def logits(subject, examples):
    batch = subject.encode(list(examples))
    with torch.no_grad():
        outputs = subject.run(batch, return_dict=True)
    return outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]


def shift_keys(subject, size=1.0, seed=1):
    """Add a constant to all keys of every head, which moves all scores of a query alike."""
    generator = torch.Generator().manual_seed(seed)
    for around in subject.anatomy.sites:
        _, bias = around.key.weights(around.groups)
        with torch.no_grad():
            bias += (size * torch.randn(bias.shape, generator=generator)).to(bias)
