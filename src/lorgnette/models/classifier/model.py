"""`SelfAttentionClassifier`: a small text classifier as an ordinary Hugging Face model, whose attention is `attend`."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput

from lorgnette.errors import UserError
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.embeddings import WordEmbeddings
from lorgnette.models.classifier.layers import Block, SelfAttentionStack
from lorgnette.models.classifier.poolers import POOLERS, AttentionPooler
from lorgnette.models.classifier.positions import LearntPositions, RelativePositions

__all__ = ["SelfAttentionClassifier", "SelfAttentionClassifierConfig"]


class SelfAttentionClassifier(PreTrainedModel):
    """words → x⁽⁰⁾ → L blocks → one vector → Linear → logits; see the config for what each step can be.

    `hidden_states` are x⁽⁰⁾ (with positions) to x⁽ᴸ⁾; the vectors before positions are
    `model.embeddings.word_vectors(input_ids)`. Weights are not returned (`output_attentions`): `lorgnette.tapped`,
    a trace or a lens sees every call. Padding is masked in every softmax and in the mean and goes on the right.

    Sources: TP 8 and TP 9 (AMAL, Sorbonne 2024-25), Fosse et al. 2023, Nguyen et al. 2022.
    """

    config_class = SelfAttentionClassifierConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    accepts_loss_kwargs = False
    _supports_sdpa = True  # attend() decides for itself; the name in the config changes nothing
    _supports_attention_backend = True
    _no_split_modules = [Block.__name__]

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.embeddings: WordEmbeddings = WordEmbeddings(config)
        self.encoder: SelfAttentionStack = SelfAttentionStack(config)
        self.pooler = POOLERS[config.pooling](config)
        self.dropout: nn.Dropout = nn.Dropout(config.dropout)
        self.classifier: nn.Linear = nn.Linear(self.pooler.output_width, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Int[Tensor, "batch token"] | None = None,
        attention_mask: Int[Tensor, "batch token"] | Bool[Tensor, "batch token"] | None = None,
        inputs_embeds: Float[Tensor, "batch token embedding"] | None = None,
        labels: Int[Tensor, " batch"] | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """Logits of a batch, and the cross-entropy if labels are given.

        `inputs_embeds` replaces `word_vectors(input_ids)`, <cls> included. Without `attention_mask`, every token but
        <pad> counts.
        """
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise UserError("this model does not return attention weights: use lorgnette.tapped, or `lorgnette trace`.")
        if input_ids is not None and inputs_embeds is None:
            vectors = self.embeddings.word_vectors(input_ids)
        elif inputs_embeds is not None and input_ids is None:
            vectors = inputs_embeds
        else:
            raise UserError("pass either input_ids or inputs_embeds.")
        mask = self._token_mask(input_ids, attention_mask, vectors)
        full = self._check(input_ids, mask, labels)
        history = self.encoder(self.embeddings(vectors), None if full else mask[:, None, None])
        logits = self.classifier(self.dropout(self.pooler(history[-1], mask)))
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        output = SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=history if wanted else None)
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return output if as_dict else output.to_tuple()

    @classmethod
    def from_pretrained(cls, *arguments: object, **keywords: object) -> "SelfAttentionClassifier":
        """As in transformers; a table that was frozen is frozen again, which loading forgets."""
        loaded = super().from_pretrained(*arguments, **keywords)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model.embeddings.words.weight.requires_grad_(not model.config.freeze_embeddings)
        return loaded

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.words

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.words = value

    def _token_mask(
        self, ids: Tensor | None, mask: Tensor | None, vectors: Float[Tensor, "batch token embedding"]
    ) -> Bool[Tensor, "batch token"]:
        if mask is not None:
            return mask.bool()
        if ids is not None:
            return ids != self.config.pad_token_id
        return torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)

    def _check(self, ids: Tensor | None, mask: Bool[Tensor, "batch token"], labels: Tensor | None) -> bool:
        """Whether the batch has no padding; a `UserError` if it would produce NaN or a wrong number."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
            return False
        if mask.shape[1] == 0:
            raise UserError("every text of the batch is empty: remove empty texts.")
        wrong = {"empty": ~mask.any(dim=-1)}
        if ids is not None and self.config.uses_cls:
            wrong["cls"] = ids[:, 0] != self.config.cls_token_id
        if labels is not None:
            wrong["label"] = (labels < 0) | (labels >= self.config.num_labels)
        # One transfer from the device for all checks.
        full, *problems = torch.stack([mask.all(), *(where.any() for where in wrong.values())]).tolist()
        for problem, present in zip(wrong, problems, strict=True):
            if present:
                self._refuse(problem, int(wrong[problem].nonzero()[0]), labels)
        return full

    def _refuse(self, problem: str, text: int, labels: Tensor | None) -> None:
        if problem == "empty":
            raise UserError(f"text {text} of the batch has no tokens: remove empty texts.")
        if problem == "cls":
            raise UserError(
                f"text {text} of the batch does not begin with <cls> (id {self.config.cls_token_id}), from which this "
                "model classifies: use the tokenizer saved with it, or build_tokenizer(..., cls=True)."
            )
        assert labels is not None
        raise UserError(
            f"label {int(labels[text])} of text {text} is not in the config, which has {self.config.num_labels} "
            f"labels ({', '.join(self.config.id2label.values())})."
        )

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """PyTorch's defaults for Linear, LSTM and LayerNorm (as in Fosse's code); the config's spread for the rest.

        Words without a vector and "cls-zero" start at zero (`embedding_table`, here); the relative bias too.
        """
        if isinstance(module, nn.Linear | nn.LSTM | nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.embedding_std)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, WordEmbeddings) and module.cls is not None:
            init.normal_(module.cls, std=0.0 if self.config.pooling == "cls-zero" else self.config.initializer_range)
        elif isinstance(module, LearntPositions):
            init.normal_(module.table, std=self.config.initializer_range)
        elif isinstance(module, RelativePositions):
            init.zeros_(module.bias)
        elif isinstance(module, AttentionPooler):
            init.normal_(module.query, std=self.config.initializer_range)


def register() -> None:
    """Register the classifier with the Auto classes of transformers."""
    AutoConfig.register(SelfAttentionClassifierConfig.model_type, SelfAttentionClassifierConfig, exist_ok=True)
    AutoModel.register(SelfAttentionClassifierConfig, SelfAttentionClassifier, exist_ok=True)
    AutoModelForSequenceClassification.register(SelfAttentionClassifierConfig, SelfAttentionClassifier, exist_ok=True)


register()
