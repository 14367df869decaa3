"""Whether every part of speech has a cone, and whether these are orthogonal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xarray as xr

from reproductions.fosse2023.cone_claims import (
    CONE,
    ORTHOGONAL,
    every_above,
    every_orthogonal,
    off_diagonal,
    orthogonal,
)
from reproductions.fosse2023.grid import STARTS
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import COSINE, SHARE, mean_of

WORDS = 50
"""How many test words a tag must have; fixed before anything was measured."""
TITLES = {"pretrained": "minilm from its checkpoint", "random": "minilm from random weights"}
FRENCH = "encoder of opus-mt-fr-en"
_REINFORCED = Published("fine-tuning reinforces anisotropy, in French too (Fosse et al. 2022)", "slides, introduction")


@dataclass(frozen=True)
class Tagger:
    """The tagging runs from one kind of weights."""

    runs: Finished
    start: str

    def array(self, path: str, inner: str | Sequence[str] = ()) -> xr.DataArray:
        return self.runs.array(path, "seed", inner=inner)

    @property
    def tags(self) -> list[str]:
        return list(self.runs.cells[0].value("tags"))

    @property
    def words(self) -> list[int]:
        """Test words of each tag."""
        return list(self.runs.cells[0].value("after.items"))

    @property
    def frequent(self) -> list[int]:
        """Tags with enough test words."""
        return [c for c, words in enumerate(self.words) if words >= WORDS]

    def areas(self, when: str) -> xr.DataArray:
        """AUROC of the frequent tags, [seed tag]."""
        return self.array(f"{when}.auroc", "tag")[:, self.frequent]

    def cosines(self) -> dict[tuple[int, int], Estimate]:
        return off_diagonal(self.array("after.cosine", ("direction", "class")), self.frequent)


def taggers(cells: Finished) -> list[Tagger]:
    runs = {start: cells.where(part="tagging", start=start) for start in STARTS}
    return [Tagger(some, start) for start, some in runs.items() if len(some)]


def claims(cells: Finished) -> Iterator[Claim]:
    for tagger in taggers(cells):
        if len(tagger.runs) > 1:
            yield from _claims(tagger, tagger.start, f"EWT, {TITLES[tagger.start]}")
    for tagger in french(cells):  # also of one seed, which decides nothing
        yield from _reinforced(tagger)
        yield from _claims(tagger, "french", f"Sequoia, {FRENCH}")


def french(cells: Finished) -> list[Tagger]:
    runs = cells.where(part="french")
    return [Tagger(runs, "pretrained")] if len(runs) else []


def _reinforced(tagger: Tagger) -> Iterator[Claim]:
    """As for English encoders; predicted before any run: it rises."""
    before, after = (tagger.array(f"{when}.sim.words", "layer")[:, -1].values for when in ("before", "after"))
    yield Claim(
        id="french-anisotropy",
        text=f"Sequoia, {FRENCH}: training reinforces anisotropy (SIM of the words of a text, last layer, after minus "
        "before)",
        estimate=mean_of(after - before),
        bound=None,
        published=_REINFORCED,
        note=f"{before.mean():.3f} → {after.mean():.3f}; not judged: a tagger, where the paper has classifiers",
    )
    below = [tagger.array(f"{when}.sim.words", "layer")[:, :-1].values for when in ("before", "after")]
    yield Claim(
        id="french-anisotropy-below",
        text=f"Sequoia, {FRENCH}: in the layers below the last, training raises SIM of the words of a text (mean of "
        "these layers, after minus before)",
        estimate=mean_of((below[1] - below[0]).mean(1)),
        bound=Bound.above(0),
        note="by layer: "
        + ", ".join(f"{one:.2f} → {other:.2f}" for one, other in zip(*(b.mean(0) for b in below), strict=True))
        + "; added when the numbers were known",
        ours=True,
    )
    near = {when: tagger.array(f"{when}.nearest.right").values for when in ("before", "after")}
    yield Claim(
        id="french-nearest",
        text=f"Sequoia, {FRENCH}: the nearest of the tags' directions is the tag more often after training than before",
        estimate=mean_of(near["after"] - near["before"]),
        bound=Bound.above(0),
        ours=True,
        note=f"{near['before'].mean():.3f} → {near['after'].mean():.3f}",
    )


def _claims(tagger: Tagger, id: str, name: str) -> Iterator[Claim]:
    tags = tagger.tags
    areas, before = tagger.areas("after"), float(tagger.areas("before").mean())
    yield every_above(
        f"tags-cones-{id}",
        f"{name}: every part of speech has a cone (AUROC of every tag above {CONE})",
        {tags[c]: mean_of(areas[:, place], ends=SHARE) for place, c in enumerate(tagger.frequent)},
        CONE,
        f"mean of tags {float(areas.mean()):.3f}, before training {before:.3f}",
    )
    cosines = tagger.cosines()
    near = sum(abs(float(cosine.value or 0)) <= ORTHOGONAL for cosine in cosines.values())
    matrix = tagger.array("after.cosine", ("direction", "class"))
    yield orthogonal(
        f"tags-orthogonal-{id}",
        f"{name}: the cones of tags are orthogonal (mean |cosine| of different tags below {ORTHOGONAL})",
        matrix,
        tagger.frequent,
        None,
        f"{near} of {len(cosines)} ordered pairs lie within ±{ORTHOGONAL}",
    )
    yield every_orthogonal(
        f"tags-every-orthogonal-{id}",
        f"{name}: … every pair of them (every mean cosine in ±{ORTHOGONAL})",
        cosines,
        tags,
        "words",
        f"{near} of {len(cosines)} ordered pairs lie within",
    )
    yield Claim(
        id=f"tags-spearman-{id}",
        text=f"{name}: tags whose words lie closer together are tagged better (Spearman over tags)",
        estimate=mean_of(tagger.array("after.spearman"), ends=COSINE),
        bound=Bound.above(0),
        ours=True,
    )
