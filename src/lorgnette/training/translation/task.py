"""Training of translation models: which sentences, which vocabulary, which model, and how it is scored."""

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from lorgnette.errors import UserError
from lorgnette.models.marian_small import (
    TRANSLATORS,
    build_marian_tokenizer,
    marian_config,
    translator_sizes,
)
from lorgnette.statistics.bleu import Bleu, bleu
from lorgnette.texts import Example
from lorgnette.training.build import PretrainedBuilder, longest_input, opened
from lorgnette.training.preparation import Prepared, all_in_memory
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.splits import Parts
from lorgnette.training.translation.data import PairCollator, PairReader, translation_of
from lorgnette.training.translation.generation import translate
from lorgnette.training.translation.trainer import TokenTally, TranslationTrainer, per_text, token_metrics
from lorgnette.types import Json, PreTrainedModel, PreTrainedTokenizerBase

TRANSLATIONS = "translations.test.txt"
"""What the model made of the test sentences, one on each line, in a run's folder."""


class NewTranslator:
    """Makes the vocabulary once, and a new Marian for each seed."""

    known_words: int | None = None

    def __init__(self, settings: TrainingSettings, languages: tuple[str, str], pairs: Iterable[Example]) -> None:
        for name in ("embeddings", "freeze", "vocabulary", "max_vocabulary"):
            if getattr(settings, name) is not None:
                raise UserError(f"{name} is a setting of classifiers; {settings.model} has `pieces` (--set pieces=N).")
        self.sizes = translator_sizes(settings.model, **settings.overrides)
        if settings.max_length is not None and settings.max_length > self.sizes["positions"]:
            raise UserError(f"max_length {settings.max_length} is more than the {self.sizes['positions']} positions.")
        self.max_length: int | None = settings.max_length or int(self.sizes["positions"])
        files = tempfile.mkdtemp(prefix="lorgnette-pieces-")  # there as long as this is, for the tokenizer to copy
        weakref.finalize(self, shutil.rmtree, files, ignore_errors=True)
        self.tokenizer: PreTrainedTokenizerBase = build_marian_tokenizer(
            ((example.text, translation_of(example)) for example in pairs),
            Path(files),
            pieces=self.sizes["pieces"],
            limit=self.sizes["positions"],
            languages=languages,
        )
        self.config = marian_config(self.sizes, self.tokenizer)

    def model(self) -> PreTrainedModel:
        """A new model; its weights come from torch's generator, so set the seed first."""
        return transformers.MarianMTModel(transformers.MarianConfig.from_dict(self.config.to_dict()))


class PretrainedTranslator(PretrainedBuilder):
    """Opens a translation model with its own vocabulary."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.labels, self.overrides, self.name = (), dict(settings.overrides), settings.model
        self.checkpoint = opened(settings)
        self.config, self.tokenizer = self.checkpoint.config(), self.checkpoint.tokenizer()
        if self.config.decoder_start_token_id is None or self.tokenizer.pad_token_id is None:
            raise UserError(f"the model {self.name!r} lacks a decoder start or padding token: it cannot be trained.")
        self.max_length = longest_input(settings.max_length, self.config, self.tokenizer, self.name)

    def model(self) -> PreTrainedModel:
        return self.weights_in(transformers.AutoModelForSeq2SeqLM)


@dataclass(frozen=True)
class PreparedPairs(Prepared):
    """The sentence pairs of a run as token ids; evaluation by teacher forcing, and BLEU on the test sentences."""

    builder: Any  # NewTranslator, PretrainedTranslator, or what has the same parts
    reader: Any
    beams: int = 1
    batch_size: int = 64
    bf16: bool = False
    progress: bool = False
    select: str = "loss"

    trainer_class = TranslationTrainer
    tally_class = TokenTally

    def trainer_parts(self) -> Json:
        config = self.builder.config
        other = getattr(self.reader, "target_tokenizer", None)
        return {
            # With a vocabulary for each side the Trainer would write the source's special tokens into the config.
            "processing_class": self.builder.tokenizer if other is None else None,
            "data_collator": PairCollator(
                self.builder.tokenizer.pad_token_id,
                config.decoder_start_token_id,
                None if other is None else other.pad_token_id,
            ),
            "compute_metrics": token_metrics,
            "preprocess_logits_for_metrics": per_text,
            "bleu": self._validation_bleu if self.select == "bleu" else None,
        }

    def more_metrics(self, model: PreTrainedModel, split: str) -> Json:
        """BLEU of the sentences that the model makes by itself."""
        if split != "test" and self.parts.test is not None and self.select != "bleu":
            return {}  # the test sentences are scored; translating takes its time
        said, score = self.scored(model, split)
        saved = {"translations": said} if split == "test" else {}
        return {
            "bleu": score.score,
            "brevity": score.brevity,
            "signature": score.signature,
            "beams": self.beams,
            **saved,
        }

    def scored(self, model: PreTrainedModel, split: str) -> tuple[list[str], Bleu]:
        """Translations of a split, and their BLEU."""
        pairs = list(self.parts.test if split == "test" and self.parts.test is not None else self.parts.validation)
        said = translate(
            model,
            self.builder.tokenizer,
            [example.text for example in pairs],
            beams=self.beams,
            batch_size=2 * self.batch_size,
            limit=self.builder.max_length,
            target_tokenizer=getattr(self.reader, "target_tokenizer", None),
            bf16=self.bf16,
            progress=self.progress,
        )
        return said, bleu(said, [translation_of(example) for example in pairs])

    def _validation_bleu(self, model: PreTrainedModel) -> float:
        return self.scored(model, "validation")[1].score

    def write(self, folder: Path, record: Json) -> None:
        super().write(folder, record)
        said = (record["metrics"]["test"] or {}).pop("translations", None)
        if said is not None:
            (folder / TRANSLATIONS).write_text("".join(" ".join(one.split()) + "\n" for one in said), encoding="utf-8")


def prepare_pairs(settings: TrainingSettings, parts: Parts) -> PreparedPairs:
    """Reads, checks and tokenises the training and validation pairs; nothing of the test pairs is read."""
    _refuse(settings)
    made: Any
    if settings.model in TRANSLATORS:
        made = NewTranslator(settings, languages_of(parts.train.name), parts.train)
    else:
        made = PretrainedTranslator(settings)
    return pairs_of(settings, parts, made, PairReader(made.tokenizer, made.config, made.max_length))


def pairs_of(settings: TrainingSettings, parts: Parts, made: Any, reader: PairReader) -> PreparedPairs:
    """The same with a model and a reader that exist already."""
    train, validation, notes = all_in_memory(reader, parts, "pairs", "tokens a side")
    return PreparedPairs(
        parts=parts,
        builder=made,
        reader=reader,
        train=train,
        validation=validation,
        count=len(train),
        fingerprint=parts.train.fingerprint(),
        notes=notes,
        beams=settings.beams,
        batch_size=settings.batch_size,
        bf16=settings.bf16,
        progress=settings.progress,
        select=settings.select,
    )


def _refuse(settings: TrainingSettings) -> None:
    if settings.penalties:
        raise UserError("penalties on attention are for classifiers: omit them for a translation model.")
    if settings.stream:
        raise UserError("sentence pairs are kept in memory: omit stream.")
    if settings.select == "accuracy":
        raise UserError("a translation model is chosen by loss, cross_entropy or bleu, not by accuracy.")


def languages_of(name: str) -> tuple[str, str]:
    """("en", "fr") of "multi30k:en-fr"; ("en", "ru") of "parallel_en_ru:tatoeba"; else unknown."""
    import re

    match = re.search(r"(?:^|[:_])([a-z]{2})[-_]([a-z]{2})(?:$|[:_])", name)
    return (match[1], match[2]) if match else ("source", "target")
