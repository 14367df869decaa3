"""How far a head's output departs from the uniform average of the values, within the cone that they span."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.convexity.formulas import Cone, angle, cone
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

_DESCRIPTIONS = {
    "distance": "distance of a head's output from the uniform average of the visible values, relative to the length "
    "of the average",
    "cosine": "cosine of a head's output with the uniform average of the visible values",
    "angle": "angle between a head's output and the uniform average of the visible values, in radians",
    "cone_widest": "largest angle between a value and the uniform average, in radians; the output cannot leave a "
    "cone narrower than π/2",
    "cone_average": "mean angle between the values and their uniform average, in radians",
    "used": "angle between the output and the uniform average, divided by the largest angle of a value: the share of "
    "the cone that attention uses",
    "norm_ratio": "length of a head's output divided by that of the uniform average of the visible values",
    "beyond": "share of queries whose output lies outside the cone (0 if the cone is narrower than π/2)",
}
_NARROWEST = 1e-6
"""Radians: a cone narrower than this has no inside to use."""


class Convexity(CentredLens):
    """y_i = Σ_j α_ij v_j against v̄_i, the mean of the values visible to query i (Fosse et al. 2023, eq. 3).

    If all values lie within an angle θ < π/2 of v̄, so does every y, whatever the weights: in a narrow cone, attention
    can change the output little. Means are over queries, then over texts, before W_O, residual and norm. Queries with
    v̄ = 0 are excluded and counted in `no_mean`; a cone of a single direction has no `used`.

    With `centred`, values are less their mean over the corpus, per head, which is read once before (docs/gauge.md): a
    constant in all values makes every cone narrow, and could as well stand in the bias.

    What it does not tell you: whether a small angle matters. The next layer may use a difference of a few degrees.
    """

    name: ClassVar[str] = "convexity"
    summary: ClassVar[str] = "how far a head's output departs from the uniform average of the values"
    reads = frozenset({"cpu"})
    no_mean: Tensor

    def __init__(self, centred: bool = False) -> None:
        super().__init__(centred)

    def allocate(self, subject: Subject) -> None:
        self.moments: Moments = Moments(self, tuple(_DESCRIPTIONS))
        self.pairs: Pairs = Pairs(self.moments, "distance")
        self.sums("no_mean", len(self.sites), self.heads)

    def update(self, call: Call, batch: Batch) -> None:
        call, site = self.centring(call), call.site
        queries = batch.queries(site).mask[:, None]  # [batch 1 query]
        hull = cone(call.scores, call.value)
        rows, defined = _rows(call.context.double(), hull)
        lost = queries & ~defined[..., 0]
        self.no_mean[self.position[site], : lost.shape[1]] += lost.sum((0, 2)).to(self.no_mean)
        counted = defined & queries[..., None]
        each = counted.sum(2)
        means = torch.where(counted, rows, 0.0).sum(2) / each.clamp(min=1)
        columns = zip(_DESCRIPTIONS, means.unbind(-1), (each > 0).double().unbind(-1), strict=True)
        self.moments.add(site, **{name: (mean, weight) for name, mean, weight in columns})

    def compute(self) -> Result:
        """Distance, cosine, angle, the cone and how much of it is used, by head."""
        variables = self.moments.arrays() | self.pairs.q()
        variables["no_mean"] = self.grid(self.no_mean).fillna(0).astype("int64")
        about = {**_DESCRIPTIONS, "no_mean": "queries whose mean value vector is zero (excluded)"}
        return self.centring.mark(self.result(variables, descriptions=about))


def _rows(
    context: Float[Tensor, "batch head query dim"], hull: Cone
) -> tuple[Float[Tensor, "batch head query column"], Bool[Tensor, "batch head query column"]]:
    """The value of every column at every query, and whether it is defined there."""
    mean = hull.mean  # one row for all where they see the same
    each = (hull.widest, hull.average, mean.norm(dim=-1))
    widest, average, length = (part.expand(context.shape[:3]) for part in each)
    turn, size = angle(context, mean), context.norm(dim=-1)
    nonzero, arrived = length > 0, size > 0
    by = torch.where(nonzero, length, 1.0)
    both, open_cone = nonzero & arrived, nonzero & arrived & (widest > _NARROWEST)
    columns = {
        "distance": ((context - mean).norm(dim=-1) / by, nonzero),
        "cosine": (turn.cos(), both),
        "angle": (turn, both),
        "cone_widest": (widest, nonzero),
        "cone_average": (average, nonzero),
        "used": (turn / torch.where(open_cone, widest, 1.0), open_cone),
        "norm_ratio": (size / by, nonzero),
        "beyond": ((turn > widest + _NARROWEST).double(), both),
    }
    values, defined = zip(*(columns[name] for name in _DESCRIPTIONS), strict=True)
    return torch.stack(values, -1), torch.stack(defined, -1)
