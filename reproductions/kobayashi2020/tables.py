"""Tables of what was measured, a row for each model and condition, the published numbers in a row of their own."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import xarray as xr

from lorgnette.lens.norms.lens import RATIOS
from reproductions.frame.claims import Estimate
from reproductions.frame.conditions import PUBLISHED_MODEL, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of
from reproductions.kobayashi2020.claims import BLOCKS, KIND_NAMES, SPECIAL, correlation, models, norm_ratio, within
from reproductions.kobayashi2020.grid import CENTRED
from reproductions.kobayashi2020.measure import F

RATIO_NAMES = dict(zip(RATIOS, ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N", "AttnResLn-N"), strict=True))
_PRINTED = {"model": PUBLISHED_MODEL, "condition": "published"}
_EXPANSION = "expansion ‖f(x)‖/‖x‖"


def tables(cells: Finished) -> list[Table]:
    """All of them, in the order of the papers."""
    value = {name: entry["value"] for name, entry in published("kobayashi2020")["numbers"].items()}
    return [
        _segments(cells, value),
        _f_norms(cells, value),
        _spearman(cells, value),
        *([_centred(cells)] if any(cells.of(model=model, part=CENTRED) for model in models(cells)) else ()),
        _by_layer(
            cells, "spearman", "spearman-by-layer", "The same within each layer (all its heads)",
            "Not in the papers. Pooling all layers also counts differences between layers.",
        ),
        _by_layer(cells, "weight", "weight-by-layer", "Weight by category of token and layer (mean over heads)"),
        _by_layer(cells, "norm", "norm-by-layer", "Norm Σ ‖α f(x)‖ by category of token and layer (mean over heads)"),
        _by_layer(cells, "norm_share", "norm-share-by-layer",
                  "Share of the norm by category of token and layer (mean over heads)"),
        _frequency(cells, value),
        _mixing(cells, value),
        _mixing_by_layer(cells, value),
    ]  # fmt: skip


def _rows(cells: Finished) -> Iterator[tuple[dict[str, Any], xr.Dataset]]:
    for model in models(cells):
        for cell in cells.of(model=model):
            if "condition" not in cell.labels:
                continue
            yield {"model": model, "condition": cell.labels["condition"]}, cell.result


def _said(one: Estimate, decimals: int = 3) -> str:
    """A value with its interval, as text."""
    if one.value is None:
        return "–"
    ends = "" if one.interval is None else f" [{one.low:.{decimals}f}, {one.high:.{decimals}f}]"
    return f"{one.value:.{decimals}f}{ends}"


def _segments(cells: Finished, value: Mapping[str, Any]) -> Table:
    names = ("corpus", "segments", "tokens", "squared_tokens")
    rows = [{**_PRINTED, "corpus": "Wikipedia", **value["segments"]}]
    rows += [{**where, **{name: cell.attrs[name] for name in names}} for where, cell in _rows(cells)]
    frame = pd.DataFrame(rows).rename(columns={"tokens": "Σ n", "squared_tokens": "Σ n²"})
    return Table("segments", "Segments", frame)


def _f_norms(cells: Finished, value: Mapping[str, Any]) -> Table:
    printed = {
        "f_largest_cv": "largest CV",
        "f_smallest_cv": "smallest CV",
        "f_mean_over_heads": "mean over heads",
    }
    rows = [{**_PRINTED, "which": which, **value[name]} for name, which in printed.items()]
    for where, cell in _rows(cells):
        for which, pick in (("largest CV", cell["f_cv"].argmax(...)), ("smallest CV", cell["f_cv"].argmin(...))):
            one = cell[list(F)].isel(pick)
            numbers = {name.removeprefix("f_"): one[name].item() for name in F}
            rows.append({**where, "which": which, "head": f"{one['layer'].item()}-{one['head'].item()}", **numbers})
        means = {name.removeprefix("f_"): cell[name].mean().item() for name in F[:3]}
        rows.append({**where, "which": "mean over heads", **means})
    columns = ["model", "condition", "which", "head", "mean", "sd", "cv", "max", "min"]
    note = "The heads whose coefficient of variation is largest and smallest, and the mean over all heads."
    return Table("f-norms", "‖f(x)‖ over all tokens", pd.DataFrame(rows)[columns], note)


def _spearman(cells: Finished, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = [
        {**_PRINTED, **{name: f"{value['spearman'][kind]:.2f}" for kind, name in KIND_NAMES.items()}}
    ]
    for where, cell in _rows(cells):
        rho = cell["spearman_all"]
        rows.append({**where, **{name: _said(mean_of(rho.sel(kind=k), BLOCKS)) for k, name in KIND_NAMES.items()}})
    title = "Spearman of α with ‖f(x)‖, all layers and heads, by category of token"
    note = "Mean over blocks of segments, each from 4,096 random pairs of a kind, and its 95 % interval."
    return Table("spearman", title, pd.DataFrame(rows), note)


def _centred(cells: Finished) -> Table:
    """Every number that norms enter, as the weights are and less the constant that is free."""
    rows = []
    for model in models(cells):
        for values, which in (("as they are", {"condition": TRAINED}), ("centred", {"part": CENTRED})):
            for cell in (one.result for one in cells.of(model=model, **which)):
                ratio = {"special": SPECIAL, ". and ,": ["period_comma"]}
                row: dict[str, Any] = {"model": model, "values": values, "segments": str(cell.attrs["segments"])}
                row |= {f"norm over weight, {n}": _said(mean_of(norm_ratio(cell, k))) for n, k in ratio.items()}
                row |= {f"ρ {n}": _said(mean_of(cell["spearman_all"].sel(kind=k))) for k, n in KIND_NAMES.items()}
                row |= {f"ρ in a layer, {n}": _said(mean_of(within(cell, k))) for k, n in KIND_NAMES.items()}
                frequency = (
                    correlation(cell, "frequency_of_norms")
                    if "frequency_of_norms" in cell
                    else correlation(cell, "frequency", measure="norms")
                )
                mixing = cell["mixing"].mean("layer").sel(ratio="attn_res_ln_n")
                row |= {"ρ of frequency rank": _said(frequency), "AttnResLn-N": _said(mean_of(mixing, BLOCKS))}
                rows.append(row)
    note = (
        "Centred: values less their mean over all tokens of the segments, one for each head. Share of the norm over "
        "share of the weight; Spearman of α with ‖f(x)‖ over all layers and heads, and mean over layers."
    )
    return Table("centred", "Norms as they are and without the constant that is free", pd.DataFrame(rows), note)


def _layered(values: Any) -> dict[str, float]:
    return {str(layer): float(number) for layer, number in enumerate(values, 1)}


def _by_layer(cells: Finished, measure: str, id: str, title: str, note: str = "") -> Table:
    rows = []
    for where, cell in _rows(cells):
        mean = cell[measure].mean("block")
        rows += [{**where, "token": name, **_layered(mean.sel(kind=kind).values)} for kind, name in KIND_NAMES.items()]
    return Table(id, title, pd.DataFrame(rows), note)


def _frequency(cells: Finished, value: Mapping[str, Any]) -> Table:
    columns = {"norms": "‖f(x)‖", "weights": "α"}
    given = {**value["frequency"], **value["frequency_of_mixing"]}
    printed = {said: f"{given[name]:.2f}" for name, said in (columns | RATIO_NAMES).items()}
    rows: list[dict[str, Any]] = [{**_PRINTED, **printed}]
    for where, cell in _rows(cells):
        row = {said: _said(correlation(cell, "frequency", measure=name)) for name, said in columns.items()}
        row |= {said: _said(correlation(cell, "frequency_of_mixing", ratio=r)) for r, said in RATIO_NAMES.items()}
        rows.append({**where, **row})
    title = "Spearman of frequency rank (1: most frequent) with ‖f(x)‖, α and the mixing ratios"
    note = (
        "Each token averaged over heads and layers; 95 % intervals over segments. Special tokens count, as in the "
        "papers' ranks."
    )
    return Table("frequency", title, pd.DataFrame(rows), note)


def _mixing(cells: Finished, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = []
    for ratio, name in RATIO_NAMES.items():
        rows.append({**_PRINTED, "ratio": name, **{k: f"{100 * v:.2f}" for k, v in value["mixing"][ratio].items()}})
    for where, cell in _rows(cells):
        blocks = 100 * cell["mixing"].mean("layer")
        for ratio, name in RATIO_NAMES.items():
            mean = _said(mean_of(blocks.sel(ratio=ratio), BLOCKS), 2)
            high, low = cell["mixing_max"].sel(ratio=ratio).max(), cell["mixing_min"].sel(ratio=ratio).min()
            extremes = {"max": f"{100 * float(high):.2f}", "min": f"{100 * float(low):.2f}"}
            rows.append({**where, "ratio": name, "mean": mean, **extremes})
    return Table("mixing", "Mixing ratios in %, over all tokens and layers", pd.DataFrame(rows))


def _mixing_by_layer(cells: Finished, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = [
        {**_PRINTED, "what": "AttnResLn-N", **_layered(value["mixing_by_layer"])},
        {**_PRINTED, "what": _EXPANSION, **_layered(value["expansion"]["layers"])},
    ]
    for where, cell in _rows(cells):
        mean = cell[["mixing", "expansion"]].mean("block")
        rows.append({**where, "what": "AttnResLn-N", **_layered(mean["mixing"].sel(ratio="attn_res_ln_n").values)})
        rows.append({**where, "what": _EXPANSION, **_layered(mean["expansion"].values)})
    return Table("mixing-by-layer", "AttnResLn-N mixing ratio and expansion rate by layer", pd.DataFrame(rows))
