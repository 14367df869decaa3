"""Tiny models of every family with something to predict, and the tokenizer that goes with each."""

from typing import Any

import torch
import transformers as hf
from tiny import BERT, FAMILIES, LLAMA, SIZE, examples, tiny_model, tokenizer
from tiny.models import T5

from lorgnette.subject import Subject

ALBERT: dict[str, Any] = {**BERT, "num_hidden_layers": 4, "embedding_size": 16, "num_hidden_groups": 2}
MODERN: dict[str, Any] = {
    **SIZE,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "local_attention": 6,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
DEBERTA: dict[str, Any] = {
    **BERT,
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": "c2p|p2c",
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "max_relative_positions": -1,
}
GPT2: dict[str, Any] = {
    "vocab_size": 97,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
MORE = {
    "xlm-roberta-classifier": lambda: hf.XLMRobertaForSequenceClassification(
        hf.XLMRobertaConfig(**BERT, pad_token_id=0)
    ),
    "camembert-mlm": lambda: hf.CamembertForMaskedLM(hf.CamembertConfig(**BERT, pad_token_id=0)),
    "electra-classifier": lambda: hf.ElectraForSequenceClassification(hf.ElectraConfig(**BERT, embedding_size=16)),
    "albert-mlm": lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**ALBERT)),
    "albert-classifier": lambda: hf.AlbertForSequenceClassification(hf.AlbertConfig(**ALBERT)),
    "modernbert-classifier": lambda: hf.ModernBertForSequenceClassification(hf.ModernBertConfig(**MODERN)),
    "modernbert-mlm": lambda: hf.ModernBertForMaskedLM(hf.ModernBertConfig(**MODERN)),
    "mpnet-classifier": lambda: hf.MPNetForSequenceClassification(hf.MPNetConfig(**BERT, pad_token_id=1)),
    "deberta-v2-classifier": lambda: hf.DebertaV2ForSequenceClassification(hf.DebertaV2Config(**DEBERTA)),
    "bert-tokens": lambda: hf.BertForTokenClassification(hf.BertConfig(**BERT)),
    "gpt2-classifier": lambda: hf.GPT2ForSequenceClassification(hf.GPT2Config(**GPT2)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**LLAMA, sliding_window=5)),
    "t5-gated": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5, feed_forward_proj="gated-gelu")),
}
# fmt: off
HEADLESS = (
    "bert", "xlm-roberta", "camembert", "electra", "albert", "albert-inner", "modernbert", "t5-encoder", "mpnet",
    "deberta", "deberta-v2", "roformer", "luke", "big-bird",
)
# fmt: on
HEADED = (*(name for name in FAMILIES if name not in HEADLESS), *MORE)
TOKENIZED_LIKE = {"gpt2-classifier": "gpt2", "t5-gated": "t5"}


def headed(name: str, dtype: torch.dtype = torch.float64, biased: bool = True) -> Subject:
    """A subject with an output head; without biases, nothing but words and positions can take relevance."""
    if name in MORE:
        torch.manual_seed(0)
        model = MORE[name]().eval().to(dtype)
        _louder(model)
    else:
        model = tiny_model(name, 0, dtype)
    if not biased:
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if key.endswith("bias"):
                    parameter.zero_()
    return Subject(model, tokenizer(TOKENIZED_LIKE.get(name, name)), name=f"tiny {name}")


def _louder(model: Any) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(4.0)
            elif parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)


__all__ = ["HEADED", "HEADLESS", "examples", "headed"]
