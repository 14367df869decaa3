"""`lorgnette merge parts/* --out RUN`: one run from the shards that several processes have analysed."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked


@unpacked
def merge(
    parts: Annotated[
        list[Path], typer.Argument(help="The folders written by `look --shard`, in any order.", metavar="SHARD")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the results.")],
    model: Annotated[
        str | None, typer.Option(help="The model, if it is not where the shards found it.", metavar="MODEL")
    ] = None,
    first: Annotated[
        Path | None,
        typer.Option(help="For a later round: the merged round before, if it has been moved.", metavar="RUN"),
    ] = None,
    *,
    opening: options.Opening,
) -> None:
    """Merge the shards of a run into one run.

    Needs every shard exactly once, all made with the same weights, texts, lenses, options and versions. The results
    equal those of one process and are written as `look` writes them, so report, compare and export work. The model is
    loaded again, because some lenses need it to compute their results.

    Some lenses first need results on the whole corpus (roles, effects, importance, agreement, removal, and all with
    centred=true). They take two rounds: merge the shards, run look on each again with --first, and merge those. `edges`
    takes three.

    [bold]Examples[/bold]

      lorgnette merge parts/* --out runs/bert
      lorgnette merge parts/* --out runs/bert --model ./moved/bert
      lorgnette merge parts/* --out runs/first
      lorgnette look bert-base-uncased -c texts.txt --lens roles --shard 3/64 --first runs/first --out second/3
      seq 8 | xargs -P 2 -I{} lorgnette look bert-base-uncased -c texts.txt --shard {}/8 --out parts/{} --resume
      sbatch --array=1-64 --wrap 'lorgnette look bert-base-uncased -c texts.txt --resume \\
          --shard $SLURM_ARRAY_TASK_ID/64 --out parts/$SLURM_ARRAY_TASK_ID'
    """
    from dataclasses import replace
    from functools import cache

    from rich.markup import escape

    from lorgnette.cli.consoles import out as console
    from lorgnette.cli.look import show, write_report
    from lorgnette.looking.merging import merge as merged
    from lorgnette.looking.merging import shown_texts
    from lorgnette.looking.shards import Shard
    from lorgnette.reporting import Report

    shards = [Shard.open(part) for part in parts]
    one = shards[0]
    opening = opening if opening.dtype is not None else replace(opening, dtype=one.look.dtype)
    load = cache(lambda: opening.load(model or one.provenance.model))
    results = merged(shards, out=out, subject=load, first=first, command=options.command_line())
    if one.look.needed:
        names = ", ".join(each.name for each in one.look.needed)
        console().print(
            f"{escape(str(out))} has {escape(names)} of all texts, which the next round needs. Now run `look` with the "
            f"same options for every shard once more, with --first {escape(str(out))} and another --out, and merge "
            "what it writes.",
            soft_wrap=True,
        )
        return
    page = Report(results)
    show(results, page)
    write_report(page, load(), lambda: shown_texts(shards, load()), out)
