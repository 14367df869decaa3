"""Tables of what was measured, a row for each model and condition, the published numbers in a row of their own."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lorgnette.lenses.norms.lens import RATIOS
from reproductions.frame.conditions import PUBLISHED_MODEL
from reproductions.frame.readings import Found, array, interval
from reproductions.frame.record import Table
from reproductions.kobayashi2020.cell import KINDS, F

NAMES = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": ". and ,", "other": "other"}
RATIO_NAMES = dict(zip(RATIOS, ("Attn-W", "Attn-N", "AttnRes-W", "AttnRes-N", "AttnResLn-N"), strict=True))
_PRINTED = {"model": PUBLISHED_MODEL, "condition": "published"}


def tables(found: Found, numbers: Mapping[str, Any]) -> list[Table]:
    """All of them, in the order of the papers."""
    value = {name: entry["value"] for name, entry in numbers.items()}
    return [
        _segments(found, value),
        _f_norms(found, value),
        _spearman(found, value),
        _spearman_by_layer(found),
        *(_by_layer(found, measure) for measure in ("weight", "norm", "norm_share")),
        _frequency(found, value),
        _mixing(found, value),
        _mixing_by_layer(found, value),
    ]


def with_interval(values: Any, decimals: int = 3) -> str:
    """A mean over blocks with its interval, as text."""
    mean, low, high = interval(list(values))
    return f"{mean:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _rows(found: Found) -> list[tuple[dict[str, str], Any]]:
    return [
        ({"model": model, "condition": condition}, cell)
        for model, cells in found.items()
        for condition, cell in cells.items()
    ]


def _segments(found: Found, value: Mapping[str, Any]) -> Table:
    names = ("corpus", "segments", "tokens", "squared_tokens")
    rows = [{**_PRINTED, "corpus": "Wikipedia", **value["segments"]}]
    rows += [{**where, **{name: cell[name] for name in names}} for where, cell in _rows(found)]
    frame = pd.DataFrame(rows).rename(columns={"tokens": "Σ n", "squared_tokens": "Σ n²"})
    return Table("Segments", frame)


def _f_norms(found: Found, value: Mapping[str, Any]) -> Table:
    kinds = {
        "f_largest_cv": "largest CV",
        "f_smallest_cv": "smallest CV",
        "f_mean_over_heads": "mean over heads",
    }
    rows = [{**_PRINTED, "which": which, **value[name]} for name, which in kinds.items()]
    for where, cell in _rows(found):
        f = {name: array(cell["whole"][name]) for name in F}
        for which, pick in (("largest CV", f["f_cv"].argmax()), ("smallest CV", f["f_cv"].argmin())):
            layer, head = divmod(int(pick), f["f_cv"].shape[1])
            numbers = {name.removeprefix("f_"): float(f[name][layer, head]) for name in F}
            rows.append({**where, "which": which, "head": f"{layer + 1}-{head + 1}", **numbers})
        means = {name.removeprefix("f_"): float(f[name].mean()) for name in F[:3]}
        rows.append({**where, "which": "mean over heads", **means})
    columns = ["model", "condition", "which", "head", "mean", "sd", "cv", "max", "min"]
    return Table(
        "‖f(x)‖ over all tokens",
        pd.DataFrame(rows)[columns],
        "The heads whose coefficient of variation is largest and smallest, and the mean over all heads.",
    )


def _spearman(found: Found, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = [{**_PRINTED, **{NAMES[k]: f"{value['spearman'][k]:.2f}" for k in KINDS}}]
    for where, cell in _rows(found):
        blocks = array(cell["by_block"]["spearman_all"])
        rows.append({**where, **{NAMES[kind]: with_interval(blocks[:, k]) for k, kind in enumerate(KINDS)}})
    return Table(
        "Spearman of α with ‖f(x)‖, all layers and heads, by kind of token",
        pd.DataFrame(rows),
        "Mean over blocks of segments, each from 4,096 random pairs of a kind, and its 95 % interval.",
    )


def _spearman_by_layer(found: Found) -> Table:
    rows = []
    for where, cell in _rows(found):
        mean = array(cell["by_block"]["spearman"]).mean(0)
        for k, kind in enumerate(KINDS):
            rows.append({**where, "token": NAMES[kind], **{str(n): float(rho) for n, rho in enumerate(mean[:, k], 1)}})
    note = "Not in the papers. Pooling all layers also counts what differs between them."
    return Table("The same within each layer (all its heads)", pd.DataFrame(rows), note)


def _by_layer(found: Found, measure: str) -> Table:
    titles = {
        "weight": "Weight by kind of token and layer (mean over heads)",
        "norm": "Norm Σ ‖α f(x)‖ by kind of token and layer (mean over heads)",
        "norm_share": "Share of the norm by kind of token and layer (mean over heads)",
    }
    rows = []
    for where, cell in _rows(found):
        mean = array(cell["by_block"][measure]).mean(0)
        for k, kind in enumerate(KINDS):
            layers = {str(layer + 1): float(number) for layer, number in enumerate(mean[:, k])}
            rows.append({**where, "token": NAMES[kind], **layers})
    return Table(titles[measure], pd.DataFrame(rows))


def _frequency(found: Found, value: Mapping[str, Any]) -> Table:
    names = {"norms": "‖f(x)‖", "weights": "α"}
    printed = {**names, **{name: RATIO_NAMES[name] for name in RATIOS}}
    given = {**value["frequency"], **value["frequency_of_mixing"]}
    rows: list[dict[str, Any]] = [{**_PRINTED, **{said: f"{given[name]:.2f}" for name, said in printed.items()}}]
    for where, cell in _rows(found):
        found_here = {name: cell["frequency"][name]["all"] for name in names} | cell["frequency_of_mixing"]
        rows.append({**where, **{said: _rho(found_here[name]) for name, said in printed.items()}})
    return Table(
        "Spearman of frequency rank (1: most frequent) with ‖f(x)‖, α and the mixing ratios",
        pd.DataFrame(rows),
        "Each token averaged over heads and layers; 95 % intervals over segments. Special tokens count, as in the "
        "papers' ranks.",
    )


def _rho(triple: list[float | None]) -> str:
    rho, low, high = triple
    if rho is None:
        return "–"
    return f"{rho:.3f}" if low is None else f"{rho:.3f} [{low:.3f}, {high:.3f}]"


def _mixing(found: Found, value: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = []
    for name in RATIOS:
        numbers = value["mixing"][name]
        rows.append({**_PRINTED, "ratio": RATIO_NAMES[name], **{k: f"{100 * v:.2f}" for k, v in numbers.items()}})
    for where, cell in _rows(found):
        blocks = 100 * array(cell["by_block"]["mixing"]).mean(1)
        low, high = (array(cell["whole"][f"mixing_{end}"]) for end in ("min", "max"))
        for r, name in enumerate(RATIOS):
            extremes = {"max": f"{100 * high[:, r].max():.2f}", "min": f"{100 * low[:, r].min():.2f}"}
            rows.append({**where, "ratio": RATIO_NAMES[name], "mean": with_interval(blocks[:, r], 2), **extremes})
    return Table("Mixing ratios in %, over all tokens and layers", pd.DataFrame(rows))


def _mixing_by_layer(found: Found, value: Mapping[str, Any]) -> Table:
    def layered(numbers: Any) -> dict[str, float]:
        return {str(layer): float(number) for layer, number in enumerate(numbers, 1)}

    rows: list[dict[str, Any]] = [
        {**_PRINTED, "what": "AttnResLn-N", **layered(value["mixing_by_layer"])},
        {**_PRINTED, "what": "expansion ‖f(x)‖/‖x‖", **layered(value["expansion"]["layers"])},
    ]
    for where, cell in _rows(found):
        ratio = array(cell["by_block"]["mixing"]).mean(0)[:, RATIOS.index("attn_res_ln_n")]
        rows.append({**where, "what": "AttnResLn-N", **layered(ratio)})
        expansion = array(cell["by_block"]["expansion"]).mean(0)
        rows.append({**where, "what": "expansion ‖f(x)‖/‖x‖", **layered(expansion)})
    return Table("AttnResLn-N mixing ratio and expansion rate by layer", pd.DataFrame(rows))
