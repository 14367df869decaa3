"""The papers' claims, each as a number with an interval that could have come out otherwise.

The bounds were fixed before anything was measured. A verdict needs the whole interval on one side.
"""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import mean_of, paired

KIND_NAMES = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": ". and ,", "other": "other"}
SPECIAL = ["cls", "sep"]
BLOCKS = "blocks of segments"
MUCH = 3.0
"""Special tokens get much weight: at least so many times their share among tokens."""
LITTLE = 0.5
"""… and little norm: at most this part of what their weight says."""
_OTHER_MODEL = "The published number is BERT's: the finding can be compared, not the number."


def claims(cells: Finished) -> list[Claim]:
    """Those of every model as trained, and each against the controls."""
    numbers = published("kobayashi2020")["numbers"]
    every: list[Claim] = []
    for model in models(cells):
        trained = cells.one(model=model, condition=TRAINED)
        every += [*_special_tokens(model, trained, numbers), *_cancelling(model, trained, numbers)]
        every += _frequency_and_mixing(model, trained, numbers)
        for condition in (RANDOM, SHUFFLED):
            if cells.of(model=model, condition=condition):
                every.append(_against(model, trained, cells.one(model=model, condition=condition), condition))
    return every


def models(cells: Finished) -> list[str]:
    """Those that were measured as trained: without, controls say nothing."""
    return cells.labels("model", condition=TRAINED)


def sink(cell: xr.Dataset) -> str:
    """The special token that gets most of the weight."""
    return str(cell["weight"].mean(("block", "layer")).sel(kind=SPECIAL).idxmax("kind").item())


def within(cell: xr.Dataset, kind: str) -> xr.DataArray:
    """ρ of a kind of token computed within each layer (all its heads), mean over layers [block]."""
    return cell["spearman"].sel(kind=kind).mean("layer")


def special_weight(cell: xr.Dataset) -> xr.DataArray:
    """Weight on special tokens, mean over layers and heads [block]."""
    return cell["weight"].mean("layer").sel(kind=SPECIAL).sum("kind")


def special_norm_ratio(cell: xr.Dataset) -> xr.DataArray:
    """Special tokens' share of the norm over their share of the weight [block]."""
    return cell["norm_share"].mean("layer").sel(kind=SPECIAL).sum("kind") / special_weight(cell)


def share_of_specials(cell: xr.Dataset) -> float:
    """Of the tokens of pairs: each has three."""
    return float(3 * cell.attrs["segments"] / cell.attrs["tokens"])


def correlation(cell: xr.Dataset, name: str, **where: str) -> Estimate:
    """ρ with its interval over segments, as the cell holds it."""
    rho, low, high = (cell[name + end].sel(where).item() for end in ("", "_low", "_high"))
    ends = {} if low != low else {"low": low, "high": high, "method": "Fisher"}
    return Estimate(value=None if rho != rho else rho, n=cell.attrs["segments"], over="segments", **ends)


def _printed(numbers: Mapping[str, Any], name: str, *path: str) -> Published:
    entry = numbers[name]
    value = entry["value"]
    for key in path:
        value = value[key]
    return Published(value, entry["source"])


def _special_tokens(model: str, cell: xr.Dataset, numbers: Mapping[str, Any]) -> list[Claim]:
    """Much weight, little norm."""
    share = share_of_specials(cell)
    return [
        Claim(
            id=f"{model}-special-weight",
            text=f"{model}: special tokens receive much weight (at least {MUCH:g} times their share of the tokens, "
            f"{share:.3f})",
            estimate=mean_of(special_weight(cell), BLOCKS),
            bound=Bound.above(MUCH * share),
            published=_printed(numbers, "weights_by_layer"),
        ),
        Claim(
            id=f"{model}-special-norm",
            text=f"{model}: … and little norm: their share of the norm is less than half their share of the weight",
            estimate=mean_of(special_norm_ratio(cell), BLOCKS),
            bound=Bound.below(LITTLE),
            published=_printed(numbers, "norms_by_layer"),
            note="Number: share of the norm over share of the weight; 1 would be no discount.",
        ),
    ]


def _cancelling(model: str, cell: xr.Dataset, numbers: Mapping[str, Any]) -> list[Claim]:
    """α and ‖f(x)‖ of the token that gets most weight."""
    kind = sink(cell)
    name, note, rho = KIND_NAMES[kind], _note(model), cell["spearman_all"]
    printed = numbers["spearman"]["value"]
    apart = Published(round(printed[kind] - printed["other"], 2), numbers["spearman"]["source"])
    return [
        Claim(
            id=f"{model}-sink-cancels",
            text=f"{model}: α and ‖f(x)‖ cancel out for the sink, here {name}: ρ < 0",
            estimate=mean_of(rho.sel(kind=kind), BLOCKS),
            bound=Bound.below(0.0),
            published=_printed(numbers, "spearman", kind),
            note=note,
        ),
        Claim(
            id=f"{model}-sink-cancels-more",
            text=f"{model}: … more than for other tokens: ρ({name}) − ρ(other) < 0",
            estimate=paired(rho.sel(kind=kind), rho.sel(kind="other"), BLOCKS),
            bound=Bound.below(0.0),
            published=apart,
            note=note,
        ),
        Claim(
            id=f"{model}-sink-cancels-within-layers",
            text=f"{model}: … also within a layer: ρ({name}) of one layer's pairs, mean over layers, < 0",
            estimate=mean_of(within(cell, kind), BLOCKS),
            bound=Bound.below(0.0),
            note="Not in the papers, which pool all layers and heads.",
            ours=True,
        ),
    ]


def _frequency_and_mixing(model: str, cell: xr.Dataset, numbers: Mapping[str, Any]) -> list[Claim]:
    norms, weights = (correlation(cell, "frequency", measure=name) for name in ("norms", "weights"))
    ratio, note = "attn_res_ln_n", _note(model)
    return [
        Claim(
            id=f"{model}-frequent-discounted",
            text=f"{model}: frequent words are discounted: ρ(frequency rank, ‖f(x)‖) > 0",
            estimate=norms,
            bound=Bound.above(0.0),
            published=_printed(numbers, "frequency", "norms"),
            note=note,
        ),
        Claim(
            id=f"{model}-discounted-by-vectors",
            text=f"{model}: … by the vectors and not by the weights: ρ(frequency rank, α) lies below that with ‖f(x)‖",
            estimate=weights,
            bound=None if norms.low is None else Bound.below(norms.low),
            published=_printed(numbers, "frequency", "weights"),
            note="Compared with the lower end of the interval of ρ(frequency rank, ‖f(x)‖).",
        ),
        Claim(
            id=f"{model}-keeps-more-than-it-mixes",
            text=f"{model}: a token's new vector has more of itself than of others: AttnResLn-N mixing ratio < ½",
            estimate=mean_of(cell["mixing"].mean("layer").sel(ratio=ratio), BLOCKS),
            bound=Bound.below(0.5),
            published=_printed(numbers, "mixing", ratio, "mean"),
            note=note,
        ),
        Claim(
            id=f"{model}-frequent-mixed-more",
            text=f"{model}: frequent words are mixed more: ρ(frequency rank, AttnResLn-N ratio) < 0",
            estimate=correlation(cell, "frequency_of_mixing", ratio=ratio),
            bound=Bound.below(0.0),
            published=_printed(numbers, "frequency_of_mixing", ratio),
            note=note,
        ),
    ]


def _against(model: str, trained: xr.Dataset, control: xr.Dataset, condition: str) -> Claim:
    """The cancelling must be more than what the control has; blocks are the same segments."""
    kind = sink(trained)
    rho, other = (cell["spearman_all"].sel(kind=kind).values for cell in (trained, control))
    id, what = {
        RANDOM: ("cancelling-learnt", "the cancelling is learnt"),
        SHUFFLED: ("cancelling-needs-order", "the cancelling needs the order of words"),
    }[condition]
    return Claim(
        id=f"{model}-{id}",
        text=f"{model}: {what}, being stronger than with {condition}: difference of ρ({KIND_NAMES[kind]}) < 0",
        estimate=paired(rho, other, BLOCKS),
        bound=Bound.below(0.0),
        note=f"{rho.mean():.3f} against {other.mean():.3f}.",
        ours=True,
    )


def _note(model: str) -> str:
    return "" if model == PUBLISHED_MODEL else _OTHER_MODEL
