"""The results of a look from its shards: the states merged, then concluded as `look` does."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from lorgnette import __version__
from lorgnette.constraints import check
from lorgnette.errors import UserError, listed, outside, shown
from lorgnette.files import real
from lorgnette.lens import get
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.choosing import chosen_lenses, rounds_before, waiting, with_needed
from lorgnette.looking.conclusion import concluded
from lorgnette.looking.driver import refuse_used
from lorgnette.looking.resume import refuse_unlike
from lorgnette.looking.runs import Run
from lorgnette.looking.shards import LensRecipe, Look, Shard, foreign, joined_corpus, joined_provenance, round_before
from lorgnette.looking.short_texts import chosen as chosen_texts
from lorgnette.looking.short_texts import from_json
from lorgnette.looking.texts import Counts
from lorgnette.results import Results
from lorgnette.subject import Subject, load, refuse_no_subject
from lorgnette.texts.example import Example

TOGETHER = 16
"""Shards whose states are in memory at a time."""
_NAMED = 12
"""Missing shards that are named, at most."""


def merge(
    parts: Iterable[Shard | str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] | None = None,
    subject: Subject | Callable[[], Subject] | None = None,
    lenses: Sequence[Lens | str] | Lens | str | None = None,
    first: Results | str | os.PathLike[str] | None = None,
    command: str | None = None,
) -> Results:
    """The results of a look from all its shards: the command `lorgnette merge`.

        >>> shards = [lo.look(subject, texts, "weights", shard=(i, 2), progress=False) for i in (1, 2)]
        >>> lo.merge(shards, subject=subject)["weights"].provenance.texts == len(texts)
        True

    `parts` are folders that `look(…, shard=(i, n), out=folder)` wrote, or what it returned, in any order. They must be
    all shards of one look, each once: the same weights, texts, lenses, options and versions of libraries. The results
    are those of one process, to rounding; counts are equal, and samples have the same items. With `out`, they are
    written there.

    A lens may need the model for its conclusion, so it is loaded once more, from where the shards found it; `subject`
    gives it, or a function that loads it, if it is elsewhere. `lenses`: those of the look, if they were made in Python
    from what JSON cannot hold.

    Shards of a round before the last give what the lenses of the next need before they look: `look(…, shard=…,
    first=…)` takes it. That round is merged with the same `first`, or with the folder where it was, if that was given
    to `look`.
    """
    check(command, str | None, "command")
    shards = _whole(_opened(parts))
    look = shards[0].look
    chosen, whole, before = _lenses(look, _subject(shards, subject), lenses)
    counts = _counts(shards)
    for lens in chosen:
        if lens.per_text is not None:
            lens.per_text.refuse_many(counts.texts)
    origin = (look.weights, look.dtype, joined_corpus(shards))
    run = Run(out, origin, look.truncate, chosen)
    others = run.others()
    if needy := waiting(chosen):
        known = _round_before(look, origin, before, first or shards[0].first, out)
        for lens in needy:
            lens.take(known)
    _take_in([*chosen, *whole], shards)
    provenance = joined_provenance(shards, counts, command or " ".join(sys.argv))
    left_out = None if look.left_out is None or look.needed else dict(look.left_out)
    results = concluded(chosen, provenance, whole, left_out, {path for shard in shards for path in shard.paths})
    results = run.joined(others, results)
    if out is not None:
        results.save(out)
    return results


def shown_texts(shards: Sequence[Shard], subject: Subject) -> list[Example]:
    """The texts that the page of one process would show."""
    examples = [from_json(example) for shard in shards for example in shard.examples]
    return chosen_texts(examples, classified=subject.labels is not None)


def _opened(parts: Iterable[Shard | str | os.PathLike[str]]) -> list[Shard]:
    if isinstance(parts, Shard | str | os.PathLike) or not isinstance(parts, Iterable):
        raise UserError(f"merge takes the shards of a look as a list. Got {shown(parts)} instead.")
    shards = []
    for part in listed(parts) or []:
        if not isinstance(part, Shard | str | os.PathLike):
            raise UserError(f"A shard is what look(…, shard=…) returns, or its folder. Got {shown(part)} instead.")
        shards.append(part if isinstance(part, Shard) else Shard.open(Path(part)))
    if not shards:
        raise UserError("No shard was given. `lorgnette look … --shard 1/4 --out parts/1` writes one.")
    return shards


def _whole(shards: Sequence[Shard]) -> list[Shard]:
    """The shards in order, after checking that all shards of one look are there, each once."""
    usual = Counter(repr(shard.look) for shard in shards).most_common(1)[0][0]
    first = next(shard for shard in shards if repr(shard.look) == usual)
    for shard in shards:
        if differences := first.look.differences(shard.look):
            raise foreign(shard, first, differences)
    if first.look.library != __version__:
        raise UserError(
            f"The shards were written by Lorgnette {first.look.library}, and this is {__version__}. Merge them with "
            f"the version that wrote them (pip install lorgnette=={first.look.library})."
        )
    by_number: dict[int, Shard] = {}
    for shard in shards:
        if shard.share.number in by_number:
            raise UserError(f"Shard {shard.share} is there twice: {by_number[shard.share.number]} and {shard}.")
        by_number[shard.share.number] = shard
    if missing := list(islice((n for n in range(1, first.share.of + 1) if n not in by_number), _NAMED)):
        left = first.share.of - len(by_number) - len(missing)
        more = f" and {left} more" if left else ""
        names = ", ".join(f"{number}/{first.share.of}" for number in missing)
        raise UserError(
            f"Missing: shard {names}{more}. Run look with --shard {missing[0]}/{first.share.of}, then merge."
        )
    return [by_number[number] for number in sorted(by_number)]


def _subject(shards: Sequence[Shard], given: Subject | Callable[[], Subject] | None) -> Subject:
    """The model of the look, with the same weights in the same precision."""
    look, origin = shards[0].look, shards[0].provenance
    try:
        loaded = load(origin.model, dtype=look.dtype) if given is None else given
        subject = loaded if isinstance(loaded, Subject) else _loaded(loaded)
        refuse_no_subject(subject, "merge")
    except UserError as error:
        raise UserError(f"{error} To merge, say where the model of the shards is (--model, subject=…).") from error
    if subject.weights_hash != look.weights:
        raise UserError(f"The weights of {subject.name!r} are not those of the shards. Give the same model (--model).")
    if subject.precision != look.dtype:
        raise UserError(f"{subject.name!r} is in {subject.precision}, and the shards are in {look.dtype}: load it so.")
    return subject


def _loaded(make: Callable[[], Subject]) -> Subject:
    """The subject that the caller's function loads, or what was given, which the next step checks."""
    if not callable(make):
        return make
    with outside("The function that loads the subject failed", "Give merge(…, subject=…) a Subject."):
        return make()


def _lenses(
    look: Look, subject: Subject, given: Sequence[Lens | str] | Lens | str | None
) -> tuple[list[Lens], list[WholeModel], list[Lens]]:
    """The lenses whose states the shards hold, bound to the model, and those of the round before."""
    recipes = look.lenses[: len(look.lenses) - look.whole]
    chosen = [_made(recipe) for recipe in recipes] if given is None else with_needed(chosen_lenses(given))
    whole = [WholeModel()] if look.whole else []
    for lens in [*chosen, *whole]:
        refuse_used(lens, subject)
        lens.bind(subject, keep_texts=look.keep is not None and lens in chosen)
    _refuse_other_lenses([*chosen, *whole], look.lenses)
    rounds = [[], *rounds_before(subject, chosen), chosen]
    place = max(1, len(rounds) - 1 - look.rounds_left)
    if look.needed:
        _refuse_other_lenses(rounds[place], look.needed)
        whole = []
    return rounds[place], whole, rounds[place - 1]


def _refuse_other_lenses(lenses: Sequence[Lens], recipes: Sequence[LensRecipe]) -> None:
    """UserError if they are not those of the shards."""
    found = [description(lens) for lens in lenses]
    if unlike := [recipe.name for recipe, one in zip(recipes, found, strict=False) if recipe.description != one]:
        raise UserError(
            f"The lens {unlike[0]!r} is not made here as it was for the shards. Pass it: merge(…, lenses=…)."
        )
    if len(found) != len(recipes):
        raise UserError(
            f"The shards were looked at with {', '.join(each.name for each in recipes)}. Pass these lenses."
        )


def _round_before(
    look: Look,
    origin: tuple[str, str, str | None],
    before: Sequence[Lens],
    first: Results | str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
) -> Results:
    if first is None:
        raise UserError("There was a round before these shards. Give its results, too (--first, first=…).")
    if out is not None and not isinstance(first, Results) and real(out) == real(first):
        raise UserError(f"{out} holds the round before, which this one does not replace. Choose another folder.")
    return round_before(first, origin, look.truncate, [before])[1]


def _made(recipe: LensRecipe) -> Lens:
    if recipe.options is None:
        raise UserError(f"The lens {recipe.name!r} has options from Python. Pass it in Python: merge(…, lenses=[…]).")
    return get(recipe.name, **{name: _tuples(value) for name, value in recipe.options.items()})


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _counts(shards: Iterable[Shard]) -> Counts:
    total = Counts.total(shard.counts for shard in shards)
    if total.texts == 0:
        raise UserError("The shards have no texts.")
    return total


def _take_in(lenses: Sequence[Lens], shards: Sequence[Shard]) -> None:
    """Merge the states of all shards, a few shards at a time."""
    for start in range(0, len(shards), TOGETHER):
        some = []
        for shard in shards[start : start + TOGETHER]:
            tensors = shard.tensors()
            try:
                refuse_unlike(lenses, tensors)
            except (KeyError, ValueError) as error:
                raise UserError(f"The states of {shard} do not fit its header ({error}). Run it again.") from error
            some.append(tensors)
        for number, lens in enumerate(lenses):
            several = [{name: tensors[f"{number}.{name}"] for name in lens.states.tensors()} for tensors in some]
            if start == 0:
                lens.states.restore(several[0])
                several = several[1:]
            if several:
                lens.states.take_in([lens.states.tensors(), *several])
