"""Tiny random models of every family, made on the spot: no download."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from lorgnette.models.families import anatomy_of

SIZE: dict[str, Any] = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
BERT: dict[str, Any] = {**SIZE, "intermediate_size": 40, "max_position_embeddings": 64}
LLAMA: dict[str, Any] = {
    **SIZE,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "head_dim": 8,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
MARIAN: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": 1,
    "max_position_embeddings": 64,
}
T5: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
FALCON: dict[str, Any] = {**SIZE, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1}


FAMILIES: dict[str, Callable[[], Any]] = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**BERT)),
    "bert-classifier": lambda: hf.BertForSequenceClassification(hf.BertConfig(**BERT, num_labels=3)),
    "bert-mlm": lambda: hf.BertForMaskedLM(hf.BertConfig(**BERT)),
    "roberta": lambda: hf.RobertaForSequenceClassification(hf.RobertaConfig(**BERT, pad_token_id=0)),
    "xlm-roberta": lambda: hf.XLMRobertaModel(hf.XLMRobertaConfig(**BERT, pad_token_id=0)),
    "camembert": lambda: hf.CamembertModel(hf.CamembertConfig(**BERT, pad_token_id=0)),
    "electra": lambda: hf.ElectraModel(hf.ElectraConfig(**BERT, embedding_size=16)),
    "albert": lambda: hf.AlbertModel(
        hf.AlbertConfig(**{**BERT, "num_hidden_layers": 4}, embedding_size=16, num_hidden_groups=2, inner_group_num=1)
    ),
    "albert-inner": lambda: hf.AlbertModel(hf.AlbertConfig(**BERT, embedding_size=16, inner_group_num=2)),
    "distilbert": lambda: hf.DistilBertForSequenceClassification(
        hf.DistilBertConfig(vocab_size=97, dim=32, n_layers=3, n_heads=4, hidden_dim=40, max_position_embeddings=64)
    ),
    "modernbert": lambda: hf.ModernBertModel(
        hf.ModernBertConfig(
            **SIZE,
            intermediate_size=40,
            max_position_embeddings=64,
            local_attention=6,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
        )
    ),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1)
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**{k: v for k, v in LLAMA.items() if k != "head_dim"})),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**LLAMA)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**LLAMA, sliding_window=5)),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**LLAMA)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**LLAMA, sliding_window=5, query_pre_attn_scalar=8)),
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**LLAMA, sliding_window=5, query_pre_attn_scalar=8)),
    "opt": lambda: hf.OPTForCausalLM(
        hf.OPTConfig(
            **{k: v for k, v in BERT.items() if k != "intermediate_size"},
            ffn_dim=40,
            word_embed_proj_dim=32,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=1,
        )
    ),
    "gpt-neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**BERT, pad_token_id=0, bos_token_id=2, eos_token_id=1)),
    "gpt-neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            vocab_size=97,
            hidden_size=32,
            num_layers=3,
            num_heads=4,
            intermediate_size=40,
            window_size=5,
            attention_types=[[["global", "local", "global"], 1]],
            max_position_embeddings=64,
            bos_token_id=2,
            eos_token_id=1,
        )
    ),
    "gptj": lambda: hf.GPTJForCausalLM(
        hf.GPTJConfig(
            vocab_size=97, n_embd=32, n_layer=3, n_head=4, rotary_dim=4, n_positions=64, bos_token_id=2, eos_token_id=1
        )
    ),
    "bloom": lambda: hf.BloomForCausalLM(
        hf.BloomConfig(
            vocab_size=97, hidden_size=32, n_layer=3, n_head=4, pad_token_id=0, bos_token_id=2, eos_token_id=1
        )
    ),
    "falcon": lambda: hf.FalconForCausalLM(hf.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "luke": lambda: hf.LukeModel(hf.LukeConfig(**BERT, entity_vocab_size=9, entity_emb_size=16, pad_token_id=0)),
    "big-bird": lambda: hf.BigBirdModel(hf.BigBirdConfig(**BERT, attention_type="original_full", pad_token_id=0)),
    "deberta": lambda: hf.DebertaModel(
        hf.DebertaConfig(**BERT, relative_attention=True, pos_att_type="c2p|p2c", max_relative_positions=-1)
    ),
    "roformer": lambda: hf.RoFormerModel(hf.RoFormerConfig(**BERT, embedding_size=32, pad_token_id=0)),
    "marian": lambda: hf.MarianMTModel(hf.MarianConfig(**MARIAN)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**{**MARIAN, "bos_token_id": 2})),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**T5)),
    "t5-encoder": lambda: hf.T5EncoderModel(
        hf.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, pad_token_id=0)
    ),
    "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(**BERT, pad_token_id=1)),
    "deberta-v2": lambda: hf.DebertaV2Model(
        hf.DebertaV2Config(
            **BERT,
            relative_attention=True,
            position_buckets=8,
            pos_att_type="c2p|p2c",
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            max_relative_positions=-1,
        )
    ),
}


COPIES: dict[str, Callable[[], Any]] = {
    "falcon-7b": lambda: hf.FalconForCausalLM(hf.FalconConfig(**FALCON)),
    "rembert": lambda: hf.RemBertModel(hf.RemBertConfig(**BERT, input_embedding_size=16, pad_token_id=0)),
    "megatron-bert": lambda: hf.MegatronBertModel(hf.MegatronBertConfig(**BERT, pad_token_id=0)),
    "ernie": lambda: hf.ErnieForSequenceClassification(hf.ErnieConfig(**BERT)),
    "data2vec-text": lambda: hf.Data2VecTextModel(hf.Data2VecTextConfig(**BERT, pad_token_id=0)),
    "ministral": lambda: hf.MinistralForCausalLM(hf.MinistralConfig(**LLAMA, sliding_window=5)),
    "ministral3": lambda: hf.Ministral3ForCausalLM(hf.Ministral3Config(**LLAMA)),
    "helium": lambda: hf.HeliumForCausalLM(hf.HeliumConfig(**LLAMA)),
    "seed-oss": lambda: hf.SeedOssForCausalLM(hf.SeedOssConfig(**LLAMA)),
    "ernie4-5": lambda: hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(**LLAMA)),
    "smollm3": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**LLAMA, no_rope_layer_interval=2)),
    "granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(**LLAMA, residual_multiplier=0.5)),
    "arcee": lambda: hf.ArceeForCausalLM(hf.ArceeConfig(**LLAMA)),
    "starcoder2": lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(**LLAMA, sliding_window=None)),
    "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**T5)),
}
"""Models that share a record or a stand-in with one above."""

SINKS: dict[str, Callable[[], Any]] = {
    "gpt-oss": lambda: hf.GptOssForCausalLM(
        hf.GptOssConfig(**LLAMA, sliding_window=5, num_local_experts=4, num_experts_per_tok=2)
    ),
}
"""Models whose rows give a part of their mass to no key."""


def tiny_model(family: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(seed)
    return peaked({**FAMILIES, **COPIES, **SINKS}[family]().eval().to(dtype))


def peaked(model: Any) -> Any:
    """With weights large enough for attention that is not uniform."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(4.0)
            elif parameter.dim() == 1 and parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def inputs(model: Any, lengths: tuple[int, ...] = (9, 4, 1), seed: int = 0, pad: int = 0) -> dict[str, torch.Tensor]:
    """Random ids, padded on the right to the longest (plus `pad`), with masks; a decoder's side too."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + pad
    ids = torch.randint(5, 97, (len(lengths), width), generator=generator)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    padding = model.config.pad_token_id or 0
    out = {"input_ids": ids.masked_fill(~mask, padding), "attention_mask": mask.long()}
    if getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "lm_head"):
        out["decoder_input_ids"] = torch.randint(5, 97, (len(lengths), 6), generator=generator)
    return out


# These families take their softmax in float32 whatever the model's precision (and with windows give NaN in float64).
FLOAT32_SOFTMAX = {"modernbert", "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3"}
FLOAT32_SOFTMAX |= {"opt", "gpt-neox", "gpt-neo", "gptj", "bloom", "ministral", "ministral3", "helium", "seed-oss"}
FLOAT32_SOFTMAX |= {"ernie4-5", "smollm3", "granite", "arcee", "starcoder2"}


def eager_attentions(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """transformers' own weights, by what results call the stack."""
    if type(model).__name__.startswith("Falcon"):  # transformers does not switch it, and adds a mask of booleans
        model.config._attn_implementation_internal = "eager"
    elif not type(model).__name__.startswith(("MPNet", "Deberta")):
        model.set_attn_implementation("eager")
    output = model(**given, output_attentions=True)
    if hasattr(output, "cross_attentions") and output.get("encoder_attentions") is not None:
        named = {"encoder": output.encoder_attentions, "decoder": output.decoder_attentions}
        return {**named, "cross": output.cross_attentions}
    causal = anatomy_of(model).causal
    return {"decoder" if causal else "encoder": output.attentions}
