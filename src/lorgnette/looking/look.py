"""The one loop: corpus → subject → lenses → results."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import overload

import torch

from lorgnette import __version__
from lorgnette.errors import UserError, flag, shown, whole_number
from lorgnette.files import hidden, locked
from lorgnette.lens import DEFAULT
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.ahead import prepared
from lorgnette.looking.choosing import (
    chosen_lenses,
    every_lens,
    in_order,
    needed_by,
    waiting,
    wants_all,
    whole_model,
    with_needed,
)
from lorgnette.looking.conclusion import computed_of, concluded, name_of, provenance_of
from lorgnette.looking.driver import refuse_odd_keep, refuse_used
from lorgnette.looking.interrupts import signals_between_batches
from lorgnette.looking.passes import Passes
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.progress import progress_bar
from lorgnette.looking.resume import BEFORE, LOOK, UNFINISHED, Keeper, states_of
from lorgnette.looking.runs import Run
from lorgnette.looking.shards import LensRecipe, Look, Shard, first_round, refuse_other
from lorgnette.looking.short_texts import as_json, short_texts
from lorgnette.looking.texts import (
    ALL_TEXTS,
    Counts,
    Share,
    Texts,
    TextSet,
    TokenizedTexts,
    UniqueIds,
    batches,
    fingerprint_of,
)
from lorgnette.models.loading import tensors_hash
from lorgnette.models.switching import evaluating
from lorgnette.results import Results
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.texts.sides import Encoded
from lorgnette.types import Json


@overload
def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts,
    lenses: Sequence[Lens | str] | Lens | str = DEFAULT,
    *,
    batch_tokens: int = 4096,
    truncate: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    labels: Mapping[str, str] | None = None,
    keep: str | None = None,
    seed: int | None = None,
    command: str | None = None,
    shard: None = None,
    first: None = None,
) -> Results: ...
@overload
def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts,
    lenses: Sequence[Lens | str] | Lens | str = DEFAULT,
    *,
    batch_tokens: int = 4096,
    truncate: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    labels: Mapping[str, str] | None = None,
    keep: str | None = None,
    seed: int | None = None,
    command: str | None = None,
    shard: tuple[int, int],
    first: Results | str | os.PathLike[str] | None = None,
) -> Shard: ...
def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts,
    lenses: Sequence[Lens | str] | Lens | str = DEFAULT,
    *,
    batch_tokens: int = 4096,
    truncate: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    labels: Mapping[str, str] | None = None,
    keep: str | None = None,
    seed: int | None = None,
    command: str | None = None,
    shard: tuple[int, int] | None = None,
    first: Results | str | os.PathLike[str] | None = None,
) -> Results | Shard:
    """Analyse a subject with these lenses, in one pass over a corpus: the command `lorgnette look`.

        >>> found = lo.look(subject, texts, ["weights", "norms:sample=0"], progress=False)
        >>> found["norms"]["norm"].data.dims
        ('stack', 'layer', 'head', 'category')

    Batches have texts of similar length, up to `batch_tokens` tokens with padding; results do not depend on batches or
    order. With `out`, results are written to that folder at the end, and Ctrl-C saves the work for `resume=True`. Under
    `torchrun`, each process tokenises and analyses its share of the texts, and all return the same results; `resume`
    continues with any number of processes. Pass `TokenizedTexts` to analyse the same texts again without reading them.

    The corpus is whatever `lo.corpus` takes: a name or path, a `datasets.Dataset`, a data frame, a list of texts.
    Lenses may be named ("weights,norms"); "all" runs every lens that applies to this model and these texts (a note says
    why others do not). Results of other lenses in `out` are kept if model and texts are the same; `resume=True` on a
    finished run returns its results at once. If a lens uses labels, those of the corpus are matched with the classes of
    the model by name; `labels` maps names that differ (label → class).

    `keep="texts"` keeps the numbers of each text, for lenses whose means are over texts (see `Results.texts`): value
    and weight as 32-bit floats, at most 2²⁵ per lens (268 MB). Ids of texts must be unique.

    `shard=(3, 64)` analyses the third of 64 shares of the texts and returns (with `out`: writes) a `Shard`; `lo.merge`
    makes the results of all texts from all 64. The corpus is the same for every shard. If a lens needs something of the
    whole corpus before it looks (`roles`, `importance`, `centred=True` …), there are two rounds: these shards hold what
    it needs, and `first=lo.merge(shards)` in a second look at each shard goes on from there.
    """
    flag(resume, "resume")
    flag(progress, "progress")
    if command is not None and not isinstance(command, str):
        raise UserError(f"command must be a string. Got {shown(command)} instead.")
    ranks = ProcessRank.join()
    texts = _texts(subject, corpus, truncate, None if shard is None else Share.given(shard))
    if first is not None and shard is None:
        raise UserError("first is for the second round of shards: look(…, shard=(3, 64), first=…).")
    left_out: dict[str, str] | None = None
    if wants_all(lenses):  # every shard tries them on the same texts
        whole_corpus = texts if shard is None else TokenizedTexts(subject, texts.corpus, truncate=texts.truncate)
        lenses, left_out = every_lens(whole_corpus, labels, _try)
    chosen = with_needed(chosen_lenses(lenses))
    whole = whole_model(texts, chosen, labels)
    corpus = texts.corpus
    _refuse(subject, corpus, chosen, batch_tokens, resume)
    refuse_odd_keep(keep)
    looking = [*chosen, *whole]
    for lens in looking:
        refuse_used(lens, subject)
        lens.bind(subject, keep_texts=keep is not None and lens in chosen)
        if lens.per_text is not None and (size := _size(corpus)) is not None:
            lens.per_text.refuse_many(size)
    weights = subject.weights_hash  # once: it reads all of them
    setting = Setting(batch_tokens, progress, out, resume, weights, ranks)
    if shard is not None:
        return _shard(texts, chosen, whole, setting, labels, keep, seed, command, left_out, first)
    run = Run(out, (weights, subject.precision, texts.fingerprint), texts.truncate, chosen)
    others = run.others()
    if resume and (done_before := run.finished()) is not None:
        return done_before
    with _alone(out, ranks):
        _prepare(texts, chosen, setting)
        counts, keeper, paths = _passed(texts, looking, setting, unique=keep is not None)
        provenance = provenance_of(subject, corpus, counts, weights, seed, command)
        results = concluded(chosen, provenance, whole, left_out, paths)
        if out is not None and keeper is not None and ranks.first:
            results = run.joined(others, results)
            results.save(out)
            keeper.clear()
    return results


@dataclass(frozen=True)
class Setting:
    """How the passes of one look run, whatever the lenses: where, in which batches, with which processes."""

    batch_tokens: int
    progress: bool
    out: str | os.PathLike[str] | None
    resume: bool
    weights: str
    ranks: ProcessRank


def _alone(out: str | os.PathLike[str] | None, ranks: ProcessRank) -> AbstractContextManager[None]:
    """One run at a time writes to a folder."""
    if out is None or not ranks.first:
        return nullcontext()
    return locked(hidden(out, UNFINISHED), f"Another run is writing to {out}. Wait for it, or choose another folder.")


def _shard(
    texts: TokenizedTexts,
    chosen: Sequence[Lens],
    whole: Sequence[WholeModel],
    setting: Setting,
    labels: Mapping[str, str] | None,
    keep: str | None,
    seed: int | None,
    command: str | None,
    left_out: dict[str, str] | None,
    first: Results | str | os.PathLike[str] | None,
) -> Shard:
    """The states after a share of the texts, with what `merge` needs to know of them."""
    if setting.ranks.world > 1:
        raise UserError("A shard is the work of one process: use --shard or torchrun, not both.")
    assert texts.share is not None
    looking, out, weights = [*chosen, *whole], setting.out, setting.weights
    needed = _needed(texts, chosen)
    if deep := waiting(needed):
        raise UserError(
            f"Shards have two rounds, and these lenses need three: {deep[0].name!r}, which another lens needs before "
            "it looks, needs a look before that. Run look without --shard."
        )
    if first is not None and not needed:
        raise UserError("No lens of this look needs a first round: leave out --first.")
    about = Look(
        library=__version__,
        weights=weights,
        dtype=texts.subject.precision,
        corpus=texts.fingerprint,
        truncate=texts.truncate,
        labels=None if labels is None else dict(labels),
        keep=keep,
        seed=seed,
        shards=texts.share.of,
        lenses=tuple(map(LensRecipe.of, looking)),
        whole=bool(whole),
        left_out=left_out,
        needed=tuple(map(LensRecipe.of, needed)) if first is None else (),
    )
    there = None if out is None else refuse_other(out, about, texts.share)
    if there is not None and setting.resume:
        return there
    if first is not None:
        before = first_round(first, (weights, about.dtype, about.corpus), about.truncate, needed)
        for lens in waiting(chosen):
            lens.take(before)
    elif needed:
        looking = needed
    with _alone(out, setting.ranks):
        counts, keeper, paths = _passed(texts, looking, setting, unique=keep is not None)
        made = _made_shard(texts, looking, about, counts, paths, weights, seed, command, first)
        if out is not None and keeper is not None:
            made.save(out)
            keeper.clear()
    return made


def _made_shard(
    texts: TokenizedTexts,
    looking: Sequence[Lens],
    about: Look,
    counts: Counts,
    paths: set[str],
    weights: str,
    seed: int | None,
    command: str | None,
    first: Results | str | os.PathLike[str] | None,
) -> Shard:
    assert texts.share is not None
    states = {name: state.cpu() for name, state in states_of(looking).items()}
    origin = provenance_of(texts.subject, texts.corpus, Counts(), weights, seed, command)
    fingerprint = texts.fingerprint  # of a stream, known only now
    return Shard(
        look=replace(about, corpus=fingerprint),
        share=texts.share,
        counts=counts,
        provenance=replace(origin, corpus_fingerprint=fingerprint),
        paths=tuple(sorted(paths)),
        digest=tensors_hash(states),
        examples=() if texts.once or about.needed else tuple(map(as_json, short_texts(texts))),
        first=None if first is None or isinstance(first, Results) else os.path.abspath(first),
        states=states,
    )


def _passed(
    texts: TokenizedTexts,
    lenses: Sequence[Lens],
    setting: Setting,
    name: str = LOOK,
    *,
    unique: bool = False,
) -> tuple[Counts, Keeper | None, set[str]]:
    """The lenses after the last text: what went through, who keeps their states, how statistics were computed.

    Counts and ways are those of all processes, the states those of this one.
    """
    keeper, passes, done = None, Passes(texts.subject, lenses), TextSet()
    out, ranks = setting.out, setting.ranks
    if out is not None:
        keeper = Keeper.open(out, setting.resume, _fingerprint(texts, lenses, setting.weights), ranks, name)
        if setting.resume:
            passes.analysed, done = keeper.restore(lenses)
        ranks.from_all(None)  # nobody writes before everybody has read
    size, part = _size(texts.corpus), Share(ranks.rank + 1, ranks.world)
    share = texts.share or ALL_TEXTS
    mine = share.split(part.number, part.of)
    total = None if size is None else len(mine.numbers(size))
    bars = progress_bar("looking", total, enabled=setting.progress and ranks.first)
    with bars as bar:
        bar(passes.analysed.counts.texts, passes.analysed.counts.tokens, skipped=True)
        _through(texts, texts.left(done, part), passes, setting, keeper, bar, unique=unique)
    passes.close()
    if keeper is not None and (ranks.world > 1 or name != LOOK):
        # Another process may be lost; and who interrupts the next pass does not want to repeat this one.
        keeper.keep_if_possible(lenses, passes.analysed)
    every = ranks.from_all((passes.analysed.counts, len(passes.analysed.numbers), passes.driver.paths))
    counts = Counts.total(one for one, _, _ in every)
    if counts.texts == 0 and texts.share is None:  # a shard may have none, if texts are few
        raise UserError(f"The corpus {name_of(texts.corpus)!r} has no texts to analyse.")
    _refuse_lost(sum(number for _, number, _ in every), len(share.numbers(texts.size or 0)))
    return counts, keeper, {path for _, _, paths in every for path in paths}


def _refuse_lost(analysed: int, texts: int) -> None:
    """Every text is in the states of one process: of no process if they do not see the same files."""
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
    unique: bool,
) -> None:
    """The pass over those texts of this process that are left."""
    looking = passes.driver.lenses
    ids = UniqueIds(_ids(looking) if unique else None)
    saved = _saved_if_interrupted(keeper, passes, setting.out)
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
            heed_signals()


def _ids(lenses: Sequence[Lens]) -> list[str]:
    """Those of the texts that were analysed before the run was interrupted."""
    return next((lens.per_text.ids() for lens in lenses if lens.per_text is not None), [])


def _refuse(subject: Subject, corpus: Texts, lenses: Sequence[Lens], batch_tokens: int, resume: bool) -> None:
    """Refuse what cannot be analysed before any work is done."""
    if not lenses:
        raise UserError("No lens was given. `lorgnette list lenses` lists them.")
    if resume and fingerprint_of(corpus) is None:
        raise UserError("resume needs a corpus that can be identified: a Corpus, a list or a tuple of texts.")
    whole_number(batch_tokens, "batch_tokens", at_least=1)
    if not subject.sites and not all("hidden states" in lens.reads for lens in lenses):
        raise UserError(f"{type(subject.model).__name__} {subject.name!r} has no attention to analyse.")


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


def _try(subject: Subject, encoded: list[Encoded], lens: Lens) -> None:
    """One lens on a few texts, with what it must know of them first: a `UserError` if it cannot look at such."""
    before = [need for need in lens.needs() if isinstance(need, Lens)]  # the others are named, and tried by themselves
    lens.bind(subject)
    with torch.no_grad(), evaluating(subject.model):
        for need in before:
            _try(subject, encoded, need)
        if before:
            lens.take({need.name: computed_of(need) for need in before})
        Passes(subject, [lens]).take(encoded)


def _prepare(texts: TokenizedTexts, lenses: Sequence[Lens], setting: Setting, name: str = BEFORE) -> None:
    """One look before this one, for all lenses that need to know something of the whole corpus before they begin.

    Where what they need also needs a look of its own, that comes first; each look saves its states under its own name.
    """
    needed = _needed(texts, lenses)
    if not needed:
        return
    _prepare(texts, needed, setting, f"{BEFORE}_{name}")
    counts, _, _ = _passed(texts, needed, setting, name)
    results = concluded(needed, provenance_of(texts.subject, texts.corpus, counts, setting.weights), (), None)
    for lens in waiting(lenses):
        lens.take(results)


def _needed(texts: TokenizedTexts, lenses: Sequence[Lens]) -> list[Lens]:
    """The lenses whose results others need before they look, bound to the model."""
    needy = waiting(lenses)
    if needy and texts.once:
        raise UserError(f"The lens {needy[0].name!r} reads the corpus twice. Pass a Corpus or a list of texts.")
    needed = in_order(needed_by(needy))
    for lens in needed:
        refuse_used(lens, texts.subject)
        lens.bind(texts.subject)
    return needed


def _texts(subject: Subject, corpus: Texts | TokenizedTexts, truncate: bool, share: Share | None) -> TokenizedTexts:
    refuse_no_subject(subject, "look")
    flag(truncate, "truncate")
    if isinstance(corpus, TokenizedTexts):
        if share is None:
            return corpus
        return TokenizedTexts(subject, corpus.corpus, truncate=corpus.truncate, share=share)
    return TokenizedTexts(subject, corpus, truncate=truncate, share=share)


def _size(corpus: object) -> int | None:
    """How many texts there are, or can be at most, where that is known without reading them."""
    return len(corpus) if isinstance(corpus, Sized) else getattr(corpus, "most", None)


def _fingerprint(texts: TokenizedTexts, lenses: Sequence[Lens], weights: str) -> Json:
    """What must be unchanged for saved states to be usable."""
    return {
        "weights": weights,
        "dtype": texts.subject.precision,
        "corpus": texts.fingerprint,
        "lenses": [description(lens) for lens in lenses],
        "truncate": texts.truncate,
        "shard": None if texts.share is None else str(texts.share),
    }
