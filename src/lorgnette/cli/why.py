"""`lorgnette trace … --why QUERY,KEY`: what wrote the query and the key that a head brings together."""

import re
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lorgnette.explaining.why import Why

_ROWS = 12


def positions(given: str) -> tuple[int, int | None]:
    """The positions of query and key, counted from 0; on the command line they count from 1."""
    if not re.fullmatch(r"[1-9][0-9]*(,[1-9][0-9]*)?", given):
        raise typer.BadParameter("--why takes the positions of two tokens, counted from 1: QUERY,KEY, or QUERY alone.")
    query, _, key = given.partition(",")
    return int(query) - 1, int(key) - 1 if key else None


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
