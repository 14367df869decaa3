"""What a head is worth in BLEU: translations generated without it."""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.results import Result
from lorgnette.results.provenance import Provenance
from lorgnette.statistics.bleu import DRAWS, bleu, difference
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Head, Knockout, head_names, heads_at
from lorgnette.texts.example import Example
from lorgnette.training.translation.generation import translate


def bleu_without(
    subject: Subject,
    corpus: Iterable[Example],
    heads: Iterable[Head] | None = None,
    *,
    means: Result | None = None,
    beams: int = 1,
    draws: int = DRAWS,
    seed: int = 0,
) -> Result:
    """BLEU without each head (or each of `heads`), minus BLEU with all of them, with 95 % intervals.

    Every head costs a translation of the whole corpus; the `importance` lens takes the loss of the references instead,
    in one pass per head. `means` (a result of the `head_means` lens) puts a head's mean in its place, else it gives
    nothing. Intervals are of a paired bootstrap over texts (Koehn 2004).
    """
    if not subject.encoder.translates:
        raise UserError(f"{subject.name!r} is not a translation model, which BLEU needs.")
    texts = list(corpus)
    if lacking := next((example.id for example in texts if example.target is None), None):
        raise UserError(f"The text {lacking!r} has no reference translation, which BLEU needs.")
    if len(texts) < 2:
        raise UserError("BLEU with an interval needs at least 2 texts, which are drawn with replacement.")
    sources, references = [e.text for e in texts], [str(e.target) for e in texts]
    whole = bleu(_translated(subject, sources, beams), references)
    every = {s.site: tuple(range(s.heads)) for s in subject.anatomy.sites}
    chosen = every if heads is None else heads_at(subject, heads)
    cells = _empty(subject)
    for name in head_names(subject, chosen):
        knockout = Knockout.of(subject, [name], means)
        with subject.tapped(knockout):
            drop = difference(bleu(_translated(subject, sources, beams), references), whole, draws=draws, seed=seed)
        stack, layer, head = name.split(".")
        at = {axes.STACK: stack, axes.LAYER: int(layer), axes.HEAD: int(head)}
        values = (drop.value, *drop.interval, len(texts))
        for tail, value in zip(("", "_low", "_high", "_count"), values, strict=True):
            cells[f"bleu_change{tail}"].loc[at] = value
    cells["bleu_change"].attrs["description"] = "BLEU without the head minus BLEU with all heads"
    data = xr.Dataset({**cells, "bleu": whole.score})
    data.attrs |= {"signature": whole.signature, "beams": beams, "ablation": "zero" if means is None else "mean"}
    origin = Provenance(
        model=subject.name,
        model_class=type(subject.model).__name__,
        weights_hash=subject.weights_hash,
        corpus=str(getattr(corpus, "name", "texts")),
        texts=len(texts),
        seed=seed,
    )
    return Result("bleu_without", data, origin)


def _translated(subject: Subject, sources: list[str], beams: int) -> list[str]:
    return translate(subject.model, subject.tokenizer, sources, beams=beams, limit=subject.limit)


def _empty(subject: Subject) -> dict[str, xr.DataArray]:
    stacks = subject.layers
    layers, heads = max(map(len, stacks.values())), max(s.total for s in subject.anatomy.sites)
    coordinates = {axes.STACK: list(stacks), axes.LAYER: range(1, layers + 1), axes.HEAD: range(1, heads + 1)}
    shape = (len(stacks), layers, heads)
    make = lambda cell: xr.DataArray(np.full(shape, cell), coords=coordinates, dims=axes.PER_HEAD)  # noqa: E731
    return {f"bleu_change{tail}": make(0 if tail == "_count" else np.nan) for tail in ("", "_low", "_high", "_count")}
