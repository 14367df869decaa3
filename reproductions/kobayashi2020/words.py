"""What a run of this reproduction found, in sentences made from its numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lorgnette.lenses.norms.lens import RATIOS
from reproductions.frame.conditions import RANDOM, SHUFFLED, SINGLE, TRAINED, WIKITEXT
from reproductions.frame.readings import Found, about_the_models, about_the_text, array, interval
from reproductions.kobayashi2020.cell import KINDS
from reproductions.kobayashi2020.claims import share_of_specials, sink, special_norm_ratio, special_weight, within
from reproductions.kobayashi2020.tables import NAMES

QUESTION = (
    "A head's output is Σ_j α_ij f(x_j). Tokens that get much weight may have short vectors f(x_j). How much of what "
    "the weights show arrives, and how much of a token's new vector is mixed in from others once the residual and "
    "LayerNorm count?"
)


def setup(found: Found) -> list[str]:
    return [
        *about_the_text(found),
        "f^h(x) = (x W_V^h + b_V^h) W_O^h, without b_O. Weights and norms: mean over queries of the sum over tokens of "
        "a kind, then over segments, then over heads. Frequency ranks are the papers' own file for BERT's word pieces. "
        "The 2021 paper masked 12 % of the tokens; nothing is masked here. How it averaged tokens before correlating "
        "mixing ratios with frequency is not known to us: here each occurrence counts, averaged over layers.",
    ]


def summary(found: Found) -> list[str]:
    out = about_the_models(found)
    for model, cells in found.items():
        out += [_weights(model, cells), _sink(model, cells), _frequency(model, cells), _mixing(model, cells)]
    return out


def said(values: Any, decimals: int = 2) -> str:
    """A mean over blocks and its interval."""
    mean, low, high = interval(list(values))
    return f"{mean:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def _each(cells: Mapping[str, Any], number: Any, decimals: int = 2) -> str:
    """The same number under the controls."""
    return "; ".join(f"{name}: {said(number(cells[name]), decimals)}" for name in (RANDOM, SHUFFLED) if name in cells)


def _weights(model: str, cells: Mapping[str, Any]) -> str:
    cell = cells[TRAINED]
    other = array(cell["by_block"]["norm_share"]).mean(1)[:, KINDS.index("other")]
    return (
        f"**{model}, weight and norm.** Special tokens are {share_of_specials(cell):.3f} of the tokens and get "
        f"{said(special_weight(cell), 3)} of the weight ({_each(cells, special_weight, 3)}). Their share of the norm "
        f"is {said(special_norm_ratio(cell))} times that ({_each(cells, special_norm_ratio)}). {said(other, 3)} of the "
        "norm comes from tokens that are neither special nor a period or comma."
    )


def _sink(model: str, cells: Mapping[str, Any]) -> str:
    cell = cells[TRAINED]
    place = sink(cell)
    name = NAMES[KINDS[place]]

    def rho(one: Mapping[str, Any]) -> Any:
        return array(one["by_block"]["spearman_all"])[:, place]

    layers = array(cell["by_block"]["spearman"]).mean(0)[:, place]
    inside = within(cell, place)
    mostly = (
        "most of the pooled number is a difference between layers, some of which give the sink little weight and long "
        "vectors, others much weight and short ones"
    )
    too = "it is there within layers too"
    others = "".join(f"; {other}: {said(rho(cells[other]))}" for other in (SINGLE, WIKITEXT) if other in cells)
    return (
        f"**{model}, the sink.** It is {name}. Over all layers and heads together ρ(α, ‖f(x)‖) there is "
        f"{said(rho(cell))} ({_each(cells, rho)}{others}). Within one layer (all its heads) ρ runs from "
        f"{layers.min():.2f} to {layers.max():.2f}, on average {said(inside)}: "
        f"{mostly if abs(inside.mean()) < abs(rho(cell).mean()) / 2 else too}."
    )


def _frequency(model: str, cells: Mapping[str, Any]) -> str:
    def one(cell: Mapping[str, Any], measure: str) -> str:
        rho, low, high = cell["frequency"][measure]["all"]
        return f"{rho:.2f}" if low is None else f"{rho:.2f} [{low:.2f}, {high:.2f}]"

    layers = np.array(cells[TRAINED]["frequency"]["norms"]["layers"], dtype=float)
    controls = "; ".join(f"{n}: {one(cells[n], 'norms')}" for n in (RANDOM, SHUFFLED) if n in cells)
    return (
        f"**{model}, frequency.** ρ of frequency rank with ‖f(x)‖ is {one(cells[TRAINED], 'norms')} ({controls}), with "
        f"α {one(cells[TRAINED], 'weights')}. By layer the former runs from {layers.min():.2f} (layer "
        f"{int(layers.argmin()) + 1}) to {layers.max():.2f} (layer {int(layers.argmax()) + 1})."
    )


def _mixing(model: str, cells: Mapping[str, Any]) -> str:
    def ratio(name: str) -> Any:
        return lambda cell: 100 * array(cell["by_block"]["mixing"]).mean(1)[:, RATIOS.index(name)]

    cell = cells[TRAINED]
    last = ratio("attn_res_ln_n")
    return (
        f"**{model}, mixing.** Weights alone say that {said(ratio('attn_w')(cell), 1)} % of a token's new vector comes "
        f"from others, norms {said(ratio('attn_n')(cell), 1)} %, with the residual "
        f"{said(ratio('attn_res_n')(cell), 1)} %, with LayerNorm {said(last(cell), 1)} % ({_each(cells, last, 1)})."
    )
