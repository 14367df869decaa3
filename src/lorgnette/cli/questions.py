"""What `lorgnette trace` can be asked about one text: --logit-lens, --why and --paths, as a table, JSON or a figure."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from lorgnette.explaining import Next
    from lorgnette.explaining.logit_lens import LayerPredictions
    from lorgnette.explaining.paths import Paths
    from lorgnette.explaining.why import Why
    from lorgnette.figures.plot import Plot
    from lorgnette.subject import Subject
    from lorgnette.texts.example import Example

LogitLens = Annotated[
    bool, typer.Option("--logit-lens", help="Print what each layer would predict (language and translation models).")
]
WhyPair = Annotated[
    str | None,
    typer.Option(
        metavar="QUERY[,KEY]",
        help="With --layer and --head: what wrote the query and the key, by positions counted from 1.",
        show_default="the key with the largest weight",
    ),
]
StrongestPaths = Annotated[
    bool, typer.Option("--paths", help="Print the strongest paths from the tokens to the prediction.")
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="With --paths: measure what parts write against this text, of as many tokens.",
        show_default="the mean over the tokens of the text",
    ),
]
Count = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --paths: this many edges.", show_default="24")
]
Among = Annotated[
    str | None, typer.Option(metavar="all|heads", help="With --paths: follow heads alone.", show_default="all")
]
FigureFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw the answer to --logit-lens, --why or --paths: .svg, .png, .pdf or .html. With --image: draw what "
        "the head of --layer and --head reads, or the relevance of --explain, on the picture: .svg or .png.",
    ),
]

_COLUMN = 14  # columns of a prediction with its probability
_ROWS = 12


@dataclass(frozen=True)
class Answer:
    """One answer in every form that it can be printed in."""

    about: Json
    rows: str
    """the name of the table in JSON"""
    frame: "pd.DataFrame"
    line: str | None
    table: "Callable[[int], Table]"
    plot: "Callable[[], Plot]"

    def show(self, subject: "Subject", example: "Example", figure: Path | None, *, as_json: bool) -> None:
        """Print it, and draw the figure if one is wanted."""
        from lorgnette.cli.consoles import out

        drawn = None if figure is None else self.plot().save(figure)
        if as_json:
            about = {"model": subject.name, "text": example.text, **self.about}
            typer.echo(json.dumps({**about, self.rows: self.frame.to_dict("records")}, ensure_ascii=False))
            return
        if self.line is not None:
            out().print(self.line, markup=False)
        out().print(self.table(out().width))
        if drawn is not None:
            typer.echo(f"The figure is in {drawn}")


def layers(subject: "Subject", example: "Example") -> Answer:
    """--logit-lens: what each layer would predict."""
    from lorgnette.explaining.logit_lens import logit_lens

    found = logit_lens(subject, example)
    return Answer({}, "predictions", found.to_dataframe(), None, lambda width: layer_table(found, width), found.plot)


def why(subject: "Subject", example: "Example", head: tuple[str | None, int, int], pair: str) -> Answer:
    """--why: what wrote the query and the key that a head brings together."""
    from lorgnette.explaining.why import why as split

    query, key = positions(pair)
    stack = head[0] or next(iter(subject.layers))
    found = split(subject, example, (stack, *head[1:]), query, key)
    about: Json = {"head": found.head, "query": found.query, "key": found.key}
    about |= {"score": found.score, "weight": found.weight}
    line = (
        f"{found.head}: {found.query} → {found.key}, weight {found.weight:.3f}, score {found.score:.2f}, "
        f"{float(found.beyond.sum()):.2f} beyond the mean of the row"
    )
    return Answer(about, "parts", found.to_dataframe(), line, lambda _: why_table(found), found.plot)


def paths(
    subject: "Subject", example: "Example", target: "str | Next | None", more: Mapping[str, str | int | None]
) -> Answer:
    """--paths: the strongest edges that lead to the prediction; `more` are the options that were given."""
    from lorgnette.explaining.paths import paths as strongest
    from lorgnette.explaining.target import class_number

    chosen = class_number(subject, target) if isinstance(target, str) else target
    given: Json = {name: value for name, value in more.items() if value is not None}
    found = strongest(subject, example, target=chosen, **given)
    about: Json = {"explained": found.explained, "logit": found.value}
    line = f"explained: {found.explained} (logit {found.value:.3f})"
    return Answer(about, "edges", found.to_dataframe(), line, lambda _: path_table(found), found.plot)


def positions(given: str) -> tuple[int, int | None]:
    """The positions of query and key, counted from 0; on the command line they count from 1."""
    if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)?", given):
        raise typer.BadParameter("--why takes the positions of two tokens, counted from 1: QUERY,KEY, or QUERY alone.")
    query, _, key = given.partition(",")
    return int(query) - 1, int(key) - 1 if key else None


def layer_table(found: "LayerPredictions", width: int) -> "Table":
    """Positions in rows, as many layers in columns as there is room for, the first and the last among them."""
    from rich.markup import escape
    from rich.table import Table

    states = len(found.top)
    room = max(2, min(states, width // _COLUMN - 1))
    chosen = sorted({round(number * (states - 1) / (room - 1)) for number in range(room)})
    table = Table("token", *(f"layer {state}" if state else "embeddings" for state in chosen), box=None, pad_edge=False)
    for number, token in enumerate(found.tokens):
        cells = [f"{found.pieces[s][number][: _COLUMN - 6]} {float(found.probability[s, number]):.2f}" for s in chosen]
        table.add_row(escape(token), *map(escape, cells))
    return table


def why_table(found: "Why") -> "Table":
    """The largest parts of either side; what is left is the last row."""
    from rich.markup import escape
    from rich.table import Table

    frame = found.to_dataframe()
    columns = ["query", "query_beyond", "key", "key_beyond"]
    size = frame[["query_beyond", "key_beyond"]].abs().max(axis=1)
    shown = frame.loc[size.sort_values(ascending=False, kind="stable").index[:_ROWS]]
    rest = frame.drop(shown.index)[columns].sum()
    table = Table("written by", "into the query", "beyond", "into the key", "beyond", box=None, pad_edge=False)
    for row in shown.to_dict("records"):
        table.add_row(escape(str(row["writer"])), *(f"{row[name]:+.2f}" for name in columns))
    if len(shown) < len(frame):
        table.add_row("all others", *(f"{rest[name]:+.2f}" for name in columns))
    table.add_row("together", *(f"{frame[name].sum():+.2f}" for name in columns))
    return table


def path_table(found: "Paths") -> "Table":
    """Every edge of the paths, from the output downwards."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("from", "into", "by its", "attribution", box=None, pad_edge=False)
    table.columns[-1].justify = "right"
    for row in found.to_dataframe().to_dict("records"):
        by = row["way"] if row["way"] in ("query", "key", "value") else ""
        table.add_row(escape(str(row["writer"])), escape(str(row["reader"])), by, f"{row['attribution']:+.3f}")
    return table
