"""Clouds of vectors on a GPU: those that are alike go through the kernels together, as each launch takes time."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.gpu import vectors as kernels
from lorgnette.lens.geometry.cloud import MOST, Cloud, Clouds, Held


class FusedClouds(Clouds):
    """`Clouds` whose sums and second moments come from kernels."""

    _counted: tuple[Tensor, Tensor] | None = None

    def add(self, clouds: Sequence[Cloud]) -> None:
        if not kernels.supported(clouds[0].vectors):
            super().add(clouds)
            return
        turn = len(self.held)
        for some in _neighbours(clouds):
            vectors, mask, products = [cloud.vectors for cloud in some], some[0].mask, None
            directions = kernels.directions(vectors, mask)
            if self.covariances:
                texts = directions.total.flatten(1).unflatten(0, (len(some), -1))
                products = kernels.products(vectors, mask, texts, self._items(mask))
            named = [(cloud.site, cloud.kind) for cloud in some]
            self.held.append(Held(named, turn, len(mask), directions, products))

    def _items(self, mask: Bool[Tensor, "batch token"]) -> Float[Tensor, ""]:
        """How many vectors count, at least one; counted once for all clouds of a batch that have this mask."""
        if self._counted is None or self._counted[0] is not mask:
            self._counted = mask, mask.sum().clamp(min=1).double()
        return self._counted[1]

    def commit(self) -> None:
        self._counted = None
        super().commit()

    def take_second(self, held: Sequence[Held]) -> None:
        """Second moments from the products of the kernels, as many at a time as memory should hold."""
        made = [(one, one.second) for one in held if isinstance(one.second, kernels.Products)]
        step = max(1, MOST // made[0][1].products.numel()) if made else 1
        for start in range(0, len(made), step):
            some = made[start : start + step]
            lower, total = kernels.second_moments([products for _, products in some])
            moment, totals = self.of("moment").flatten(0, 1), self.of("moment_total").flatten(0, 1)
            at, width = self.rows([one for one, _ in some], moment.device), total.shape[-1]
            moment[:, :width, :width].index_add_(0, at, lower.to(moment))
            totals[:, :width].index_add_(0, at, total.to(totals))
        super().take_second(held)


def _neighbours(clouds: Sequence[Cloud]) -> Iterator[list[Cloud]]:
    """Neighbours of one shape whose tokens count alike, at most so many at a time."""
    by_shape = groupby(clouds, lambda cloud: (cloud.vectors.shape, cloud.vectors.stride(), id(cloud.mask)))
    for some in (list(group) for _, group in by_shape):
        step = kernels.together(some[0].vectors)
        yield from (some[start : start + step] for start in range(0, len(some), step))


__all__ = ["FusedClouds"]
