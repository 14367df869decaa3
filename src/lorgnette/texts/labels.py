"""Labels by name: what a corpus calls its classes, put into the order in which a model has them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lorgnette.errors import UserError, near
from lorgnette.texts.corpus import Corpus, SizedCorpus, Turns, in_parts, whole
from lorgnette.texts.example import Example


def matched(corpus: Corpus, classes: Sequence[str], renamed: Mapping[str, str] | None = None, *, model: str) -> Corpus:
    """The same texts, with labels that count in `classes`, the names of a model's classes.

    Names are the same if they differ in case, spaces, hyphens and underscores only; a corpus that numbers its labels
    ("0", "1") means the numbers of the classes. `renamed` says which class a label of the corpus is (label → class).
    What cannot be matched is a `UserError`: a label that is taken for another makes every number wrong.
    """
    labels = corpus.labels
    if labels is None:
        if renamed:
            raise UserError(f"{corpus.name} has no label names to map: omit --labels.")
        return corpus
    return _in_places(corpus, _places(corpus.name, labels, tuple(classes), renamed or {}, model), tuple(classes))


def agreeing(corpus: Corpus, classes: Sequence[str], *, what: str, other: str) -> Corpus:
    """The same texts, with labels that count in `classes`, which another split of the corpus has.

    Each split of a table counts the classes that it has itself, so that without a text of one of them its labels would
    mean others. `what` is this split and `other` that one, for the message.
    """
    labels = corpus.labels
    if labels is None or labels == tuple(classes):
        return corpus
    if lost := [label for label in labels if label not in classes]:
        raise UserError(
            f"{what} have the class {lost[0]!r}, which {other} do not have ({', '.join(classes)}): give the class the "
            "same name in both, or leave its texts out."
        )
    return _in_places(corpus, tuple(map(list(classes).index, labels)), tuple(classes))


def _in_places(corpus: Corpus, places: tuple[int, ...], classes: tuple[str, ...]) -> Corpus:
    """The same texts, each label replaced by the place of its class; the corpus itself if none changes."""
    if places == tuple(range(len(places))):
        return corpus
    if len(corpus.parts) > 1:
        relabelled = [_relabelled(part, places, classes) for part in corpus.parts]
        sizes = [len(corpus)] if isinstance(corpus, SizedCorpus) else []
        return in_parts(corpus.name, relabelled, split=corpus.split, labels=classes, sizes=sizes, mark=corpus.mark)
    return _relabelled(corpus, places, classes)


def _relabelled(corpus: Corpus, places: tuple[int, ...], classes: tuple[str, ...]) -> Corpus:
    """The same texts, each label replaced by the place of its class."""

    def some(wanted: Turns) -> Iterator[Example | None]:
        for example in corpus.some(wanted):
            if example is None or example.label is None:
                yield example
            else:
                yield replace(example, label=places[example.label])

    size = len(corpus) if isinstance(corpus, SizedCorpus) else None
    return corpus.derived(
        lambda: whole(some), f"labels {places}", labels=classes, some=some, most=corpus.most, size=size
    )


def mapping_of(text: str | None) -> dict[str, str]:
    """The mapping in `--labels negative=LABEL_0,positive=LABEL_1`."""
    out = {}
    for part in filter(None, (text or "").split(",")):
        label, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or not label or not name:
            raise UserError(
                f"--labels takes LABEL=CLASS pairs, separated by commas (negative=LABEL_0,…); got {part!r}."
            )
        out[label] = name
    return out


def _places(
    corpus: str, labels: tuple[str, ...], classes: tuple[str, ...], renamed: Mapping[str, str], model: str
) -> tuple[int, ...]:
    """For each label of the corpus the number of its class."""
    for label, name in renamed.items():
        for one, known, whose in ((label, labels, f"label of {corpus}"), (name, classes, f"class of {model!r}")):
            if one not in known:
                raise UserError(f"--labels: {one!r} is not a {whose}.{near(one, known)} There are: {', '.join(known)}.")
    if all(re.fullmatch(r"\d+", label) and int(label) < len(classes) for label in labels):
        numbered = {label: classes[int(label)] for label in labels}
        if not {_plain(label) for label in labels} <= {_plain(name) for name in classes}:
            renamed = {**numbered, **renamed}
    numbers = {_plain(name): number for number, name in enumerate(classes)}
    if len(numbers) < len(classes):
        numbers = {name: number for number, name in enumerate(classes)}
    wanted = [renamed.get(label, label) for label in labels]
    places = [classes.index(name) if name in classes else numbers.get(_plain(name)) for name in wanted]
    lost = [label for label, place in zip(labels, places, strict=True) if place is None]
    twice = len(set(places)) < len(places) and not renamed  # several labels may be mapped to one class on purpose
    if lost or twice:
        example = ",".join(f"{label}={name}" for label, name in zip(labels, classes, strict=False))
        raise UserError(
            f"the labels of {corpus} ({', '.join(labels)}) are not the classes of {model!r} ({', '.join(classes)}): "
            f"say which is which (--labels {example}), or take a corpus with its classes."
        )
    return tuple(place for place in places if place is not None)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
