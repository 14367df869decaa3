"""Sums that hold the geometry of many clouds of vectors, within texts and over the corpus."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.kernels import vector_kernels
from lorgnette.lens.base import Lens
from lorgnette.lens.geometry.cosine import (
    COUNT,
    ENERGY,
    SQUARES,
    SQUARES_ALL,
    TOTAL,
    UNITS,
    UNITS_ALL,
    ZEROS,
    Directions,
    contributions,
    directions,
    intra_similarity,
    mean_pairwise_cosine,
    within_texts,
)
from lorgnette.lens.geometry.isotropy import covariance, iso_score, mirrored, second_moment
from lorgnette.lens.moments import Moments
from lorgnette.lens.parts import Part, alike
from lorgnette.lens.places import Places
from lorgnette.lens.states import zeros
from lorgnette.statistics.hash_sample import moved

SHORT = 3
"""Behind the counts of `Directions`: texts with fewer than two vectors."""
_EVERY = slice(None)
MOST = 2**25
"""Numbers of second moments that are worked out together."""
LEAST_COSINE = 0.01
"""Of a mean cosine below this, no dimension can be said to make up a share."""


class Cloud(NamedTuple):
    """Vectors of one kind at one site of a batch, and which tokens count."""

    site: Site
    kind: int
    vectors: Float[Tensor, "batch token head dim"]
    mask: Bool[Tensor, "batch token"]


class _Held(NamedTuple):
    """What a batch gave of some clouds of one shape; those of one call have the same turn."""

    clouds: list[tuple[Site, int]]  # site and kind
    turn: int
    texts: int
    directions: Directions  # of the texts of the first cloud, then those of the second, …
    products: Any  # of kernels
    second: tuple[Tensor, Tensor] | None = None  # without kernels: the second moment and the sum of one cloud


class Moment(NamedTuple):
    """Second moments of some places, of these heads, or of all heads side by side (−1)."""

    places: list[int]
    heads: slice
    matrices: Float[Tensor, "place head dim dim"]
    totals: Float[Tensor, "place head dim"]


class Clouds(Part[_Held]):
    """Clouds of vectors at each place, of each kind, for every head and (last) for all heads side by side.

    States, all of them sums: five sums of vectors, four counts, six moments of SIM and IntraSim over texts, and with
    covariances Σ x xᵀ of all heads, whose diagonal blocks are those of the heads.
    """

    def __init__(
        self, lens: Lens, places: Places, kinds: Sequence[str], dim: int, state: str, *, covariances: bool
    ) -> None:
        super().__init__(lens)  # before its moments, which it hands its numbers to
        self.places, self.kinds, self.dim, self.state = places, tuple(kinds), dim, state
        self.covariances = covariances
        self._counted: tuple[Tensor, Tensor] | None = None
        sites, self.heads = len(places.sites), places.heads or 1
        self.widths: dict[tuple[int, int], tuple[int, int]] = {}
        lens.sums(f"{state}_sums", 5, sites, len(kinds), self.heads, dim, in_place=False)
        lens.sums(f"{state}_counts", 4, sites, len(kinds), self.heads + 1, in_place=False)
        self.held: list[_Held] = []
        by_kind = {axes.VECTORS: self.kinds}
        self.moments: Moments = Moments(lens, ("sim", "intra_similarity"), by_kind, at=places, state=f"{state}_totals")
        if covariances:
            wide = self.heads * dim
            for name, shape in (("moment", (wide, wide)), ("moment_total", (wide,))):  # Σ x xᵀ; Σ x, better than `sums`
                start = zeros(sites, len(kinds), *shape)
                lens.state(f"{state}_{name}", start, "sum", on_device=True, in_place=False, large=True)

    def of(self, name: str) -> Tensor:
        return getattr(self.lens, f"{self.state}_{name}")

    def add(self, clouds: Sequence[Cloud]) -> None:
        """Take in some clouds; on a GPU those that are alike together, as each launch takes time."""
        turn, module = len(self.held), _kernels(clouds[0].vectors)
        if module is None:
            for cloud in clouds:
                self._add_one(cloud, turn)
            return
        for some in _alike(clouds, module.together):
            vectors, mask, products = [cloud.vectors for cloud in some], some[0].mask, None
            directions = module.directions(vectors, mask)
            if self.covariances:
                texts = directions.total.flatten(1).unflatten(0, (len(some), -1))
                products = module.products(vectors, mask, texts, self._items(mask))
            named = [(cloud.site, cloud.kind) for cloud in some]
            self.held.append(_Held(named, turn, len(mask), directions, products))

    def _add_one(self, cloud: Cloud, turn: int) -> None:
        (site, kind, vectors, mask), found = cloud, directions(cloud.vectors, cloud.mask)
        second = None
        if self.covariances:
            near = found.total.sum(0).flatten() / mask.sum().clamp(min=1)
            flat = vectors.flatten(2)
            second = second_moment(flat.flatten(0, 1) if bool(mask.all()) else flat[mask], near)
        self.held.append(_Held([(site, kind)], turn, len(mask), found, None, second))

    def _items(self, mask: Bool[Tensor, "batch token"]) -> Float[Tensor, ""]:
        """How many vectors count, at least one; reckoned once for all clouds of a batch that have this mask."""
        if self._counted is None or self._counted[0] is not mask:
            self._counted = mask, mask.sum().clamp(min=1).double()
        return self._counted[1]

    def commit(self) -> None:
        """Take what a batch gave into the sums, clouds of one shape together; the moments take theirs after this."""
        held, self.held, self._counted = self.held, [], None
        within: dict[tuple[Site, int], dict[int, tuple[Tensor, Tensor]]] = {}
        for some in alike(held, lambda one: (one.texts, one.directions.sums.shape[2:])):
            values, weights = self._take(some)  # [cloud text head what]
            clouds = [(site, kind, one.turn) for one in some for site, kind in one.clouds]
            if self._side_by_side(clouds):
                sites = [site for site, _, _ in clouds[:: len(self.kinds)]]
                parts = (part.unflatten(0, (len(sites), -1)).movedim(1, -1).unbind(3) for part in (values, weights))
                sim, intra = zip(*parts, strict=True)  # [site text head kind]
                self.moments.add_sites(sites, sim=sim, intra_similarity=intra)
                continue
            for (site, kind, turn), *both in zip(clouds, values, weights, strict=True):
                within.setdefault((site, turn), {})[kind] = (both[0], both[1])
        for (site, _), by_kind in within.items():
            pairs = [by_kind[kind] for kind in sorted(by_kind)]
            value, weight = (torch.stack(parts, -1) for parts in zip(*pairs, strict=True))  # [text head what kind]
            sim, intra = zip(value.unbind(2), weight.unbind(2), strict=True)
            self.moments.add(site, sim=sim, intra_similarity=intra)

    def _side_by_side(self, clouds: Sequence[tuple[Site, int, int]]) -> bool:
        """Whether these are all kinds of some sites, one site after the other."""
        kinds = list(range(len(self.kinds)))
        sites = [site for site, _, _ in clouds[:: len(kinds)]]
        whole = [(site, kind) for site in sites for kind in kinds]
        return len(set(sites)) == len(sites) and [(site, kind) for site, kind, _ in clouds] == whole

    def _take(self, held: Sequence[_Held]) -> tuple[Tensor, Tensor]:
        """Add the sums of clouds of one shape; returns the numbers within texts, [cloud text head what]."""
        texts, (*_, heads, dim) = held[0].texts, held[0].directions.sums.shape
        whole = Directions(
            *(torch.cat([getattr(one.directions, name) for one in held], 1) for name in ("sums", "counts"))
        )
        short = (whole.count < 2).to(whole.counts.dtype)[None]
        both = (whole.sums, torch.cat([whole.counts, short]))
        sums, counts = (part.unflatten(1, (-1, texts)).sum(2, dtype=torch.float64) for part in both)
        of_sums, of_counts = self.of("sums").clone(), self.of("counts").clone()
        at = self._places(held, of_sums.device)
        of_sums.flatten(1, 2)[:, :, :heads, :dim].index_add_(1, at, sums.to(of_sums))
        spread = of_counts.flatten(1, 2)
        spread[..., :heads].index_add_(1, at, counts[..., :-1].to(of_counts))
        spread[..., self.heads].index_add_(1, at, counts[..., -1].to(of_counts))
        setattr(self.lens, f"{self.state}_sums", of_sums)
        setattr(self.lens, f"{self.state}_counts", of_counts)
        self._take_products([one for one in held if one.products is not None])
        for one in (one for one in held if one.second is not None):
            self._take_second(one)
        values, weights = (self._with_room(part) for part in within_texts(whole))
        return values.unflatten(0, (-1, texts)), weights.unflatten(0, (-1, texts))

    def _places(self, held: Sequence[_Held], device: torch.device) -> Tensor:
        places = (self.places.index(site) * len(self.kinds) + kind for one in held for site, kind in one.clouds)
        return _sent(tuple(places), device)

    def _take_products(self, held: Sequence[_Held]) -> None:
        """Second moments from the products that kernels made, as many at a time as memory should hold."""
        step = max(1, MOST // held[0].products.products.numel()) if held else 1
        for start in range(0, len(held), step):
            some = held[start : start + step]
            module = vector_kernels()
            assert module is not None
            lower, total = module.second_moments([one.products for one in some])
            moment, totals = self.of("moment").flatten(0, 1), self.of("moment_total").flatten(0, 1)
            at, width = self._places(some, moment.device), total.shape[-1]
            moment[:, :width, :width].index_add_(0, at, lower.to(moment))
            totals[:, :width].index_add_(0, at, total.to(totals))

    def _take_second(self, held: _Held) -> None:
        """The second moment of one cloud, made without kernels."""
        assert held.second is not None
        ((site, kind),), (lower, total) = held.clouds, held.second
        at, width = self.places.index(site), slice(len(total))
        moment, totals = self.of("moment"), self.of("moment_total")
        moment[at, kind, width, width] += lower.to(moment)
        totals[at, kind, width] += total.to(totals)

    def _with_room(self, part: Float[Tensor, "text head_or_all what"]) -> Float[Tensor, "text all_heads what"]:
        """Pad a place to the number of heads that other places have."""
        missing = self.heads + 1 - part.shape[1]
        room = part.new_zeros(len(part), missing, part.shape[2])
        return torch.cat([part[:, :-1], room, part[:, -1:]], 1) if missing else part

    def means(self) -> dict[str, np.ndarray]:
        """SIM and IntraSim within texts, [stack layer head-or-all vectors], with standard errors and counts."""
        return self.moments.values()

    def pooled(self, moments: Sequence[Moment], ranks: Sequence[Tensor]) -> dict[str, np.ndarray]:
        """What holds of all vectors of the corpus together, [stack layer head-or-all vectors], with counts.

        `moments`: `second_moments`, and `ranks`: their effective ranks.
        """
        sums, counts = self.of("sums").cpu(), self.of("counts").cpu()
        n, together = counts[COUNT], sums.flatten(-2)[..., None, :]
        rows = ((sums, UNITS, SQUARES, n[..., :-1]), (together, UNITS_ALL, SQUARES_ALL, n[..., -1:]))
        parts = [self._of_corpus(some[units], some[TOTAL], some[squares], m) for some, units, squares, m in rows]
        sim, along, squared, first, three = (torch.cat(part, -1) for part in zip(*parts, strict=True))
        pairs = n > 1
        share = torch.where(sim > LEAST_COSINE, 1 / torch.where(sim > LEAST_COSINE, sim, 1.0), torch.nan)
        clear = pairs & (sim > LEAST_COSINE)
        everything = n + counts[ZEROS]
        cells: dict[str, tuple[Tensor, Tensor]] = {
            "sim_corpus": (sim, n * pairs),
            "along_mean": (along, n * (squared > 0)),
            "mean_share": (squared / (everything * counts[ENERGY]).clamp(min=torch.finfo(torch.float64).tiny), n),
            "rogue_1": (first * share, n * clear),
            "rogue_3": (three * share, n * clear),
        }
        if self.covariances:
            cells |= self._isotropy(everything, moments, ranks)
        counted = {f"{name}_count": count for name, (_, count) in cells.items()}
        counted |= {"vectors_count": counts[COUNT], "zero_vectors": counts[ZEROS], "short_texts": counts[SHORT]}
        found = {name: torch.where(count > 0, value, torch.nan) for name, (value, count) in cells.items()}
        return self._spread(found) | self._spread(counted, whole=True)

    def _of_corpus(self, units: Tensor, total: Tensor, squares: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        """For each head, or all side by side: SIM, IntraSim, ‖Σ x‖², the largest and three largest contributions."""
        each = contributions(units, squares, n)
        room = self.heads * self.dim - each.shape[-1]
        top = F.pad(each, (0, min(3, room))).topk(min(3, each.shape[-1] + room)).values  # other dimensions add nothing
        squared = total.square().sum(-1)
        return mean_pairwise_cosine(units, n), intra_similarity(units, total, n), squared, top[..., 0], top.sum(-1)

    def second_moments(self) -> list[Moment]:
        """Σ x xᵀ and Σ x, of all heads side by side and of each, for places of one shape together; none if not kept."""
        shapes: dict[tuple[int, int], list[int]] = {}
        for at, site in enumerate(self.places.sites if self.covariances else ()):
            for kind in range(len(self.kinds)):
                shapes.setdefault(self.shape(site, kind), []).append(at * len(self.kinds) + kind)
        out: list[Moment] = []
        for (heads, dim), places in shapes.items():
            width = heads * dim
            step = max(1, MOST // width**2)
            for some in (places[start : start + step] for start in range(0, len(places), step)):
                rows = moved(torch.tensor(some), self.of("moment").device)
                whole = mirrored(self.of("moment").flatten(0, 1)[rows, :width, :width])
                total = self.of("moment_total").flatten(0, 1)[rows, :width]
                out.append(Moment(some, slice(-1, None), whole[:, None], total[:, None]))
                if heads > 1:  # one head is all of them
                    blocks = whole.unflatten(1, (heads, dim)).unflatten(3, (heads, dim)).diagonal(dim1=1, dim2=3)
                    own = blocks.permute(0, 3, 1, 2).contiguous()
                    out.append(Moment(some, slice(0, heads), own, total.unflatten(1, (heads, dim))))
        return out

    def _isotropy(
        self, count: Tensor, moments: Sequence[Moment], ranks: Sequence[Tensor]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        iso, rank = torch.full_like(count, torch.nan), torch.full_like(count, torch.nan)
        counts = [count.flatten(0, 1)[some.places, some.heads] for some in moments]
        scores = [
            iso_score(covariance(m, t, moved(n, m.device))) for (*_, m, t), n in zip(moments, counts, strict=True)
        ]
        together = torch.cat([some.flatten() for some in scores]).cpu()  # a GPU is waited for once
        for some, n, score, found in zip(
            moments, counts, together.split([n.numel() for n in counts]), ranks, strict=True
        ):
            iso.flatten(0, 1)[some.places, some.heads] = torch.where(n > 1, score.view(n.shape), torch.nan)
            rank.flatten(0, 1)[some.places, some.heads] = torch.where(n > 1, found, torch.nan)
        for at, site in enumerate(self.places.sites):
            for kind in range(len(self.kinds)):
                if self.shape(site, kind)[0] == 1:
                    iso[at, kind, :1], rank[at, kind, :1] = iso[at, kind, -1:], rank[at, kind, -1:]
        return {"isoscore": (iso, count * ~iso.isnan()), "effective_rank": (rank, count * ~rank.isnan())}

    def shape(self, site: Site, kind: int) -> tuple[int, int]:
        """Heads and width of a kind of vector at a place."""
        return self.widths.get((self.places.index(site), kind), (self.heads, self.dim))

    def _spread(
        self, cells: Mapping[str, Float[Tensor, "site kind head_or_all"]], *, whole: bool = False
    ) -> dict[str, np.ndarray]:
        """Each laid out as [stack layer head-or-all vectors]."""
        stacked = torch.stack([*cells.values()]).transpose(2, 3)
        arrays = self.places.laid_out(stacked.numpy(), lead=1)
        if whole:
            arrays = np.nan_to_num(arrays).round().astype(np.int64)
        return dict(zip(cells, arrays, strict=True))


def _alike(clouds: Sequence[Cloud], most: Callable[[Tensor], int]) -> Iterator[list[Cloud]]:
    """Neighbours of one shape whose tokens count alike, at most so many at a time."""
    by_shape = groupby(clouds, lambda cloud: (cloud.vectors.shape, cloud.vectors.stride(), id(cloud.mask)))
    for some in (list(group) for _, group in by_shape):
        step = most(some[0].vectors)
        yield from (some[start : start + step] for start in range(0, len(some), step))


@lru_cache(maxsize=64)
def _sent(places: tuple[int, ...], device: torch.device) -> Tensor:
    """Kept on the GPU: copying it there would block."""
    return torch.tensor(places, device=device)


def _kernels(vectors: Tensor) -> ModuleType | None:
    return None if not vectors.is_cuda or vectors.dtype == torch.float64 else vector_kernels()
