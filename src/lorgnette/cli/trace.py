"""`lorgnette trace MODEL TEXT`: what every head reads in one text."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options, prompting, questions
from lorgnette.cli.fields import unpacked
from lorgnette.errors import UserError
from lorgnette.types import Json

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    from jaxtyping import Bool, Float
    from rich.table import Table

    from lorgnette.explaining import Next
    from lorgnette.subject import Subject
    from lorgnette.subject.trace import Trace
    from lorgnette.texts.batch import Tokens
    from lorgnette.texts.example import Example

_LINKS = 10
_WORD = 8  # columns for a word in the overview
_MATRIX = 60  # queries or keys of a matrix that is printed as one
_KEYS = 4  # of each query of a longer one
_JSON = 60  # bytes that a weight takes as a number of Python and as text


@unpacked
def trace(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="The text to analyse.", metavar="TEXT")],
    pair: Annotated[
        str | None, typer.Argument(help="A second text, for sentence-pair models.", metavar="[PAIR]")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The translation to use (translation models).", show_default="the model's own")
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(help="A picture that the text is about (models of pictures and text).", metavar="FILE"),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --image and --figure: use the Nth token as the query.",
            show_default="the last",
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            help="encoder, decoder, cross, or vision: what patches of the picture read.",
            show_default="the model's first",
        ),
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
    logit_lens: questions.LogitLens = False,
    why: questions.WhyPair = None,
    paths: questions.StrongestPaths = False,
    against: questions.Against = None,
    count: questions.Count = None,
    among: questions.Among = None,
    figure: questions.FigureFile = None,
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
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --html cat.html
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --layer 3 --head 7 --figure cat.png
      lorgnette trace ./my-llava "What is it?" --image cat.jpg --explain attnlrp --figure cat.png
      lorgnette trace bert-base-uncased "The cat sat." --json
      lorgnette trace ./my-language-model "The cat sat on the" --generate 20
      lorgnette trace ./my-language-model "Paris is in" --logit-lens
      lorgnette trace ./my-language-model "Paris is in" --layer 3 --head 7 --why 3,1
      lorgnette trace ./my-language-model "Paris is in" --paths --said " France" --figure paths.svg
      lorgnette trace ./my-language-model "Paris is in" --paths --against "Rome is in" --among heads --count 12
      lorgnette trace ./my-language-model "Paris is in" --explain attnlrp --said " France" --instead-of " Italy"
      lorgnette trace ./my-language-model "Who wrote Faust?" --chat --generate 40 --html faust.html
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together.")
    from lorgnette.cli.consoles import out

    if explain and html is None and (without or layer is not None):
        raise typer.BadParameter("--explain goes with --html, or without --without and --layer.")
    if (class_name, said, instead_of, at) != (None, None, None, None) and not (explain or paths) and html is None:
        raise typer.BadParameter("--class, --said, --instead-of and --at go with --explain, --paths or --html.")
    asked = [flag for flag, on in (("--logit-lens", logit_lens), ("--why", why is not None), ("--paths", paths)) if on]
    if len(asked) > 1:
        raise typer.BadParameter(f"{' and '.join(asked)}: one at a time.")
    if among not in (None, "all", "heads"):
        raise typer.BadParameter(f"--among is all or heads. Got {among!r} instead.")
    if (against, count, among) != (None, None, None) and not paths:
        raise typer.BadParameter("--against, --count and --among go with --paths.")
    located = layer is not None and head is not None
    drawn = figure is not None and image is not None and not asked
    if query is not None and not (drawn and located):
        raise typer.BadParameter("--query goes with --image, --layer, --head and --figure.")
    if drawn and (len(explain or ()) + located != 1 or html is not None or without):
        raise typer.BadParameter(
            "--figure with --image draws one head (--layer and --head) or one --explain, without --html and --without."
        )
    if figure is not None and not asked and not drawn:
        raise typer.BadParameter(
            "--figure goes with --logit-lens, --why or --paths; --html writes all views of a text."
        )
    if asked and (explain or without or html is not None or generate is not None or located != (why is not None)):
        others = "--explain, --without, --html and --generate"
        raise typer.BadParameter(
            f"--why goes with --layer and --head, without {others}."
            if why is not None
            else f"{asked[0]} goes without {others}, --layer and --head."
        )
    how = prompting.generation(generate, temperature, top_k, top_p, seed)
    from lorgnette.subject.trace import require_room

    subject = opening.load(model)
    wanted = prompting.explained(class_name, said, instead_of, at)
    example = prompting.example(subject, text, pair, target=target, image=image, chat=chat, system=system)
    if drawn and figure is not None:
        _drawn(subject, example, figure, (stack, layer, head, query), explain or [], wanted)
        return
    if asked:
        if why is not None and layer is not None and head is not None:
            answer = questions.why(subject, example, (stack, layer, head), why)
        else:
            more = {"against": against, "count": count, "among": among}
            answer = questions.paths(subject, example, wanted, more) if paths else questions.layers(subject, example)
        answer.show(subject, example, figure, as_json=as_json)
        return
    if html is not None and stack in {site.name for site in subject.tower_sites}:
        if explain or without or how is not None:
            raise typer.BadParameter(f"--stack {stack} with --html goes without --explain, --without and --generate.")
        typer.echo(subject.trace(example).tower().save(html))
        return
    if html is not None:
        from lorgnette.reporting.views import write_page
        from lorgnette.reporting.views.gather import gathered

        _say_cost(explain or ())
        shown = gathered(subject, example, methods=explain or None, without=without or [], target=wanted, generate=how)
        if shown["generated"] is not None:
            out().print(f"generated: {shown['generated']['text'].strip()}", markup=False)
        typer.echo(write_page(shown, html))
        return
    seen = subject.trace(example, without=without or (), generate=how)
    if stack in {site.name for site in seen.pictured}:
        if explain:
            raise typer.BadParameter(f"--explain traces what is said back to the text: leave --stack {stack} out.")
        seen = seen.tower()
    name = _stack(seen, stack)
    if explain:
        _say_cost(explain)
        _explained(seen, name, explain, wanted, pieces=pieces, as_json=as_json)
        return
    one = None if layer is None or head is None else seen.head(layer, head, stack=name, words=not pieces)
    if as_json:
        if one is None:
            require_room(subject, seen.batch, _JSON, "printing them", name)
        weights = seen.data(stack=name, words=not pieces) if one is None else one
        typer.echo(json.dumps(_document(seen, weights, name, pieces), ensure_ascii=False))
        return
    for line in _about(seen, name):
        out().print(line, markup=False)
    if one is not None:
        small = max(one.shape) <= _MATRIX
        out(fold=not small).print(_matrix(one) if small else _strongest(one))
        return
    shares, links = _summary(seen, name, pieces)
    for line in shares.described():
        out().print(line, markup=False)
    for table in _overview(shares, out().width):
        out().print(table)
    if links is not None:
        out().print()
        out().print(links)


def _drawn(
    subject: "Subject",
    example: "Example",
    figure: Path,
    place: tuple[str | None, int | None, int | None, int | None],
    methods: list[str],
    target: "str | Next | None",
) -> None:
    """What a head reads of the picture, or the relevance of its patches, as a file; each tile as a file of its own."""
    from lorgnette.reporting.overlay import relevance_of

    (stack, layer, head, query), trace = place, subject.trace(example)
    tower = stack in {site.name for site in trace.pictured}
    patches = (trace.tower() if tower else trace).batch.source.patches
    if patches is None:
        raise UserError(f"Where the patches of {subject.name!r} lie is not known, so they cannot be drawn (--figure).")
    count = trace.tiles if tower else len(patches.tables())
    _say_cost(methods)
    for number in range(count):
        if layer is not None and head is not None:
            at = -1 if query is None else query - 1
            made = trace.overlay(layer, head, query=at, stack=stack, table=number)
        else:
            made = relevance_of(trace, methods[0], target, table=number)
        path = figure if count == 1 else figure.with_stem(f"{figure.stem}-{number + 1}")
        typer.echo(made.save(path))


def _say_cost(methods: "Sequence[str]") -> None:
    """Say beforehand what takes long."""
    from lorgnette.explaining import COSTS
    from lorgnette.progress import tell_cost

    for method in dict.fromkeys(methods):
        if method in COSTS:
            tell_cost(method, COSTS[method])


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
        known = (*trace.stacks, *dict.fromkeys(site.name for site in trace.pictured))
        raise UserError(f"{trace.subject.name} has no stack {stack!r}.{near(stack, known)} It has: {', '.join(known)}.")
    return stack or trace.stacks[0]


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


def _about(trace: "Trace", stack: str) -> Iterator[str]:
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
class _KeyShares:
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


def _summary(trace: "Trace", stack: str, pieces: bool) -> "tuple[_KeyShares, Table | None]":
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
    return _KeyShares(share, columns, left_out, ", ".join(names)), _links(sorted(links)[:_LINKS]) if links else None


def _leaves_out_first(trace: "Trace", stack: str) -> bool:
    """Whether the first token is a sink that would fill the table: in the self-attention of a causal language model."""
    queries, keys = trace.tokens(stack)
    alone = trace.subject.anatomy.causal and trace.batch.target is None and len(trace.stacks) == 1
    return alone and queries is keys and len(keys.pieces[0]) > 1 and len(keys.units().labels) > 1


def _overview(shares: _KeyShares, width: int) -> "Iterator[Table]":
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


def _matrix(weights: "xr.DataArray") -> "Table":
    """One head: queries in rows, keys in columns."""
    from rich.table import Table

    from lorgnette.figures.cells import weight

    rows, columns = (_escaped(weights, side) for side in ("query", "key"))
    table = Table("", *columns, box=None, pad_edge=False)
    for label, row in zip(rows, weights.values, strict=True):
        table.add_row(label, *map(weight, row.tolist()))
    return table


def _strongest(weights: "xr.DataArray") -> "Table":
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
