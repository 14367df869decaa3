"""`lorgnette trace MODEL TEXT`: one text, token by token."""

from typing import Annotated

import typer

from lorgnette.cli import options


def trace(
    model: options.Model,
    text: Annotated[str, typer.Argument(help="The text to look at.", metavar="TEXT")],
    pair: Annotated[str | None, typer.Argument(help="A second text, for models of pairs.", metavar="[PAIR]")] = None,
    layer: Annotated[int | None, typer.Option(min=1, help="With --head: show this layer's matrix of weights.")] = None,
    head: Annotated[int | None, typer.Option(min=1, help="With --layer: show this head's matrix of weights.")] = None,
    stack: Annotated[str, typer.Option(help="encoder, decoder or cross.")] = "encoder",
    truncate: options.Truncate = False,
    dtype: options.Dtype = "float32",
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Show what the heads of a model read in one text.

    [bold]Examples[/bold]

      lorgnette trace bert-base-uncased "The cat sat on the mat."
      lorgnette trace bert-base-uncased "The cat sat on the mat." --layer 3 --head 7
      lorgnette trace ./my-nli-model "A man sleeps." "Nobody is awake."
    """
    if (layer is None) != (head is None):
        raise typer.BadParameter("--layer and --head go together.")
    raise NotImplementedError
