"""Which short texts of a corpus a page shows: always the same ones, whoever has analysed them."""

import json
from collections.abc import Iterable

from lorgnette.looking.texts import TokenizedTexts
from lorgnette.statistics.hashing import text_key
from lorgnette.texts.example import Example, Span
from lorgnette.types import Json

COUNT = 4
_READ = 512  # texts of the corpus among which they are chosen
_SHORTEST, _LONGEST = 5, 40  # tokens


def short_texts(texts: TokenizedTexts, count: int = COUNT) -> list[Example]:
    """The first short texts in the order of `chosen`; of a shard, those among its own. Few are tokenised for it."""
    found: list[Example] = []
    first = list(texts.first(_READ))
    for example in chosen(first, classified=texts.subject.labels is not None, count=len(first)):
        if len(found) == count:
            break
        if len(example.text) <= 12 * _LONGEST and (example.target or not texts.subject.encoder.translates):
            encoded = texts.encoded(example)
            found += [encoded.example] if _SHORTEST <= len(encoded.source) <= _LONGEST else []
    return found


def chosen(examples: Iterable[Example], *, classified: bool, count: int = COUNT) -> list[Example]:
    """Choose some texts by hash; for a classifier, texts in which people marked words come first."""
    return sorted(examples, key=lambda e: (classified and not any(e.rationale or ()), text_key(e.id)))[:count]


def as_json(example: Example) -> Json:
    """What a page shows of an example, with as much of its other annotations as JSON can hold."""
    extra = {name: value for name, value in example.extra.items() if _plain(value)}
    fields = {**vars(example), "tags": dict(example.tags), "extra": extra}
    return json.loads(json.dumps(fields, default=lambda number: number.item()))  # of NumPy


def from_json(fields: Json) -> Example:
    tuples: Json = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    tuples["tags"] = {name: tuple(values) for name, values in fields["tags"].items()}
    tuples["parts"] = tuple(Span(*each) for each in fields["parts"])
    return Example(**tuples)


def _plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
