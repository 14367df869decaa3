"""Sums that hold the geometry of many clouds of vectors, within texts and over the corpus."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
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
from lorgnette.lens.parts import Part
from lorgnette.lens.places import Places
from lorgnette.lens.states import zeros
from lorgnette.statistics.hash_sample import moved

SHORT = 3
"""The last column of the counts, after those of `Directions`: texts with fewer than two vectors."""
_EVERY = slice(None)
MOST = 2**25
"""How many numbers of second moments are computed together."""
LEAST_COSINE = 0.01
"""Below this mean cosine, the share of a dimension in it has no meaning."""


class Cloud(NamedTuple):
    """Vectors of one kind at one site of a batch, and which tokens count."""

    site: Site
    kind: int
    vectors: Float[Tensor, "batch token head dim"]
    mask: Bool[Tensor, "batch token"]


class Held(NamedTuple):
    """The sums of some clouds of one shape in one batch; those of one call have the same turn."""

    clouds: list[tuple[Site, int]]  # site and kind
    turn: int
    texts: int
    directions: Directions  # of the texts of the first cloud, then those of the second, …
    second: object = None  # what `take_second` makes second moments from: here the moment and the sum of one cloud


class Moment(NamedTuple):
    """Second moments of some places, of these heads, or of all heads side by side (−1)."""

    places: list[int]
    heads: slice
    matrices: Float[Tensor, "place head dim dim"]
    totals: Float[Tensor, "place head dim"]


class Clouds(Part[Held]):
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
        sites, self.heads = len(places.sites), places.heads or 1
        self.widths: dict[tuple[int, int], tuple[int, int]] = {}
        lens.sums(f"{state}_sums", 5, sites, len(kinds), self.heads, dim, in_place=False)
        lens.sums(f"{state}_counts", 4, sites, len(kinds), self.heads + 1, in_place=False)
        self._within: dict[tuple[Site, int], dict[int, tuple[Tensor, Tensor]]] = {}
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
        """Hold the sums of the clouds of one call."""
        for turn, cloud in [(len(self.held), cloud) for cloud in clouds]:
            (site, kind, vectors, mask), found = cloud, directions(cloud.vectors, cloud.mask)
            second = None
            if self.covariances:
                near = found.total.sum(0).flatten() / mask.sum().clamp(min=1)
                flat = vectors.flatten(2)
                second = second_moment(flat.flatten(0, 1) if bool(mask.all()) else flat[mask], near)
            self.held.append(Held([(site, kind)], turn, len(mask), found, second))

    def kind_of(self, item: Held) -> Hashable:
        return item.texts, item.directions.sums.shape[2:]

    def take(self, items: Sequence[Held]) -> None:
        """Add clouds of one shape to the sums, and their numbers within texts to the moments."""
        values, weights = self._take_sums(items)  # [cloud text head what]
        clouds = [(site, kind, one.turn) for one in items for site, kind in one.clouds]
        if self._side_by_side(clouds):
            sites = [site for site, _, _ in clouds[:: len(self.kinds)]]
            parts = (part.unflatten(0, (len(sites), -1)).movedim(1, -1).unbind(3) for part in (values, weights))
            sim, intra = zip(*parts, strict=True)  # [site text head kind]
            self.moments.add_sites(sites, sim=sim, intra_similarity=intra)
            return
        for (site, kind, turn), *both in zip(clouds, values, weights, strict=True):
            self._within.setdefault((site, turn), {})[kind] = (both[0], both[1])

    def commit(self) -> None:
        """The kinds of one site may have several shapes: the moments get them together, and commit after this."""
        super().commit()
        within, self._within = self._within, {}
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

    def _take_sums(self, held: Sequence[Held]) -> tuple[Tensor, Tensor]:
        """Add the sums of clouds of one shape; returns the numbers within texts, [cloud text head what]."""
        texts, (*_, heads, dim) = held[0].texts, held[0].directions.sums.shape
        whole = Directions(
            *(torch.cat([getattr(one.directions, name) for one in held], 1) for name in ("sums", "counts"))
        )
        short = (whole.count < 2).to(whole.counts.dtype)[None]
        both = (whole.sums, torch.cat([whole.counts, short]))
        sums, counts = (part.unflatten(1, (-1, texts)).sum(2, dtype=torch.float64) for part in both)
        of_sums, of_counts = self.of("sums").clone(), self.of("counts").clone()
        at = self.rows(held, of_sums.device)
        of_sums.flatten(1, 2)[:, :, :heads, :dim].index_add_(1, at, sums.to(of_sums))
        spread = of_counts.flatten(1, 2)
        spread[..., :heads].index_add_(1, at, counts[..., :-1].to(of_counts))
        spread[..., self.heads].index_add_(1, at, counts[..., -1].to(of_counts))
        setattr(self.lens, f"{self.state}_sums", of_sums)
        setattr(self.lens, f"{self.state}_counts", of_counts)
        self.take_second(held)
        values, weights = (self._with_room(part) for part in within_texts(whole))
        return values.unflatten(0, (-1, texts)), weights.unflatten(0, (-1, texts))

    def rows(self, held: Sequence[Held], device: torch.device) -> Tensor:
        """The places of these clouds in the states, which are flat over sites and kinds."""
        places = (self.places.index(site) * len(self.kinds) + kind for one in held for site, kind in one.clouds)
        return _sent(tuple(places), device)

    def take_second(self, held: Sequence[Held]) -> None:
        """Add the second moments of these clouds, one by one."""
        moment, totals = (self.of(name) if self.covariances else None for name in ("moment", "moment_total"))
        for one in held:
            if isinstance(one.second, tuple) and moment is not None and totals is not None:
                ((site, kind),), (lower, total) = one.clouds, one.second
                at, width = self.places.index(site), slice(len(total))
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
        together = torch.cat([some.flatten() for some in scores]).cpu()  # once, for all of them
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


@lru_cache(maxsize=64)
def _sent(places: tuple[int, ...], device: torch.device) -> Tensor:
    """Kept on the device, because copying it there would block each time."""
    return torch.tensor(places, device=device)
