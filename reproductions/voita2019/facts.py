"""What the prose about Voita et al. 2019 needs to know."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from reproductions.frame.claims import FAILS, HOLDS, OPEN, Claim
from reproductions.frame.finished import Finished, made
from reproductions.voita2019.grid import (
    FULL,
    METHODS,
    MULTI30K,
    PUBLISHED,
    QUICK,
    RANDOM,
    SHUFFLED,
    TRAINED,
    UD,
)
from reproductions.voita2019.heads import ABLATION, reliability, signal
from reproductions.voita2019.pruning import DATA, Point, curves
from reproductions.voita2019.tables_heads import label_counts

READ = {
    "positional-pud": HOLDS,
    "syntax-obj-to-dependent": HOLDS,
    "syntax-obj-to-head": HOLDS,
    "syntax-nsubj-to-dependent": FAILS,
    "syntax-nsubj-to-head": OPEN,
    "rare-multi30k": OPEN,
    "rare-pud": OPEN,
    "rare-first-voita2021": OPEN,
    "rare-not-confident": OPEN,
    "confident-voita2021": HOLDS,
    "confident-voita2019": OPEN,
    "stable-voita2019": FAILS,
    "gradient-over-confidence": OPEN,
    "roles-needed": OPEN,
    "syntactic-over-shuffled": OPEN,
    "roles-needed-in-layers": OPEN,
    "third-opus-encoder": OPEN,
    "third-opus-all": OPEN,
    "third-opus-encoder-long": OPEN,
    "longer-opus-encoder": HOLDS,
    "chance-opus-encoder": HOLDS,
    "chance-opus-all": OPEN,
    "cross-over-encoder-opus-all": OPEN,
    "cross-over-encoder-small-all": HOLDS,
    "roles-last-in-layers-opus-encoder": HOLDS,
    "roles-last-in-layers-opus-all": HOLDS,
    "roles-last-in-layers-small-all": OPEN,
    "trained-over-scratch": OPEN,
    "transfer-small-tuned": OPEN,
    "classes-minilm-sst2-gates-random": OPEN,
}
"""The verdicts that the page's conclusions were written for."""


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    return {
        "data": DATA,
        "unfinished": max((point.unfinished or 0 for point in _gated(cells, "opus-all")), default=0),
        "as_read": all(name in claims and claims[name].verdict == verdict for name, verdict in READ.items()),
        "size": PUBLISHED if cells.settings.published else QUICK if cells.settings.quick else FULL,
        "texts": {
            "maps": _texts(cells, kind="maps", corpus=MULTI30K, condition=TRAINED),
            "maps_pud": _texts(cells, kind="maps", corpus=UD),
            "roles": _texts(cells, kind="roles", corpus=MULTI30K, condition=TRAINED),
            "roles_pud": _texts(cells, kind="roles", corpus=UD, condition=TRAINED),
            "without": _texts(cells, kind="without"),
            "without_all": _texts(cells, kind="without", stacks="all"),
        },
        "labels": {
            condition: {
                role: count
                for role in ("positional", "syntactic", "rare")
                for count in made([partial(label_counts, cells, role, condition)])
            }
            for condition in (TRAINED, SHUFFLED, RANDOM)
        },
        "reliability": {
            name: value for name in (*METHODS, ABLATION) for value in made([partial(_reliability, cells, name)])
        },
        "curves": [_curve(curve) for curve in curves(cells)],
    }


def _texts(cells: Finished, **labels: str) -> int:
    """Texts of these cells; cells on the same texts count once."""
    return sum({c.result["corpus_fingerprint"]: int(c.result["texts"]) for c in cells.of(**labels)}.values())


def _reliability(cells: Finished, name: str) -> float:
    return reliability(signal(cells, name))


def _curve(curve: Any) -> dict[str, Any]:
    """The sparsest model within 1 BLEU on validation, and what an encoder without heads costs."""
    sparse = curve.sparsest_within()
    empty = [point for point in curve.points if point.strength is None]
    return {
        "title": curve.title,
        "heads": None if sparse is None else sparse.left,
        "share": None if sparse is None else sparse.share,
        "change": None if sparse is None else sparse.minus(curve.whole),
        "empty": empty[0].minus(curve.whole).value if empty else None,
    }


def _gated(cells: Finished, name: str) -> list[Point]:
    return next((curve.gated for curve in curves(cells) if curve.name == name), [])
