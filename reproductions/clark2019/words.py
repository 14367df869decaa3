"""What a run of this reproduction found, in sentences made from its numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproductions.clark2019.claims import peak_layer, sink
from reproductions.clark2019.gradients import COLUMNS, LOSSES
from reproductions.clark2019.tables import heads_of, mass
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.readings import Found, about_the_models, about_the_text, array
from reproductions.frame.record import Claim

QUESTION = (
    "Where does attention go that needs no syntax to describe: to separators, to neighbours, everywhere? Which heads "
    "look alike? And is there a head for each dependency relation, and the whole tree in all heads together?"
)


def setup(found: Found) -> list[str]:
    return [
        *about_the_text(found),
        "Mass, entropy and the rest are means over all queries of a segment, special ones too, then over segments. The "
        "published extractor set all token types to 0; here they are 0 and 1, as the models were trained. Divergences "
        "between heads are from every sixteenth segment (smoothing .999 α + .001/n), mapped by metric MDS.",
    ]


def summary(found: Found, slopes: Mapping[str, dict[str, Any]]) -> list[str]:
    out = about_the_models(found)
    for model, cells in found.items():
        out += [_sink(model, cells), _heads(model, cells), _entropy(model, cells)]
    return [*out, _gradients(slopes)]


def _sink(model: str, cells: Mapping[str, Any]) -> str:
    cell = cells[TRAINED]
    parts = []
    for kind in ("cls", "sep", "period_comma"):
        layer = peak_layer(cell, kind)
        share = mass(cell, kind).mean((0, 2))[layer]
        controls = " and ".join(
            f"{mass(cells[c], kind).mean((0, 2))[layer]:.2f} with {c}" for c in (RANDOM, SHUFFLED) if c in cells
        )
        name = {"cls": "[CLS]", "sep": "[SEP]", "period_comma": "period and comma"}[kind]
        parts.append(f"{name} {share:.2f} in layer {layer + 1} ({controls})")
    start = f"**{model}, sinks.** The sink is [{sink(cell).upper()}]."
    return f"{start} Largest share of a layer's weight: {'; '.join(parts)}."


def _heads(model: str, cells: Mapping[str, Any]) -> str:
    def listed(kind: str, condition: str) -> str:
        heads = heads_of(cells[condition], kind)
        return f"{len(heads)}" + (f" ({', '.join(heads)})" if 0 < len(heads) < 9 else "")

    said = []
    for kind in ("previous", "next"):
        rest = ", ".join(f"{c} {listed(kind, c)}" for c in (SHUFFLED, RANDOM) if c in cells)
        said.append(f"{kind} token: {listed(kind, TRAINED)} [{rest}]")
    return f"**{model}, neighbours.** Heads with more than half of their weight on the {'; on the '.join(said)}."


def _entropy(model: str, cells: Mapping[str, Any]) -> str:
    layers = array(cells[TRAINED]["by_block"]["entropy"]).mean((0, 2))
    first = array(cells[TRAINED]["by_block"]["cls_entropy"])[:, -1].mean()
    text = (
        f"**{model}, entropy.** By layer it runs from {layers.min():.2f} nats (layer {int(layers.argmin()) + 1}) to "
        f"{layers.max():.2f} (layer {int(layers.argmax()) + 1}); the row of [CLS] in the last layer has {first:.2f}."
    )
    if RANDOM in cells:
        even = array(cells[RANDOM]["by_block"]["entropy"]).mean()
        text += f" With random weights every head is close to uniform ({even:.2f} nats)."
    return text


def _gradients(slopes: Mapping[str, dict[str, Any]]) -> str:
    text = "**Gradients.** No model with a masked-word loss was at hand"
    if not slopes:
        return text + ", nor another model with a loss, so nothing is shown."
    text += "; what follows is of other models and other losses, on short sentences, and says nothing of BERT's [SEP]."
    for which, cell in slopes.items():
        asked = LOSSES[which]
        kinds = dict.fromkeys((asked.sink, "sep"))
        said = "; ".join(
            f"for {asked.names[kind]}{' (its sink)' if kind == asked.sink else ''} "
            + ", ".join(f"{value:.2f}" for value in _ratio(cell, kind))
            for kind in kinds
        )
        text += (
            f" On {asked.loss} ({asked.model}), |∂loss/∂α| in the encoder is, by layer and as a multiple of that for "
            f"ordinary tokens, {said}."
        )
    return text


def _ratio(cell: dict[str, Any], kind: str) -> Any:
    """|∂loss/∂α| for a kind of special token over that for other tokens, by encoder layer."""
    values = np.array(cell["gradient"]["encoder"], dtype=float)
    return values[:, COLUMNS.index(kind)] / values[:, COLUMNS.index("other")]


def gradient_claim(slopes: Mapping[str, dict[str, Any]], numbers: Mapping[str, Any]) -> list[Claim]:
    """§3.3 on what is at hand: shown, never decided."""
    text = "the loss hardly depends on the weight on the sink in the upper layers"
    printed = numbers["gradient"]["value"]
    if not slopes:
        why = "No model with a loss was there."
        return [Claim(text=text, ours=None, published=printed, verdict="cannot tell", why=why)]
    claims = []
    for which, cell in slopes.items():
        asked = LOSSES[which]
        upper = float(_ratio(cell, asked.sink)[len(cell["gradient"]["encoder"]) // 2 :].mean())
        why = f"|∂loss/∂α| for {asked.names[asked.sink]} over other tokens, upper half of the encoder, on {asked.loss}."
        claims.append(
            Claim(
                text=f"{asked.model}: {text}", ours=upper, published=printed, verdict="not the same quantity", why=why
            )
        )
    return claims
