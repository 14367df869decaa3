"""What Fosse et al. 2023 say of a fine-tuned encoder: anisotropy is reinforced, classes have orthogonal cones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from reproductions.fosse2023.cone_claims import (
    CONE,
    ORTHOGONAL,
    every_above,
    every_orthogonal,
    off_diagonal,
    orthogonal,
)
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import SHARE, mean_of

ORDER = ("esnli", "hatexplain", "yelphat")
_REINFORCED = Published("fine-tuning for classification reinforces anisotropy", "slides")
_CONES = Published("classes lie in several cones, which are orthogonal", "slides")
_SETTINGS = (("minilm", "pretrained"), ("minilm", "random"), ("e5-small", "pretrained"))


@dataclass(frozen=True)
class Encoder:
    """The fine-tunings of one model on one corpus, from its checkpoint or from random weights."""

    runs: Finished
    corpus: str
    model: str
    start: str

    def array(self, path: str, inner: str | Sequence[str] = ()) -> xr.DataArray:
        return self.runs.array(path, "seed", inner=inner)

    def mean(self, path: str, inner: str | Sequence[str] = ()) -> xr.DataArray:
        """Over the seeds that have the number."""
        return self.array(path, inner).mean("seed")

    @property
    def labels(self) -> list[str]:
        return list(self.runs.cells[0].value("labels"))

    @property
    def title(self) -> str:
        return self.model if self.start == "pretrained" else f"{self.model}, from random weights"

    @property
    def id(self) -> str:
        return f"{self.corpus}-{self.model}" + ("-random" if self.start == "random" else "")


def every(cells: Finished) -> list[Encoder]:
    """Those of which something is there, in the order of the page."""
    found = []
    for corpus, (model, start) in product(ORDER, _SETTINGS):
        runs = cells.where(part="encoders", corpus=corpus, model=model, start=start)
        found += [Encoder(runs, corpus, model, start)] if len(runs) else []
    return found


def claims(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Claim]:
    for encoder in every(cells):
        if len(encoder.runs) > 1:  # one seed makes no interval
            of_encoder = (
                *_reinforced(encoder, printed["esnli_sim"]),
                _separated(encoder),
                *_orthogonal(encoder, printed["esnli_medians"]),
                _right_closer(encoder, printed["esnli_own"]),
            )
            # The source fine-tunes a pretrained encoder; of one from random weights it says nothing.
            own = encoder.start == "random"
            yield from (replace(claim, published=None, ours=True) if own else claim for claim in of_encoder)


def _name(encoder: Encoder) -> str:
    return f"{NAMES[encoder.corpus]}, {encoder.title}"


def _reinforced(encoder: Encoder, printed: Mapping[str, Any]) -> Iterator[Claim]:
    """Within texts, as the paper measures it, and between texts, which is what the classifier reads."""
    known = Published(printed["after"][-1] - printed["before_last"], printed["source"])
    ways = (
        ("anisotropy", "tokens", "SIM within texts", known if encoder.corpus == "esnli" else _REINFORCED),
        ("anisotropy-cls", "cls_corpus", "cosine of [CLS] of different texts", None),
    )
    for id, path, what, theirs in ways:
        before, after = (encoder.array(f"{when}.sim.{path}", "layer")[:, -1] for when in ("before", "after"))
        yield Claim(
            id=f"{id}-{encoder.id}",
            text=f"{_name(encoder)}: training reinforces anisotropy ({what}, last layer, after minus before)",
            estimate=mean_of(after.values - before.values),
            bound=Bound.above(0),
            published=theirs,
            ours=theirs is None,
            note=f"{float(before.mean()):.3f} → {float(after.mean()):.3f}",
        )


def _separated(encoder: Encoder) -> Claim:
    areas = encoder.array("after.cones.random.auroc", "class")
    before = float(encoder.mean("before.cones.random.auroc", "class").mean())
    return every_above(
        f"cones-{encoder.id}",
        f"{_name(encoder)}: texts lie closer to representatives of their own class (AUROC of every class above {CONE})",
        {label: mean_of(areas[:, c], ends=SHARE) for c, label in enumerate(encoder.labels)},
        CONE,
        f"before training, mean over classes: {before:.3f}",
        _CONES,
    )


def _orthogonal(encoder: Encoder, printed: Mapping[str, Any]) -> Iterator[Claim]:
    matrix = encoder.array("after.cones.random.cosine", ("direction", "class"))
    cosines = off_diagonal(matrix)
    values = sorted(float(cosine.value or 0) for cosine in cosines.values())
    medians = np.abs(np.array(printed["slide"]))
    slide = float(medians[~np.eye(len(medians), dtype=bool)].mean())
    yield orthogonal(
        f"orthogonal-{encoder.id}",
        f"{_name(encoder)}: cones are orthogonal (mean |cosine| with representatives of other classes < {ORTHOGONAL})",
        matrix,
        None,
        Published(slide, printed["source"]) if encoder.corpus == "esnli" else _CONES,
        f"all pairs: {', '.join(f'{value:.2f}' for value in values)}",
    )
    yield every_orthogonal(
        f"every-orthogonal-{encoder.id}",
        f"{_name(encoder)}: … every pair of classes (every mean cosine in ±{ORTHOGONAL})",
        cosines,
        encoder.labels,
        "texts",
        "",
    )


def _right_closer(encoder: Encoder, printed: Mapping[str, Any]) -> Claim:
    right, wrong = (encoder.array(f"after.cones.random.own_{which}", "class") for which in ("right", "wrong"))
    gap = (right - wrong).values
    each = [row[~np.isnan(row)].mean() for row in gap if not np.isnan(row).all()]
    theirs = float(np.mean(np.array(printed["right"]) - np.array(printed["wrong"])))
    known = encoder.corpus == "esnli"
    return Claim(
        id=f"right-closer-{encoder.id}",
        text=f"{_name(encoder)}: correctly classified texts are closer to their class than misclassified ones (mean "
        "cosine)",
        estimate=mean_of(each),
        bound=Bound.above(0),
        published=Published(theirs, printed["source"]) if known else None,
        ours=not known,
    )
