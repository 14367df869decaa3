"""How much of each input token remains in the states after each layer: attention rollout."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer_mixing import LayerMixing, mixing_of, rollable
from lorgnette.contributions.rollout import rolled_out
from lorgnette.errors import UserError
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.moments import By, Moments
from lorgnette.results import Result
from lorgnette.statistics.entropy import entropy
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.types import ModelOutput

MEASURES = ("weights", "norms")
SHARES = ("self", "cls", "sep", "period_comma", "other")


class Rollout(CentredLens):
    """Attention rollout by layer: the share of its own token in a state, and of each category of token.

        weights   M = ½ mean_h α + ½ I                                       (Abnar & Zuidema 2020)
        norms     M_ij = ‖term_ij‖ / Σ_j ‖term_ij‖, term_ij the part of the layer's vector i that comes from token j,
                  residual included: AttnResLn-N where a LayerNorm follows, AttnRes-N where it comes first
        R_l = M_l … M_1

    Means are over the non-padding tokens of a text, specials included, then over texts (`by="token"` pools them).
    Self-attention of encoders and of models with nothing but a decoder; a decoder that also reads an encoder has no
    rollout of its own. Norms are missing where a layer is not x + attention (Gemma-2).

    With `centred`, norms are of values less their mean over the corpus, per head, which is read once before
    (docs/gauge.md).

    What it does not tell you: the effect of feed-forward layers, which is assumed to be the same for all tokens, or of
    terms that cancel, which products of shares cannot represent.
    """

    projections: SiteWeights | None

    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "how much of each input token remains after each layer (attention rollout)"
    reads = frozenset({"residual", "cpu"})

    def __init__(self, by: By = "text", centred: bool = False) -> None:
        super().__init__(centred)
        self.by = by

    def allocate(self, subject: Subject) -> None:
        subject.anatomy.require("mixing")
        known = subject.anatomy.knows("output", gated=True)
        self.projections = SiteWeights(subject, layer_norm=True, gated=True) if known else None
        self.rolling: set[Site] = rollable(subject.text_sites)
        by_measure = {axes.MEASURE: MEASURES}
        self.shares: Moments = Moments(self, "share", {**by_measure, axes.CATEGORY: SHARES}, at="layer")
        self.entropies: Moments = Moments(self, "entropy", by_measure, at="layer")
        self.apart: Moments = Moments(self, "share_difference", {axes.CATEGORY: SHARES}, at="layer")

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        if call.site not in self.rolling:
            return ()
        return (Wanted(block=self._mixing(call)),)

    def _mixing(self, call: Call) -> LayerMixing:
        """The mixing matrices of a call, which are filled while its rows are swept."""
        return call.once(f"rollout {id(self)}", lambda: LayerMixing(self.centring(call), self.projections))

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        if site not in self.rolling:
            return
        self.measured(call, batch)
        mixing = self._mixing(call).matrices()
        products: dict[tuple[str, str], Tensor | None] = batch.shared.setdefault(f"rollout {id(self)}", {})
        for measure in MEASURES:
            before = products.get((site.name, measure)) if site.layer else None
            layer = mixing.get(measure)
            if layer is None or (site.layer and before is None):
                products[site.name, measure] = None
            else:
                products[site.name, measure] = layer if before is None else layer @ before
        self._add(site, [products[site.name, measure] for measure in MEASURES], batch.queries(site))

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Free the products of matrices, which are as large as the weights of a head."""
        batch.shared.pop(f"rollout {id(self)}", None)

    def _add(self, site: Site, products: Sequence[Tensor | None], tokens: Tokens) -> None:
        """Means over the tokens of each text, [text measure …]; a measure that a layer lacks has weight 0."""
        counts = tokens.mask.sum(-1).double()
        weights = counts if self.by == "token" else (counts > 0).double()
        known = torch.tensor([product is not None for product in products], device=weights.device)
        weights = weights[:, None] * known  # [text measure]
        has = torch.ones(len(weights), len(SHARES), dtype=torch.bool, device=weights.device)
        for name in ("cls", "sep"):  # a text without such a token has no such share
            has[:, SHARES.index(name)] = tokens.categories[name].any(-1)
        means = []
        for product in products:
            rows = weights.new_zeros(*tokens.mask.shape, 1 + len(SHARES)) if product is None else _rows(product, tokens)
            means.append((rows * tokens.mask[..., None]).sum(1) / counts.clamp(min=1)[:, None].to(rows.dtype))
        mean = torch.stack([mean.double() for mean in means], 1)  # [text measure column]
        self.entropies.add(site, entropy=(mean[..., 0], weights))
        self.shares.add(site, share=(mean[..., 1:], weights[..., None] * has[:, None]))
        one, other = (MEASURES.index(measure) for measure in ("weights", "norms"))
        both = weights[:, one] * (weights[:, other] > 0)
        self.apart.add(site, share_difference=((mean[:, one] - mean[:, other])[:, 1:], both[:, None] * has))

    def compute(self) -> Result:
        """Shares by kind of input token and their entropy, by layer and measure."""
        variables = self.shares.arrays() | self.entropies.arrays() | self.apart.arrays()
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs["by"] = self.by
        return self.centring.mark(result)


_DESCRIPTIONS = {
    "share": "share of the input tokens of a category in a state, mean over tokens",
    "share_difference": "share by weights minus that by norms, of the same texts",
    "entropy": "entropy in nats of the shares of all input tokens, mean over tokens",
}


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
        matrix = mixing_of(call, projections).get(measure)
        if matrix is None:
            raise UserError(f"{call.site} is not x + attention with a known norm: rollout from norms is impossible.")
        mixing.append(matrix[0])
    return rolled_out(torch.stack(mixing))


def _rows(product: Float[Tensor, "text query key"], tokens: Tokens) -> Float[Tensor, "text query column"]:
    """Entropy of each token's row, then its shares."""
    kinds = torch.stack([tokens.categories[name] for name in SHARES[1:]], -1).to(product.dtype)
    own = product.diagonal(dim1=-2, dim2=-1)[..., None]
    return torch.cat([entropy(product)[..., None], own, product @ kinds], -1)
