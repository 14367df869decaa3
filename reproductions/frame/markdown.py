"""Numbers, claims, tables and figures as Markdown."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from reproductions.frame.claims import Claim, Estimate

if TYPE_CHECKING:
    import pandas as pd

    from reproductions.frame.page import Figure, Table

NOTHING = "–"


def number(value: Any, decimals: int = 3) -> str:
    """A number to read: as many decimals as told, thousands apart, nothing for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{decimals}f}"


def points(value: float, decimals: int = 1) -> str:
    """A difference of shares in percentage points, without its sign."""
    return f"{abs(value) * 100:.{decimals}f}"


def decimals_for(values: Iterable[float]) -> int:
    """Enough decimals for the largest of these to show about three digits."""
    largest = max((abs(value) for value in values if not math.isnan(value)), default=0.0)
    return 5 if 0 < largest < 0.001 else 3 if largest < 2 else 2 if largest < 30 else 1 if largest < 1000 else 0


def estimate(one: Estimate) -> str:
    """Value [low, high], or the value and the p of an exact test."""
    if one.p is not None:
        p = f"p = {number(one.p)}" if one.p >= 0.001 else "p < 0.001"
        return f"{number(one.value, 3)} ({p})"
    if one.interval is None:
        return number(one.value, decimals_for([one.value]) if isinstance(one.value, float) else 3)
    if isinstance(one.value, int):  # a count
        return f"{one.value} [{one.low:.0f}, {one.high:.0f}]"
    decimals = decimals_for(one.interval)
    return f"{number(one.value, decimals)} [{', '.join(number(float(end), decimals) for end in one.interval)}]"


def headline(claims: Sequence[Claim]) -> str:
    """published | ours | verdict of the claims that matter most.

    Where most claims are our own, a column of what was published would be mostly empty: it stands beside the estimate.
    """
    if _mostly_own(claims):
        rows = [(c.text, _beside(c), f"**{c.verdict}**") for c in claims]
        return grid(("claim", "estimate [95 %]", "verdict"), rows)
    head = ("claim", "published", "ours [95 %]", "verdict")
    return grid(head, [(c.text, _published(c), estimate(c.estimate), f"**{c.verdict}**") for c in claims])


def _mostly_own(claims: Sequence[Claim]) -> bool:
    return sum(claim.published is None for claim in claims) > len(claims) / 2


def _beside(claim: Claim) -> str:
    """The estimate, and what was published, if anything was."""
    said = estimate(claim.estimate)
    return said if claim.published is None else f"{said} (published: {_published(claim)})"


def claims(every: Sequence[Claim]) -> str:
    """All claims, with the bound that decided, what the interval is over, and remarks."""
    own, beside = all(claim.published is None for claim in every), _mostly_own(every)
    head = ["id", "claim", "ours [95 %]", "over", "bound", "published", "verdict", "note"]
    rows: list[list[str]] = []
    for claim in every:
        one = claim.estimate
        over = " ".join(part for part in (str(one.n or ""), one.over) if part) + (f" ({one.method})" * bool(one.method))
        bound = NOTHING if claim.bound is None else str(claim.bound)
        text = claim.text + (" (ours)" if claim.ours and not own else "")
        said = _beside(claim) if beside else estimate(one)
        rows.append([f"`{claim.id}`", text, said, over, bound, _published(claim), claim.verdict, _note(claim)])
    if beside:
        head, *rows = (
            [cell for cell, name in zip(row, head, strict=True) if name != "published"] for row in (head, *rows)
        )
    return grid(head, rows)


def _note(claim: Claim) -> str:
    overturned = f"“{claim.overturned}” by its own interval, but not after correction" if claim.overturned else ""
    return "; ".join(part for part in (overturned, claim.undecided, claim.note) if part)


def _published(claim: Claim) -> str:
    if claim.published is None:
        return NOTHING
    value = claim.published.value
    said = number(value, decimals_for([value])) if isinstance(value, float) else number(value)
    return said if claim.published.spread is None else f"{said} ± {number(claim.published.spread)}"


def figure(one: "Figure") -> str:
    return f"![{one.name}](figures/{one.name}.svg)\n\n*{one.caption}*"


def table(one: "Table") -> str:
    body = grid(list(map(str, one.frame.columns)), _cells(one.frame))
    return f"### {one.title}\n\n{body}" + (f"\n\n{one.note}" if one.note else "")


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


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def tidy(text: str) -> str:
    """No more than one empty line in a row, none at the ends, and numbers in one style: no template sees to it."""
    return styled(re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()) + "\n"


_VERBATIM = re.compile(r"(`[^`\n]*`|\]\([^)\n]*\)|^ {4}.*$)", re.MULTILINE)
"""Code, and where links point to."""
_STYLE = (
    (re.compile(r"(?<![\w\-–/.])-(?=\.?\d)"), "−"),
    (re.compile(r"(?<![\w.)\]])\.(?=\d)"), "0."),
    (re.compile(r"(?<=\d)[ \n\u00a0\u2009\u202f]?%"), "\u00a0%"),
)


def styled(text: str) -> str:
    """A minus is no hyphen, 0.5 has its zero, and a space that does not break stands before %."""
    parts = _VERBATIM.split(text)
    for place in range(0, len(parts), 2):
        for wrong, right in _STYLE:
            parts[place] = wrong.sub(right, parts[place])
    return "".join(parts)
