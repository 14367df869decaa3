"""One pass of lenses over the texts of a corpus: batches, states that are kept, interruptions, processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, pairwise

import torch

from lorgnette.errors import UserError
from lorgnette.files import hidden, locked
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.looking.ahead import prepared
from lorgnette.looking.choosing import rounds_before, waiting
from lorgnette.looking.conclusion import concluded, name_of, provenance_of
from lorgnette.looking.interrupts import signals_between_batches
from lorgnette.looking.passes import Passes
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.resume import BEFORE, LOOK, UNFINISHED, Keeper
from lorgnette.looking.text_set import TextSet
from lorgnette.looking.texts import Counts, Share, TokenizedTexts, UniqueIds, batches
from lorgnette.models.switching import evaluating
from lorgnette.progress import progress_bar
from lorgnette.results.provenance import libraries
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.sides import Encoded
from lorgnette.types import Json


@dataclass(frozen=True)
class Setting:
    """How the passes of one look run, whatever the lenses: where, in which batches, with which processes."""

    batch_tokens: int
    progress: bool
    out: str | os.PathLike[str] | None
    resume: bool
    weights: str
    ranks: ProcessRank


def alone(out: str | os.PathLike[str] | None, ranks: ProcessRank) -> AbstractContextManager[None]:
    """One run at a time writes to a folder."""
    if out is None or not ranks.first:
        return nullcontext()
    return locked(hidden(out, UNFINISHED), f"Another run is writing to {out}. Wait for it, or choose another folder.")


def read_together(texts: TokenizedTexts, ranks: ProcessRank) -> None:
    """Have the processes read for the fingerprint what is theirs of a corpus in parts, and refuse different corpora."""
    if ranks.world == 1:
        return
    if isinstance(texts.corpus, Corpus) and texts.share is None and len(parts := texts.corpus.parts) > 1:
        mine = [(place, parts[place].fingerprint()) for place in range(ranks.rank, len(parts), ranks.world)]
        texts.corpus.identify(print for _, print in sorted(chain.from_iterable(ranks.from_all(mine))))
    mark = texts.corpus.mark() if isinstance(texts.corpus, Corpus) else ""
    known = ranks.from_all((texts.fingerprint, mark))
    if len(set(known)) > 1:
        raise UserError("The processes do not read the same corpus. Give all of them the same texts, under one name.")


def passed(
    texts: TokenizedTexts,
    lenses: Sequence[Lens],
    setting: Setting,
    name: str = LOOK,
    *,
    unique_ids: bool = False,
) -> tuple[Counts, Keeper | None, set[str]]:
    """Take all texts through the lenses; returns the counts, the keeper of the states, and how rows were computed.

    Counts and ways are those of all processes, the states those of this one.
    """
    keeper, passes, done = None, Passes(texts.subject, lenses), TextSet()
    out, ranks = setting.out, setting.ranks
    if out is not None:
        keeper = Keeper.open(out, setting.resume, _fingerprint(texts, lenses, setting.weights), ranks, name)
        if setting.resume:
            passes.analysed, done = keeper.restore(lenses)
        ranks.from_all(None)  # nobody writes before everybody has read
    part = Share(ranks.rank + 1, ranks.world)
    passes.analysed.numbers.every = texts.distance(part)
    bars = progress_bar("looking", texts.expected(part), enabled=setting.progress and ranks.first)
    with bars as bar:
        bar(passes.analysed.counts.texts, passes.analysed.counts.tokens, skipped=True)
        _through(texts, texts.left(done, part), passes, setting, keeper, bar, unique_ids=unique_ids)
    passes.close()
    if keeper is not None and (ranks.world > 1 or name != LOOK):
        # Another process may be lost; and who interrupts the next pass does not want to repeat this one.
        keeper.keep_if_possible(lenses, passes.analysed)
    counts = Counts.total([passes.analysed.counts, texts.skipped(part)])
    found = (counts, len(passes.analysed.numbers), texts.own or 0, texts.size, passes.driver.paths)
    every = ranks.from_all(found)
    counts = Counts.total(one[0] for one in every)
    if counts.texts == 0 and texts.share is None:  # a shard may have none, if texts are few
        raise UserError(f"The corpus {name_of(texts.corpus)!r} has no texts to analyse.")
    _, analysed, own, sizes, paths = zip(*every, strict=True)
    if len(set(sizes)) > 1:
        raise UserError(
            f"The processes read corpora of different sizes ({', '.join(map(str, sizes))} texts). Give all of them the "
            "same texts."
        )
    _refuse_lost(sum(analysed), sum(own))
    return counts, keeper, {path for some in paths for path in some}


def _refuse_lost(analysed: int, texts: int) -> None:
    """Every text is in the states of one process."""
    if analysed != texts:
        raise UserError(
            f"The states hold {analysed:,} texts, and the corpus has {texts:,}: the saved states are not those of all "
            "processes, or not every process found them. Run without --resume."
        )


def _through(
    texts: TokenizedTexts,
    left: Iterator[Encoded | None],
    passes: Passes,
    setting: Setting,
    keeper: Keeper | None,
    bar: Callable[..., None],
    *,
    unique_ids: bool,
) -> None:
    """The pass over those texts of this process that are left."""
    looking = passes.driver.lenses
    ids = UniqueIds(_ids(looking) if unique_ids else None)
    saved, pulse = _saved_if_interrupted(keeper, passes, setting.out), setting.ranks.pulse
    with signals_between_batches() as heed_signals, torch.no_grad(), evaluating(texts.subject.model), saved:
        texts.words |= passes.driver.reads("words")
        in_turn = batches(left, setting.batch_tokens, texts.subject.device.type, passes.step)
        stream = prepared(texts.subject, in_turn, launched=passes.launched, words=texts.words, step=passes.step)
        for number, (encoded, batch) in enumerate(stream):
            heed_signals()
            if batch is None:
                passes.count(encoded, number)
            else:
                passes.take(encoded, batch, number)
                ids.add(encoded)
                bar(len(encoded), sum(e.tokens for e in encoded))
            if keeper is not None:
                keeper.due(looking, passes.analysed)
            if pulse is not None and (lost := pulse.lost()) is not None:
                if keeper is not None:
                    keeper.keep_if_possible(looking, passes.analysed)
                raise lost
            heed_signals()


def prepare(texts: TokenizedTexts, lenses: Sequence[Lens], setting: Setting, name: str = BEFORE) -> None:
    """One look before this one, for all lenses that need to know something of the whole corpus before they begin.

    Where what they need also needs a look of its own, that comes first; each look saves its states under its own name.
    """
    refuse_once(texts, lenses)
    rounds = [*rounds_before(texts.subject, lenses), lenses]
    for number, (needed, after) in enumerate(pairwise(rounds), 1):
        counts, _, _ = passed(texts, needed, setting, f"{BEFORE}_" * (len(rounds) - 1 - number) + name)
        results = concluded(needed, provenance_of(texts, counts, setting.weights), (), None)
        for lens in waiting(after):
            lens.take(results)


def refuse_once(texts: TokenizedTexts, lenses: Sequence[Lens]) -> None:
    """UserError if a lens needs a look before this one at what can be read only once."""
    if (needy := waiting(lenses)) and texts.once:
        raise UserError(f"The lens {needy[0].name!r} reads the corpus twice. Pass a Corpus or a list of texts.")


@contextmanager
def _saved_if_interrupted(keeper: Keeper | None, passes: Passes, out: str | os.PathLike[str] | None) -> Iterator[None]:
    """Ctrl-C leaves what `resume` needs: states of whole batches only, if not these, then those saved before."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if keeper is None:
            raise
        if passes.batches is not None:
            keeper.keep(passes.driver.lenses, passes.analysed)
            what = f"the same command with --resume goes on from here ({out})"
        elif keeper.file.exists():
            what = f"the batch was cut short, so --resume goes on from the states that were saved before it ({out})"
        else:
            what = "the batch was cut short and nothing had been saved before it, so --resume begins anew"
        raise KeyboardInterrupt(f"interrupted; {what}.") from interrupt


def _ids(lenses: Sequence[Lens]) -> list[str]:
    """The ids of the texts that were analysed before the run was interrupted."""
    return next((lens.per_text.ids() for lens in lenses if lens.per_text is not None), [])


def _fingerprint(texts: TokenizedTexts, lenses: Sequence[Lens], weights: str) -> Json:
    """What must not have changed if saved states are to be used."""
    return {
        "weights": weights,
        "dtype": texts.subject.precision,
        "corpus": texts.fingerprint,
        "lenses": [description(lens) for lens in lenses],
        "truncate": texts.truncate,
        "shard": None if texts.share is None else str(texts.share),
        "versions": dict(libraries()),
    }
