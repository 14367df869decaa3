"""The one loop: corpus → subject → lenses → results."""

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack, overload

import torch

from lorgnette.errors import UserError, flag, refuse_no_mapping, shown, whole_number
from lorgnette.lens import DEFAULT
from lorgnette.lens.base import Lens
from lorgnette.looking.choosing import (
    chosen_lenses,
    every_lens,
    wants_all,
    whole_model,
    with_needed,
)
from lorgnette.looking.conclusion import computed_of, concluded, provenance_of, tell_costs, tell_notes, tell_parts
from lorgnette.looking.corpus_pass import Setting, alone, passed, prepare, read_together
from lorgnette.looking.driver import refuse_odd_keep, refuse_used
from lorgnette.looking.passes import Passes, memory_given_back
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.runs import Run
from lorgnette.looking.shard_pass import analysed_shard
from lorgnette.looking.shards import Look, Shard
from lorgnette.looking.texts import (
    Share,
    Texts,
    TokenizedTexts,
    text_count,
)
from lorgnette.models.switching import evaluating
from lorgnette.results import Results
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.changes import refuse_unnamed
from lorgnette.texts.sides import Encoded


class StepOptions(TypedDict, total=False):
    """The options of `look` that `look_by_step` hands on as they are."""

    batch_tokens: int
    progress: bool
    labels: Mapping[str, str] | None
    seed: int | None
    command: str | None


class LookOptions(StepOptions, total=False):
    """The options of `look` that do not decide what it returns."""

    truncate: bool
    out: str | os.PathLike[str] | None
    resume: bool
    keep: str | None


@overload
def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts,
    lenses: Sequence[Lens | str] | Lens | str = DEFAULT,
    *,
    shard: None = None,
    first: None = None,
    **options: Unpack[LookOptions],
) -> Results: ...
@overload
def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts,
    lenses: Sequence[Lens | str] | Lens | str = DEFAULT,
    *,
    shard: tuple[int, int],
    first: Results | str | os.PathLike[str] | None = None,
    **options: Unpack[LookOptions],
) -> Shard: ...
@memory_given_back()
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
    whole corpus before it looks (`roles`, `importance`, `centred=True` …), there are two rounds (three for `edges`):
    these shards hold what it needs, and `first=lo.merge(shards)` in a second look at each shard goes on from there.
    """
    flag(resume, "resume")
    flag(progress, "progress")
    if command is not None and not isinstance(command, str):
        raise UserError(f"command must be a string. Got {shown(command)} instead.")
    if labels is not None:
        refuse_no_mapping(labels, "labels", "{'pos': 'positive'}")
    ranks = ProcessRank.join()
    with ranks.beating():
        texts = _texts(subject, corpus, truncate, None if shard is None else Share.given(shard))
        if first is not None and shard is None:
            raise UserError("first is for the later rounds of shards: look(…, shard=(3, 64), first=…).")
        left_out: dict[str, str] | None = None
        if wants_all(lenses):  # every shard tries the lenses on the same texts
            whole_corpus = texts if shard is None else TokenizedTexts(subject, texts.corpus, truncate=texts.truncate)
            lenses, left_out = every_lens(whole_corpus, labels, _try)
        chosen = with_needed(chosen_lenses(lenses))
        whole = whole_model(texts, chosen, labels)
        corpus = texts.corpus
        if out is not None:
            refuse_unnamed(subject.anatomy)
        _refuse(texts, chosen, batch_tokens, resume)
        refuse_odd_keep(keep)
        looking = [*chosen, *whole]
        for lens in looking:
            refuse_used(lens, subject)
            lens.bind(subject, keep_texts=keep is not None and lens in chosen)
            if lens.per_text is not None and (size := text_count(corpus)) is not None:
                lens.per_text.refuse_many(size)
        weights = subject.weights_hash  # once: it reads all of them
        setting = Setting(batch_tokens, progress, out, resume, weights, ranks)
        read_together(texts, ranks)
        if shard is not None:
            about = Look.of(texts, looking, setting.weights, labels=labels, keep=keep, seed=seed, left_out=left_out)
            return analysed_shard(texts, chosen, whole, setting, about, command, first)
        run = Run(out, (weights, subject.precision, texts.fingerprint), texts.truncate, chosen)
        others = run.others()
        if resume and (done_before := run.finished()) is not None:
            return done_before
        if progress and ranks.first:
            tell_costs(chosen)
            tell_parts(chosen, corpus)
        with alone(out, ranks):
            prepare(texts, chosen, setting)
            counts, keeper, paths = passed(texts, looking, setting, unique_ids=keep is not None)
            provenance = provenance_of(texts, counts, weights, seed, command)
            results = concluded(chosen, provenance, whole, left_out, paths)
            if progress and ranks.first and command is None:  # the command line prints all notes with its table
                tell_notes(results)
            if out is not None and keeper is not None and ranks.first:
                results = run.joined(others, results)
                results.save(out)
                keeper.clear()
        return results


def _refuse(texts: TokenizedTexts, lenses: Sequence[Lens], batch_tokens: int, resume: bool) -> None:
    """Refuse what cannot be analysed before any work is done."""
    if not lenses:
        raise UserError("No lens was given. `lorgnette list lenses` lists them.")
    if resume and texts.once:
        raise UserError("resume needs a corpus that can be identified: a Corpus, a list or a tuple of texts.")
    whole_number(batch_tokens, "batch_tokens", at_least=1)
    subject = texts.subject
    if not subject.sites and not all("hidden states" in lens.reads for lens in lenses):
        raise UserError(f"{type(subject.model).__name__} {subject.name!r} has no attention to analyse.")


def _try(subject: Subject, encoded: list[Encoded], lens: Lens) -> None:
    """Try one lens on a few texts, after the pass that it needs: a `UserError` if it cannot look at them."""
    before = [need for need in lens.needs() if isinstance(need, Lens)]  # those named by strings run anyway
    lens.bind(subject)
    with torch.no_grad(), evaluating(subject.model):
        for need in before:
            _try(subject, encoded, need)
        if before:
            lens.take({need.name: computed_of(need) for need in before})
        Passes(subject, [lens]).take(encoded)


def _texts(subject: Subject, corpus: Texts | TokenizedTexts, truncate: bool, share: Share | None) -> TokenizedTexts:
    refuse_no_subject(subject, "look")
    flag(truncate, "truncate")
    if isinstance(corpus, TokenizedTexts):
        if share is None:
            return corpus
        return TokenizedTexts(subject, corpus.corpus, truncate=corpus.truncate, share=share)
    return TokenizedTexts(subject, corpus, truncate=truncate, share=share)
