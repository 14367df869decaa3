"""What is left of each token after several layers: attention rollout, from weights and from norms."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attention import Call, Site
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer_mixing import mixing_of, rollable
from lorgnette.contributions.rollout import rolled_out
from lorgnette.corpora.batch import Batch, Tokens
from lorgnette.errors import UserError
from lorgnette.lenses.base import Lens
from lorgnette.lenses.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.entropy import entropy
from lorgnette.subject import Subject

MEASURES = ("weights", "norms")
SHARES = ("self", "cls", "sep", "period_comma", "other")


class Rollout(Lens):
    """Attention rollout by layer: how much of a state is its own token, and which kinds of token the rest comes from.

        weights   M = ½ mean_h α + ½ I                                       (Abnar & Zuidema 2020)
        norms     M_ij = ‖term_ij‖ / Σ_j ‖term_ij‖, term_ij the part of the layer's vector i that comes from token j,
                  residual included: AttnResLn-N where a LayerNorm follows, AttnRes-N where it comes first
        R_l = M_l … M_1

    Means are over the non-padding tokens of a text, specials included, then over texts (`by="token"` pools them).
    Self-attention of encoders and of models with nothing but a decoder; a decoder that also reads an encoder has no
    rollout of its own. Norms are missing where a layer is not x + attention (Gemma-2).

    What it does not tell you: feed-forward parts are taken to leave tokens apart, which they do, and alike, which they
    do not; products of shares know nothing of terms that cancel.
    """

    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "how much of each token is left after several layers, from weights and from norms"
    wants_residual: ClassVar[bool] = True

    def __init__(self, by: str = "text") -> None:
        super().__init__()
        if by not in ("text", "token"):
            raise UserError(f"The 'by' parameter of Rollout must be 'text' or 'token'. Got {by!r} instead.")
        self.by = by
        self.batch: Batch | None = None
        self.product: dict[tuple[str, str], Tensor | None] = {}

    def allocate(self, subject: Subject) -> None:
        subject.anatomy.require("mixing")
        self.projections = SiteWeights(subject, layer_norm=True) if subject.anatomy.knows("output") else None
        self.rolling = rollable(subject.sites)
        self.moments = {name: Moments(self, ("entropy", *SHARES), f"{name}_totals", heads=1) for name in MEASURES}

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site not in self.rolling:
            return
        if batch is not self.batch:
            self.batch, self.product = batch, {}
        mixing = mixing_of(call, self.projections)
        for measure in MEASURES:
            before = self.product.get((site.name, measure)) if site.layer else None
            layer = mixing.get(measure)
            if layer is None or (site.layer and before is None):
                self.product[site.name, measure] = None
                continue
            product = layer if before is None else layer @ before
            self.product[site.name, measure] = product
            self._add(site, measure, product, batch.queries(site))

    def finish(self, batch: Batch, outputs: Any) -> None:
        """Let go of the products of this batch."""
        self.batch, self.product = None, {}

    def _add(self, site: Site, measure: str, product: Float[Tensor, "text query key"], tokens: Tokens) -> None:
        counts = tokens.mask.sum(-1).to(product.dtype)
        kinds = torch.stack([tokens.categories[name] for name in SHARES[1:]], -1).to(product.dtype)
        rows = torch.cat(
            [
                entropy(product)[..., None],
                product.diagonal(dim1=-2, dim2=-1)[..., None],
                product @ kinds,
            ],
            -1,
        )
        values = (rows * tokens.mask[..., None]).sum(1) / counts.clamp(min=1)[:, None]
        weights = (counts if self.by == "token" else (counts > 0).to(counts.dtype))[:, None].repeat(1, 1 + len(SHARES))
        for column, name in enumerate(("cls", "sep"), 2):
            weights[:, column] *= tokens.categories[name].any(-1)  # a text without such a token has no such share
        self.moments[measure].add(site, values[:, None], weights[:, None])

    def compute(self) -> Result:
        """Shares by kind of input token and their entropy, by layer and measure."""
        variables: dict[str, Any] = {}
        for name, columns, axis in (("share", SHARES, axes.CATEGORY), ("entropy", None, None)):
            found = [self.moments[measure].arrays(name, columns, axis) for measure in MEASURES]
            for variable in found[0]:
                variables[variable] = _side_by_side([arrays[variable] for arrays in found])
        variables["share"].attrs["description"] = "share of the input tokens of a kind in a state, mean over tokens"
        variables["entropy"].attrs["description"] = (
            "entropy in nats of the shares of all input tokens, mean over tokens"
        )
        result = self.result(variables)
        result.data.attrs["by"] = self.by
        return result


def rollout(
    calls: Iterable[Call], stack: str | None = None, projections: SiteWeights | None = None
) -> Float[Tensor, "layer query key"]:
    """The rollout of one text after every layer, from a trace (or its calls): row i shares token i out over the input.

    From weights, or from norms if the subject's `SiteWeights(subject, layer_norm=True)` are given and the calls
    have kept their residual. With several stacks, `stack` says which.
    """
    calls = list(calls)
    rolling = rollable([call.site for call in calls])
    names = sorted({site.name for site in rolling})
    if stack is None and len(names) == 1:
        stack = names[0]
    if stack not in names:
        raise UserError(f"A rollout needs the self-attention of one stack: {' or '.join(names) or 'there is none'}.")
    chosen = sorted((c for c in calls if c.site in rolling and c.site.name == stack), key=lambda c: c.site.layer)
    measure = MEASURES[projections is not None]
    mixing = []
    for call in chosen:
        found = mixing_of(call, projections).get(measure)
        if found is None:
            raise UserError(f"{call.site} is not x + attention with a norm that is known: no rollout from norms.")
        mixing.append(found[0])
    return rolled_out(torch.stack(mixing))


def _side_by_side(arrays: Sequence[xr.DataArray]) -> xr.DataArray:
    """[stack layer head …] of each measure as [stack layer measure …]: a rollout is of all heads together."""
    first = arrays[0].isel({axes.HEAD: 0}, drop=True)
    values = np.stack([array.isel({axes.HEAD: 0}).values for array in arrays], axis=2)
    dims = (*first.dims[:2], axes.MEASURE, *first.dims[2:])
    return xr.DataArray(values, dims=dims, coords={**first.coords, axes.MEASURE: list(MEASURES)})
