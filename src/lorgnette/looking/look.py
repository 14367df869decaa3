"""The one loop: corpus → subject → lenses → results."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, overload

import torch

from lorgnette import __version__
from lorgnette.errors import UserError, flag, shown, whole_number
from lorgnette.lens import DEFAULT
from lorgnette.lens.base import Lens
from lorgnette.lens.states import description
from lorgnette.lens.whole_model import WholeModel
from lorgnette.looking.ahead import prepared
from lorgnette.looking.choosing import chosen_lenses, every_lens, needed_by, wants_all, whole_model, with_needed
from lorgnette.looking.conclusion import computed_of, concluded, name_of, provenance_of
from lorgnette.looking.driver import looks, refuse_odd_keep, refuse_used
from lorgnette.looking.interrupts import signals_between_batches
from lorgnette.looking.passes import Passes
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.progress import progress_bar
from lorgnette.looking.resume import BEFORE, LOOK, Keeper, states_of
from lorgnette.looking.runs import Run
from lorgnette.looking.shards import LensRecipe, Look, Shard, refuse_other, refuse_unshardable
from lorgnette.looking.texts import Counts, Share, Texts, TokenizedTexts, UniqueIds, batches, fingerprint_of
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
) -> Results | Shard:
    """Analyse a subject with these lenses, in one pass over a corpus: the command `lorgnette look`.

        >>> found = lo.look(subject, texts, ["weights", "norms:sample=0"], progress=False)
        >>> found["norms"]["norm"].data.dims
        ('stack', 'layer', 'head', 'category')

    Batches have texts of similar length, up to `batch_tokens` tokens with padding; results do not depend on batches or
    order. With `out`, results are written to that folder at the end, and Ctrl-C saves the work for `resume=True`. Under
    `torchrun`, each process handles whole batches, and all return the same results. Each text is read and tokenised
    once: pass `TokenizedTexts` to analyse the same texts again.

    The corpus is whatever `lo.corpus` takes: a name or path, a `datasets.Dataset`, a data frame, a list of texts.
    Lenses may be named ("weights,norms"); "all" runs every lens that applies to this model and these texts (a note says
    why others do not). Results of other lenses in `out` are kept if model and texts are the same; `resume=True` on a
    finished run returns its results at once. If a lens uses labels, those of the corpus are matched with the classes of
    the model by name; `labels` maps names that differ (label → class).

    `keep="texts"` keeps the numbers of each text, for lenses whose means are over texts (see `Results.texts`): value
    and weight as 32-bit floats, at most 2²⁵ per lens (268 MB). Ids of texts must be unique.

    `shard=(3, 64)` analyses the third of 64 shares of the texts and returns (with `out`: writes) a `Shard`; `lo.merge`
    makes the results of all texts from all 64. The corpus is the same for every shard.
    """
    flag(resume, "resume")
    flag(progress, "progress")
    if command is not None and not isinstance(command, str):
        raise UserError(f"command must be a string. Got {shown(command)} instead.")
    texts = _texts(subject, corpus, truncate, None if shard is None else Share.given(shard))
    left_out: dict[str, str] | None = None
    if wants_all(lenses):
        if shard is not None:
            raise UserError("Not possible with --shard yet: all lenses. Name those that you want.")
        lenses, left_out = every_lens(texts, labels, _try)
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
    passing: dict[str, Any] = {
        "batch_tokens": batch_tokens,
        "progress": progress,
        "out": out,
        "resume": resume,
        "weights": weights,
    }
    if shard is not None:
        return _shard(texts, chosen, whole, passing, labels, keep, seed, command)
    run = Run(out, (weights, subject.precision, texts.fingerprint), texts.truncate, chosen)
    others = run.others()
    if resume and (done_before := run.finished()) is not None:
        return done_before
    _prepare(texts, chosen, **passing)
    counts, keeper, paths = _passed(texts, looking, **passing, unique=keep is not None)
    provenance = provenance_of(subject, corpus, counts, weights, seed, command)
    results = concluded(chosen, provenance, whole, left_out, paths)
    if out is not None and keeper is not None and keeper.ranks.first:
        results = run.joined(others, results)
        results.save(out)
        keeper.clear()
    return results


def _shard(
    texts: TokenizedTexts,
    chosen: Sequence[Lens],
    whole: Sequence[WholeModel],
    passing: dict[str, Any],
    labels: Mapping[str, str] | None,
    keep: str | None,
    seed: int | None,
    command: str | None,
) -> Shard:
    """The states after a share of the texts, with what `merge` needs to know of them."""
    refuse_unshardable(chosen)
    assert texts.share is not None
    looking, out, weights = [*chosen, *whole], passing["out"], passing["weights"]
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
    )
    there = None if out is None else refuse_other(out, about, texts.share)
    if there is not None and passing["resume"]:
        return there
    counts, keeper, paths = _passed(texts, looking, **passing, unique=keep is not None)
    states = states_of(looking)
    states = {name: state.cpu() for name, state in states.items()}
    origin = provenance_of(texts.subject, texts.corpus, Counts(), weights, seed, command)
    fingerprint = texts.fingerprint  # of a stream, known only now
    made = Shard(
        look=replace(about, corpus=fingerprint),
        share=texts.share,
        counts=counts,
        provenance=replace(origin, corpus_fingerprint=fingerprint),
        paths=tuple(sorted(paths)),
        digest=tensors_hash(states),
        states=states,
    )
    if out is not None and keeper is not None:
        made.save(out)
        keeper.clear()
    return made


def _passed(
    texts: TokenizedTexts,
    lenses: Sequence[Lens],
    name: str = LOOK,
    *,
    batch_tokens: int,
    progress: bool,
    out: str | os.PathLike[str] | None,
    resume: bool,
    weights: str,
    unique: bool = False,
) -> tuple[Counts, Keeper | None, set[str]]:
    """The lenses after the last text: what went through, who keeps their states, how statistics were computed."""
    ranks, keeper, passes = ProcessRank.join(), None, Passes(texts.subject, lenses)
    if out is not None:
        keeper = Keeper.open(out, resume, _fingerprint(texts, lenses, weights, batch_tokens, passes.step), ranks, name)
    done = keeper.restore(lenses) if keeper is not None and resume else 0
    size, share = _size(texts.corpus), texts.share
    size = size if size is None or share is None else share.part(size)
    bars = progress_bar("looking", size, enabled=progress and ranks.first)
    with bars as bar:
        counts = _through(texts, passes, batch_tokens, ranks, keeper, done, bar, out, unique=unique)
    passes.close()
    if counts.texts == 0 and share is None:  # a shard may have none, if texts are few
        raise UserError(f"The corpus {name_of(texts.corpus)!r} has no texts to analyse.")
    return counts, keeper, passes.driver.paths


def _through(
    texts: TokenizedTexts,
    passes: Passes,
    batch_tokens: int,
    ranks: ProcessRank,
    keeper: Keeper | None,
    done: int,
    bar: Callable[..., None],
    out: str | os.PathLike[str] | None,
    *,
    unique: bool,
) -> Counts:
    """The pass over the corpus: this process's batches, those after the first `done`, which were looked at before."""
    counts, ids, number, looking = Counts(), UniqueIds(enabled=unique), -1, passes.driver.lenses
    passes.batches = done
    saved = _saved_if_interrupted(keeper, passes, out)

    def mine(number: int) -> bool:
        return number >= done and number % ranks.world == ranks.rank

    with signals_between_batches() as heed_signals, torch.no_grad(), evaluating(texts.subject.model), saved:
        texts.words |= passes.driver.reads("words")
        in_turn = batches(texts, batch_tokens, counts, texts.subject.device.type, passes.step)
        stream = prepared(texts.subject, in_turn, mine, launched=passes.launched, words=texts.words, step=passes.step)
        for number, (encoded, batch) in enumerate(stream):
            heed_signals()
            if batch is not None:
                passes.take(encoded, batch, number)
            elif number >= done:
                passes.batches = number + 1  # another process takes it
            counts.add(encoded)
            ids.add(encoded)
            bar(len(encoded), sum(e.tokens for e in encoded), skipped=number < done)
            if keeper is not None and number >= done:
                keeper.due(looking, number + 1)
            heed_signals()
    if done > number + 1:
        raise UserError(f"The saved state has {done} batches, but the corpus has {number + 1}. Run without --resume.")
    counts.batches = number + 1
    return counts


def _refuse(subject: Subject, corpus: Any, lenses: Sequence[Lens], batch_tokens: int, resume: bool) -> None:
    """Refuse what cannot be analysed before any work is done."""
    if not lenses:
        raise UserError("No lens was given. `lorgnette list lenses` lists them.")
    if resume and fingerprint_of(corpus) is None:
        raise UserError("resume needs a corpus that can be identified: a Corpus, a list or a tuple of texts.")
    whole_number(batch_tokens, "batch_tokens", at_least=1)
    if not subject.sites and not all("hidden states" in lens.reads for lens in lenses):
        raise UserError(f"{type(subject.model).__name__} {subject.name!r} has no attention to analyse.")


@contextmanager
def _saved_if_interrupted(keeper: Keeper | None, passes: Passes, out: Any) -> Iterator[None]:
    """Ctrl-C leaves what `resume` needs: states of whole batches only, if not these, then those saved before."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if keeper is None:
            raise
        if passes.batches is not None:
            keeper.keep(passes.driver.lenses, passes.batches)
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
            need.bind(subject)
            Passes(subject, [need]).take(encoded)
        if before:
            lens.take({need.name: computed_of(need) for need in before})
        Passes(subject, [lens]).take(encoded)


def _prepare(texts: TokenizedTexts, lenses: Sequence[Lens], *, weights: str, **options: Any) -> None:
    """One look before this one, for all lenses that need to know something of the whole corpus before they begin."""
    waiting = [lens for lens in lenses if looks(lens) and lens.needs()]
    if not waiting:
        return
    if texts.once:
        raise UserError(f"The lens {waiting[0].name!r} reads the corpus twice. Pass a Corpus or a list of texts.")
    needed = needed_by(waiting)
    for lens in needed:
        refuse_used(lens, texts.subject)
        lens.bind(texts.subject)
    counts, keeper, _ = _passed(texts, needed, BEFORE, weights=weights, **options)
    if keeper is not None:
        keeper.keep_if_possible(
            needed, counts.batches
        )  # who interrupts the second pass does not want to repeat the first
    results = concluded(needed, provenance_of(texts.subject, texts.corpus, counts, weights), (), None)
    for lens in waiting:
        lens.take(results)


def _texts(subject: Subject, corpus: Texts | TokenizedTexts, truncate: bool, share: Share | None) -> TokenizedTexts:
    refuse_no_subject(subject, "look")
    flag(truncate, "truncate")
    if isinstance(corpus, TokenizedTexts):
        if share is None:
            return corpus
        return TokenizedTexts(subject, corpus.corpus, truncate=corpus.truncate, share=share)
    return TokenizedTexts(subject, corpus, truncate=truncate, share=share)


def _size(corpus: Any) -> int | None:
    """How many texts there are, or can be at most, where that is known without reading them."""
    return len(corpus) if hasattr(corpus, "__len__") else getattr(corpus, "most", None)


def _fingerprint(texts: TokenizedTexts, lenses: Sequence[Lens], weights: str, batch_tokens: int, step: int) -> Json:
    """What must be unchanged for saved states to be usable."""
    return {
        "weights": weights,
        "dtype": texts.subject.precision,
        "corpus": texts.fingerprint,
        "lenses": [description(lens) for lens in lenses],
        "batch_tokens": batch_tokens,
        "windows": [texts.subject.device.type, step],
        "truncate": texts.truncate,
        "shard": None if texts.share is None else str(texts.share),
    }
