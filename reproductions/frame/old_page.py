"""A reproduction as a README: question, set-up, claims, what holds, tables, figures, how to repeat it."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from reproductions.frame.record import Claim, Figure, Reproduction, Table

_QUICK = "**A quick run: a small part of the data, to show that it works. Do not quote these numbers.**"
_NONE = "–"


def page(outcome: "Reproduction") -> str:
    """The whole README."""
    parts = [f"# {outcome.title}", outcome.reference]
    parts += [_QUICK] if outcome.provenance.get("quick") else []
    parts += [f"**Question.** {outcome.question}"] if outcome.question else []
    parts += ["## Set-up", *outcome.setup] if outcome.setup else []
    parts += ["## What holds and what does not", *outcome.summary] if outcome.summary else []
    parts += ["## Claims", _claims(outcome.claims)] if outcome.claims else []
    parts += ["## Figures", *map(_figure, outcome.figures)] if outcome.figures else []
    parts += ["## Tables", *map(_table, outcome.tables)] if outcome.tables else []
    if command := outcome.provenance.get("command"):
        parts += ["## To repeat it", f"    {command}", _REPEAT]
    return "\n\n".join(parts) + "\n"


_REPEAT = (
    "LORGNETTE_DATA names the folder with the corpora, LORGNETTE_MODELS the one with the models (or --data and "
    "--models). `results.json` holds every number unrounded, with versions, seeds, counts, hashes of the weights and "
    "fingerprints of the corpora."
)


def number(value: Any, decimals: int = 3) -> str:
    """A number to read: as many decimals as told, thousands apart, nothing for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _NONE
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{decimals}f}"


def decimals_for(values: Iterable[float]) -> int:
    """Enough decimals for the largest of these to show about three digits."""
    largest = max((abs(value) for value in values if not math.isnan(value)), default=0.0)
    return 5 if 0 < largest < 0.001 else 3 if largest < 2 else 2 if largest < 30 else 1 if largest < 1000 else 0


def _claims(claims: "Sequence[Claim]") -> str:
    head = ("claim", "ours [95 %]", "published", "verdict", "why")
    return _grid(head, [(c.text, _ours(c), _plain(c.published), f"**{c.verdict}**", c.why) for c in claims])


def _ours(claim: "Claim") -> str:
    if claim.interval is None:
        return _plain(claim.ours)
    low, high = claim.interval
    if isinstance(claim.ours, int):  # a count
        return f"{claim.ours} [{low:.0f}, {high:.0f}]"
    decimals = decimals_for([low, high])
    return f"{number(claim.ours, decimals)} [{number(float(low), decimals)}, {number(float(high), decimals)}]"


def _plain(value: Any) -> str:
    return number(value, decimals_for([value]) if isinstance(value, float) else 3)


def _figure(figure: "Figure") -> str:
    return f"![{figure.name}](figures/{figure.name}.svg)\n\n*{figure.caption}*"


def _table(table: "Table") -> str:
    body = _grid(list(map(str, table.frame.columns)), _cells(table.frame))
    return f"### {table.title}\n\n{body}" + (f"\n\n{table.note}" if table.note else "")


def _cells(frame: "pd.DataFrame") -> list[Sequence[str]]:
    """Each column with its own number of decimals, the same in all its rows."""
    columns = []
    layers = [value for name in frame.columns if str(name).isdigit() for value in _floats(frame[name])]
    for name in frame.columns:
        values = [None if value != value else value for value in frame[name].tolist()]
        # Columns that are numbered (layers) belong together.
        decimals = decimals_for(layers if str(name).isdigit() else _floats(frame[name]))
        columns.append([number(value, decimals) for value in values])
    return list(zip(*columns, strict=True))


def _floats(column: Iterable[Any]) -> list[float]:
    return [value for value in column if isinstance(value, float)]


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
