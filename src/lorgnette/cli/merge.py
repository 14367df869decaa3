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
    *,
    opening: options.Opening,
) -> None:
    """Merge the shards of a look into its results.

    Every shard must be there once, of the same weights, texts, lenses, options and version of Lorgnette. The results
    equal those of one process and are written as `look` writes them, so that report, compare and export work. The
    model is loaded once more, because some lenses need it for their conclusion.

    [bold]Examples[/bold]

      lorgnette merge parts/* --out runs/bert
      lorgnette merge parts/* --out runs/bert --model ./moved/bert
      seq 8 | xargs -P 2 -I{} lorgnette look bert-base-uncased -c texts.txt --shard {}/8 --out parts/{} --resume
      sbatch --array=1-64 --wrap 'lorgnette look bert-base-uncased -c texts.txt --resume \\
          --shard $SLURM_ARRAY_TASK_ID/64 --out parts/$SLURM_ARRAY_TASK_ID'
    """
    from dataclasses import replace

    from rich.markup import escape

    from lorgnette.cli.consoles import out as console
    from lorgnette.cli.look import show
    from lorgnette.looking.merging import merge as merged
    from lorgnette.looking.shards import Shard
    from lorgnette.reporting import Report

    shards = [Shard.open(part) for part in parts]
    first = shards[0]
    opening = opening if opening.dtype is not None else replace(opening, dtype=first.look.dtype)
    results = merged(
        shards,
        out=out,
        subject=lambda: opening.load(model or first.provenance.model),
        command=options.command_line(),
    )
    page = Report(results)
    show(results, page)
    file = page.write(out / "report.html")
    console().print(f"Results are in {escape(str(out))}; to read: {escape(str(file))}", soft_wrap=True)
