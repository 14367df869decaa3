"""Two runs, head by head: differences with their intervals, and which of them are significant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import xarray as xr

from lorgnette import lens as lenses
from lorgnette.axes import HEAD, LAYER, PER_HEAD, STACK, STATE, TEXT
from lorgnette.errors import UserError
from lorgnette.figures.cells import BESIDE, shown
from lorgnette.figures.lens_report import Compared
from lorgnette.results import Result, Results
from lorgnette.results.result import CENTRED, OPTIONS
from lorgnette.statistics.estimate import (
    LEVEL,
    Estimate,
    error_of_terms,
    false_discovery,
    paired_error,
    paired_terms,
)

PAIRED = "paired"
"""The attribute of a difference that says whether its interval is paired over texts."""
_CELLS = (LAYER, HEAD, STATE)
"""Axes along which numbers are of one kind: only over these are they averaged and counted together."""


@dataclass(frozen=True)
class Differences:
    """`results` hold after − before under the names of the variables; `notes` say what could not be compared.

    `means` has, by lens and variable, what holds of all heads (or layers) of one kind: see `over_cells`.
    """

    before: Results
    after: Results
    results: Results
    notes: tuple[str, ...]
    means: Mapping[str, Mapping[str, xr.Dataset]]
    same_texts: bool = False


def differences(
    before: Results, after: Results, names: tuple[str, str] = ("the first run", "the second")
) -> Differences:
    """after − before for every compared variable that both runs have.

    Beside a difference `x` stand its standard error `x_se`, the ends of its 95 % interval, and `x_q`, its two-sided
    p-value adjusted for the false discovery rate over the heads and layers of the same kind. Runs on the same texts
    that kept each text's numbers are paired (see `paired_error`). Without these numbers the error on the same texts is
    se + se, the largest that it can be; on different texts it is √(se² + se²), that of independent runs (Welch's t).
    The attribute `paired` of a difference says whether it is. What it does not tell you: unpaired on the same texts,
    errors are too large, so that a difference that is there may not be significant.
    """
    first, second = ({result.lens: result for result in run.values()} for run in (before, after))
    common = [lens for lens in first if lens in second]
    if not common:
        raise UserError(
            f"The runs have no lens in common: {names[0]} has {', '.join(first) or 'none'}, {names[1]} has "
            f"{', '.join(second) or 'none'}. Run look on both with the same lenses."
        )
    _refuse_other_heads(first, second, common, names)
    _refuse_centred_with_raw(first, second, common, names)
    _refuse_other_meanings(first, second, common, names)
    notes = [
        f"only {name} has {', '.join(more)}"
        for name, one, other in ((names[0], first, second), (names[1], second, first))
        if (more := [lens for lens in one if lens not in other])
    ]
    corpora = [next(iter(run.values())).provenance for run in (before, after)]
    fingerprints = [corpus.corpus_fingerprint for corpus in corpora]
    same_texts = fingerprints[0] == fingerprints[1] and None not in fingerprints
    if fingerprints[0] != fingerprints[1]:
        notes.append("the runs are on different texts, which makes a difference too")
    notes += _heads_of_one_run(first, second, common, names)
    notes += _other_options(first, second, common)
    pairs = {lens: (before.text_numbers[lens], after.text_numbers[lens]) for lens in common
             if same_texts and lens in before.text_numbers and lens in after.text_numbers}  # fmt: skip
    found = {lens: _difference(first[lens], second[lens], pairs.get(lens), same_texts=same_texts) for lens in common}
    data = {lens: dataset for lens, (dataset, _) in found.items()}
    if same_texts and not pairs and any(PAIRED in array.attrs for each in data.values() for array in each.values()):
        notes.append(
            "both runs are on the same texts but did not keep each text's numbers, so errors are the sum of both, the "
            "largest possible: look with --keep texts to pair the runs"
        )
    results = {
        lens: Result(lens, dataset, second[lens].provenance) for lens, dataset in data.items() if dataset.data_vars
    }
    means = {lens: of_lens for lens, (_, of_lens) in found.items() if lens in results}
    return Differences(before, after, Results(results), tuple(notes), means, same_texts)


def _refuse_other_heads(
    first: Mapping[str, Result], second: Mapping[str, Result], common: list[str], names: tuple[str, str]
) -> None:
    for lens in common:
        pair = [one[lens].data for one in (first, second)]
        for axis in PER_HEAD:
            labels = [data[axis].values.tolist() if axis in data.coords else None for data in pair]
            if labels[0] != labels[1]:
                shapes = [_sizes(data) for data in pair]
                raise UserError(
                    f"Only models with the same heads can be compared: {names[0]} has {shapes[0]}, {names[1]} has "
                    f"{shapes[1]} "
                    f"(lens {lens}). Give two runs of models of the same shape, or make a report of each."
                )


def _refuse_centred_with_raw(
    first: Mapping[str, Result], second: Mapping[str, Result], common: list[str], names: tuple[str, str]
) -> None:
    for lens in common:
        centred = [bool(run[lens].data.attrs.get(CENTRED)) for run in (first, second)]
        if centred[0] != centred[1]:
            less_mean, raw = (names[centred.index(state)] for state in (True, False))
            raise UserError(
                f"{less_mean} has {lens} of centred values, {raw} of values as they are: their numbers mean different "
                f"things. Look at both with {lens}:centred=true, or at neither."
            )


def _refuse_other_meanings(
    first: Mapping[str, Result], second: Mapping[str, Result], common: list[str], names: tuple[str, str]
) -> None:
    """Means over texts and means over tokens, say: their difference is not what the model or the corpus did."""
    for lens in common:
        changed = _changed_options(first[lens], second[lens])
        for option in lenses.report_of(lens).meaning:
            if option in changed:
                old, new = changed[option]
                raise UserError(
                    f"{names[0]} has {lens} with {option}={old}, {names[1]} with {option}={new}: their numbers mean "
                    f"different things. Run look on both with the same {option}."
                )


def _other_options(first: Mapping[str, Result], second: Mapping[str, Result], common: list[str]) -> Iterator[str]:
    """Other options of a lens that the two runs do not share."""
    for lens in common:
        if changed := _changed_options(first[lens], second[lens]):
            words = ", ".join(f"{name}={old} → {new}" for name, (old, new) in changed.items())
            yield f"{lens} was run with other options ({words}), which makes a difference too"


def _changed_options(before: Result, after: Result) -> dict[str, tuple[object, object]]:
    """Options whose values differ; results of old versions do not say theirs."""
    old, new = (result.data.attrs.get(OPTIONS) for result in (before, after))
    if old is None or new is None:
        return {}
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


def _sizes(data: xr.Dataset) -> str:
    layers, heads = data.sizes.get(LAYER, 0), data.sizes.get(HEAD)
    stacks = f" ({', '.join(map(str, data[STACK].values))})" if STACK in data.coords else ""
    return f"{layers} layers" + (f" of {heads} heads" if heads else "") + stacks


def _heads_of_one_run(
    first: Mapping[str, Result], second: Mapping[str, Result], common: list[str], names: tuple[str, str]
) -> Iterator[str]:
    """Heads that only one of the models has: one of them was pruned."""
    for lens in common:
        for one in compared(first[lens], second[lens]):
            pair = [run[lens].data[one.variable] for run in (first, second)]
            if set(PER_HEAD) <= set(pair[0].dims) and pair[0].dims == pair[1].dims:
                old, new = (array.notnull().any([d for d in array.dims if d not in PER_HEAD]) for array in pair)
                both = int((old & new).sum())
                for name, alone in ((names[0], old & ~new), (names[1], new & ~old)):
                    if count := int(alone.sum()):
                        yield f"{count} heads of {name} are not in the other model; the {both} in both are compared"
                return


def compared(before: Result, after: Result) -> list[Compared]:
    """The variables of a lens that are compared, as far as both results have them as numbers."""
    wanted = lenses.report_of(after.lens).compared
    every = [Compared(name) for name in shown(before)] if wanted is None else wanted
    return [
        one
        for one in every
        if one.variable in before.data
        and one.variable in after.data
        and before.data[one.variable].dims == after.data[one.variable].dims
        and before.data[one.variable].dtype.kind in "fiu"
    ]


def _difference(
    before: Result, after: Result, texts: tuple[xr.Dataset, xr.Dataset] | None, *, same_texts: bool
) -> tuple[xr.Dataset, dict[str, xr.Dataset]]:
    """The differences of a lens, and by variable what holds of all heads."""
    out: dict[str, xr.DataArray] = {}
    means: dict[str, xr.Dataset] = {}
    for one in compared(before, after):
        name = one.variable
        labels = {axis: _present(after.data[name], axis, wanted) for axis, wanted in one.select.items()}
        paired = None if texts is None else _paired(name, *texts)
        # Kinds of token and the like that only one run has are left out.
        old, new = xr.align(_parts(name, before.data), _parts(name, after.data.sel(labels)), join="inner")
        if old[name].size:
            apart = _between(name, old, new, paired, same_texts=same_texts)
            out |= apart
            means[name] = over_cells(name, old, new, apart, paired, same_texts=same_texts)
    bare = {name: array.drop_attrs() if name.endswith(BESIDE) else array for name, array in out.items()}
    return xr.Dataset(bare), means


def _parts(name: str, data: xr.Dataset) -> xr.Dataset:
    """A variable with its error and its count, where they have its axes."""
    parts = [part for part in (name, f"{name}_se", f"{name}_count") if part in data]
    return data[[part for part in parts if data[part].dims == data[name].dims]]


def _present(array: xr.DataArray, axis: str, labels: tuple[str, ...]) -> list[str]:
    return [label for label in labels if label in array[axis].values]


def _paired(name: str, before: xr.Dataset, after: xr.Dataset) -> xr.Dataset | None:
    """What a difference that is paired over texts rests on; None if texts have no such number.

    `error` and `count` of every cell, and the `terms` of every text (see `paired_terms`).
    """
    parts = [name, f"{name}_weight"]
    if not all(part in run for part in parts for run in (before, after)):
        return None
    texts = sorted({*before[TEXT].values.tolist(), *after[TEXT].values.tolist()})
    old, new = xr.align(*(run[parts].reindex({TEXT: texts}) for run in (before, after)), join="inner")
    dims = old[name].dims
    numbers = [run[part].transpose(*dims).fillna(0.0).values for run in (old, new) for part in parts]
    error, count = paired_error(*numbers)
    whole = old[name].transpose(*dims)
    like = whole.isel({TEXT: 0}, drop=True)
    terms = whole.copy(data=paired_terms(*numbers))
    return xr.Dataset({"error": like.copy(data=error), "count": like.copy(data=count), "terms": terms})


def _between(
    name: str, old: xr.Dataset, new: xr.Dataset, paired: xr.Dataset | None, *, same_texts: bool
) -> dict[str, xr.DataArray]:
    """One variable: its difference; error, interval and q where both runs have errors; and a count."""
    value = (new[name] - old[name]).astype(float)
    value.attrs = dict(new[name].attrs)
    out, known = {name: value}, value.notnull()
    if f"{name}_se" in old and f"{name}_se" in new:
        is_paired = paired is not None and set(paired["error"].dims) == set(value.dims)
        if paired is not None and is_paired:
            paired = paired[["error", "count"]].reindex_like(value).transpose(*value.dims)
            apart = Estimate(value, paired["error"].where(value.notnull()), paired["count"])
        else:
            apart = _minus(Estimate.of(new, name), Estimate.of(old, name), same_texts=same_texts)
        value.attrs[PAIRED] = is_paired
        out |= {f"{name}_se": apart.se, f"{name}_low": apart.low, f"{name}_high": apart.high}
        out[f"{name}_q"] = adjusted(apart.p)
        known = known & apart.se.notnull()
    count = xr.full_like(value, 2, dtype=int)
    if f"{name}_count" in old and f"{name}_count" in new:
        count = xr.where(new[f"{name}_count"] < old[f"{name}_count"], new[f"{name}_count"], old[f"{name}_count"])
    out[f"{name}_count"] = xr.where(known, count, 0).astype(int)
    return out


def _minus(new: Estimate, old: Estimate, *, same_texts: bool) -> Estimate:
    """The difference of two runs whose texts are not paired."""
    return new.minus_correlated(old) if same_texts else new.minus_independent(old)


def over_cells(
    name: str,
    old: xr.Dataset,
    new: xr.Dataset,
    apart: Mapping[str, xr.DataArray],
    paired: xr.Dataset | None,
    *,
    same_texts: bool,
) -> xr.Dataset:
    """One number for the heads (or layers) of each kind that both runs have: means, their difference, and how sure.

    `before`, `after` and `difference` are means over heads, `low` and `high` the 95 % interval of the difference. If it
    is paired over texts, its error is that of each text's mean over heads. If not, nobody knows how the heads of a run
    vary together, and the error of their mean is taken to be the mean of their errors, the largest that it can be.
    `differing` of `cells` heads are significant. `effect` is how far heads move in units of how far apart they were:

        √(mean (after − before)²) / standard deviation of `before` over heads
    """
    value = apart[name]
    has_error = PAIRED in value.attrs
    over = [dim for dim in value.dims if dim in _CELLS]
    known = value.notnull()
    if has_error:  # all means are over the same heads; those of one text have no error
        sure_ones = known & apart[f"{name}_se"].notnull()
        known = xr.where(sure_ones.any(over), sure_ones, known)
    before, after, difference = (array.where(known).mean(over) for array in (old[name], new[name], value))
    moved, spread = (value.where(known) ** 2).mean(over) ** 0.5, old[name].where(known).std(over)
    out = {"before": before, "after": after, "difference": difference, "cells": known.sum(over)}
    out["effect"] = (moved / spread).where(spread > 0)
    if has_error:
        if value.attrs[PAIRED] and paired is not None:
            terms = paired["terms"].reindex_like(value).where(known).mean(over).transpose(TEXT, ...)
            count = paired["count"].reindex_like(value).where(known).max(over)
            se = difference.copy(data=error_of_terms(terms.values, count.transpose(*terms.dims[1:]).values))
            sure = Estimate(difference, se, count)
        else:
            runs = [Estimate.of(run, name) for run in (new, old)]
            means = [[part.where(known) for part in (run.value, run.se, run.count)] for run in runs]
            mine, theirs = (Estimate(value.mean(over), se.mean(over), n.max(over)) for value, se, n in means)
            sure = _minus(mine, theirs, same_texts=same_texts)
        out |= {"se": sure.se, "low": sure.low, "high": sure.high}
        out["differing"] = (apart[f"{name}_q"] < LEVEL).sum(over)
    return xr.Dataset({key: array.drop_attrs() for key, array in out.items()})


def adjusted(p: xr.DataArray) -> xr.DataArray:
    """p adjusted for the false discovery rate within every slice of like numbers; missing ones stay missing."""
    out = p.copy(deep=True)
    for pick in slices(p):
        out.loc[pick] = false_discovery(p.loc[pick].values)
    return out


def slices(array: xr.DataArray) -> list[dict[str, str]]:
    """One selection for every combination of labels whose numbers are of different kinds: stack, measure, category …"""
    others = [str(dim) for dim in array.dims if dim not in _CELLS]
    labels = product(*(array[dim].values.tolist() for dim in others))
    return [dict(zip(others, each, strict=True)) for each in labels]
