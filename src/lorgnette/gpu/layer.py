"""The norms of one call by kernels: no block of weights is read, and pairs get theirs from the log-sums of rows."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending.scores import Scores
from lorgnette.attending.sweep import Measured, Wanted, Watcher
from lorgnette.contributions.layer import LayerNorms, Received, gram_of
from lorgnette.contributions.pairs import TokenPairs
from lorgnette.gpu import norms as kernels
from lorgnette.gpu.pairs import weighed

_LOG2E = 1.4426950408889634


class FusedLayerNorms(LayerNorms):
    """`LayerNorms` without blocks: the kernels make the weights of pairs anew from the log-sum of each row."""

    any_order: bool = True

    def wants(self, *, pairs: TokenPairs | None, pairwise: bool, watchers: Iterable[Watcher]) -> tuple[Wanted, ...]:
        self._pairs = pairs
        return (Wanted(received=self.queries, offsets=(0,) if self.compares else (), log_sum=True, context=True),)

    def take(self, rows: Measured) -> None:
        super().take(rows)
        log_sum = rows["log_sum"]
        if self._pairs is not None:
            weigh(self._pairs, self.call.scores, log_sum, self.f)
        self._norms = self._received(log_sum)

    def _own_terms(self) -> None:
        """Of a token alone and of the others, before the norm and behind it, all in one kernel."""
        call, parts = self.call, self.parts
        total = kernels.projected(call.context, parts)
        own = kernels.own_projected(self.own_weight, call.grouped_value, parts)
        residual = call.residual if self.added else None
        norms = kernels.own_norms(total, own, residual, self.output_bias, parts.norm if self.normed else None)
        norms[1::4].masked_fill_(call.visible_keys[:, 0] <= 1, 0.0)  # who sees one token alone gets nothing else
        self.own_norm, self.others_norm, self.own_res_norm, self._size = norms[:4]
        self.own_ln_norm, self.others_ln_norm, self._scale, self._own_behind = norms[4:]

    def _received(self, log_sum: Float[Tensor, "text head query"]) -> Received:
        assert self.gram is not None
        grams, queries = [self.gram], [self.query]
        if self.normed:
            grams, queries = [*grams, gram_of(self.call, self.parts, normed=True)], [*queries, self.query * self.scale]
        received = kernels.received(self.call.scores, log_sum, grams, queries)
        if not self.compares:
            return Received(received[0], self.query, received[0], self.query)
        return Received(received[0], self.own_norm, received[-1], self._own_behind)


def weigh(
    pairs: TokenPairs,
    scores: Scores,
    log_sum: Float[Tensor, "text head query"],
    norms: Float[Tensor, "text head key"],
) -> None:
    """Weights of pairs from scores and the log-sum of their rows, and the norms of their keys."""
    text, head, query, key = pairs.text, pairs.head, pairs.query, pairs.key
    if scores.softcap is None and scores.bias is None and scores.query.is_cuda:
        pairs.values = weighed(pairs, scores, log_sum, norms)
        return
    group = head // (scores.shape[1] // scores.key.shape[1])
    dot = (scores.query[text, head, query].float() * scores.key[text, group, key].float()).sum(-1) * scores.scale
    if scores.softcap is not None:
        dot = scores.softcap * torch.tanh(dot / scores.softcap)
    if scores.bias is not None:
        dot = dot + scores.bias.expand(scores.shape)[text, head, query, key]
    pairs.weight = (dot * _LOG2E - log_sum[text, head, query]).exp2().double()


__all__ = ["FusedLayerNorms"]
