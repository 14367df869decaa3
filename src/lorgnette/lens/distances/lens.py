"""Which heads have similar attention: Jensen–Shannon divergences between heads, and a map of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Recorder, Tap
from lorgnette.attending.sweep import Wanted
from lorgnette.constraints import Interval
from lorgnette.kernels import Room
from lorgnette.lens.base import Lens
from lorgnette.lens.distances.divergence import metric_mds, smoothed, summed_jensen_shannon
from lorgnette.lens.moments import By, Moments
from lorgnette.lens.weights.means import WeightMeans
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import ModelOutput

BLOCK = Room(2**21, 2**25)
"""Floats of all heads' rows that are built at a time."""
CACHED = Room(2**19, 2**25)
"""… and compared at a time. The rows of one head should be above 4,096 floats, or NumPy copies them."""

BROAD, MOSTLY = 3.8, 0.5
"""Entropy in nats of a broad head (Clark et al. 2019, Fig. 6); mass on a neighbour or on one category of token. The
paper asks for .6 on a category: here it is the half that every count of such heads uses."""

KINDS = ("previous", "next", "self", "cls", "sep", "period_comma", "broad", "other")
_DESCRIPTIONS = {
    "divergence": "Jensen–Shannon divergence in nats between the rows of two heads, mean over queries",
    "x": "first coordinate of the head on the map (metric multidimensional scaling of the divergences)",
    "y": "second coordinate of the head on the map",
    "stress": "stress: how much the map distorts the divergences (0: not at all)",
    "kind": "pattern: over half of the weight on a neighbour or a category, entropy above 3.8 nats, or other",
    "count": "number of texts",
}


class Distances(Lens):
    """The divergence between every two heads of a stack, a 2-D map, and each head's pattern (Clark et al. 2019, §6).

        d(a, b) = mean_i JS(α^a_i, α^b_i),   α smoothed as (1 − smoothing) α + smoothing / n

    Means are over the non-padding queries of a text, specials included, then over texts (`by="token"` pools them, as
    the paper does). All layers of a stack are compared; heads of different stacks are not, since they attend to
    different tokens.

    What it does not tell you: whether two heads do the same. With the same weights they may read different features of
    the same tokens. The threshold for broad heads (3.8 nats) is the paper's, for texts of 128 tokens; shorter texts
    may not reach it.
    """

    name: ClassVar[str] = "distances"
    summary: ClassVar[str] = "which heads have similar attention: Jensen–Shannon divergences and a map"
    reads = frozenset({"cpu"})

    def __init__(self, by: By = "text", smoothing: Annotated[float, Interval(0, 1, "left")] = 0.001) -> None:
        super().__init__()
        self.by, self.smoothing = by, smoothing
        self.recorder: Recorder[Call] = Recorder(_lean)

    def allocate(self, subject: Subject) -> None:
        self.means = WeightMeans(self, self.by, CATEGORIES)  # for the pattern of each head
        layers = 1 + max(site.layer for site in self.sites)
        self.labels: list[str] = [f"{layer + 1}-{head + 1}" for layer in range(layers) for head in range(self.heads)]
        self.pairs: Moments = Moments(self, "divergence", {axes.HEAD_B: self.labels})

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        return (self.means.wanted(call, batch),)

    def update(self, call: Call, batch: Batch) -> None:
        self.means.add(call, batch, *self.measured(call, batch))

    def taps(self, batch: Batch) -> tuple[Tap, ...]:
        self.recorder = Recorder(_lean, self.sites)
        return (self.recorder,)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Compare the heads of every text, now that all its layers are there."""
        with torch.no_grad():
            stacks: dict[str, list[Call]] = {}
            for site, call in self.recorder.records.items():
                stacks.setdefault(site.name, []).append(call)
            for calls in stacks.values():
                queries, keys = batch.queries(calls[0].site), batch.keys(calls[0].site)
                sides = zip(queries.on_host.mask, keys.on_host.mask, strict=True)
                for text, (queries, keys) in enumerate(sides):
                    if queries.any() and keys.any():  # a text without a translation has no numbers for the decoder
                        self._compare(calls, text, queries.nonzero()[:, 0], keys.nonzero()[:, 0])
        self.recorder = Recorder(_lean)

    def _compare(self, calls: list[Call], text: int, queries: Int[Tensor, " query"], keys: Int[Tensor, " key"]) -> None:
        heads = [call.scores.shape[1] for call in calls]
        total = torch.zeros(sum(heads), sum(heads), dtype=torch.float64, device=self.states.device)
        columns = _between(keys)  # padding before a text and behind it; what is hidden between has no weight
        wide = sum(heads) * (columns.stop - columns.start)
        for some_rows in queries.split(max(1, BLOCK.on(total.device) // wide)):
            whole = len(some_rows) == some_rows[-1] - some_rows[0] + 1
            rows = _between(some_rows) if whole else some_rows.tolist()
            block = torch.cat([self._smoothed(call, text, rows, columns) for call in calls])
            if any(call.scores.sink is not None for call in calls):  # a column of its own, so that rows sum to one
                block = torch.cat([block, (1 - block.sum(-1, keepdim=True)).clamp(min=0)], -1)
            for some in block.split(max(1, CACHED.on(block.device) // wide), 1):
                total += summed_jensen_shannon(some)
        self._add(calls, heads, total / len(queries), len(queries), text)

    def _smoothed(
        self, call: Call, text: int, rows: slice | list[int], columns: slice
    ) -> Float[Tensor, "head row key"]:
        """Smoothed rows of one text, over the keys from its first token to its last."""
        part = (slice(text, text + 1), rows, slice(None), columns)
        visible = call.scores.block(*part).visible_keys()[0]
        return smoothed(call.block(*part)[0], visible, self.smoothing)

    def _add(
        self, calls: list[Call], heads: list[int], mean: Float[Tensor, "head head"], queries: int, text: int
    ) -> None:
        """Spread the block of each layer's heads over the columns of all heads."""
        place = [call.site.layer * self.heads + number for call in calls for number in self.numbers[call.site]]
        weight = torch.zeros(1, 1, len(self.labels), dtype=torch.float64, device=self.states.device)
        weight[..., place] = float(queries if self.by == "token" else queries > 0)
        start = 0
        for call, n in zip(calls, heads, strict=True):
            values = torch.zeros(1, n, len(self.labels), dtype=torch.float64, device=self.states.device)
            values[0][:, place] = mean[start : start + n]
            self.pairs.add(call.site, [text], divergence=(values, weight))
            start += n

    def compute(self) -> Result:
        """Divergences [stack head_a head_b], the map x, y and the kind of every head [stack layer head]."""
        arrays = self.pairs.arrays()
        variables: dict[str, Any] = {name: self._flat(array) for name, array in arrays.items()}
        count = arrays["divergence_count"].max(axes.HEAD_B)
        variables |= self._map(variables["divergence"], count)
        variables["kind"] = self._kinds()
        variables["kind"].values[count.values == 0] = None
        variables["count"] = count
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"smoothing": self.smoothing, "by": self.by}
        return result

    def _flat(self, array: xr.DataArray) -> xr.DataArray:
        """[stack layer head head_b] as [stack head_a head_b]."""
        stacks, layers, heads, others = array.shape
        values = array.values.reshape(stacks, layers * heads, others)
        coordinates = {axes.STACK: array[axes.STACK].values, axes.HEAD_A: self.labels, axes.HEAD_B: self.labels}
        return xr.DataArray(values, dims=(axes.STACK, axes.HEAD_A, axes.HEAD_B), coords=coordinates)

    def _map(self, divergence: xr.DataArray, count: xr.DataArray) -> Mapping[str, xr.DataArray]:
        points = np.full((*count.shape, 2), np.nan)
        stress = []
        for number, present in enumerate(count.values > 0):
            flat = present.reshape(-1)
            distances = divergence.values[number][np.ix_(flat, flat)]
            points[number][present], left = metric_mds((distances + distances.T) / 2)
            stress.append(left)
        return {
            "x": count.copy(data=points[..., 0]),
            "y": count.copy(data=points[..., 1]),
            "stress": xr.DataArray(stress, dims=(axes.STACK,), coords={axes.STACK: count[axes.STACK]}),
        }

    def _kinds(self) -> xr.DataArray:
        """The first of KINDS whose threshold the head passes."""
        mass, entropy = self.means.masses.arrays()["mass"], self.means.moments.arrays()["entropy"]
        kind = xr.full_like(entropy, "other", dtype=object)
        passed = {name: mass.sel({axes.CATEGORY: name}, drop=True) > MOSTLY for name in KINDS[:6]}
        passed["broad"] = entropy > BROAD
        for name in reversed(KINDS[:-1]):
            kind = kind.where(~passed[name], name)
        return kind


def _between(places: Int[Tensor, " place"]) -> slice:
    """The slice from the first of these positions to the last."""
    return slice(int(places[0]), int(places[-1]) + 1)


def _lean(call: Call) -> Call:
    """What rows of a call can be recomputed from: its queries and keys, or the matrix if a tap has edited it.

    Queries and keys grow with the length of a text, the matrix with its square.
    """
    lean = Call(call.site, call.scores, call.grouped_value if call.has_values else None)
    if call.has_weights:
        lean.weights = call.weights
    return lean
