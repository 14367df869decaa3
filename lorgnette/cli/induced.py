"""`lorgnette induced MODEL -c TREEBANK --head 3.5`: the tree that a head draws, beside the gold one."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options

if TYPE_CHECKING:
    from lorgnette.texts.example import Example


def induced(
    model: options.Model,
    corpus: options.Corpus,
    head: Annotated[str, typer.Option(help="The head, as LAYER.HEAD; LAYER alone: the mean over its heads.")],
    sentence: Annotated[str | None, typer.Option(help="The sentence's id.", show_default="the first --limit")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many sentences, from the first.", metavar="N")] = 1,
    transpose: Annotated[
        bool, typer.Option("--transpose", help="Edges from the head's row instead of the dependent's.")
    ] = False,
    free_root: Annotated[
        bool, typer.Option("--free-root", help="Find the root too; else the gold one is given.")
    ] = False,
    norms: Annotated[bool, typer.Option("--norms", help="Edges by α‖f(x)‖ instead of α.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per sentence, for a program.")] = False,
    split: options.Split = None,
    data: options.Data = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    allow_pickle: options.AllowPickle = False,
    revision: options.Revision = None,
    adapter: options.Adapter = None,
) -> None:
    """Show the dependency tree that a head's attention draws, beside the gold one.

    The tree is the maximum spanning tree of the attention between words, as the lens `trees` scores it. A cross marks a
    word whose head is wrong.

    [bold]Examples[/bold]

      lorgnette induced bert-base-uncased -c en_pud-ud-test.conllu --head 7.6
      lorgnette induced bert-base-uncased -c ud_en_pud --head 7.6 --sentence n01001011
      lorgnette induced bert-base-uncased -c ud_en_pud --head 7 --limit 3 --json
    """
    layer, number = _numbers(head)
    from lorgnette.subject import load
    from lorgnette.syntax.attention_tree import induced as draw
    from lorgnette.texts import corpus as open_corpus

    subject = load(model, dtype=dtype, device=device, allow_pickle=allow_pickle, revision=revision, adapter=adapter)
    way, root = "read_by_head" if transpose else "to_head", "free" if free_root else "gold"
    scores = "norms" if norms else "weights"
    examples = open_corpus(corpus, split=split, data=data)
    for example in _wanted(examples, sentence, limit):
        tree = draw(subject, example, layer, number, way=way, root=root, scores=scores)
        if as_json:
            typer.echo(json.dumps({"model": subject.name, **tree.to_dict()}, ensure_ascii=False))
            continue
        typer.echo(f"{tree.id}: {sum(tree.right)} of {len(tree.words)} heads right ({tree.uas:.0%})\n")
        typer.echo(tree.text() + "\n")


def _numbers(head: str) -> tuple[int, int | None]:
    layer, dot, number = head.partition(".")
    if not layer.isdecimal() or (dot and not number.isdecimal()):
        raise typer.BadParameter(f"--head takes LAYER.HEAD (3.5) or LAYER (3), counted from 1. Got {head!r}.")
    return int(layer), int(number) if dot else None


def _wanted(examples: "Iterable[Example]", sentence: str | None, limit: int) -> "Iterable[Example]":
    from itertools import islice

    from lorgnette.errors import UserError

    if sentence is None:
        yield from islice(examples, limit)
        return
    for example in examples:
        if example.id == sentence:
            yield example
            return
    skipped = getattr(examples, "skipped", [])
    why = " Its heads are no tree, so it was left out." if sentence in skipped else ""
    raise UserError(f"The corpus has no sentence {sentence!r}.{why} Ids are those of the sent_id lines.")
