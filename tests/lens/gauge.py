"""The same function with other values and keys: constants that no output of a model can tell."""

import torch
import transformers as hf
from tiny import LLAMA, tokenizer
from tiny.models import peaked

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
        output, _ = around.output_weights()
        _, bias = around.value.weights(around.groups)
        constant = (size * torch.randn(bias.shape, generator=generator)).to(bias)
        with torch.no_grad():
            bias += constant  # a view of the model's own
            each = constant.repeat_interleave(around.heads // around.groups, 0)
            linear_weights(around.output)[1].sub_(torch.einsum("hd,hdm->m", each, output))


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
