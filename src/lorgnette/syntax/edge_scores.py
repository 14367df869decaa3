"""How much one word attends to another, as edges of a graph: weights, norms or relevance."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.attending.words import between_words
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import all_heads_norms, gram, transformed_norms
from lorgnette.explaining import edge_relevance
from lorgnette.explaining.target import require_head
from lorgnette.subject import Subject
from lorgnette.syntax.gold_trees import GoldTrees
from lorgnette.texts.batch import Batch

SCORES = ("weights", "norms", "relevance")


class EdgeScores:
    """Scores between the words of a batch at one call: of each head, and of the layer (all heads together).

    weights   α;            the layer: mean over heads
    norms     α‖f(x)‖;      the layer: ‖Σ_h α^h f^h(x)‖      (Kobayashi et al. 2020)
    relevance α⟨v, c⟩;      the layer: sum over heads        (`explanations.edge_relevance`, the AH-rule)

    Relevance takes a pass of its own (`of_batch`), the others come with the call.
    """

    def __init__(self, subject: Subject, scores: str) -> None:
        self.scores, self.subject = scores, [subject]  # in a list: a lens must not own the model
        if scores == "relevance":
            require_head(subject)
        self.projections: SiteWeights | None = SiteWeights(subject, layer_norm=False) if scores == "norms" else None

    def of_batch(
        self, batch: Batch, sites: Sequence[Site], words: int
    ) -> Iterator[tuple[Site, Float[Tensor, "batch head word word2"], Float[Tensor, "batch word word2"]]]:
        """Relevance between words, site by site."""
        relevance = edge_relevance(self.subject[0], batch)
        for site in sites:
            heads = between_words(relevance[site], batch.source.word, words)[0].cpu()
            yield site, heads, heads.sum(1)

    def __call__(
        self, call: Call, batch: Batch, trees: GoldTrees
    ) -> tuple[Float[Tensor, "batch head word word2"], Float[Tensor, "batch word word2"]]:
        weights = call.weights.to(torch.promote_types(call.query.dtype, torch.float32))
        words = trees.visible.shape[1]
        if self.projections is None:
            heads = between_words(weights, batch.source.word, words)[0].cpu()
            return heads, heads.mean(1)
        maps = self.projections[call.site]
        weights = weights.to(maps.output.dtype)
        squares = gram(call.value.to(weights), maps.products)
        layer = all_heads_norms(weights, squares)
        heads = weights * transformed_norms(squares)[:, :, None]
        both = between_words(torch.cat([heads, layer[:, None]], 1), batch.source.word, words)[0].cpu()
        return both[:, :-1], both[:, -1]
