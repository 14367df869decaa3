"""`lorgnette trace MODEL TEXT`: what every head reads in one text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lorgnette.cli import options

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from lorgnette.trace import Trace


def trace(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="The text to look at.", metavar="TEXT")],
    pair: Annotated[str | None, typer.Argument(help="A second text, for models of pairs.", metavar="PAIR")] = None,
    target: Annotated[
        str | None, typer.Option(help="A translation, for translation models.", show_default="the model's own")
    ] = None,
    stack: Annotated[str | None, typer.Option(help="encoder, decoder or cross.", show_default="all")] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="With --head: all weights of one head.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="With --layer: all weights of one head.")] = None,
    dtype: options.Dtype = "float32",
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Show what the heads of a model read in one text.

    A line per head: the word it reads most (the mean over all queries), and its strongest link between two words. With
    --layer and --head, the weights of that head: queries in rows, keys in columns.

    [bold]Examples[/bold]

      lorgnette trace bert-base-uncased "The cat sat on the mat."
      lorgnette trace bert-base-uncased "The cat sat." --layer 3 --head 7
      lorgnette trace ./my-nli-model "A man sleeps." "Nobody is awake."
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together.")
    from lorgnette.cli.consoles import out
    from lorgnette.subject import load

    seen = load(model, dtype=dtype, device=device, allow_pickle=allow_pickle).trace(text, pair, target=target)
    if seen.probabilities is not None:
        out().print(", ".join(f"{label} {p:.3f}" for label, p in seen.probabilities.items()), markup=False)
    if layer is None or head is None:
        out().print(_overview(seen, stack))
    else:
        out(fold=False).print(_matrix(seen, stack, layer, head))


def _stacks(seen: "Trace", stack: str | None) -> tuple[str, ...]:
    from lorgnette.errors import UserError, near

    if stack is not None and stack not in seen.stacks:
        names = ", ".join(seen.stacks)
        raise UserError(f"{seen.subject.name} has no stack {stack!r}.{near(stack, seen.stacks)} It has: {names}.")
    return seen.stacks if stack is None else (stack,)


def _overview(seen: "Trace", stack: str | None) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table("head", "reads most", "share", "strongest link", "weight", box=None, pad_edge=False)
    for name in _stacks(seen, stack):
        weights = seen.data(stack=name, words=True)
        asking, read = (_is_word(side) for side in seen.tokens(name))
        rows, columns = weights["query_text"].values, weights["key_text"].values
        for cell in weights.stack(cell=("layer", "head")).transpose("cell", "query", "key"):
            share, links = cell.values.mean(0), cell.values * asking[:, None] * read[None, :]
            most, (query, key) = share.argmax(), divmod(int(links.argmax()), links.shape[1])
            link, weight = f"{rows[query]} → {columns[key]}", f"{links[query, key]:.2f}"
            if not links.any():
                link = weight = "–"
            place = f"{name} {cell['layer'].item()}.{cell['head'].item()}"
            table.add_row(place, escape(columns[most]), f"{share[most]:.2f}", escape(link), weight)
    return table


def _is_word(side: Any) -> "np.ndarray":
    """False for the words that are special tokens: every head reads those, and they would hide the links."""
    import numpy as np

    from lorgnette.maths.words import spans

    number, word = spans(side.word[0]).tolist(), side.word[0].tolist()
    special = {which for which, index in zip(number, word, strict=True) if index < 0}
    return np.array([which not in special for which in range(max(number) + 1)])


def _matrix(seen: "Trace", stack: str | None, layer: int, head: int) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.errors import UserError

    stacks = _stacks(seen, stack)
    if len(stacks) > 1:
        raise UserError(f"{seen.subject.name} has several stacks: add --stack with one of {', '.join(stacks)}.")
    weights = seen.data(stack=stacks[0], words=True)
    if layer > weights.sizes["layer"] or head > weights.sizes["head"]:
        sizes = f"{weights.sizes['layer']} layers of {weights.sizes['head']} heads"
        raise UserError(f"There is no head {layer}.{head}: the {stacks[0]} of {seen.subject.name} has {sizes}.")
    one = weights.sel(layer=layer, head=head)
    table = Table("", *map(escape, one["key_text"].values), box=None, pad_edge=False)
    for label, row in zip(one["query_text"].values, one.values, strict=True):
        table.add_row(escape(label), *(f"{weight:.2f}" for weight in row))
    return table
