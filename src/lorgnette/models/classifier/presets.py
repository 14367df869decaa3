"""Classifiers by name: what each seed asks for, as overrides of the config."""

from dataclasses import dataclass, field, fields
from typing import Any

from lorgnette.errors import UserError, near
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.types import Json


@dataclass(frozen=True)
class Preset:
    """One line of description, and what it sets in the config."""

    description: str
    overrides: Json = field(default_factory=dict)


_GLOVE = {"embedding_source": "glove", "width": 100}
_FROZEN = {**_GLOVE, "freeze_embeddings": True}
_BARE = {**_FROZEN, "layers": 3, "heads": 1, "block": "bare", "transform": "relu-linear"}
_RESIDUAL = {**_BARE, "block": "residual"}
_POSITION = {"positions": "sinusoidal"}
_CLS = {"pooling": "cls"}

PRESETS: dict[str, Preset] = {
    "tp9-base": Preset("TP 9, exercise 1: x ← g(f(x)), three layers, mean of the words", _BARE),
    "tp9-residual": Preset("TP 9, exercise 2: x ← g(x + f(LN x))", _RESIDUAL),
    "tp9-position": Preset("TP 9, exercise 3: the base model with sinusoidal positions", {**_BARE, **_POSITION}),
    "tp9-residual-position": Preset("the residual model with sinusoidal positions", {**_RESIDUAL, **_POSITION}),
    "tp9-cls": Preset("TP 9, exercise 4 on the base model: classify from <cls>", {**_BARE, **_CLS}),
    "tp9-residual-cls": Preset("<cls> on the residual model", {**_RESIDUAL, **_CLS}),
    "tp9-position-cls": Preset("<cls> on the base model with positions", {**_BARE, **_POSITION, **_CLS}),
    "tp9-residual-position-cls": Preset(
        "<cls> on the residual model with positions", {**_RESIDUAL, **_POSITION, **_CLS}
    ),
    "pure-attention": Preset(
        "Fosse et al. 2023: x ← norm(x + f(x)), one head, no feed-forward, zero <cls> (300 wide there, 1 to 5 layers)",
        {
            **_GLOVE,
            **_POSITION,
            "layers": 1,
            "heads": 1,
            "block": "post-norm",
            "transform": "none",
            "pooling": "cls-zero",
        },
    ),
    "mean": Preset("TP 8: the mean of the word vectors", {**_FROZEN, "layers": 0}),
    "attention-pooling": Preset(
        "TP 8: softmax(q·x), one query for all texts", {**_FROZEN, "layers": 0, "pooling": "attention"}
    ),
    "query-pooling": Preset(
        "TP 8: the query is a linear map of the mean, with a value map", {**_FROZEN, "layers": 0, "pooling": "query"}
    ),
    "bilstm-attention": Preset(
        "Nguyen et al. 2022: the final state of a BiLSTM attends over its states (300 per direction there)",
        {**_GLOVE, "layers": 0, "pooling": "bilstm-attention"},
    ),
}


def preset(name: str, **overrides: Any) -> SelfAttentionClassifierConfig:
    """The config of a preset, with some of its fields replaced: `preset("tp9-position", positions="learnt")`."""
    if name not in PRESETS:
        raise UserError(f"no preset is called {name!r}: there are {', '.join(PRESETS)}.{near(name, PRESETS)}")
    known = {each.name for each in fields(SelfAttentionClassifierConfig)} | {"num_labels"}
    known |= set(SelfAttentionClassifierConfig.attribute_map)
    for override in overrides:
        if override not in known:
            raise UserError(f"the classifier has no setting {override!r}.{near(override, known)}")
    renamed = {SelfAttentionClassifierConfig.attribute_map.get(key, key): value for key, value in overrides.items()}
    return SelfAttentionClassifierConfig(**{**PRESETS[name].overrides, "preset": name, **renamed})
