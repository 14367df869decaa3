"""Plain texts for a language model: as token ids, in batches, and as its perplexity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import transformers
from jaxtyping import Float
from torch import Tensor

from lorgnette.errors import UserError
from lorgnette.models.families import longest_text
from lorgnette.statistics.perplexity import Likelihoods
from lorgnette.texts import Example
from lorgnette.texts.sides import Side
from lorgnette.training.build import PretrainedBuilder, longest_input, opened
from lorgnette.training.data import Collator, Item, Items, Reader, together
from lorgnette.training.preparation import Prepared, all_in_memory
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.splits import Parts
from lorgnette.training.translation.data import IGNORED
from lorgnette.training.translation.trainer import TokenTally, TranslationTrainer, per_text, token_metrics
from lorgnette.types import Json, PreTrainedModel

LONGEST = 512
"""The default length, in tokens, that texts are cut to."""


class LanguageModel(PretrainedBuilder):
    """Opens a language model with its own vocabulary."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.labels, self.overrides, self.name = (), dict(settings.overrides), settings.model
        self.checkpoint = opened(settings)
        self.config, self.tokenizer = self.checkpoint.config(), self.checkpoint.tokenizer()
        requested = settings.max_length or min(LONGEST, longest_text(self.config, self.tokenizer) or LONGEST)
        self.max_length = longest_input(requested, self.config, self.tokenizer, self.name)

    def model(self) -> PreTrainedModel:
        return self.weights_in(transformers.AutoModelForCausalLM)


class TextReader(Reader):
    """Plain texts; one that has a single token has nothing to predict."""

    def _item(self, example: Example, side: Side) -> Item:
        item = super()._item(example, side)
        if len(item["input_ids"]) < 2:
            raise UserError(f"the text {example.id!r} has one token, so there is none to predict: remove such texts.")
        return item


@dataclass(frozen=True)
class NextCollator:
    """Pads on the right; the label of a token is the one behind it."""

    padding: int

    def __call__(self, items: list[Item]) -> dict[str, Tensor]:
        batch = Collator(self.padding)([{**item, "labels": 0} for item in items])
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED)
        batch["labels"] = torch.cat([labels[:, 1:], labels.new_full((len(items), 1), IGNORED)], dim=1)
        return batch


@dataclass(frozen=True)
class PreparedTexts(Prepared):
    """The plain texts of a run as token ids; a language model is scored by its perplexity."""

    trainer_class = TranslationTrainer  # which too predicts token by token, labels beside the logits
    tally_class = TokenTally

    def trainer_parts(self) -> Json:
        tokenizer = self.builder.tokenizer
        padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        return {
            "processing_class": tokenizer,
            "data_collator": NextCollator(padding or 0),  # hidden by the mask, whatever it is
            "compute_metrics": token_metrics,
            "preprocess_logits_for_metrics": per_text,
        }

    def loss(self, model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        given = {name: tensor for name, tensor in batch.items() if name != "labels"}
        logits = model(**given, use_cache=False).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=IGNORED
        )

    def likelihoods(self, model: PreTrainedModel, items: Items, numbers: Sequence[int] | None = None) -> Likelihoods:
        """The likelihoods that a model assigns to some texts."""
        collate, rows = self.trainer_parts()["data_collator"], []
        model.eval()
        with torch.inference_mode():
            for some in together(items, range(len(items)) if numbers is None else numbers):
                batch = {name: each.to(model.device) for name, each in collate([items[n] for n in some]).items()}
                given = {name: tensor for name, tensor in batch.items() if name != "labels"}
                rows.append(per_text(model(**given, use_cache=False).logits, batch["labels"]).double().cpu().numpy())
        losses, _, tokens = np.concatenate(rows).T
        return Likelihoods(losses, tokens.astype(np.int64))


def prepare_texts(settings: TrainingSettings, parts: Parts) -> PreparedTexts:
    """Reads, checks and tokenises the training and validation texts; nothing of the test texts is read."""
    if settings.labels:
        raise UserError(f"{settings.model!r} is a language model, which has no classes: omit --labels.")
    if settings.select in ("accuracy", "bleu"):
        raise UserError(f"a language model is chosen by loss or cross_entropy, not by {settings.select}.")
    made = LanguageModel(settings)
    reader = TextReader(made.tokenizer, made.config, made.max_length)
    train, validation, notes = all_in_memory(reader, parts, "texts", "tokens")
    return PreparedTexts(parts, made, reader, train, validation, len(train), parts.train.fingerprint(), notes)
