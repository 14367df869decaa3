"""What `lorgnette trace` prints of a text: what the model says of it, and what its heads attend to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lorgnette.cli import prompting
from lorgnette.types import Json

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from jaxtyping import Bool, Float
    from rich.table import Table

    from lorgnette.subject.trace import Trace
    from lorgnette.texts.batch import Tokens

_LINKS = 10
_WORD = 8  # columns for a word in the overview
_KEYS = 4  # of each query of a text whose matrix is too long to print


def document(trace: "Trace", weights: "xr.DataArray", stack: str, pieces: bool) -> Json:
    """Everything a program needs; `weights` is [layer head query key], or [query key] of the chosen head."""
    example = trace.example
    chosen = {axis: weights[axis].item() for axis in ("layer", "head") if axis not in weights.dims}
    return {
        "model": trace.subject.name,
        "weights_hash": trace.subject.weights_hash,
        "text": example.text,
        "pair": example.pair,
        "target": example.target,
        "generated": None if trace.generated is None else trace.generated.to_dict(),
        "parts": trace.parts,
        "probabilities": trace.probabilities,
        "effect": None if trace.effect is None else trace.effect.to_dict(trace.subject.labels),
        "stack": stack,
        "stacks": list(trace.stacks),
        "attending": trace.subject.attending,
        "unit": "piece" if pieces else "word",
        **chosen,
        "queries": weights["query_text"].values.tolist(),
        "keys": weights["key_text"].values.tolist(),
        "axes": list(weights.dims),
        "weights": _lists(weights),
    }


def _lists(weights: "xr.DataArray") -> list[object]:
    """The numbers; those of removed heads are null."""
    if bool(weights.isnull().any()):
        weights = weights.astype(object).where(weights.notnull(), None)
    return list(weights.values.tolist())


def about(trace: "Trace", stack: str) -> Iterator[str]:
    """Which layers have attention, what the model says, and which of its stacks is shown."""
    if trace.subject.attending is not None:
        yield trace.subject.attending
    if trace.probabilities is not None:
        yield ", ".join(f"{label} {p:.3f}" for label, p in trace.probabilities.items())
    if trace.example.target is not None:
        yield f"translation: {trace.example.target}"
    if trace.generated is not None:
        yield f"generated: {trace.generated.text.strip()}"
    if trace.generated is not None or trace.parts:
        yield from prompting.shares(trace, stack)
    yield from _changed(trace)
    if len(trace.stacks) > 1:
        others = ", ".join(name for name in trace.stacks if name != stack)
        yield f"{stack} (--stack: also {others})"


def _changed(trace: "Trace") -> Iterator[str]:
    """What the output was with the heads that were taken out, and what it is without them."""
    effect = trace.effect
    if effect is None:
        return
    moved = f"last states moved by {effect.shift:.3f} (1 − cos)"
    if effect.divergence is not None:
        moved = f"KL {effect.divergence:.3g} nats; {moved}"
    yield f"without {', '.join(effect.without)}: {moved}"
    if effect.said is not None:
        before, after = effect.said
        yield f"  still says: {before}" if before == after else f"  said: {before}; now: {after}"
    for label, logits in effect.to_dict(trace.subject.labels)["logits"].items():
        yield f"  {label}: logit {logits['before']:.3f} → {logits['after']:.3f}"


@dataclass(frozen=True)
class KeyShares:
    """What the queries of a text put on each key, mean over queries; NaN for heads that were removed.

    `left_out`: the keys that most heads of most models attend to whatever the text says, and that would fill the table:
    special tokens, and the first token of a causal model.
    """

    share: "Float[np.ndarray, 'layer head key']"
    labels: list[str]
    left_out: "Bool[np.ndarray, ' key']"
    names_left_out: str

    def described(self) -> Iterator[str]:
        """Say what a cell shows, and what the table leaves out."""
        import numpy as np

        yield "most attended word of each head, with its mean weight over all queries:"
        rows = self.share[~np.isnan(self.share).any(-1)]
        above = int(self.left_out[rows.argmax(-1)].sum())
        if above:
            yield f"(left out: {self.names_left_out}, to which {above} of {len(rows)} heads attend even more)"

    def shown(self) -> "Float[np.ndarray, 'layer head key']":
        """The shares of the keys that the table may name; −1 for the others."""
        import numpy as np

        return np.where(self.left_out & ~np.isnan(self.share), -1.0, self.share)


def summary(trace: "Trace", stack: str, pieces: bool) -> "tuple[KeyShares, Table | None]":
    """The mean attention to each key, and the largest weights between two words, one for each head.

    One matrix at a time: a long text has no room for all of them.
    """
    import numpy as np

    rows, columns = (_readable(side, pieces) for side in trace.tokens(stack))
    queries, keys = (_is_word(side, pieces) for side in trace.tokens(stack))
    sites = [site for site in trace.calls if site.name == stack]
    heads = max(trace.subject.anatomy[site].total for site in sites)
    share = np.full((1 + max(site.layer for site in sites), heads, len(columns)), np.nan)
    names = list(dict.fromkeys(label for label, is_word in zip(columns, keys, strict=True) if not is_word))
    if _leaves_out_first(trace, stack) and keys[0]:
        names.insert(0, f"the first token ({columns[0]})")
        keys = keys & (np.arange(len(columns)) > 0)
    links = []
    for site in sites:
        for index, head in enumerate(trace.subject.anatomy[site].numbers):
            weights = trace.matrix(site, index, words=not pieces).cpu().float().numpy()
            share[site.layer, head] = weights.mean(0)
            if queries.any() and keys.any():
                between = weights * queries[:, None] * keys
                query, key = np.unravel_index(int(between.argmax()), between.shape)
                ends = (f"{query + 1} {rows[query]}", "itself" if query == key else f"{key + 1} {columns[key]}")
                links.append((-float(between[query, key]), site.layer, head, *ends))
    left_out = ~keys if keys.any() else np.zeros_like(keys)
    return KeyShares(share, columns, left_out, ", ".join(names)), _links(sorted(links)[:_LINKS]) if links else None


def _leaves_out_first(trace: "Trace", stack: str) -> bool:
    """Whether the first token is a sink that would fill the table: in the self-attention of a causal language model."""
    queries, keys = trace.tokens(stack)
    alone = trace.subject.anatomy.causal and trace.batch.target is None and len(trace.stacks) == 1
    return alone and queries is keys and len(keys.pieces[0]) > 1 and len(keys.units().labels) > 1


def overview(shares: KeyShares, width: int) -> "Iterator[Table]":
    """Layers in rows, heads in columns, as many as fit: the word that is read most, and under it its share."""
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.figures.cells import weight

    share = shares.shown()
    fit = max(1, (width - 6) // (_WORD + 1))
    for start in range(0, share.shape[1], fit):
        heads = range(start, min(start + fit, share.shape[1]))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("layer", justify="right")
        for head in heads:
            table.add_column(f"head {head + 1}", max_width=_WORD, no_wrap=True, overflow="ellipsis")
        for layer, row in enumerate(share):
            cells = (
                f"{escape(shares.labels[row[head].argmax()])}\n[dim]{weight(row[head].max())}[/dim]"
                if row[head].max() >= 0
                else "[dim]–[/dim]"  # the head was removed
                for head in heads
            )
            table.add_row(str(layer + 1), *cells)
        yield table


def _links(links: "list[tuple[float, int, int, str, str]]") -> "Table":
    """The largest weights between two words, largest first; each word behind its position."""
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.figures.cells import weight

    table = Table("strongest links", "from", "to", "weight", box=None, pad_edge=False)
    for negative, layer, head, query, key in links:
        table.add_row(f"{layer + 1}.{head + 1}", escape(query), escape(key), weight(-negative))
    return table


def _readable(side: "Tokens", pieces: bool) -> list[str]:
    from lorgnette.texts.readable import readable

    return list(side.shown()) if pieces else [readable(label) for label in side.units().labels]


def _is_word(side: "Tokens", pieces: bool) -> "np.ndarray":
    """False for special tokens: every head reads those, and they would hide the links between words."""
    import numpy as np

    return np.array(side.word[0].tolist() if pieces else side.units().index) >= 0


def matrix(weights: "xr.DataArray") -> "Table":
    """One head: queries in rows, keys in columns."""
    from rich.table import Table

    from lorgnette.figures.cells import weight

    rows, columns = (_escaped(weights, side) for side in ("query", "key"))
    table = Table("", *columns, box=None, pad_edge=False)
    for label, row in zip(rows, weights.values, strict=True):
        table.add_row(label, *map(weight, row.tolist()))
    return table


def strongest(weights: "xr.DataArray") -> "Table":
    """One head of a long text: each query with the keys that it attends to most."""
    from rich.table import Table

    from lorgnette.figures.cells import weight

    rows, columns = (_escaped(weights, side) for side in ("query", "key"))
    table = Table("", "query", f"the {_KEYS} largest weights: position, key, weight", box=None, pad_edge=False)
    for place, (label, row) in enumerate(zip(rows, weights.values, strict=True), 1):
        best = row.argsort()[::-1][:_KEYS]
        keys = ", ".join(f"{key + 1} {columns[key]} {weight(float(row[key]))}" for key in best if row[key] > 0)
        table.add_row(str(place), label, keys)
    return table


def _escaped(weights: "xr.DataArray", side: str) -> list[str]:
    from rich.markup import escape

    from lorgnette.texts.readable import readable_piece

    return [escape(readable_piece(text)) for text in weights[f"{side}_text"].values]
