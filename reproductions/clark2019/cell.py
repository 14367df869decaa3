"""One condition of Clark et al. 2019, measured: where the weight goes, entropy, special rows, distances."""

from typing import Any, ClassVar

import torch
import xarray as xr

from lorgnette.attention import Call
from lorgnette.attention.sweep import Wanted
from lorgnette.corpora.batch import Batch
from lorgnette.lenses.base import Lens
from lorgnette.lenses.distances.lens import Distances
from lorgnette.lenses.moments import Moments
from lorgnette.lenses.weights.lens import Weights
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject
from reproductions.frame.conditions import RANDOM, TRAINED, Condition
from reproductions.frame.readings import plain

MASSES = ("cls", "sep", "period_comma", "other", "previous", "next", "self")
EVERY = 16
"""Every sixteenth segment is compared head by head: all pairs of heads over all segments would take hours."""


class SpecialRows(Lens):
    """What [CLS] and [SEP] themselves attend to: entropy of the first row, mass on [SEP] in the rows of [SEP].

    Means are over such rows of a text, then over texts. What it does not tell you: what the other rows do.
    """

    name: ClassVar[str] = "special_rows"
    summary: ClassVar[str] = "what [CLS] and [SEP] themselves attend to"

    def allocate(self, subject: Subject) -> None:
        self.moments = Moments(self, ("cls_entropy", "sep_to_sep"))

    def update(self, call: Call, batch: Batch) -> None:
        asking, read = batch.queries(call.site), batch.keys(call.site)
        rows = call.measure(Wanted(features=read.categories["sep"][..., None].to(call.query.dtype), entropy=True))
        values = torch.stack([rows["entropy"], rows["average"][..., 0]], -1)
        asked = torch.stack([asking.categories[name] for name in ("cls", "sep")], -1).to(values.dtype)
        counts = asked.sum(1)
        mean = (values * asked[:, None]).sum(2) / counts.clamp(min=1)[:, None]
        columns = zip(self.moments.variables, mean.unbind(-1), (counts > 0)[:, None].unbind(-1), strict=True)
        self.moments.add(call.site, **{name: (value, weight) for name, value, weight in columns})

    def compute(self) -> Result:
        """`cls_entropy` and `sep_to_sep` of every head."""
        return self.result(self.moments.arrays())


def measure(model: str, condition: str, count: int, blocks: int, seed: int, **local: Any) -> dict[str, Any]:
    """Every head in every block; divergences between heads for the conditions that are drawn."""
    made = Condition.open(model, condition, count=count, blocks=blocks, seed=seed, **local)
    found: dict[str, list[Any]] = {}
    for block in made.blocks:
        results = look(made.subject, block, [Weights(), SpecialRows()], progress=False)
        weights, rows = (results[name].data.isel(stack=0) for name in ("weights", "special_rows"))
        parts = {
            "mass": weights["mass"].sel(category=list(MASSES)),
            **{name: weights[name] for name in ("entropy", "peak", "confidence", "sink")},
            **{name: rows[name] for name in ("cls_entropy", "sep_to_sep")},
        }
        for name, values in parts.items():
            found.setdefault(name, []).append(plain(values.values))
    return {**made.origin(), "by_block": found, "distances": _distances(made, condition, seed)}


def _distances(made: Condition, condition: str, seed: int) -> dict[str, Any] | None:
    """The map of heads, and how far heads of one layer and of two layers are apart, by block."""
    if condition not in (TRAINED, RANDOM):
        return None
    whole, apart = Distances(seed=seed), []
    whole.bind(made.subject)
    for block in made.blocks:
        lens = Distances(seed=seed)
        result = look(made.subject, block[::EVERY], [lens], progress=False)["distances"]
        apart.append(within_and_between(result.data))
        whole.merge_state(lens)
    data = whole.compute().data.isel(stack=0)
    return {
        "segments": int(data["count"].max()),
        "stress": float(data["stress"]),
        "x": plain(data["x"].values),
        "y": plain(data["y"].values),
        "kind": data["kind"].values.tolist(),
        "within": [pair[0] for pair in apart],
        "between": [pair[1] for pair in apart],
    }


def within_and_between(data: xr.Dataset) -> tuple[float, float]:
    """Mean divergence of two heads of the same layer, and of two heads of different layers."""
    divergence = torch.from_numpy(data["divergence"].isel(stack=0).values.copy())
    layer = torch.tensor([int(str(label).split("-")[0]) for label in data["head_a"].values])
    same = layer[:, None] == layer
    other = ~torch.eye(len(layer), dtype=torch.bool)
    return float(divergence[same & other].mean()), float(divergence[~same].mean())
