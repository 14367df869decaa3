"""One condition of Clark et al. 2019, measured: where the weight goes, entropy, special rows, distances."""

import math
from typing import ClassVar

import torch
import xarray as xr

from lorgnette.attending import Call
from lorgnette.attending.sweep import Wanted
from lorgnette.axes import HEAD, LAYER
from lorgnette.lens.base import Lens
from lorgnette.lens.distances.lens import Distances
from lorgnette.lens.moments import Moments
from lorgnette.lens.weights.lens import Weights
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from reproductions.frame.conditions import OURS, RANDOM, TRAINED, Condition
from reproductions.frame.settings import Machine

MASSES = ("cls", "sep", "period_comma", "other", "previous", "next", "self")
FAR = 0.5
"""A head is one of a kind if more than half of its weight goes there."""
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
        assert call.site is not None
        query_tokens, key_tokens = batch.queries(call.site), batch.keys(call.site)
        rows = call.measure(Wanted(features=key_tokens.categories["sep"][..., None].to(call.query.dtype), entropy=True))
        values = torch.stack([rows["entropy"], rows["average"][..., 0]], -1)
        asked = torch.stack([query_tokens.categories[name] for name in ("cls", "sep")], -1).to(values.dtype)
        counts = asked.sum(1)
        mean = (values * asked[:, None]).sum(2) / counts.clamp(min=1)[:, None]
        columns = zip(self.moments.variables, mean.unbind(-1), (counts > 0)[:, None].unbind(-1), strict=True)
        self.moments.add(call.site, **{name: (value, weight) for name, value, weight in columns})

    def compute(self) -> Result:
        """`cls_entropy` and `sep_to_sep` of every head."""
        return self.result(self.moments.arrays())


def measure(
    *, model: str, condition: str, count: int, blocks: int, seed: int, machine: Machine, segments_of: str = OURS
) -> xr.Dataset:
    """Every head in every block, reduced to what is read; divergences between heads where they are asked for."""
    where = {"data": machine.data, "models": machine.models, "device": machine.device}
    made = Condition.open(model, condition, count=count, blocks=blocks, seed=seed, segments_of=segments_of, **where)
    found = []
    for block in made.blocks:
        results = look(made.subject, block, [Weights(), SpecialRows()], progress=False)
        weights, rows = (results[name].data.isel(stack=0, drop=True) for name in ("weights", "special_rows"))
        found.append(
            xr.Dataset(
                {
                    "mass": weights["mass"].sel(category=list(MASSES)),
                    "entropy": weights["entropy"],
                    **{name: rows[name] for name in ("cls_entropy", "sep_to_sep")},
                }
            )
        )
    data = reduced(xr.concat(found, "block"))
    if condition in (TRAINED, RANDOM):
        data = data.merge(_distances(made))
    return data.assign_attrs(made.origin())


def reduced(blocks: xr.Dataset) -> xr.Dataset:
    """What claims, tables and figures need of [block layer head]: each head's mean, and layers block by block."""
    mass = blocks["mass"]
    neighbours = mass.sel(category=["previous", "next"]).rename(category="neighbour")
    low, high = _interval(neighbours)
    out = xr.Dataset(
        {
            "mass": mass.mean("block"),
            "neighbour_low": low,
            "neighbour_high": high,
            "share": mass.sel(category=["cls", "sep"]).rename(category="special").mean(HEAD),
            "entropy": blocks["entropy"].mean("block"),
            "cls_entropy": blocks["cls_entropy"].mean("block"),
            "last_entropy": blocks["entropy"].isel({LAYER: -1}, drop=True).mean(HEAD),
            "last_cls_entropy": blocks["cls_entropy"].isel({LAYER: -1}, drop=True).mean(HEAD),
        }
    )
    far = out["mass"].sel(category="sep", drop=True) > FAR
    if bool(far.any()):
        out["sep_to_sep"] = blocks["sep_to_sep"].where(far).mean((LAYER, HEAD))
    return out


def _interval(values: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The ends of a 95 % interval of the mean over blocks (t distribution)."""
    from scipy.stats import t

    count = values.sizes["block"]
    width = t.ppf(0.975, count - 1) * values.std("block", ddof=1) / math.sqrt(count)
    return values.mean("block") - width, values.mean("block") + width


def _distances(made: Condition) -> xr.Dataset:
    """The map of heads, and how far heads of one layer and of two layers are apart, by block."""
    whole, apart = Distances(), []
    whole.bind(made.subject)
    for block in made.blocks:
        lens = Distances()
        result = look(made.subject, block[::EVERY], [lens], progress=False)["distances"]
        apart.append(within_and_between(result.data))
        whole.merge_state(lens)
    data = whole.compute().data.isel(stack=0, drop=True)
    out = data[["x", "y", "kind", "stress"]]
    within, between = zip(*apart, strict=True)
    out = out.assign(within=("block", list(within)), between=("block", list(between)))
    return out.assign(compared_segments=int(data["count"].max()))


def within_and_between(data: xr.Dataset) -> tuple[float, float]:
    """Mean divergence of two heads of the same layer, and of two heads of different layers."""
    divergence = torch.from_numpy(data["divergence"].isel(stack=0).values.copy())
    layer = torch.tensor([int(str(label).split("-")[0]) for label in data["head_a"].values])
    same = layer[:, None] == layer
    other = ~torch.eye(len(layer), dtype=torch.bool)
    return float(divergence[same & other].mean()), float(divergence[~same].mean())
