"""What the paper says of heads, each as a number with an interval; bounds are the paper's own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.clark2019.tables import FAR, mass, sure_heads
from reproductions.frame.conditions import PUBLISHED_MODEL, RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import Found, array, claim, interval
from reproductions.frame.record import Claim

_OTHER_MODEL = "The published number is BERT's: the finding can be compared, not the number."


def claims(found: Found, numbers: Mapping[str, Any]) -> list[Claim]:
    value = {name: entry["value"] for name, entry in numbers.items()}
    out = []
    for model, cells in found.items():
        out += [*_sinks(model, cells, value), *_neighbours(model, cells, value), *_rows(model, cells[TRAINED], value)]
        out += _families(model, cells, value)
    return out


def sink(cell: Mapping[str, Any]) -> str:
    """The special token that gets more weight over all layers and heads."""
    return max(("cls", "sep"), key=lambda kind: float(mass(cell, kind).mean()))


def peak_layer(cell: Mapping[str, Any], kind: str) -> int:
    """The layer that gives a kind of token most weight, from 0."""
    return int(mass(cell, kind).mean((0, 2)).argmax())


def _sinks(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    other = "" if model == PUBLISHED_MODEL else _OTHER_MODEL
    trained = cells[TRAINED]
    out = []
    for kind in dict.fromkeys(("sep", sink(trained))):
        name = f"[{kind.upper()}]"
        layer = peak_layer(trained, kind)
        there = mass(trained, kind)[:, layer].mean(-1)
        printed = value["sep_share"]["text"] if kind == "sep" else value["cls_peak"]["share"]
        text = f"{model}: {name} gets more than half of the weight in some layers (here most in layer {layer + 1})"
        out.append(claim(text, interval(there), FAR, above=True, published=printed, why=other))
        for control in (c for c in (RANDOM, SHUFFLED) if c in cells and kind == sink(trained)):
            here = mass(cells[control], kind)[:, layer].mean(-1)
            why = f"{there.mean():.3f} against {here.mean():.3f}."
            text = f"{model}: … and more than with {control}, in that layer: difference > 0"
            out.append(claim(text, interval(there - here), 0.0, above=True, why=why))
    return out


def _neighbours(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    out = []
    for kind in ("previous", "next"):
        sure, perhaps = sure_heads(cells[TRAINED], kind)
        controls = ", ".join(f"{sure_heads(cells[c], kind)[0]} with {c}" for c in (RANDOM, SHUFFLED) if c in cells)
        verdict = "holds" if sure else "cannot tell" if perhaps else "does not hold"
        heads = array(cells[TRAINED]["by_block"]["entropy"])[0].size
        out.append(
            Claim(
                text=f"{model}: there are heads that give the {kind} token more than half of their weight",
                ours=sure,
                interval=(float(sure), float(perhaps)),
                published=f"{value[f'{kind}_heads']} of {value['heads']}",
                verdict=verdict,
                why=f"Of {heads} heads; the interval counts those whose own interval is above ½, and reaches ½. "
                f"Controls: {controls}.",
            )
        )
    return out


def _rows(model: str, cell: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    other = "" if model == PUBLISHED_MODEL else _OTHER_MODEL
    out = []
    wanted = mass(cell, "sep").mean(0) > FAR
    if wanted.any():
        blocks = array(cell["by_block"]["sep_to_sep"])[:, wanted].mean(-1)
        text = f"{model}: [SEP] attends to [SEP] (> .9) in the heads that give [SEP] more than half ({wanted.sum()})"
        out.append(claim(text, interval(blocks), value["sep_from_sep"], above=True, published="> .9", why=other))
    last = array(cell["by_block"]["cls_entropy"])[:, -1].mean(-1)
    rest = array(cell["by_block"]["entropy"])[:, -1].mean(-1)
    printed = value["cls_entropy_last_layer"]
    text = f"{model}: in the last layer [CLS] attends broadly: the entropy of its row exceeds the mean of all rows"
    why = f"{np.mean(last):.2f} nats against {np.mean(rest):.2f}. {other}".strip()
    published = f"{printed} nats (uniform {value['uniform_entropy']})"
    out.append(claim(text, interval(last - rest), 0.0, above=True, published=published, why=why))
    return out


def _families(model: str, cells: Mapping[str, Any], value: Mapping[str, Any]) -> list[Claim]:
    nearer = {c: _nearer(cells[c]["distances"]) for c in (TRAINED, RANDOM) if c in cells}
    text = f"{model}: heads of one layer are nearer to each other than to other layers' (difference in nats < 0)"
    out = [claim(text, interval(nearer[TRAINED]), 0.0, above=False, published=value["families"])]
    if RANDOM in nearer:
        text = f"{model}: … and that is learnt: more so than with random weights"
        out.append(claim(text, interval(nearer[TRAINED] - nearer[RANDOM]), 0.0, above=False))
    return out


def _nearer(apart: Mapping[str, Any]) -> np.ndarray:
    """Divergence within layers less that between layers, in each block."""
    return np.asarray(array(apart["within"]) - array(apart["between"]))
