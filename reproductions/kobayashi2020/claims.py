"""The papers' claims, each as a number with an interval that could have come out otherwise.

The bounds were fixed before anything was measured. A verdict needs the whole interval on one side.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lorgnette.lenses.norms.lens import RATIOS
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import Found, array, claim, interval
from reproductions.frame.record import Claim
from reproductions.kobayashi2020.cell import KINDS
from reproductions.kobayashi2020.tables import NAMES

SPECIAL = (KINDS.index("cls"), KINDS.index("sep"))
MUCH = 3.0
"""Special tokens get much weight: at least so many times their share among tokens."""
LITTLE = 0.5
"""… and little norm: at most this part of what their weight says."""
_OTHER_MODEL = "The published number is BERT's: the finding can be compared, not the number."


def claims(found: Found, numbers: Mapping[str, Any]) -> list[Claim]:
    """Those of every model as trained, and each against the controls."""
    value = {name: entry["value"] for name, entry in numbers.items()}
    out = []
    for model, cells in found.items():
        out += _of_model(model, cells[TRAINED], value)
        for control in (RANDOM, SHUFFLED):
            if control in cells:
                out.append(_against(model, cells[TRAINED], cells[control], control))
    return out


def sink(cell: Mapping[str, Any]) -> int:
    """The special token that gets most of the weight, as a place in KINDS."""
    weight = array(cell["by_block"]["weight"]).mean((0, 1))
    return max(SPECIAL, key=lambda k: float(weight[k]))


def within(cell: Mapping[str, Any], place: int) -> np.ndarray:
    """ρ of a kind of token computed within each layer (all its heads), mean over layers, in each block."""
    return np.asarray(array(cell["by_block"]["spearman"])[:, :, place].mean(1))


def special_weight(cell: Mapping[str, Any]) -> np.ndarray:
    """Weight on special tokens in each block, mean over layers and heads."""
    return np.asarray(array(cell["by_block"]["weight"]).mean(1)[:, SPECIAL].sum(-1))


def special_norm_ratio(cell: Mapping[str, Any]) -> np.ndarray:
    """Special tokens' share of the norm over their share of the weight, in each block."""
    share = array(cell["by_block"]["norm_share"]).mean(1)[:, SPECIAL].sum(-1)
    return np.asarray(share / special_weight(cell))


def _of_model(model: str, cell: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    other = "" if model == PUBLISHED_MODEL else _OTHER_MODEL
    return [
        *_special_tokens(model, cell, value),
        *_cancelling(model, cell, value["spearman"], other),
        *_frequency_and_mixing(model, cell, value, other),
    ]


def _special_tokens(model: str, cell: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    """Much weight, little norm."""
    share = share_of_specials(cell)
    return [
        claim(
            f"{model}: special tokens get much weight (at least {MUCH:g} times their share of the tokens, {share:.3f})",
            interval(special_weight(cell)),
            MUCH * share,
            above=True,
            published=value["weights_by_layer"],
        ),
        claim(
            f"{model}: … and little norm: their share of the norm is less than half their share of the weight",
            interval(special_norm_ratio(cell)),
            LITTLE,
            above=False,
            published=value["norms_by_layer"],
            why="Number: share of the norm over share of the weight; 1 would be no discount.",
        ),
    ]


def _cancelling(model: str, cell: Mapping[str, Any], printed: Mapping[str, Any], other: str) -> list[Claim]:
    """α and ‖f(x)‖ of the token that gets most weight."""
    place = sink(cell)
    name = KINDS[place]
    blocks = array(cell["by_block"]["spearman_all"])
    rest = blocks[:, KINDS.index("other")]
    return [
        claim(
            f"{model}: α and ‖f(x)‖ cancel out for the sink, here {NAMES[name]}: ρ < 0",
            interval(blocks[:, place]),
            0.0,
            above=False,
            published=printed[name],
            why=other,
        ),
        claim(
            f"{model}: … more than for other tokens: ρ({NAMES[name]}) − ρ(other) < 0",
            interval(blocks[:, place] - rest),
            0.0,
            above=False,
            published=round(printed[name] - printed["other"], 2),
            why=other,
        ),
        claim(
            f"{model}: … also within a layer: ρ({NAMES[name]}) of one layer's pairs, mean over layers, < 0",
            interval(within(cell, place)),
            0.0,
            above=False,
            why="Not in the papers, which pool all layers and heads.",
        ),
    ]


def _frequency_and_mixing(model: str, cell: Mapping[str, Any], value: Mapping[str, Any], other: str) -> list[Claim]:
    norms, weights = (cell["frequency"][key]["all"] for key in ("norms", "weights"))
    ratio = array(cell["by_block"]["mixing"]).mean(1)[:, RATIOS.index("attn_res_ln_n")]
    mixing = cell["frequency_of_mixing"]["attn_res_ln_n"]
    return [
        claim(
            f"{model}: frequent words are discounted: ρ(frequency rank, ‖f(x)‖) > 0",
            norms,
            0.0,
            above=True,
            published=value["frequency"]["norms"],
            why=other,
        ),
        claim(
            f"{model}: … by the vectors and not by the weights: ρ(frequency rank, α) lies below that with ‖f(x)‖",
            weights,
            float(norms[1]) if norms[1] is not None else math.nan,
            above=False,
            published=value["frequency"]["weights"],
            why="Compared with the lower end of the interval of ρ(frequency rank, ‖f(x)‖).",
        ),
        claim(
            f"{model}: a layer keeps more of a token than it mixes in: AttnResLn-N mixing ratio < ½",
            interval(ratio),
            0.5,
            above=False,
            published=value["mixing"]["attn_res_ln_n"]["mean"],
            why=other,
        ),
        claim(
            f"{model}: frequent words are mixed more: ρ(frequency rank, AttnResLn-N ratio) < 0",
            mixing,
            0.0,
            above=False,
            published=value["frequency_of_mixing"]["attn_res_ln_n"],
            why=other,
        ),
    ]


def share_of_specials(cell: Mapping[str, Any]) -> float:
    """Of the tokens of pairs: each has three."""
    return float(3 * cell["segments"] / cell["tokens"])


def _against(model: str, trained: Mapping[str, Any], control: Mapping[str, Any], name: str) -> Claim:
    """The cancelling must be more than what the control has; blocks are the same segments."""
    place = sink(trained)
    apart = [array(cell["by_block"]["spearman_all"])[:, place] for cell in (trained, control)]
    why = f"{apart[0].mean():.3f} against {apart[1].mean():.3f}."
    what = {RANDOM: "the cancelling is learnt", SHUFFLED: "the cancelling needs the order of words"}[name]
    return claim(
        f"{model}: {what}, being stronger than with {name}: difference of ρ({NAMES[KINDS[place]]}) < 0",
        interval(apart[0] - apart[1]),
        0.0,
        above=False,
        why=why,
    )
