"""The papers' claims, each as a number with an interval that could have come out otherwise.

The bounds were fixed before anything was measured, but for those on punctuation, on the depth at which each kind of
token gets weight, on the weights' part in frequency and on single layers: they were added when the rest was known, with
the bounds of the other claims where these have one. Those on MPNet, and on frequency without special tokens, were fixed
when nothing of it was measured. A verdict needs the whole interval on one side.

A norm moves with a constant that is free: it can stand in a head's values or in the output bias (docs/gauge.md). So all
norms are measured once more less each head's mean value over the corpus. Known before these cells, on texts of the
demo: MiniLM's ρ of [CLS] turns from −.44 to +.27, and its special tokens' share of the norm over that of the weight
from .13 to .42. We expect the same of the other two models: the ratio larger than with raw norms and still below one
half, ρ of [CLS] and of [SEP] not below −.1; frequent words still discounted, and mixing still below one half. The
bounds are those of the raw numbers.
"""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from reproductions.frame.claims import HOLDS, Bound, Claim, Estimate, Published
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import mean_of, paired
from reproductions.kobayashi2020.grid import CENTRED, WORDS

KIND_NAMES = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": ". and ,", "other": "other"}
SPECIAL = ["cls", "sep"]
BLOCKS = "blocks of segments"
MUCH = 3.0
"""Special tokens get much weight: at least so many times their share among tokens."""
LITTLE = 0.5
"""… and little norm: at most this part of what their weight says."""
NEGLIGIBLE = 0.1
"""A correlation that is closer to zero is small by Cohen's (1988) convention: the published .06 is.

Weight and norm cancel where their correlation is below minus this."""
CANCELLING = {"cls": "cls", "sep": "sep", "period_comma": "punctuation"}
"""The kinds of token whose weight and norm cancel in BERT, and how ids call them."""
THIRDS = {"cls": "early", "sep": "middle", "period_comma": "deep"}
"""Where in BERT each of them gets most of its weight."""
_RATIO = "Number: share of the norm over share of the weight; 1 would be no discount."
_OTHER_MODEL = "The published number is BERT's: the finding can be compared, not the number."


def claims(cells: Finished) -> list[Claim]:
    """Those of every model as trained, and each against the controls."""
    numbers = published("kobayashi2020")["numbers"]
    every: list[Claim] = []
    for model in models(cells):
        trained = cells.one(model=model, condition=TRAINED)
        every += _special_tokens(model, trained, numbers)
        every += [claim for kind in CANCELLING for claim in _cancelling(model, trained, kind, numbers)]
        every += _frequency_and_mixing(model, trained, numbers)
        if cells.of(model=model, part=CENTRED):
            every += _centred(model, cells.one(model=model, part=CENTRED))
        for condition in (RANDOM, SHUFFLED):
            if cells.of(model=model, condition=condition):
                control = cells.one(model=model, condition=condition)
                every += [_against(model, trained, control, condition, kind) for kind in SPECIAL]
        if cells.of(model=model, part=WORDS):
            every += _words(model, cells.one(model=model, part=WORDS))
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


def norm_ratio(cell: xr.Dataset, kinds: list[str]) -> xr.DataArray:
    """Some kinds' share of the norm over their share of the weight [block]."""
    norm, weight = (cell[name].mean("layer").sel(kind=kinds).sum("kind") for name in ("norm_share", "weight"))
    return norm / weight


def thirds(cell: xr.Dataset, kind: str) -> dict[str, xr.DataArray]:
    """Weight on a kind of token in the first, second and last third of the layers [block]."""
    layers, weight = cell.sizes["layer"], cell["weight"].sel(kind=kind)
    edges = [round(part * layers / 3) for part in range(4)]
    slices = zip(THIRDS.values(), edges, edges[1:], strict=False)
    return {name: weight.isel(layer=slice(start, end)).mean("layer") for name, start, end in slices}


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
            published=_printed(numbers, "weights_by_layer", "special", "text"),
        ),
        Claim(
            id=f"{model}-special-norm",
            text=f"{model}: special tokens contribute little: their share of the norm is less than half their share of "
            "the weight",
            estimate=mean_of(norm_ratio(cell, SPECIAL), BLOCKS),
            bound=Bound.below(LITTLE),
            published=_printed(numbers, "norms_by_layer"),
            identified=False,
            note=_RATIO,
        ),
        Claim(
            id=f"{model}-punctuation-norm",
            text=f"{model}: periods and commas contribute little: their share of the norm is less than half their "
            "share of the weight",
            estimate=mean_of(norm_ratio(cell, ["period_comma"]), BLOCKS),
            bound=Bound.below(LITTLE),
            published=_printed(numbers, "norms_by_layer"),
            identified=False,
            note=_RATIO,
        ),
        # Fewer than three layers have no early, middle and deep ones.
        *(_at_depth(model, cell, kind, numbers) for kind in THIRDS if cell.sizes["layer"] >= len(THIRDS)),
    ]


def _at_depth(model: str, cell: xr.Dataset, kind: str, numbers: Mapping[str, Any]) -> Claim:
    """Where a kind of token gets most weight: the named third of the layers against the best of the other two."""
    weights, where = thirds(cell, kind), THIRDS[kind]
    other = max((name for name in weights if name != where), key=lambda name: float(weights[name].mean()))
    means = ", ".join(f"{float(weight.mean()):.3f} {name}" for name, weight in weights.items())
    return Claim(
        id=f"{model}-{CANCELLING[kind]}-{where}",
        text=f"{model}: {KIND_NAMES[kind]} get most weight in the {where} layers (that third − the best other > 0)",
        estimate=paired(weights[where], weights[other], BLOCKS),
        bound=Bound.above(0.0),
        published=_printed(numbers, "weights_by_layer", kind, "text"),
        note=f"Mean weight: {means}.",
    )


def _cancelling(model: str, cell: xr.Dataset, kind: str, numbers: Mapping[str, Any]) -> list[Claim]:
    """α and ‖f(x)‖ of one kind of token: over all layers and heads, as published, and within every layer."""
    name, note, rho = KIND_NAMES[kind], _note(model), cell["spearman_all"]
    printed, id = numbers["spearman"]["value"], f"{model}-{CANCELLING[kind]}-cancels"
    apart = Published(round(printed[kind] - printed["other"], 2), numbers["spearman"]["source"])
    layers = [mean_of(one, BLOCKS) for one in cell["spearman"].sel(kind=kind).transpose("layer", "block")]
    below = sum(Bound.below(0.0).verdict(one) == HOLDS for one in layers)
    return [
        Claim(
            id=id,
            text=f"{model}: α and ‖f(x)‖ cancel out for {name}: ρ < {-NEGLIGIBLE:g}",
            estimate=mean_of(rho.sel(kind=kind), BLOCKS),
            bound=Bound.below(-NEGLIGIBLE),
            identified=False,
            published=_printed(numbers, "spearman", kind),
            note=note,
        ),
        Claim(
            id=f"{id}-more",
            text=f"{model}: α and ‖f(x)‖ cancel out more for {name} than for other tokens: ρ({name}) − ρ(other) < 0",
            estimate=paired(rho.sel(kind=kind), rho.sel(kind="other"), BLOCKS),
            bound=Bound.below(0.0),
            identified=False,
            published=apart,
            note=note,
        ),
        Claim(
            id=f"{id}-within-layers",
            text=f"{model}: α and ‖f(x)‖ of {name} cancel out within every single layer: ρ < 0 in each (shown: mean "
            "over layers)",
            estimate=mean_of(within(cell, kind), BLOCKS),
            also=layers,
            bound=Bound.below(0.0),
            identified=False,
            note=f"Negative in {below} of {len(layers)} layers. The papers pool all layers and heads.",
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
            identified=False,
            bound=Bound.above(0.0),
            published=_printed(numbers, "frequency", "norms"),
            note=note,
        ),
        Claim(
            id=f"{model}-discounted-by-vectors",
            text=f"{model}: the vectors discount frequent words more than the weights do: ρ(frequency rank, α) is "
            "below that with ‖f(x)‖",
            estimate=weights,
            identified=False,
            bound=None if norms.low is None else Bound.below(norms.low),
            published=_printed(numbers, "frequency", "weights"),
            note="Compared with the lower end of the interval of ρ(frequency rank, ‖f(x)‖).",
        ),
        Claim(
            id=f"{model}-not-by-weights",
            text=f"{model}: the weights do not discount frequent words: |ρ(frequency rank, α)| < {NEGLIGIBLE:g}",
            estimate=weights,
            bound=Bound.within(-NEGLIGIBLE, NEGLIGIBLE),
            published=_printed(numbers, "frequency", "weights"),
            note=note,
        ),
        Claim(
            id=f"{model}-keeps-more-than-it-mixes",
            text=f"{model}: a token's new vector has more of itself than of others: AttnResLn-N mixing ratio < ½",
            estimate=mean_of(cell["mixing"].mean("layer").sel(ratio=ratio), BLOCKS),
            identified=False,
            bound=Bound.below(0.5),
            published=_printed(numbers, "mixing", ratio, "mean"),
            note=note,
        ),
        Claim(
            id=f"{model}-frequent-mixed-more",
            text=f"{model}: frequent words are mixed more: ρ(frequency rank, AttnResLn-N ratio) < 0",
            estimate=correlation(cell, "frequency_of_mixing", ratio=ratio),
            identified=False,
            bound=Bound.below(0.0),
            published=_printed(numbers, "frequency_of_mixing", ratio),
            note=note,
        ),
    ]


def _words(model: str, cell: xr.Dataset) -> list[Claim]:
    """Frequency once more, without special tokens: these are the most frequent of all, and sinks."""
    norms, weights = (correlation(cell, "frequency", measure=name) for name in ("norms", "weights"))
    return [
        Claim(
            id=f"{model}-words-discounted",
            text=f"{model}: frequent words are discounted also without special tokens: ρ(frequency rank, ‖f(x)‖) > 0",
            estimate=norms,
            identified=False,
            bound=Bound.above(0.0),
            ours=True,
        ),
        Claim(
            id=f"{model}-words-not-by-weights",
            text=f"{model}: without special tokens, the weights do not discount frequent words: "
            f"|ρ(frequency rank, α)| < {NEGLIGIBLE:g}",
            estimate=weights,
            bound=Bound.within(-NEGLIGIBLE, NEGLIGIBLE),
            ours=True,
        ),
    ]


def _centred(model: str, cell: xr.Dataset) -> list[Claim]:
    """The papers' claims about norms, less the constant that is free."""
    less = "centred"
    return [
        *(
            Claim(
                id=f"{model}-{name}-norm-centred",
                text=f"{model}, {less}: the share of the norm of {said} is less than half their share of the weight",
                estimate=mean_of(norm_ratio(cell, kinds), BLOCKS),
                bound=Bound.below(LITTLE),
                note=_RATIO,
                ours=True,
            )
            for name, said, kinds in (
                ("special", "special tokens", SPECIAL),
                ("punctuation", "periods and commas", ["period_comma"]),
            )
        ),
        *(
            Claim(
                id=f"{model}-{name}-cancels-centred",
                text=f"{model}, {less}: α and the norm cancel out for {KIND_NAMES[kind]}: ρ < {-NEGLIGIBLE:g}",
                estimate=mean_of(cell["spearman_all"].sel(kind=kind), BLOCKS),
                bound=Bound.below(-NEGLIGIBLE),
                ours=True,
            )
            for kind, name in CANCELLING.items()
        ),
        Claim(
            id=f"{model}-frequent-discounted-centred",
            text=f"{model}, {less}: frequent words are discounted: ρ(frequency rank, norm) > 0",
            estimate=correlation(cell, "frequency_of_norms"),
            bound=Bound.above(0.0),
            ours=True,
        ),
        Claim(
            id=f"{model}-keeps-more-than-it-mixes-centred",
            text=f"{model}, {less}: a token's new vector has more of itself than of others: AttnResLn-N mixing ratio "
            "< ½",
            estimate=mean_of(cell["mixing"].mean("layer").sel(ratio="attn_res_ln_n"), BLOCKS),
            bound=Bound.below(0.5),
            ours=True,
        ),
    ]


def _against(model: str, trained: xr.Dataset, control: xr.Dataset, condition: str, kind: str) -> Claim:
    """The cancelling must be more than what the control has; blocks are the same segments."""
    rho, other = (cell["spearman_all"].sel(kind=kind).values for cell in (trained, control))
    id, what = {
        RANDOM: ("cancelling-learnt", "the cancelling is learnt"),
        SHUFFLED: ("cancelling-needs-order", "the cancelling needs the order of words"),
    }[condition]
    return Claim(
        id=f"{model}-{kind}-{id}",
        text=f"{model}: {what}, being stronger than with {condition}: difference of ρ({KIND_NAMES[kind]}) < 0",
        estimate=paired(rho, other, BLOCKS),
        identified=False,
        bound=Bound.below(0.0),
        note=f"{rho.mean():.3f} against {other.mean():.3f}.",
        ours=True,
    )


def _note(model: str) -> str:
    return "" if model == PUBLISHED_MODEL else _OTHER_MODEL
