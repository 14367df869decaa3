"""The one loop: corpus → subject → lenses → results."""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from lorgnette.attending import Call, Tap
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.memory import let_go, out_of_memory
from lorgnette.looking.processes import ProcessRank
from lorgnette.looking.progress import progress_bar
from lorgnette.looking.resume import Keeper
from lorgnette.looking.texts import Counts, Texts, TokenizedTexts, batches
from lorgnette.models.switching import evaluating
from lorgnette.results import Result, Results
from lorgnette.results.provenance import Provenance
from lorgnette.results.result import refuse_other_folder
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.encoding import Encoded


def look(
    subject: Subject,
    corpus: Texts | TokenizedTexts | str,
    lenses: Sequence[Lens | str] | Lens | str,
    *,
    batch_tokens: int = 4096,
    truncate: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    labels: Mapping[str, str] | None = None,
    seed: int | None = None,
    command: str | None = None,
) -> Results:
    """Run every text of a corpus through a subject once, with these lenses looking on: the command `lorgnette look`.

        >>> found = lo.look(subject, texts, ["weights", "norms:sample=0"], progress=False)
        >>> found["norms"]["norm"].data.dims
        ('stack', 'layer', 'head', 'category')

    Batches hold texts of similar length, up to `batch_tokens` tokens with padding; results do not depend on their
    order or size. With `out`, results are written there, whole, at the end, and Ctrl-C keeps the work for
    `resume=True`. Under `torchrun` each process takes whole batches and all end with the same results. Each text is
    read and tokenised once: give `TokenizedTexts` to look at the same ones again.

    A string is the name or path of a corpus, or names of lenses ("weights,norms"). Where a lens uses labels, those of
    the corpus are matched with the classes of the model by name; `labels` says which is which (label → class).
    """
    chosen = _with_needed(_lenses(lenses))
    texts = _texts(subject, corpus, truncate)
    if labels or any(lens.uses_labels for lens in chosen):
        texts.match_labels(labels)
    corpus = texts.corpus
    _refuse(subject, corpus, chosen, batch_tokens, resume)
    for lens in chosen:
        lens.bind(subject)
    if out is not None:
        refuse_other_folder(out, [lens.name for lens in chosen])
    _prepare(texts, chosen, batch_tokens=batch_tokens, progress=progress)
    ranks, counts = ProcessRank.join(), Counts()
    keeper = None
    if out is not None:
        keeper = Keeper.open(out, resume, _fingerprint(texts, chosen, batch_tokens), ranks)
    done = keeper.restore(chosen) if keeper is not None and resume else 0
    counts.batches = done
    bars = progress_bar("looking", _size(corpus), enabled=progress and ranks.first)
    kept = _kept_if_interrupted(keeper, chosen, counts, out)
    number = -1
    with bars as bar, torch.no_grad(), evaluating(subject.model), kept:
        for number, encoded in enumerate(batches(texts, batch_tokens, counts)):
            if number >= done and number % ranks.world == ranks.rank:
                _pass(subject, encoded, chosen)
            counts.batches = max(counts.batches, number + 1)
            counts.add(encoded)
            bar(len(encoded), sum(e.tokens for e in encoded), skipped=number < done)
            if keeper is not None and number >= done:
                keeper.due(chosen, counts.batches)
    if done > number + 1:
        raise UserError(
            f"What was kept for --resume holds {done} batches, and the corpus has {number + 1}. Run without."
        )
    if counts.texts == 0:
        raise UserError(f"The corpus {_name(corpus)!r} gave no text to look at.")
    results = _concluded(chosen, _provenance(subject, corpus, counts, seed, command))
    if out is not None and ranks.first:
        results.save(out)
    if keeper is not None and ranks.first:
        keeper.clear()
    return results


def _refuse(subject: Subject, corpus: Any, lenses: Sequence[Lens], batch_tokens: int, resume: bool) -> None:
    """What cannot be looked at, told before any work."""
    if not lenses:
        raise UserError("No lens was given. `lorgnette list lenses` names them.")
    if resume and _corpus_fingerprint(corpus) is None:
        raise UserError("resume needs a corpus that can be recognised: a Corpus, a list or a tuple of texts.")
    if batch_tokens < 1:
        raise UserError(f"batch_tokens must be at least 1. Got {batch_tokens} instead.")
    if not subject.sites and not all(lens.wants_hidden_states for lens in lenses):
        raise UserError(f"{type(subject.model).__name__} {subject.name!r} has no attention to look at.")


@contextmanager
def _kept_if_interrupted(keeper: Keeper | None, lenses: Sequence[Lens], counts: Counts, out: Any) -> Iterator[None]:
    """Ctrl-C leaves what `resume` needs."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if keeper is None:
            raise
        keeper.keep(lenses, counts.batches)
        raise KeyboardInterrupt(
            f"interrupted; the same command with --resume goes on from here ({out})."
        ) from interrupt


def _concluded(lenses: Sequence[Lens], provenance: Any) -> Results:
    """What the lenses found, in an order in which each can be made from those that it needs."""
    for lens in lenses:
        lens.provenance = provenance
    computed: list[Result] = []
    for lens in lenses:
        if not lens.looks:
            lens.take({result.lens: result for result in computed})
        computed.append(_computed(lens))
    return Results(computed)


def _with_needed(lenses: Sequence[Lens]) -> list[Lens]:
    """The lenses, with those that any is made from in the same pass; what is made from others comes last."""
    needed = _needed([lens for lens in lenses if not lens.looks], besides=lenses)
    return [*needed, *sorted(lenses, key=lambda lens: not lens.looks)]


def _needed(lenses: Sequence[Lens], besides: Sequence[Lens] = ()) -> list[Lens]:
    """The lenses that these need, each once."""
    out = {lens.name: lens for lens in besides}
    for need in map(_lens, (name for lens in lenses for name in lens.needs())):
        out.setdefault(need.name, need)
    return list(out.values())[len(besides) :]


def _prepare(texts: TokenizedTexts, lenses: Sequence[Lens], **options: Any) -> None:
    """One look before this one, for all lenses that need to know something of the whole corpus before they begin."""
    waiting = [lens for lens in lenses if lens.looks and lens.needs()]
    if not waiting:
        return
    if texts.once:
        raise UserError(
            f"The lens {waiting[0].name!r} goes through the corpus twice. Give a Corpus or a list of texts."
        )
    results = look(texts.subject, texts, _needed(waiting), **options)
    for lens in waiting:
        lens.take(results)


class Looking(Tap):
    """Hands each call to the lenses."""

    def __init__(self, lenses: Sequence[Lens], batch: Batch) -> None:
        self.lenses, self.batch = lenses, batch
        self.wants_residual = any(lens.wants_residual for lens in lenses)

    def see(self, call: Call) -> None:
        for lens in self.lenses:
            lens.update(call, self.batch)


def _pass(subject: Subject, encoded: list[Encoded], lenses: Sequence[Lens]) -> None:
    """One batch; if it does not fit into memory, its halves.

    The halves run once the failed batch is forgotten: an exception holds, by its traceback, all that did not fit.
    """
    waiting = [encoded]
    while waiting:
        texts = waiting.pop()
        if not _fitted(subject, texts, lenses):
            let_go()
            half = (len(texts) + 1) // 2
            waiting += [texts[half:], texts[:half]]


def _fitted(subject: Subject, encoded: list[Encoded], lenses: Sequence[Lens]) -> bool:
    """Whether the batch went through; if memory ran out, the states are as before it."""
    kept = [{name: state.clone() for name, state in lens.states().items()} for lens in lenses]
    try:
        batch = subject.collate(encoded)
        hidden = any(lens.wants_hidden_states for lens in lenses)
        own = [tap for lens in lenses for tap in lens.taps(batch)]
        with torch.set_grad_enabled(any(lens.wants_gradients for lens in lenses)):
            with subject.tapped(*own, Looking(lenses, batch)):
                outputs = subject.run(batch, output_hidden_states=hidden, return_dict=True)
            for lens in lenses:
                lens.finish(batch, outputs)
    except BaseException as error:
        # Whatever stopped the pass, half a batch must not stay in the states: it would be counted twice.
        for lens, states in zip(lenses, kept, strict=True):
            lens.restore(states)
        if not out_of_memory(error):
            raise
        if len(encoded) == 1:
            raise _too_large(encoded[0], error) from error
        return False
    return True


def _too_large(text: Encoded, error: BaseException) -> UserError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(
        f"The text {text.example.id!r} ({text.tokens} tokens) does not fit into memory by itself ({first}). "
        "Split it, use --truncate, or a machine with more memory."
    )


def _computed(lens: Lens) -> Any:
    # A rank that got no batch has nothing of its own to add, but must take part.
    lens._update_count = max(lens._update_count, 1)
    return lens.compute()


def _texts(subject: Subject, corpus: Texts | TokenizedTexts | str, truncate: bool) -> TokenizedTexts:
    if isinstance(corpus, TokenizedTexts):
        return corpus
    if isinstance(corpus, str):
        from lorgnette.texts import corpus as opened

        corpus = opened(corpus)
    return TokenizedTexts(subject, corpus, truncate=truncate)


def _lenses(lenses: Sequence[Lens | str] | Lens | str) -> list[Lens]:
    """Lenses in the order in which they were given; a name that comes twice counts once."""
    from lorgnette.lens.options import split

    out: list[Lens] = []
    texts: set[str] = set()
    for one in [lenses] if isinstance(lenses, Lens | str) else lenses:
        fresh = [one] if isinstance(one, Lens) else [text for text in split(one) if text not in texts]
        texts.update(text for text in fresh if isinstance(text, str))
        out += map(_lens, fresh)
    names = [lens.name for lens in out]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"The lens {twice!r} is there twice: look with one, and then with the other.")
    return out


def _lens(lens: Lens | str) -> Lens:
    from lorgnette.lens import get

    return get(lens) if isinstance(lens, str) else lens


def _size(corpus: Any) -> int | None:
    return len(corpus) if hasattr(corpus, "__len__") else None


def _name(corpus: Any) -> str:
    return str(getattr(corpus, "name", type(corpus).__name__))


def _fingerprint(texts: TokenizedTexts, lenses: Sequence[Lens], batch_tokens: int) -> dict[str, Any]:
    """What must be the same for a kept state to be worth anything."""
    return {
        "weights": texts.subject.weights_hash,
        "dtype": str(texts.subject.dtype),
        "corpus": _corpus_fingerprint(texts.corpus),
        "lenses": [lens.described() for lens in lenses],
        "batch_tokens": batch_tokens,
        "truncate": texts.truncate,
    }


def _corpus_fingerprint(corpus: Any) -> str | None:
    if isinstance(corpus, Corpus):
        return corpus.fingerprint()
    if isinstance(corpus, list | tuple):
        return hashlib.sha256("\n".join(map(repr, corpus)).encode()).hexdigest()[:16]
    return None  # an iterator cannot be read twice


def _provenance(subject: Subject, corpus: Any, counts: Counts, seed: int | None, command: str | None) -> Provenance:
    notes = []
    if counts.empty:
        notes.append(f"{counts.empty} texts without a single token were left out")
    if counts.untranslated:
        notes.append(f"{counts.untranslated} texts have no translation: decoder and cross-attention leave them out")
    if subject.missing:
        notes.append(f"not in the checkpoint, and left out: {', '.join(subject.missing)}")
    if skipped := getattr(corpus, "skipped", None):
        notes.append(f"{len(skipped)} items of the corpus could not be used: {', '.join(map(str, skipped[:10]))}")
    return Provenance(
        model=subject.name,
        model_class=type(subject.model).__name__,
        weights_hash=subject.weights_hash,
        corpus=_name(corpus),
        corpus_fingerprint=_corpus_fingerprint(corpus),
        split=getattr(corpus, "split", None),
        texts=counts.texts,
        tokens=counts.tokens,
        truncated=counts.truncated,
        seed=seed,
        dtype=str(subject.dtype).removeprefix("torch."),
        device=str(subject.device),
        command=command or " ".join(sys.argv),
        notes=tuple(notes),
    )
