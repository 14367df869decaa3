"""The tokenizer and the model of a run: a preset made new, or a pretrained model with a head for these classes."""

import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import transformers

from lorgnette.errors import UserError, near
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.config import LEARNT_POSITIONS, SelfAttentionClassifierConfig
from lorgnette.models.classifier.embeddings import embedding_table, pretrained_embedding_table, set_embeddings
from lorgnette.models.classifier.presets import PRESETS, preset
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.models.families import longest_text
from lorgnette.models.loading import Loaded, load_model
from lorgnette.models.marian_small import TRANSLATORS
from lorgnette.models.opening import Checkpoint, UnknownModel, known_names
from lorgnette.texts import Example
from lorgnette.texts.sides import Sequences
from lorgnette.texts.vectors import Vectors, read_vectors
from lorgnette.training.settings import TrainingSettings
from lorgnette.types import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

MAX_LENGTH = 500  # of the presets, as in the starter code of TP 9
GLOVE = "glove_100d"
OF_PRESETS = ("embeddings", "freeze", "vocabulary", "style", "max_vocabulary", "min_count")
"""Settings about the words of a text and their vectors."""


def is_preset(settings: TrainingSettings) -> bool:
    return settings.model in PRESETS or settings.model in TRANSLATORS


def translates(settings: TrainingSettings) -> bool:
    """Whether the model of these settings is a translator: a preset of ours, or an encoder-decoder to fine-tune."""
    if is_preset(settings):
        return settings.model in TRANSLATORS
    checkpoint = opened(settings)
    if checkpoint.folder is None:
        return False
    return bool(getattr(checkpoint.config(), "is_encoder_decoder", False))


def models_language(settings: TrainingSettings) -> bool:
    """Whether the model of these settings predicts the next token."""
    if is_preset(settings):
        return False
    checkpoint = opened(settings)
    if checkpoint.folder is None:
        return False
    if checkpoint.gguf is not None:
        return True
    return any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in checkpoint.config().architectures or [])


def opened(settings: TrainingSettings) -> Checkpoint:
    """The pretrained model of these settings; if there is none, the error also suggests presets of similar names."""
    name = settings.model
    checkpoint = Checkpoint.at(name, allow_pickle=settings.allow_pickle)
    if checkpoint.folder is not None:
        return checkpoint
    if name.startswith((".", "~", os.sep)) and not Path(name).expanduser().exists():
        raise UserError(
            f"there is no folder {name!r}: expected one with a model, a preset (lorgnette list presets), or a name on "
            "the hub."
        )
    try:
        checkpoint.config()
    except UnknownModel as error:
        presets = (*PRESETS, *TRANSLATORS)
        meant = near(name, (*presets, *known_names()))
        raise UserError(
            f"there is no preset or model {name!r} to train.{meant} Presets: {', '.join(presets)}; or give the path of "
            "a model folder."
        ) from error
    return checkpoint


def classes_of(settings: TrainingSettings, labels: tuple[str, ...], *, trained: bool) -> tuple[str, ...] | None:
    """The classes of a pretrained model that classifies already, in its order; None if it has none of its own.

    Names that say nothing (LABEL_0 …) are those of a head that is to be trained, unless it is `trained` already.
    """
    config = None if is_preset(settings) else opened(settings).config()
    if config is None or not any("Classifi" in name for name in config.architectures or []):
        if settings.labels:
            raise UserError(f"{settings.model!r} has no classes to map labels to: omit --labels.")
        return None
    own = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    anonymous = own == tuple(f"LABEL_{number}" for number in range(len(labels)))
    return None if anonymous and not trained and not settings.labels else own


class PresetBuilder:
    """Makes the tokenizer once, and a new model for each seed.

    `tokenizer`: one that exists already, for texts that were tokenised before. `read` reads word vectors.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        labels: tuple[str, ...],
        texts: Callable[[], Iterable[Example]],
        tokenizer: PreTrainedTokenizerBase | None = None,
        read: Callable[[Path], Vectors] = read_vectors,
    ):
        self.settings, self.labels, self.read = settings, labels, read
        self.max_length: int | None = settings.max_length or MAX_LENGTH
        self.donor: Loaded | None = _donor(settings)
        config = self._config(len(labels) + 3)  # wrong settings are refused before any text is read
        self.vectors = self._read_vectors(config)
        self.tokenizer = self._tokenizer(config, texts) if tokenizer is None else tokenizer
        self.config: SelfAttentionClassifierConfig = self._config(len(self.tokenizer))
        self.known_words: int | None = None

    def model(self) -> PreTrainedModel:
        """A new model; its weights come from torch's generator, so set the seed first."""
        model = SelfAttentionClassifier(SelfAttentionClassifierConfig.from_dict(self.config.to_dict()))
        if self.donor is not None:
            table, known = pretrained_embedding_table(self.tokenizer, self.donor.model, self.donor.tokenizer)
        elif self.vectors is not None:
            table, known = embedding_table(self.tokenizer, *self.vectors[:2])
        else:
            return model
        set_embeddings(model, table, self.config.embedding_source)
        self.known_words = int(known.sum())
        return model

    def _config(self, vocabulary: int) -> SelfAttentionClassifierConfig:
        settings = self.settings
        overrides = dict(settings.overrides)
        source = settings.embeddings or PRESETS[settings.model].overrides.get("embedding_source", "random")
        overrides["embedding_source"] = source
        if settings.freeze is not None:
            overrides["freeze_embeddings"] = settings.freeze
        elif source == "random":
            overrides.setdefault("freeze_embeddings", False)  # frozen noise is not what anybody means
        if self.donor is not None:
            overrides.setdefault("embedding_width", self.donor.model.get_input_embeddings().weight.shape[1])
        if overrides.get("positions") == "learnt":
            overrides.setdefault("max_position_embeddings", max(LEARNT_POSITIONS, self.max_length or 0))
        names = dict(enumerate(self.labels))
        return preset(
            settings.model,
            vocab_size=vocabulary,
            **overrides,
            id2label=names,
            label2id={name: number for number, name in names.items()},
        )

    def _read_vectors(self, config: SelfAttentionClassifierConfig) -> tuple[list[str], torch.Tensor, str] | None:
        source = config.embedding_source
        if source == "random" or self.donor is not None:
            return None
        words, array = self.read(vectors_path(source, self.settings))
        if array.shape[1] != config.embedding_width:
            raise UserError(
                f"the vectors {source!r} are {array.shape[1]} wide and the model expects {config.embedding_width}: set "
                f"the width to {array.shape[1]}, or embeddings to random."
            )
        return words, torch.from_numpy(array), source

    def _tokenizer(
        self, config: SelfAttentionClassifierConfig, texts: Callable[[], Iterable[Example]]
    ) -> PreTrainedTokenizerBase:
        settings = self.settings
        which = settings.vocabulary or ("vectors" if config.freeze_embeddings and self.vectors else "train")
        options: dict[str, Any] = {
            "style": settings.style,
            "cls": config.uses_cls,
            "max_length": config.max_position_embeddings,
        }
        if which == "vectors":
            if self.vectors is None:
                raise UserError("vocabulary 'vectors' needs vectors: set embeddings to glove or to a path.")
            return build_tokenizer(vocabulary=self.vectors[0], max_vocabulary=settings.max_vocabulary, **options)
        return build_tokenizer(
            (text for example in texts() for text in Sequences.of(example)[:2] if text is not None),
            max_vocabulary=settings.max_vocabulary,
            min_count=settings.min_count,
            **options,
        )


class PretrainedBuilder:
    """Opens a pretrained encoder with a head for these classes: its own if it has one for them, else a new one."""

    vectors = None
    known_words: int | None = None

    def __init__(self, settings: TrainingSettings, labels: tuple[str, ...]):
        self.labels, self.overrides, self.name = labels, dict(settings.overrides), settings.model
        self.checkpoint: Checkpoint = opened(settings)
        self.config = self.checkpoint.config()
        default = {each.name: each.default for each in fields(TrainingSettings)}
        for name in OF_PRESETS:
            if getattr(settings, name) != default[name]:
                raise UserError(
                    f"{name} is a setting of presets; {settings.model!r} has its own vocabulary and vectors."
                )
        self.tokenizer = self.checkpoint.tokenizer()
        if self.tokenizer.pad_token_id is None:
            raise UserError(f"the tokenizer of {self.name!r} has no padding token: texts cannot be batched.")
        self.max_length: int | None = longest_input(settings.max_length, self.config, self.tokenizer, self.name)

    def model(self) -> PreTrainedModel:
        """The pretrained weights; the head's, if it is new, come from torch's generator."""
        names = dict(enumerate(self.labels))
        wanted = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
        return self.weights_in(transformers.AutoModelForSequenceClassification, **wanted)

    def weights_in(self, model_class: type[PreTrainedModel], **options: object) -> PreTrainedModel:
        """A model of that class with the weights of the checkpoint, which has all but the head."""
        model, info = self.checkpoint.model(model_class, dtype=torch.float32, **options, **self.overrides)
        prefix = f"{model.base_model_prefix}."
        new = [key for key in info["missing_keys"] if key.startswith(prefix) and not key.startswith(f"{prefix}pooler.")]
        if new:
            raise UserError(
                f"the checkpoint of {self.name!r} lacks weights of the model itself ({', '.join(sorted(new)[:3])}): it "
                "would begin with random numbers there. Fetch the whole checkpoint."
            )
        return model


Builder = PresetBuilder | PretrainedBuilder


def builder(settings: TrainingSettings, labels: tuple[str, ...], texts: Callable[[], Iterable[Example]]) -> Builder:
    return PresetBuilder(settings, labels, texts) if is_preset(settings) else PretrainedBuilder(settings, labels)


def _donor(settings: TrainingSettings) -> Loaded | None:
    """The pretrained model whose input vectors are taken, with embeddings "model:NAME"."""
    if settings.embeddings is None or not settings.embeddings.startswith("model:"):
        return None
    return load_model(settings.embeddings.removeprefix("model:"), dtype=torch.float32, device="cpu")


def vectors_path(source: str, settings: TrainingSettings) -> Path:
    if source != "glove":
        return Path(source)
    root = settings.data or os.environ.get("LORGNETTE_DATA")
    if not root or not (Path(root) / GLOVE).is_dir():
        raise UserError(
            f"embeddings 'glove' need the folder {GLOVE} in the data folder (--data or LORGNETTE_DATA). Without it, "
            "give a file of vectors, such as --embeddings glove.6B.100d.txt, or use --embeddings random."
        )
    return Path(root) / GLOVE


def longest_input(
    requested: int | None, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, name: str
) -> int | None:
    """The length that texts are cut to: `max_length`, or else the model's limit, or else `MAX_LENGTH`."""
    limit = longest_text(config, tokenizer)
    if requested is not None and limit is not None and requested > limit:
        raise UserError(f"max_length {requested} is more than {name!r} takes, which is {limit} tokens.")
    return requested if requested is not None else MAX_LENGTH if limit is None else limit
