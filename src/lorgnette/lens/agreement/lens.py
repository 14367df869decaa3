"""Which cheap signal to trust: do weights, norms, relevance and gradients rank the heads as removing them does?"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import xarray as xr

from lorgnette import axes
from lorgnette.constraints import Interval, Seed
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.signals import SIGNALS_OF, HeadValues, in_stack, signals_in, table
from lorgnette.results import Result
from lorgnette.statistics.estimate import false_discovery
from lorgnette.statistics.rank_agreement import (
    advantages,
    bounds_of,
    correlations,
    ranked,
    reliability,
    spearman_draws,
    within_groups,
)

ABLATIONS = ("zero", "mean")
_DESCRIPTIONS = {
    "spearman": "Spearman's ρ across the heads of a stack",
    "within": "the same of ranks within layers",
    "reliability": "share of a signal's variance over heads that is not noise from texts",
    "ceiling": "largest ρ that the noise of both signals lets one expect: √(reliability · reliability)",
    "advantage": "ρ(signal, ablation) − ρ(signal_b, ablation), over the same heads",
    "advantage_p": "p of that difference by bootstrap over heads, corrected over all pairs (Benjamini–Hochberg)",
}


class Agreement(Lens):
    """Spearman's ρ across the heads of a stack, between every two ways to say how important a head is.

        ceiling     √(r_a r_b), r = 1 − mean(se²) / variance over heads: noise of the texts alone keeps ρ below it
        advantage   ρ(a, ablation) − ρ(b, ablation): which of two signals ranks the heads more like their removal

    Signals are read off finished results (`agreement` does it for any you have), so this lens brings along those it
    needs. `spearman` compares all heads of a stack, `within` heads of the same layer only, by their ranks in it.
    Intervals and tests are from heads drawn with replacement, the same heads for every signal. With `joint`, the lens
    `removal` comes along: what is lost when the least important heads go together.

    What it does not tell you: that a signal is right. Ablation is the reference because it is what we ask about, one
    head at a time; heads that stand in for each other look dispensable until both are gone.
    """

    name: ClassVar[str] = "agreement"
    summary: ClassVar[str] = "do weights, norms, relevance and gradients rank the heads as ablation does?"
    reads = frozenset({"cpu"})

    def __init__(self, draws: Annotated[int, Interval(1)] = 2000, seed: Seed = 0, joint: bool = False) -> None:
        super().__init__()
        self.draws, self.seed, self.joint = draws, seed, joint
        self.results: Mapping[str, Result] = {}

    def needs(self) -> Sequence[str]:
        return (*SIGNALS_OF, "removal") if self.joint else SIGNALS_OF

    def take(self, results: Mapping[str, Result]) -> None:
        self.results = results

    def compute(self) -> Result:
        """The matrix of ρ with intervals, for every stack."""
        return agreement(self.results, draws=self.draws, seed=self.seed)


def agreement(results: Mapping[str, Result], *, draws: int = 2000, seed: Seed = 0) -> Result:
    """`Agreement` computed from existing results of `weights`, `norms`, `importance` or any other lens with signals."""
    if len({result.provenance.weights_hash for result in results.values()}) > 1:
        raise UserError("These results are from different models: their weights differ.")
    signals = signals_in(results)
    if len(signals) < 2:
        raise UserError(
            "Agreement needs at least two signals of the same heads. Give results of weights, norms, relevance, "
            "gradients or importance (or use `lorgnette look -l agreement`, which runs these lenses too)."
        )
    every = list(dict.fromkeys(stack for one in signals.values() for stack in one.value[axes.STACK].values.tolist()))
    by_stack = {stack: own for stack in every if len(own := in_stack(signals, stack)) > 1}
    parts = [_of_stack(own, stack, draws, seed).reindex(_labels(signals)) for stack, own in by_stack.items()]
    data = xr.concat(parts, xr.IndexVariable(axes.STACK, list(by_stack)), coords="minimal", compat="override")
    for name in [str(name) for name in data.data_vars if str(name).endswith("_count")]:
        data[name] = data[name].fillna(0).astype("int64")  # a signal that this stack does not have
    for name, text in _DESCRIPTIONS.items():
        if name in data:
            data[name].attrs["description"] = text
    data.attrs["signals"] = {name: one.signal.description for name, one in signals.items()}
    return Result("agreement", data, next(iter(results.values())).provenance)


def _of_stack(signals: Mapping[str, HeadValues], stack: str, draws: int, seed: int) -> xr.Dataset:
    values, (layer, _), errors = table(signals, stack)
    if values.shape[1] < 2:
        raise UserError(
            f"Agreement compares signals over heads, and the {stack} has {values.shape[1]}. Use more heads."
        )
    names = list(signals)
    pair = (axes.SIGNAL, axes.SIGNAL_B)
    out: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    for key, compared in (("spearman", values), ("within", within_groups(values, layer))):
        rho, drawn = correlations(ranked(compared)), spearman_draws(compared, draws=draws, seed=seed)
        low, high = bounds_of(drawn)
        known = np.where(np.isfinite(rho), values.shape[1], 0).astype("int64")
        out |= {key: (pair, rho), f"{key}_low": (pair, low), f"{key}_high": (pair, high), f"{key}_count": (pair, known)}
        if key == "spearman":
            out |= _advantages(names, rho, drawn)
    reliabilities = np.array(
        [reliability(v, e) if np.isfinite(e).all() else np.nan for v, e in zip(values, errors, strict=True)]
    )
    out["reliability"] = ((axes.SIGNAL,), reliabilities)
    out["reliability_count"] = ((axes.SIGNAL,), np.isfinite(reliabilities).astype("int64"))
    certain = np.where(np.isfinite(reliabilities), reliabilities, 1.0)  # a signal without an error is taken at its word
    out["ceiling"] = (pair, np.sqrt(certain[:, None] * certain[None]))
    out["ceiling_count"] = (pair, np.full(out["ceiling"][1].shape, values.shape[1], dtype="int64"))
    return xr.Dataset(out, coords={axes.SIGNAL: names, axes.SIGNAL_B: names, axes.ABLATION: list(ABLATIONS)})


def _labels(signals: Mapping[str, HeadValues]) -> dict[str, list[str]]:
    return {axes.SIGNAL: list(signals), axes.SIGNAL_B: list(signals)}


def _advantages(
    names: Sequence[str], rho: np.ndarray, drawn: np.ndarray
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Which of two signals is nearer to each ablation, with intervals and corrected p."""
    references = [f"ablation_{how}" for how in ABLATIONS]
    size = (len(ABLATIONS), len(names), len(names))
    out = {key: np.full(size, np.nan) for key in ("", "_low", "_high", "_p")}
    for number, reference in enumerate(references):
        if reference in names:
            at = names.index(reference)
            others = [place for place, name in enumerate(names) if name not in references]
            some = np.ix_(others, others)
            tests = advantages(rho[at, others], drawn[at, others])
            for key, array in zip(out, tests, strict=True):
                out[key][number][some] = array
            upper = np.triu(np.ones((len(others), len(others)), dtype=bool), 1)
            p = false_discovery(np.where(upper, tests[3], np.nan))
            out["_p"][number][some] = np.where(upper, p, p.T)
    dims = (axes.ABLATION, axes.SIGNAL, axes.SIGNAL_B)
    arrays: dict[str, tuple[tuple[str, ...], np.ndarray]] = {f"advantage{key}": (dims, a) for key, a in out.items()}
    for name in ("advantage", "advantage_p"):
        arrays[f"{name}_count"] = (dims, np.isfinite(arrays[name][1]).astype("int64"))
    return arrays
