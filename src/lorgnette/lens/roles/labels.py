"""From numbers to labels: a role is chosen on one part of the texts, and must beat its control on the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from lorgnette import axes
from lorgnette.figures.finding import HALF
from lorgnette.lens.moments import Moments
from lorgnette.lens.relations.lens import PARTS
from lorgnette.lens.roles.parsing import (
    EXCESS,
    FEWEST,
    Table,
    corrected,
    held_out_p,
    over_control,
    syntactic,
)
from lorgnette.lens.weights.means import OFFSETS as NEIGHBOURS
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.statistics.spearman import spearman

if TYPE_CHECKING:
    from lorgnette.lens.roles.lens import Roles


@dataclass(frozen=True)
class Rule:
    """The thresholds at which a number becomes a label."""

    about: str
    threshold: float
    above: bool = True
    inclusive: bool = False

    @property
    def bound(self) -> str:
        """ "> 0.5"."""
        sign = "≥" if self.inclusive else ">" if self.above else "<"
        return f"{sign} {self.threshold:g}"

    def holds(self, number: xr.DataArray) -> xr.DataArray:
        if self.inclusive:
            return number >= self.threshold
        return number > self.threshold if self.above else number < self.threshold


RULES: Mapping[str, Rule] = {
    "positional": Rule("share of queries whose largest weight is at one offset", 0.9, inclusive=True),
    "syntactic": Rule("accuracy in the best relation and way minus the best fixed offset", 0.1, inclusive=True),
    "rare": Rule("share of texts whose most attended token is one of the two rarest", 0.5),
    "special": Rule("weight on special tokens (on the first token if there are none), over all queries", HALF),
    "punctuation": Rule("weight on punctuation", 0.5),
    "same_word": Rule("weight on the same word elsewhere, over queries that see one", 0.5),
    "induction": Rule("weight on what followed the same word before, over queries that see one", 0.5),
    "self": Rule("weight on the token itself", 0.5),
    "previous": Rule("weight on the previous token", 0.5),
    "next": Rule("weight on the next token", 0.5),
    "last": Rule("weight on the last token", 0.5),
    "broad": Rule("normalised entropy", 0.8),
    "dead": Rule("output norm of the head divided by the mean of its layer", 0.1, above=False),
}
"""self, previous, next and last are the patterns of Raganato & Tiedemann 2018; the paper gives no threshold."""

CONTROLLED = ("special", "punctuation", "last", *NEIGHBOURS, "same_word", "induction", "rare")
"""Numbers with a control in the same pass; positional and syntactic have theirs elsewhere, broad and dead have none:
they say how a head spreads its weight and how much it gives, and claim nothing that was learnt."""
EDGE = 0.5
"""An offset that fewer than this share of the queries have is no candidate for a positional head."""
NOTHING = "none"
UNTESTED = ("broad", "dead")
"""Labels without a control."""
_TESTED = [name for name in RULES if name not in UNTESTED]


def labelled(lens: "Roles", parsed: xr.Dataset | None) -> Table:
    """All variables of the result."""
    tables = _tables(lens.of_roles) | _tables(lens.of_excess)
    rows, extra = _role_tables(tables, _tables(lens.of_offsets_read), parsed, lens)
    names = [name for name in RULES if name in rows]
    keys = {"number": "", "number_se": "_se", "number_count": "_count", "excess": "over", "excess_se": "over_se"}
    numbers = {
        name: xr.concat([rows[role][key] for role in names], dim=axes.ROLE)
        .assign_coords({axes.ROLE: names})
        .transpose(..., axes.ROLE, axes.PART)
        for name, key in keys.items()
    }
    numbers["number_count"] = numbers["number_count"].fillna(0).astype("int64")
    numbers["excess_count"] = numbers["number_count"].where(numbers["excess"].notnull(), 0)
    q = xr.concat([rows[role]["q"] for role in names], dim=axes.ROLE).assign_coords({axes.ROLE: names})
    q = q.transpose(..., axes.ROLE)
    holds = _holds(numbers, names)
    chosen, label = holds.sel({axes.PART: PARTS[0]}, drop=True), holds.all(axes.PART)
    label.loc[{axes.ROLE: "special"}] = _special(tables["special"]) & _beaten(numbers["excess"]).all(axes.PART).sel(
        {axes.ROLE: "special"}, drop=True
    )
    label &= (q <= LEVEL) | ~label[axes.ROLE].isin(_TESTED)
    variables = {
        **numbers,
        **_bounds(numbers["number"], numbers["number_se"], numbers["number_count"]),
        "q": q,
        "q_count": numbers["excess_count"].sel({axes.PART: PARTS[1]}, drop=True).where(q.notnull(), 0),
        "label": label,
        "chosen": chosen,
        "roles": _words(label, numbers["excess"].sel({axes.PART: PARTS[1]}, drop=True), extra),
        **{f"{name}{tail}": tables[name][tail] for name in ("confidence", "peak") for tail in ("", "_se", "_count")},
        **extra,
        **_stability(numbers["number"], holds),
    }
    for name, text in _DESCRIPTIONS.items():
        variables[name].attrs["description"] = text
    return variables


_DESCRIPTIONS = {
    "number": "the number that decides a role, in each part: " + "; ".join(f"{n}: {r.about}" for n, r in RULES.items()),
    "excess": "excess: the number minus that of its control, in each part; missing for roles without a control",
    "q": "p of the held-out excess (one-sided t test over texts), corrected over heads (syntactic: and relations)",
    "label": "the role holds in both parts (special: over all texts) and beats its control: excess ≥ .1, q ≤ .05",
    "chosen": "the role holds in the development part",
    "roles": "the roles of the head, each with its held-out excess over the control",
    "confidence": "mean maximum weight on a word, over words (special tokens excluded)",
    "peak": "mean maximum weight on any token, over words",
    "offset": "offset of a positional head, chosen in the development part",
    "relations": "relations and directions in which a head beats the best offset and both controls, with its excess",
    "stability": "Spearman's ρ across heads between the numbers of both parts",
    "agreement": "share of heads that have the role in both parts or in neither",
}


def _special(table: dict[str, xr.DataArray]) -> xr.DataArray:
    """Special tokens over all texts, as the lens `weights` counts heads: nothing is chosen, so nothing is held out."""
    whole = (table[""].fillna(0.0) * table["queries"]).sum(axes.PART) / table["queries"].sum(axes.PART)
    return RULES["special"].holds(whole) & (table["_count"].sum(axes.PART) >= FEWEST)


def _tables(moments: Moments) -> dict[str, dict[str, xr.DataArray]]:
    """Each number as [stack layer head … part], with `_se`, `_count` and the queries it is over."""
    arrays, queries = moments.arrays(), moments.weights()
    return {
        name: {**{tail: arrays[name + tail] for tail in ("", "_se", "_count")}, "queries": queries[name]}
        for name in moments.variables
    }


def _role_tables(
    tables: dict[str, Table], offsets: dict[str, Table], parsed: xr.Dataset | None, lens: "Roles"
) -> tuple[dict[str, Table], Table]:
    """The number that each role is judged by, with its control."""
    rows = {name: {**tables[name], "over": tables[name][""] * np.nan} for name in RULES if name in tables}
    for name in CONTROLLED:
        over = tables[over_control(name)]
        rows[name] |= {"over": over[""], "over_se": over["_se"]}
    rows["positional"], offset = _positional(offsets, tables["peak"]["queries"])
    layer = tables["norm"][""].mean(axes.HEAD)
    norm = tables["norm"]
    rows["dead"] = {"": norm[""] / layer, "_se": norm["_se"] / layer, "_count": norm["_count"]}
    rows["dead"]["over"] = norm[""] * np.nan
    for row in rows.values():
        row.setdefault("over_se", row["over"])
        row["q"] = corrected(held_out_p(row["over"], row["over_se"], row["_count"]))
    parser = None if parsed is None else xr.Dataset(lens.of_parser.arrays())
    rows["syntactic"], relations = syntactic(parsed, parser, tables["peak"], lens.least)
    return rows, {"offset": offset, "relations": relations}


def _positional(offsets: dict[str, Table], queries: xr.DataArray) -> tuple[Table, xr.DataArray]:
    """The share of the offset that is best in the development part, and that offset."""
    peak_at, over = offsets["peak_at"], offsets[over_control("peak_at")]
    usual = peak_at["queries"] >= EDGE * queries
    share = peak_at[""].where(usual).sel({axes.PART: PARTS[0]}, drop=True).fillna(-1.0)
    best = share.argmax(axes.OFFSET)
    offset = peak_at[""][axes.OFFSET][best].astype("int64").drop_vars(axes.OFFSET, errors="ignore")
    columns = {tail: peak_at[tail] for tail in ("", "_se", "_count")} | {"over": over[""], "over_se": over["_se"]}
    return {name: each.isel({axes.OFFSET: best}).drop_vars(axes.OFFSET) for name, each in columns.items()}, offset


def _bounds(number: xr.DataArray, error: xr.DataArray, count: xr.DataArray) -> dict[str, xr.DataArray]:
    """95 % intervals: Wilson's for shares, Student's for what is none."""
    cells = zip(*(array.values.ravel().tolist() for array in (number, error, count)), strict=True)
    wilson = np.array([_interval(*cell) for cell in cells])
    ratio = number[axes.ROLE].isin(["dead", "syntactic"])
    half = Estimate(number, error, count).half
    out = {}
    for end, (name, sign) in enumerate((("number_low", -1), ("number_high", 1))):
        share = number.copy(data=wilson[:, end].reshape(number.shape))
        bound = xr.where(ratio, number + sign * half, share)
        out[name] = bound.where(count > 1).transpose(*number.dims)
    return out


def _interval(share: float, error: float, count: int) -> tuple[float, float]:
    return Estimate(min(max(share, 0.0), 1.0), error, count).wilson(count)


def _beaten(excess: xr.DataArray) -> xr.DataArray:
    """Whether the number exceeds its control by enough; true if there is no control."""
    return (excess >= EXCESS) | ~excess[axes.ROLE].isin(_TESTED)


def _holds(numbers: Table, names: list[str]) -> xr.DataArray:
    """[… role part]: the rule holds, the control is beaten by enough, and enough texts say so."""
    each = [RULES[name].holds(numbers["number"].sel({axes.ROLE: name}, drop=True)) for name in names]
    rule = xr.concat(each, dim=axes.ROLE).assign_coords({axes.ROLE: names}).transpose(..., axes.ROLE, axes.PART)
    return rule & (numbers["number_count"] >= FEWEST) & _beaten(numbers["excess"])


def _words(label: xr.DataArray, excess: xr.DataArray, extra: Table) -> xr.DataArray:
    """The labels of each head as one text: "positional (-1) +0.87, previous +0.61", or "none"."""
    out = xr.full_like(label.isel({axes.ROLE: 0}, drop=True), "", dtype=object)
    names = label[axes.ROLE].values.tolist()
    relations, offsets = (extra[name].transpose(*out.dims).values for name in ("relations", "offset"))
    labels, beyond = (each.transpose(*out.dims, axes.ROLE).values for each in (label, excess))
    for cell in np.ndindex(out.shape):
        words = []
        for name, has, over in zip(names, labels[cell], beyond[cell], strict=True):
            if has and name == "syntactic":
                words.append(f"syntactic ({relations[cell]})")
            elif has:
                place = f" ({offsets[cell]:+d})" if name == "positional" else ""
                words.append(f"{name}{place}" + ("" if np.isnan(over) else f" {over:+.2f}"))
        out.values[cell] = ", ".join(words) or NOTHING
    return out.astype(str)


def _stability(number: xr.DataArray, holds: xr.DataArray) -> dict[str, xr.DataArray]:
    """For each stack and role: do both halves rank the heads alike, and give them the same labels?"""
    stacks, roles = number[axes.STACK].values.tolist(), number[axes.ROLE].values.tolist()
    rho, counts = np.full((len(stacks), len(roles)), np.nan), np.zeros((len(stacks), len(roles)), dtype="int64")
    values = number.transpose(axes.STACK, axes.ROLE, axes.PART, ...).sel({axes.PART: list(PARTS)}).values
    for s in range(len(stacks)):
        for r in range(len(roles)):
            one, other = (each.ravel() for each in values[s, r])
            finite = np.isfinite(one) & np.isfinite(other)
            correlation = spearman(torch.tensor(one[finite]), torch.tensor(other[finite])) if finite.sum() > 2 else None
            if correlation is not None:
                rho[s, r], counts[s, r] = correlation, finite.sum()
    same = holds.sel({axes.PART: PARTS[0]}, drop=True) == holds.sel({axes.PART: PARTS[1]}, drop=True)
    dims = (axes.STACK, axes.ROLE)
    return {
        "stability": xr.DataArray(rho, dims=dims),
        "stability_count": xr.DataArray(counts, dims=dims),
        "agreement": same.mean((axes.LAYER, axes.HEAD)).transpose(*dims),
    }
