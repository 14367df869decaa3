"""`lorgnette probe MODEL --corpus C`: what each layer knows."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    from lorgnette.figures.lens_report import TextTable
    from lorgnette.results import Result


@unpacked
def probe(
    model: options.Model,
    corpus: options.Corpus,
    label: Annotated[
        list[str],
        typer.Option(help="A word-level tag (upos, xpos, feats, chunk, entity …), or 'label', the class of the text."),
    ] = ["upos"],  # noqa: B006  typer reads the default and copies it
    train: Annotated[str, typer.Option(help="The split to train the probes on.")] = "train",
    test: Annotated[str, typer.Option(help="The split to test them on.")] = "test",
    words: Annotated[
        int, typer.Option(min=100, max=10**8, help="Number of words (or texts) sampled from each split.")
    ] = 10_000,
    hidden: Annotated[int, typer.Option(min=1, max=1 << 16, help="Hidden units of the MLP probe.")] = 64,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds.")] = 3,
    structural: Annotated[
        bool, typer.Option("--structural", help="Also train the structural probe (needs a treebank).")
    ] = False,
    out: options.Out = None,
    limit: options.Limit = None,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Train probes on every layer of a frozen model, with control tasks and baselines.

    [bold]Examples[/bold]

      lorgnette probe bert-base-uncased -c ud_en_ewt
      lorgnette probe bert-base-uncased -c ud_en_gum --label entity --label upos --structural
      lorgnette probe bert-base-uncased -c conll2000 --label chunk --out runs/chunks
    """
    from lorgnette.texts import corpus as open_corpus

    first, second = (open_corpus(corpus, split=split, data=data, limit=limit) for split in (train, test))
    from lorgnette.cli.summary import show_table
    from lorgnette.lens.probes.report import table
    from lorgnette.looking.probing import probe as run
    from lorgnette.looking.probing import structural_probe
    from lorgnette.results import Results

    subject = opening.load(model)
    results: dict[str, Result] = {}
    for name in dict.fromkeys(label):
        result = run(subject, first, second, name, words=words, hidden=hidden, seeds=tuple(range(seeds)))
        results["probes" if len(label) == 1 else f"probes-{name}"] = result
        show_table(table(result))
    if structural:
        results["structural"] = structural_probe(subject, first, second)
        show_table(_structural(results["structural"]))
    if out is not None:
        command = options.command_line()
        for result in results.values():
            result.provenance = replace(result.provenance, command=command)
        Results(results).save(out)
        typer.echo(f"Results are in {out}")


def _structural(result: "Result") -> "TextTable":
    from lorgnette.figures.lens_report import TextTable
    from lorgnette.statistics.estimate import Estimate

    data = result.data
    rows: list[tuple[str, ...]] = []
    for state in data.state.values:
        here = data.sel(state=state)
        half = float(Estimate(here.uuas, here.uuas_se, data.test_texts).half)
        uuas = f"{float(here.uuas):.3f} ± {half:.3f}"
        rows.append((str(int(state)), uuas, f"{float(here.distance_correlation):.3f}"))
    title = f"structural probe: UUAS on {int(data.test_texts):,} sentences (chain {float(data.chain):.3f})"
    return TextTable(("state", "UUAS", "correlation"), rows, title=title)
