"""What the pages show of roles: what each head is for, and which heads have another role in another run."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import pandas as pd
import xarray as xr

from lorgnette.axes import HEAD, LAYER, PART, PER_HEAD, ROLE, STACK
from lorgnette.figures.charts import COLOURS, cell_axis, cell_steps
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, head_places
from lorgnette.figures.lens_report import FUNCTION, Changes, HeadPlace, HeadRole, LensReport, Measure, TextTable
from lorgnette.figures.sentences import NAMED, has
from lorgnette.lens.relations.lens import PARTS
from lorgnette.lens.roles.labels import RULES
from lorgnette.lens.roles.parsing import FEWEST
from lorgnette.results import Result
from lorgnette.types import Chart, Json

FAMILIES = {
    "dead": ("dead",),
    "syntactic": ("syntactic",),
    "rare words": ("rare",),
    "positional": ("positional", "self", "previous", "next"),
    "repeats": ("same_word", "induction"),
    "punctuation": ("punctuation",),
    "special tokens": ("special", "last"),
    "broad": ("broad",),
    "none": (),
}
"""What a head with several labels is drawn as: the first of these that fits."""
_FAMILY_COLOURS = dict(
    zip(FAMILIES, ("#9A9A9A", *(COLOURS[place] for place in (2, 4, 0, 3, 5, 1, 6)), "#E4E4E4"), strict=True)
)
_NO_ROLE = "no role"


def figures(result: Result) -> list[Figure]:
    frame = result.to_dataframe("roles")
    table = frame[frame["roles"].notnull()]
    caption = (
        "Roles that a head has in both halves of the corpus and that beat their control, at a false discovery rate of "
        "5 %. The role special counts all texts, and the first token where a text has no special token. A head with "
        f"several roles has the colour of the first in the legend.{_cost(result)}"
    )
    return [Figure("roles", "What each head is for", caption, role_map(result), table, result.to_dataframe("number"))]


def table(result: Result) -> TextTable:
    """A row for each role: how many heads have it, and the head with the highest number on the held-out texts."""
    data = result.data.sel({PART: PARTS[1]})
    rows: list[tuple[str, ...]] = []
    for role in data[ROLE].values.tolist():
        each = data.sel({ROLE: role}).stack(cell=PER_HEAD)
        number, excess, rule = each["number"], each["excess"], RULES[role]
        count = int(each["label"].sum())
        if not bool(number.notnull().any()):
            rows.append((role, str(count), rule.bound, "–", "", "–"))
            continue
        values = number.values if rule.above else -number.values
        best = number.isel(cell=int(np.nanargmax(values)))
        over = excess.isel(cell=int(np.nanargmax(values))).item()
        stack, layer, head = best["cell"].item()
        at = f"{stack} {layer}.{head}"
        rows.append((role, str(count), rule.bound, f"{best.item():.2f}", at, "–" if over != over else f"{over:.2f}"))
    titles = ("role", "heads", "threshold", "most extreme", "at", "above control")
    return TextTable(titles, rows, ("The number and its excess over the control are of the held-out texts.",))


def _cost(result: Result) -> str:
    """What the control took, if it was a run of its own."""
    texts, tokens = (result.data.attrs.get(f"control_{what}", 0) for what in ("texts", "tokens"))
    return f" Control: {texts:,} texts ({tokens:,} tokens) ran once more with their words shuffled." if texts else ""


def labels_at(result: Result, place: HeadPlace) -> list[str]:
    """The roles of one head."""
    label = result.data["label"].sel(dict(zip((STACK, LAYER, HEAD), place, strict=True)))
    return [str(role) for role in label[ROLE].values[label.values.astype(bool)]]


def family(labels: list[str]) -> str:
    return next((name for name, members in FAMILIES.items() if set(members) & set(labels)), "none")


def role_map(result: Result) -> Chart:
    """Layer × head, coloured by what the head is for; stacks side by side."""
    peaks = result.data["peak_count"].sum(PART)
    rows: dict[str, list[Json]] = {}
    for place in head_places(peaks.where(peaks > 0)):
        stack, layer, head = place
        words = str(result.data["roles"].sel({STACK: stack, LAYER: layer, HEAD: head}).item())
        row = {"family": family(labels_at(result, place)), "label": f"{layer}.{head}: {words}"}
        rows.setdefault(stack, []).append({"layer": layer, "head": head, **row})
    several = len(rows) > 1
    sizes = result.data.sizes[LAYER], result.data.sizes[HEAD]
    there = {row["family"] for cells in rows.values() for row in cells}
    panels = [
        _panel(cells, there, cell_steps(*sizes, several=several)).properties(title=stack if several else "")
        for stack, cells in rows.items()
    ]
    return alt.hconcat(*panels) if several else panels[0]


def _panel(rows: list[Json], there: set[str], steps: tuple[int, int]) -> Chart:
    across, down = steps
    colours = {name: colour for name, colour in _FAMILY_COLOURS.items() if name in there}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(across), height=alt.Step(down)).mark_rect(stroke="white")
    return chart.encode(
        x=alt.X(field="head", type="ordinal", title="head", axis=cell_axis(across)),
        y=alt.Y(field="layer", type="ordinal", title="layer", axis=cell_axis(down)),
        color=alt.Color(field="family", type="nominal", scale=scale, title=None),
        description=alt.Description(field="label", type="nominal"),
        tooltip=alt.Tooltip(field="label", type="nominal"),
    )


def findings(result: Result) -> Iterator[Finding]:
    """How many heads have each label."""
    label = result.data["label"]
    looked_at = _looked_at(result)
    total = int(looked_at.sum())
    counts = {str(role): int(label.sel({ROLE: role}).sum()) for role in label[ROLE].values}
    named = {role: count for role, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count}
    if not total:
        return
    if (texts := _texts_in_smaller_half(result)) < FEWEST:
        special = "{special} of {heads} heads have the role special. " if counts.get("special") else ""
        numbers = {"special": counts.get("special", 0), "heads": total, "texts": texts, "fewest": FEWEST}
        yield Finding(
            f"{special}Too few texts to find other roles: they must hold in both halves of the corpus, with at least "
            "{fewest} texts in each, and the smaller half has {texts}.",
            numbers,
        )
        return
    none = int(((label.sum(ROLE) == 0) & looked_at).sum())
    words = ", ".join(f"{{{role}}} {role.replace('_', '-')}" for role in named)
    several = "" if total - none == sum(named.values()) else " (a head may have several)"
    have = f"{{some}} of {{heads}} heads {has(total - none)} a role that holds in both halves of the corpus"
    nobody = "None of {heads} heads has a role that holds in both halves of the corpus and beats its control."
    numbers = {**named, "heads": total, "some": total - none}
    yield Finding(f"{have}: {words}{several}." if named else nobody, numbers, nothing=not named)


def _texts_in_smaller_half(result: Result) -> int:
    counts = result.data["peak_count"]
    return int(counts.max([dim for dim in counts.dims if dim != PART]).min())


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("confidence", "mean maximum weight on a word", result.data["confidence"].mean(PART), rank=1)


def roles(result: Result) -> dict[HeadPlace, HeadRole]:
    """Every head with its labels in words, or that none fits."""
    out = {}
    for place in head_places(result.data["confidence"].mean(PART)):
        labels = labels_at(result, place)
        words = str(result.data["roles"].sel(dict(zip((STACK, LAYER, HEAD), place, strict=True))).item())
        out[place] = HeadRole(words.replace("_", "-") if labels else _NO_ROLE, family(labels))
    return out


def changes(before: Result, after: Result, names: tuple[str, str]) -> Changes:
    """Heads with other labels than before, in a sentence and on two maps side by side."""
    table = changed_roles(before, after)
    maps = [role_map(run).properties(title=name) for run, name in zip((before, after), names, strict=True)]
    rows = table if len(table) else pd.DataFrame({"note": ["no head changed its role"]})
    caption = "The table lists the heads that changed."
    figure = Figure("roles", "Roles of heads in both runs", caption, alt.hconcat(*maps), rows, rows, True)
    total = int((_looked_at(before) & _looked_at(after)).sum())
    return Changes([_changed(table, total, stacks=after.data.sizes[STACK])], [figure])


def _looked_at(result: Result) -> xr.DataArray:
    """Which heads there are: a pruned one has no role that could have changed."""
    return result.data["peak_count"].sum(PART) > 0


def _changed(table: pd.DataFrame, total: int, stacks: int) -> Finding:
    if not len(table):
        return Finding("None of {heads} heads changed its role.", {"heads": total})
    named = "; ".join(
        f"{f'{row.stack} ' if stacks > 1 else ''}{row.layer}.{row.head} ({row.before} → {row.after})"
        for row in table.head(NAMED).itertuples()
    )
    numbers = {"count": len(table), "heads": total, "named": named}
    return Finding(
        "{count} of {heads} heads changed their role: {named}" + (" …" if len(table) > NAMED else "."), numbers
    )


def changed_roles(before: Result, after: Result) -> pd.DataFrame:
    """Heads of both models whose labels differ, with both."""
    rows = []
    both = _looked_at(before) & _looked_at(after)
    for place in head_places(both.where(both)):
        old, new = (", ".join(labels_at(run, place)) or "none" for run in (before, after))
        if old != new:
            rows.append({**dict(zip((STACK, LAYER, HEAD), place, strict=True)), "before": old, "after": new})
    return pd.DataFrame(rows, columns=[STACK, LAYER, HEAD, "before", "after"])


REPORT = LensReport(
    title="What each head is for",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(),
    cards=cards,
    roles=roles,
    changes=changes,
    meaning=("ranks",),
    table=table,
    rank=1,
)
