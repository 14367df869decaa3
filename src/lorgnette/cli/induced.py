"""`lorgnette induced MODEL -c TREEBANK --head 3.5`: the tree that a head draws, beside the gold one."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    from lorgnette.texts.example import Example


@unpacked
def induced(
    model: options.Model,
    corpus: options.Corpus,
    head: Annotated[str, typer.Option(help="The head, as LAYER.HEAD; LAYER alone means the average of its heads.")],
    sentence: Annotated[
        str | None, typer.Option(help="The id of the sentence.", show_default="the first --limit sentences")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show the first N sentences.", metavar="N")] = 1,
    transpose: Annotated[
        bool, typer.Option("--transpose", help="Score edges by the syntactic head's row instead of the dependent's.")
    ] = False,
    free_root: Annotated[
        bool, typer.Option("--free-root", help="Predict the root too, instead of using the gold root.")
    ] = False,
    norms: Annotated[bool, typer.Option("--norms", help="Score edges by α‖f(x)‖ instead of α.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per sentence.")] = False,
    split: options.Split = None,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Show the dependency tree induced by a head's attention next to the gold tree.

    The tree is the maximum spanning tree of the attention between words, as scored by the lens `trees`. A cross marks a
    word attached to the wrong head.

    [bold]Examples[/bold]

      lorgnette induced bert-base-uncased -c en_pud-ud-test.conllu --head 7.6
      lorgnette induced bert-base-uncased -c ud_en_pud --head 7.6 --sentence n01001011
      lorgnette induced bert-base-uncased -c ud_en_pud --head 7 --limit 3 --json
    """
    layer, number = _numbers(head)
    from lorgnette.syntax.attention_tree import induced as draw
    from lorgnette.texts import corpus as open_corpus

    subject = opening.load(model)
    way, root = "read_by_head" if transpose else "to_head", "free" if free_root else "gold"
    scores = "norms" if norms else "weights"
    examples = open_corpus(corpus, split=split, data=data)
    for example in _wanted(examples, sentence, limit):
        tree = draw(subject, example, layer, number, way=way, root=root, scores=scores)
        if as_json:
            typer.echo(json.dumps({"model": subject.name, **tree.to_dict()}, ensure_ascii=False))
            continue
        typer.echo(f"{tree.id}: {sum(tree.right)} of {len(tree.words)} heads right ({100 * tree.uas:.0f} %)\n")
        typer.echo(tree.text() + "\n")


def _numbers(head: str) -> tuple[int, int | None]:
    layer, dot, number = head.partition(".")
    if not layer.isdecimal() or (dot and not number.isdecimal()):
        raise typer.BadParameter(f"--head takes LAYER.HEAD (3.5) or LAYER (3), counted from 1. Got {head!r}.")
    return int(layer), int(number) if dot else None


def _wanted(examples: "Iterable[Example]", sentence: str | None, limit: int) -> "Iterable[Example]":
    from itertools import islice

    from lorgnette.errors import UserError
    from lorgnette.texts.corpus import Skipped

    if sentence is None:
        yield from islice(examples, limit)
        return
    for example in examples:
        if example.id == sentence:
            yield example
            return
    skipped = getattr(examples, "skipped", Skipped())
    why = " Its heads are no tree, so it was left out." if sentence in skipped.first else ""
    if not why and skipped.count > len(skipped.first):
        why = f" {skipped.count} sentences were left out because their heads are no tree; it may be one of them."
    raise UserError(f"The corpus has no sentence {sentence!r}.{why} Ids are those of the sent_id lines.")
