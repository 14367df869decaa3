"""`lorgnette rationales`: the old name of the lens as a command; it goes with the next version."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

_TOP = 5  # where there is no other split to tell how many words people mark
_TOP_CORPORA = {"hatexplain": 5}  # whose authors take so many words for the rationale of any text


@unpacked
def rationales(
    model: options.Model,
    corpus: options.Corpus,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", "-m", help="An explanation method, or 'all'; repeatable.", show_default="the fast ones"
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Take the N top-scoring words as the rationale.", metavar="N")
    ] = None,
    share: Annotated[float | None, typer.Option(help="Take this fraction of each text's words instead.")] = None,
    share_from: Annotated[
        str, typer.Option(help="Take the fraction marked by annotators in this split instead.")
    ] = "val",
    gold: Annotated[
        str, typer.Option(help="Gold words: majority or union of the annotators, or corpus (as given).")
    ] = ("majority"),
    perturbation: Annotated[str, typer.Option(help="How words are removed: delete or mask.")] = "delete",
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="The class to explain.", metavar="NAME", show_default="the predicted class"),
    ] = None,
    split: options.Split = None,
    text_column: options.TextColumn = "text",
    words_column: options.WordsColumn = None,
    rationale_column: options.RationaleColumn = None,
    labels: options.Labels = None,
    limit: options.Limit = None,
    truncate: options.Truncate = False,
    out: options.Out = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Old name of `lorgnette look … --lens rationales`, for this version.

    [bold]Now[/bold]

      lorgnette look ./my-classifier -c hatexplain:test --lens rationales
      lorgnette look ./my-classifier -c yelphat:test50 --lens rationales:methods=all,share=yelphat:val --out runs/hats
      lorgnette look ./my-classifier -c marked.jsonl --words-column words --rationale-column marked --lens rationales
    """
    from lorgnette.cli.look import look
    from lorgnette.lens.rationales.gold import gold_share
    from lorgnette.texts import corpus as open_corpus
    from lorgnette.texts.named import name_and_split

    one_file = Path(corpus).is_file()
    name, named = (corpus, None) if one_file else name_and_split(corpus)
    if split is None and not one_file:
        split = named or "test"
    if top is None and share is None:
        top = _TOP_CORPORA.get(name, _TOP if one_file else None)
    if top is None and share is None:
        share = gold_share(open_corpus(name, split=share_from, data=data), gold)
    given = {"methods": "+".join(method or ()), "top": top, "share": share, "gold": gold,
             "perturbation": perturbation, "seed": seed, "class_name": class_name}  # fmt: skip
    lens = "rationales:" + ",".join(f"{name}={value}" for name, value in given.items() if value not in (None, ""))
    look(model=[model], corpus=corpus, lens=[lens], out=out, batch_tokens=batch_tokens, seed=seed, split=split,
         limit=limit, truncate=truncate, text_column=text_column, words_column=words_column,
         rationale_column=rationale_column, labels=labels, data=data, **vars(opening))  # fmt: skip
    typer.echo(f"`lorgnette rationales` is now `lorgnette look`: add --lens {lens}", err=True)
