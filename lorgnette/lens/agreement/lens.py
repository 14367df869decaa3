"""Which cheap signal ranks the heads as ablation does: weights, norms, relevance or gradients?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.results import Result
from lorgnette.statistics.rank_agreement import reliability, spearman_matrix, within_groups

SIGNALS_OF = ("weights", "norms", "relevance", "importance")
"""Lenses that it brings along; those of `gradients` count where they are there."""
PARTITION = ("cls", "sep", "period_comma", "other")
DESCRIPTIONS = {
    "sharpness": "1 − normalised entropy of the weights (lens weights)",
    "confidence": "mean maximum weight on a word (lens weights)",
    "norm": "Σ_j ‖α f(x_j)‖, the summed contributions (lens norms)",
    "relevance": "signed share of its layer's relevance (lens relevance)",
    "slope": "|∂L/∂α| over all pairs (lens gradients)",
    "gradient": "|∂L/∂ξ| of a gate on the head (lens importance)",
    "ablation_zero": "change of the loss when the head's output is set to zero (lens importance)",
    "ablation_mean": "change of the loss when the head's output is set to its mean (lens importance)",
}


@dataclass(frozen=True)
class Signal:
    """One number for every head, with its standard error over texts where it has one."""

    value: xr.DataArray
    error: xr.DataArray | None


class Agreement(Lens):
    """Spearman's ρ across the heads of a stack, between every two ways to say how important a head is.

    Signals are read off finished results (`agreement` does it for any you have), so this lens brings along those it
    needs. `spearman` compares all heads of a stack, `within` heads of the same layer only, by their ranks in it.
    Intervals are from heads drawn with replacement. `reliability` is how much of a signal's spread over heads is not
    noise from the texts: two signals cannot agree better than their reliabilities let them.

    What it does not tell you: that a signal is right. Ablation is the reference because it is what we ask about, one
    head at a time.
    """

    draws: int
    seed: int

    name: ClassVar[str] = "agreement"
    summary: ClassVar[str] = "do weights, norms, relevance and gradients rank the heads as ablation does?"
    beside_accuracy: ClassVar[bool] = True

    def __init__(self, draws: int = 2000, seed: int = 0) -> None:
        super().__init__()
        self.draws, self.seed = draws, seed
        self.results: Mapping[str, Result] = {}

    def needs(self) -> Sequence[str]:
        return SIGNALS_OF

    def take(self, results: Mapping[str, Result]) -> None:
        self.results = results

    def compute(self) -> Result:
        """The matrix of ρ with intervals, for every stack."""
        return agreement(self.results, draws=self.draws, seed=self.seed)


def agreement(results: Mapping[str, Result], *, draws: int = 2000, seed: int = 0) -> Result:
    """The same from results that are there already: of `weights`, `norms`, `relevance`, `gradients`, `importance`."""
    signals = _signals(results)
    if len(signals) < 2:
        raise UserError(
            "Agreement needs at least two signals of the same heads. Give results of weights, norms, relevance, "
            "gradients or importance (or use `lorgnette look -l agreement`, which runs these lenses too)."
        )
    names = list(signals)
    by_signal = [signal.value[axes.STACK].values.tolist() for signal in signals.values()]
    stacks = [stack for stack in by_signal[0] if all(stack in others for others in by_signal)]
    size = (len(stacks), len(names), len(names))
    cells = {key: np.full(size, np.nan) for key in ("spearman", "within")}
    cells |= {f"{key}_{end}": np.full(size, np.nan) for key in ("spearman", "within") for end in ("low", "high")}
    counts, trust = np.zeros(size, dtype="int64"), np.full(size[:2], np.nan)
    for number, stack in enumerate(stacks):
        values, group, errors = _table(signals, stack)
        known = np.isfinite(values).all(1)
        trust[number] = [
            reliability(v, e) if np.isfinite(e).all() else np.nan for v, e in zip(values, errors, strict=True)
        ]
        for key, table in (("spearman", values), ("within", within_groups(values, group))):
            rho, bounds = spearman_matrix(table, draws=draws, seed=seed)
            cells[key][number], cells[f"{key}_low"][number], cells[f"{key}_high"][number] = rho, *bounds
        counts[number] = np.where(np.isfinite(cells["spearman"][number]), values.shape[1], 0) * known[:, None]
    return _result(results, stacks, names, cells, counts, trust)


def _signals(results: Mapping[str, Result]) -> dict[str, Signal]:
    """Every signal that these results hold, in the order of `DESCRIPTIONS`."""
    out: dict[str, Signal] = {}
    by_lens = {result.lens: result.data for result in results.values()}
    if (data := by_lens.get("weights")) is not None:
        out["sharpness"] = Signal(1 - data["entropy_normalised"], data["entropy_normalised_se"])
        out["confidence"] = Signal(data["confidence"], data["confidence_se"])
    if (data := by_lens.get("norms")) is not None and "norm" in data:
        kinds = [kind for kind in PARTITION if kind in data[axes.CATEGORY].values]
        out["norm"] = Signal(data["norm"].sel({axes.CATEGORY: kinds}).sum(axes.CATEGORY, min_count=1), None)
    if (data := by_lens.get("relevance")) is not None:
        out["relevance"] = Signal(data["relevance"], data["relevance_se"])
    if (data := by_lens.get("gradients")) is not None:
        pair = (data[name].sel({axes.CATEGORY: "all"}, drop=True) for name in ("gradient", "gradient_se"))
        out["slope"] = Signal(*pair)
    if (data := by_lens.get("importance")) is not None:
        out["gradient"] = Signal(data["sensitivity"], data["sensitivity_se"])
        for how in data[axes.ABLATION].values.tolist() if axes.ABLATION in data.dims else ():
            pair = (data[name].sel({axes.ABLATION: how}, drop=True) for name in ("loss_change", "loss_change_se"))
            out[f"ablation_{how}"] = Signal(*pair)
    return {name: signal for name, signal in out.items() if bool(signal.value.notnull().any())}


def _table(signals: Mapping[str, Signal], stack: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[signal head] of the heads that all signals know, the layer of each, and standard errors."""
    dims = (axes.LAYER, axes.HEAD)
    values = [s.value.sel({axes.STACK: stack}).transpose(*dims).values for s in signals.values()]
    errors = [np.full(v.shape, np.nan) if s.error is None else s.error.sel({axes.STACK: stack}).transpose(*dims).values
              for v, s in zip(values, signals.values(), strict=True)]  # fmt: skip
    if len({value.shape for value in values}) > 1:
        raise UserError("These results are from different models: their layers and heads differ.")
    there = np.isfinite(values).all(0)
    layer = np.broadcast_to(np.arange(there.shape[0])[:, None], there.shape)
    return np.array([v[there] for v in values]), layer[there], np.array([e[there] for e in errors])


def _result(
    results: Mapping[str, Result],
    stacks: list[str],
    names: list[str],
    cells: dict[str, np.ndarray],
    counts: np.ndarray,
    trust: np.ndarray,
) -> Result:
    dims = (axes.STACK, axes.SIGNAL, axes.SIGNAL_B)
    variables = {name: xr.DataArray(cell, dims=dims) for name, cell in cells.items()}
    variables |= {f"{key}_count": xr.DataArray(counts, dims=dims) for key in ("spearman", "within")}
    known = np.isfinite(cells["within"])
    variables["within_count"] = variables["within_count"].where(known, 0).astype("int64")
    variables["reliability"] = xr.DataArray(trust, dims=dims[:2])
    variables["reliability_count"] = variables["reliability"].notnull().astype("int64")
    variables["spearman"].attrs["description"] = "Spearman's ρ across the heads of a stack"
    variables["within"].attrs["description"] = "the same with ranks within each layer"
    variables["reliability"].attrs["description"] = (
        "share of a signal's variance over heads that is not sampling noise of the texts"
    )
    data = xr.Dataset(variables, coords={axes.STACK: stacks, axes.SIGNAL: names, axes.SIGNAL_B: names})
    data.attrs["signals"] = {name: DESCRIPTIONS[name] for name in names}
    return Result("agreement", data, next(iter(results.values())).provenance)
