"""A few short texts of a run, with every head's attention in them, so that a page can show heads at work."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from lorgnette.errors import UserError, reason
from lorgnette.files import write_whole
from lorgnette.looking.short_texts import COUNT, short_texts
from lorgnette.looking.texts import Texts, TokenizedTexts
from lorgnette.subject import Subject
from lorgnette.texts.example import Example
from lorgnette.types import Json

FILE, FORMAT, SCHEMA = "examples.json", "lorgnette-examples", 1


def examples_of(subject: Subject, corpus: Texts | TokenizedTexts, count: int = COUNT) -> list[Json]:
    """A few short texts as documents for the views, always the same ones; none if the corpus has no short text.

    For a classifier, those with words that people marked come first: they show most. Texts that `look` has tokenised
    already are not tokenised again.
    """
    texts = corpus if isinstance(corpus, TokenizedTexts) else TokenizedTexts(subject, corpus, truncate=True)
    return documents_of(subject, short_texts(texts, count))


def documents_of(subject: Subject, examples: Sequence[Example]) -> list[Json]:
    """Texts as documents for the views."""
    from lorgnette.reporting.views.gather import gathered

    try:
        return [gathered(subject, example) for example in examples]
    except UserError:  # a model whose prediction cannot be explained is shown without explanations
        return [gathered(subject, example, methods=()) for example in examples]


def save_examples(documents: Sequence[Json], folder: str | os.PathLike[str], weights_hash: str | None) -> Path:
    """Writes them beside the results of a run, whole or not at all."""
    path = Path(folder) / FILE
    whole = {"format": FORMAT, "schema": SCHEMA, "weights_hash": weights_hash, "examples": list(documents)}
    whole |= {"sha256": _hash(documents)}
    write_whole(path, json.dumps(whole, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def saved_examples(folder: str | os.PathLike[str], weights_hash: str | None) -> list[Json]:
    """The examples written by `save_examples`, if any; those of other weights are refused."""
    path = Path(folder) / FILE
    if not path.is_file():
        return []
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}). Remove it, or run look again.") from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT or whole.get("schema") != SCHEMA:
        raise UserError(f"{path} was not written by this Lorgnette. Remove it, or run look again.")
    if whole.get("weights_hash") != weights_hash:
        raise UserError(
            f"{path} is from a model with other weights than the results next to it. Remove it, or run look again."
        )
    examples = whole.get("examples")
    if not isinstance(examples, list) or not all(isinstance(example, dict) for example in examples):
        raise UserError(f"{path} does not list its examples. Remove it, or run look again.")
    if whole.get("sha256") not in (None, _hash(examples)):  # older files do not say it
        raise UserError(f"{path} was edited or is damaged. Remove it, or run look again.")
    return examples


def _hash(examples: Sequence[Json]) -> str:
    return hashlib.sha256(json.dumps(list(examples)).encode()).hexdigest()
