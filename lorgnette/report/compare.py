"""Two runs, head by head: after less before, with intervals of the difference."""

from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

from lorgnette import lenses
from lorgnette.axes import HEAD, LAYER, PER_HEAD, STACK
from lorgnette.errors import UserError
from lorgnette.figures.cells import BESIDE, shown
from lorgnette.results import Result, Results

SURE = 1.96


@dataclass(frozen=True)
class Differences:
    """`results` hold after − before under the names of the variables; `notes` say what could not be compared."""

    before: Results
    after: Results
    results: Results
    notes: tuple[str, ...]


def differences(
    before: Results, after: Results, names: tuple[str, str] = ("the first run", "the second")
) -> Differences:
    """after − before for every variable that both runs have, with standard errors √(se² + se²).

    The errors are those of independent runs. On the same texts the difference is known better than they say, as what
    texts do to both runs cancels: an interval without zero can be trusted, one with zero may hide a difference.
    """
    first, second = ({result.lens: result for result in run.values()} for run in (before, after))
    common = [lens for lens in first if lens in second]
    if not common:
        raise UserError(
            f"The runs have no lens in common: {names[0]} has {', '.join(first) or 'none'}, {names[1]} has "
            f"{', '.join(second) or 'none'}. Look at both with the same lenses."
        )
    _refuse_other_heads(first, second, common, names)
    notes = []
    for name, one, other in ((names[0], first, second), (names[1], second, first)):
        if more := [lens for lens in one if lens not in other]:
            notes.append(f"only {name} has {', '.join(more)}")
    corpora = [next(iter(run.values())).provenance for run in (before, after)]
    if corpora[0].corpus_fingerprint != corpora[1].corpus_fingerprint:
        notes.append("the runs are on different texts, which makes a difference too")
    out = {}
    for lens in common:
        data = _difference(first[lens], second[lens])
        if data.data_vars:
            out[lens] = Result(lens, data, second[lens].provenance)
    return Differences(before, after, Results(out), tuple(notes))


def _refuse_other_heads(
    first: Mapping[str, Result], second: Mapping[str, Result], common: list[str], names: tuple[str, str]
) -> None:
    for lens in common:
        pair = [one[lens].data for one in (first, second)]
        for axis in PER_HEAD:
            labels = [data[axis].values.tolist() if axis in data.coords else None for data in pair]
            if labels[0] != labels[1]:
                shapes = [_shape(data) for data in pair]
                raise UserError(
                    f"Heads can only be compared one by one: {names[0]} has {shapes[0]}, {names[1]} has {shapes[1]} "
                    f"(lens {lens}). Give two runs of models of the same shape, or make a report of each."
                )


def _shape(data: xr.Dataset) -> str:
    layers, heads = data.sizes.get(LAYER, 0), data.sizes.get(HEAD)
    stacks = f" ({', '.join(map(str, data[STACK].values))})" if STACK in data.coords else ""
    return f"{layers} layers" + (f" of {heads} heads" if heads else "") + stacks


def _variables(before: Result, after: Result) -> list[str]:
    compared = lenses.report_of(after.lens).compared
    names = shown(before) if compared is None else [one.variable for one in compared]
    return [name for name in names if name in before.data and name in after.data]


def _difference(before: Result, after: Result) -> xr.Dataset:
    out: dict[str, xr.DataArray] = {}
    for name in _variables(before, after):
        if before.data[name].dims == after.data[name].dims and before.data[name].dtype.kind in "fiu":
            out |= _between(name, before.data, after.data)
    return xr.Dataset({name: array.drop_attrs() if name.endswith(BESIDE) else array for name, array in out.items()})


def _between(name: str, before: xr.Dataset, after: xr.Dataset) -> dict[str, xr.DataArray]:
    """One variable: its difference, the error and the ends of the interval where both runs have errors, and a count."""
    parts = [part for part in (name, f"{name}_se", f"{name}_count") if part in before and part in after]
    parts = [part for part in parts if before[part].dims == before[name].dims]
    # Kinds of token and the like that only one run has are left out.
    old, new = xr.align(before[parts], after[parts], join="inner")
    if not old[name].size:
        return {}
    value = (new[name] - old[name]).astype(float)
    value.attrs = dict(after[name].attrs)
    out, there = {name: value}, value.notnull()
    if f"{name}_se" in parts:
        error = (new[f"{name}_se"] ** 2 + old[f"{name}_se"] ** 2) ** 0.5
        out |= {f"{name}_se": error, f"{name}_low": value - SURE * error, f"{name}_high": value + SURE * error}
        there = there & error.notnull()
    count = xr.full_like(value, 2, dtype=int)
    if f"{name}_count" in parts:
        count = xr.where(new[f"{name}_count"] < old[f"{name}_count"], new[f"{name}_count"], old[f"{name}_count"])
    out[f"{name}_count"] = xr.where(there, count, 0).astype(int)
    return out


def surely(data: xr.Dataset, name: str) -> xr.DataArray | None:
    """Where the interval of the difference leaves out zero; None where there are no errors."""
    if f"{name}_se" not in data:
        return None
    return (data[f"{name}_low"] > 0) | (data[f"{name}_high"] < 0)
