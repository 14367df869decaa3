"""`lorgnette trace MODEL TEXT`: what every head reads in one text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options, prompting
from lorgnette.types import Json

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from rich.table import Table

    from lorgnette.explaining import Next
    from lorgnette.subject.trace import Trace
    from lorgnette.texts.batch import Tokens

_LINKS = 10
_WORD = 8  # columns for a word in the overview


@options.unpacked
def trace(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="The text to analyse.", metavar="TEXT")],
    pair: Annotated[
        str | None, typer.Argument(help="A second text, for sentence-pair models.", metavar="[PAIR]")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The translation to use (translation models).", show_default="the model's own")
    ] = None,
    stack: Annotated[
        str | None, typer.Option(help="encoder, decoder or cross.", show_default="the model's first")
    ] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="With --head: show all weights of one head.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="With --layer: show all weights of one head.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="[STACK.]LAYER.HEAD", help="Switch a head off and show the effect; repeatable."),
    ] = None,
    pieces: Annotated[
        bool, typer.Option("--pieces", help="Show the model's tokens (word pieces) instead of words.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write all views of the text as one page that needs no network.", metavar="FILE"),
    ] = None,
    explain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="Explain the prediction with this method: the relevance of each word; repeatable.",
            show_default="with --html attnlrp and gradient_x_input",
        ),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="The class to explain (classifiers).", show_default="the predicted class"),
    ] = None,
    generate: prompting.Generate = None,
    temperature: prompting.Temperature = None,
    top_k: prompting.TopK = None,
    top_p: prompting.TopP = None,
    seed: prompting.Seed = 0,
    said: prompting.Said = None,
    instead_of: prompting.InsteadOf = None,
    at: prompting.At = None,
    chat: prompting.Chat = False,
    system: prompting.System = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all weights as JSON.")] = False,
    *,
    opening: options.Opening,
) -> None:
    """Show what each head attends to in one text.

    Prints the word that each head attends to most, with its attention weight (mean over all queries), and the largest
    weights between two words. With --layer and --head, prints that head's weights: queries in rows, keys in columns.

    [bold]Examples[/bold]

      lorgnette trace bert-base-uncased "The cat sat on the mat."
      lorgnette trace bert-base-uncased "The cat sat." --layer 3 --head 7
      lorgnette trace ./my-nli-model "A man sleeps." "Nobody is awake."
      lorgnette trace Helsinki-NLP/opus-mt-en-fr "The cat sat." --stack cross
      lorgnette trace ./my-classifier "The cat sat." --without 3.7 --without 3.8
      lorgnette trace ./my-classifier "The cat sat." --explain attnlrp --explain rollout
      lorgnette trace ./my-classifier "The cat sat." --explain attnlrp --class positive
      lorgnette trace ./my-classifier "The cat sat." --html cat.html --explain attnlrp --explain rollout
      lorgnette trace bert-base-uncased "The cat sat." --json
      lorgnette trace ./my-language-model "The cat sat on the" --generate 20
      lorgnette trace ./my-language-model "Paris is in" --explain attnlrp --said " France" --instead-of " Italy"
      lorgnette trace ./my-language-model "Who wrote Faust?" --chat --generate 40 --html faust.html
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together.")
    from lorgnette.cli.consoles import out

    if explain and html is None and (without or layer is not None):
        raise typer.BadParameter("--explain goes with --html, or without --without and --layer.")
    if (class_name, said, instead_of, at) != (None, None, None, None) and not explain and html is None:
        raise typer.BadParameter("--class, --said, --instead-of and --at go with --explain or --html.")
    how = prompting.generation(generate, temperature, top_k, top_p, seed)
    subject = opening.load(model)
    wanted = prompting.explained(class_name, said, instead_of, at)
    example = prompting.example(subject, text, pair, target=target, chat=chat, system=system)
    if html is not None:
        from lorgnette.reporting.views import write_page
        from lorgnette.reporting.views.gather import gathered

        shown = gathered(subject, example, methods=explain or None, without=without or [], target=wanted, generate=how)
        typer.echo(write_page(shown, html))
        return
    seen = subject.trace(example, without=without or (), generate=how)
    name = _stack(seen, stack)
    if explain:
        _explained(seen, name, explain, wanted, pieces=pieces, as_json=as_json)
        return
    weights = seen.data(stack=name, words=not pieces)
    if layer is not None and head is not None:
        weights = _one_head(seen, weights, name, layer, head)
    if as_json:
        typer.echo(json.dumps(_document(seen, weights, name, pieces), ensure_ascii=False))
        return
    for line in _about(seen, name):
        out().print(line, markup=False)
    if layer is not None:
        out(fold=False).print(_matrix(weights))
        return
    for table in _overview(weights, out().width):
        out().print(table)
    if (links := _links(seen, weights, name, pieces)) is not None:
        out().print()
        out().print(links)


def _explained(
    trace: "Trace", stack: str, methods: list[str], target: "str | Next | None", *, pieces: bool, as_json: bool
) -> None:
    from lorgnette.cli.consoles import out
    from lorgnette.cli.explained import explained, tables

    explanations = explained(trace, methods, target, pieces=pieces)
    if as_json:
        about: Json = {
            "model": trace.subject.name,
            "weights_hash": trace.subject.weights_hash,
            "text": trace.example.text,
        }
        about |= {"pair": trace.example.pair, "target": trace.example.target, "probabilities": trace.probabilities}
        typer.echo(
            json.dumps(
                {**about, "unit": "piece" if pieces else "word", "explanations": explanations}, ensure_ascii=False
            )
        )
        return
    for line in _about(trace, stack):
        out().print(line, markup=False)
    out().print(f"explained: {explanations[0]['explained']}", markup=False)
    for table in tables(explanations):
        out().print(table)
    for one in explanations:
        if one["gap"] is not None:
            out().print(f"{one['method']}: the integral is off by {one['gap']:.2%} of f(x) − f(x⁰)", markup=False)


def _stack(trace: "Trace", stack: str | None) -> str:
    from lorgnette.errors import UserError, near

    if stack is not None and stack not in trace.stacks:
        names = ", ".join(trace.stacks)
        raise UserError(f"{trace.subject.name} has no stack {stack!r}.{near(stack, trace.stacks)} It has: {names}.")
    return stack or trace.stacks[0]


def _one_head(trace: "Trace", weights: "xr.DataArray", stack: str, layer: int, head: int) -> "xr.DataArray":
    from lorgnette.errors import UserError

    if layer > weights.sizes["layer"] or head > weights.sizes["head"]:
        sizes = f"{weights.sizes['layer']} layers of {weights.sizes['head']} heads"
        raise UserError(f"There is no head {layer}.{head}: the {stack} of {trace.subject.name} has {sizes}.")
    matrix = weights.sel(layer=layer, head=head)
    if bool(matrix.isnull().all()):
        raise UserError(f"The head {layer}.{head} of the {stack} of {trace.subject.name} was removed.")
    return matrix


def _document(trace: "Trace", weights: "xr.DataArray", stack: str, pieces: bool) -> Json:
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
        "unit": "piece" if pieces else "word",
        **chosen,
        "queries": weights["query_text"].values.tolist(),
        "keys": weights["key_text"].values.tolist(),
        "axes": list(weights.dims),
        "weights": weights.astype(object).where(weights.notnull(), None).values.tolist(),  # removed heads are null
    }


def _about(trace: "Trace", stack: str) -> Iterator[str]:
    """What the model says, and which of its stacks is shown."""
    if trace.probabilities is not None:
        yield ", ".join(f"{label} {p:.3f}" for label, p in trace.probabilities.items())
    if trace.example.target is not None:
        yield f"→ {trace.example.target}"
    if trace.generated is not None:
        yield f"→ {trace.generated.text.strip()}"
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


def _overview(weights: "xr.DataArray", width: int) -> "Iterator[Table]":
    """Layers in rows, heads in columns, as many as fit: the word that is read most, and under it its share."""
    from rich.markup import escape
    from rich.table import Table

    words = weights["key_text"].values
    share = weights.mean("query").values  # [layer head key]
    fit = max(1, (width - 6) // (_WORD + 1))
    for start in range(0, share.shape[1], fit):
        heads = range(start, min(start + fit, share.shape[1]))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("layer", justify="right")
        for head in heads:
            table.add_column(f"head {head + 1}", max_width=_WORD, no_wrap=True, overflow="ellipsis")
        for layer, row in enumerate(share):
            cells = (
                f"{escape(words[row[head].argmax()])}\n[dim]{row[head].max():.2f}[/dim]"
                if row[head].max() >= 0
                else "[dim]–[/dim]"  # the head was removed
                for head in heads
            )
            table.add_row(str(layer + 1), *cells)
        yield table


def _links(trace: "Trace", weights: "xr.DataArray", stack: str, pieces: bool) -> "Table | None":
    """The largest weights between two words, one for each head; None if the text has none."""
    from rich.markup import escape
    from rich.table import Table

    asking, read = (_is_word(side, pieces) for side in trace.tokens(stack))
    if not (asking.any() and read.any()):
        return None
    rows, columns = weights["query_text"].values, weights["key_text"].values
    between = weights.values * asking[:, None] * read[None, :]
    best = between.reshape(*between.shape[:2], -1)
    cells = [cell for cell in _cells(best) if best[cell].max() >= 0]  # not those of removed heads
    order = sorted(((-best[cell].max(), cell) for cell in cells), key=lambda item: item)
    table = Table("strongest links", "from", "to", "weight", box=None, pad_edge=False)
    for weight, (layer, head) in order[:_LINKS]:
        query, key = divmod(int(best[layer, head].argmax()), len(columns))
        table.add_row(f"{layer + 1}.{head + 1}", escape(rows[query]), escape(columns[key]), f"{-weight:.2f}")
    return table


def _cells(array: "np.ndarray") -> Iterator[tuple[int, int]]:
    return ((layer, head) for layer in range(array.shape[0]) for head in range(array.shape[1]))


def _is_word(side: "Tokens", pieces: bool) -> "np.ndarray":
    """False for special tokens: every head reads those, and they would hide the links between words."""
    import numpy as np

    return np.array(side.word[0].tolist() if pieces else side.units().index) >= 0


def _matrix(weights: "xr.DataArray") -> "Table":
    """One head: queries in rows, keys in columns."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("", *map(escape, weights["key_text"].values), box=None, pad_edge=False)
    for label, row in zip(weights["query_text"].values, weights.values, strict=True):
        table.add_row(escape(label), *(f"{weight:.2f}" for weight in row))
    return table
