"""From states to results, with their provenance and what accompanies them."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence, Sized

import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens, options_of
from lorgnette.lens.whole_model import WholeModel
from lorgnette.lens.whole_model import attributes as attributes_of
from lorgnette.looking.driver import looks
from lorgnette.looking.texts import Counts, TokenizedTexts, same_id
from lorgnette.progress import tell_cost
from lorgnette.results import Result, Results
from lorgnette.results.provenance import Provenance
from lorgnette.texts.example import Example


def concluded(
    lenses: Sequence[Lens],
    provenance: Provenance,
    whole: Sequence[WholeModel],
    left_out: dict[str, str] | None,
    paths: Iterable[str] = (),
) -> Results:
    """What the lenses found, in an order in which each can be made from those that it needs.

    Where all lenses were asked for (`left_out` says why some could not look), one that finds nothing is left out too.
    `paths`: how the statistics of rows were computed on a GPU.
    """
    for lens in (*lenses, *whole):
        lens.provenance = provenance
    attributes = {name: value for one in whole for name, value in attributes_of(computed_of(one)).items()}
    computed: list[Result] = []
    for lens in lenses:
        if not looks(lens):
            lens.take({result.lens: result for result in computed})
        try:
            result = computed_of(lens)
        except UserError as error:
            if left_out is None:
                raise
            left_out[lens.name] = str(error)
            continue
        result.data.attrs |= attributes
        computed.append(result)
    texts = {lens.name: lens.text_numbers for lens in lenses if lens.text_numbers is not None}
    _refuse_same_ids(texts.values())
    reasons: dict[str, list[str]] = {}
    for name, why in (left_out or {}).items():
        reasons.setdefault(why.rstrip("."), []).append(name)
    notes = [f"left out: {', '.join(names)} ({why})" for why, names in reasons.items()]
    notes += [f"{result.lens}: {result.data.attrs['note']}" for result in computed if "note" in result.data.attrs]
    if ways := sorted(paths):
        notes.append(f"row statistics on the GPU computed by {' and '.join(ways)}")
    for result in computed:
        result.provenance = provenance.noted(*notes)
    return Results(computed, texts={name: numbers for name, numbers in texts.items() if numbers.data_vars})


def tell_costs(lenses: Iterable[Lens]) -> None:
    """Say before the first pass what lenses with many passes cost, in a line each."""
    for lens in lenses:
        if cost := lens.cost():
            tell_cost(lens.name, cost)


def tell_parts(lenses: Sequence[Lens], texts: object) -> None:
    """Named parts of texts in memory that a lens could count as categories, and does not."""
    if not isinstance(texts, Sized) or not isinstance(texts, Iterable):
        return
    named = dict.fromkeys(part.name for text in texts if isinstance(text, Example) for part in text.parts)
    for lens in lenses:
        counted = options_of(lens).get("parts")
        if isinstance(counted, Sequence) and (missing := [name for name in named if name not in counted]):
            kind = type(lens).__name__
            print(
                f"{lens.name}: the parts of these prompts ({', '.join(missing)}) are not counted as categories; "
                f"lo.lens.{kind}(parts={[*counted, *missing]!r}) counts them.", file=sys.stderr, flush=True,
            )  # fmt: skip


def tell_notes(results: Results) -> None:
    """Say what lenses have decided by themselves, in a line each."""
    for result in results.values():
        if "note" in result.data.attrs:
            print(f"{result.lens}: {result.data.attrs['note']}", file=sys.stderr, flush=True)


def _refuse_same_ids(texts: Iterable[xr.Dataset]) -> None:
    """Refuse an id that two processes or shards have; each of them compares only its own ids."""
    for numbers in texts:
        ids = Counter(numbers[axes.TEXT].values.tolist() if axes.TEXT in numbers.coords else ())
        if twice := next((name for name, count in ids.items() if count > 1), None):
            raise same_id(twice)


def computed_of(lens: Lens) -> Result:
    """The result of one lens."""
    # A rank that got no batch has nothing of its own to add, but must take part.
    lens.states.note_use()
    return lens.compute()


def name_of(corpus: object) -> str:
    return str(getattr(corpus, "name", type(corpus).__name__))


def provenance_of(
    texts: TokenizedTexts, counts: Counts, weights: str, seed: int | None = None, command: str | None = None
) -> Provenance:
    subject, corpus = texts.subject, texts.corpus
    notes = [*counts.notes(), *subject.changes]
    if subject.attending is not None:
        notes.append(subject.attending)
    if subject.missing:
        notes.append(f"missing from the checkpoint, and skipped: {', '.join(subject.missing)}")
    return Provenance(
        model=subject.name,
        model_class=type(subject.model).__name__,
        weights_hash=weights,
        corpus=name_of(corpus),
        corpus_fingerprint=texts.fingerprint,
        split=getattr(corpus, "split", None),
        texts=counts.texts,
        tokens=counts.tokens,
        truncated=counts.truncated,
        seed=seed,
        dtype=subject.precision,
        device=str(subject.device),
        command=command or " ".join(sys.argv),
        notes=tuple(notes),
    )
