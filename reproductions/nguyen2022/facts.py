"""What the prose about Nguyen et al. 2022 needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import FAILS, HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.nguyen2022.curves import NAMES, Curves
from reproductions.nguyen2022.grid import size_of


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    curves = Curves(cells)
    places = {f"{corpus}-{vectors}": (corpus, vectors) for corpus, vectors in curves.places}

    def which(ending: str, verdict: str = HOLDS) -> list[str]:
        return [key for key in places if claims[f"{key}-{ending}"].verdict == verdict]

    rising, falling = which("auprc-rises"), which("auprc-falls")
    return {
        "size": size_of(cells.settings),
        "corpora": {corpus: {"name": NAMES[corpus], **curves.texts(corpus)} for corpus in curves.corpora},
        "places": [{"key": key, **_place(curves, place)} for key, place in places.items()],
        "rising": rising,
        "falling": falling,
        "both": [key for key in rising if key in falling],
        "outside": [key for key in places if _rises_less_than_published(claims[f"{key}-auroc-rises"])],
        "strong": [
            {"name": _name(place), "falls": claim.verdict == HOLDS, "undecided": claim.undecided}
            for key, place in places.items()
            if (claim := claims.get(f"{key}-strong-falls")) is not None
        ],
        "steady": which("accuracy-steady"),
        "unsteady": which("accuracy-steady", FAILS),
    }


def _rises_less_than_published(claim: Claim) -> bool:
    return claim.published is not None and claim.published.value > max(claim.estimate.high or 0.0, 0.0)


def _place(curves: Curves, place: tuple[str, str]) -> dict[str, Any]:
    return {
        "name": _name(place),
        "accuracy": float(curves.tested(place, "accuracy")[0].mean()),
        "collapsed": curves.collapsed(place),
        "unsharpened": curves.unsharpened(place),
    }


def _name(place: tuple[str, str]) -> str:
    return f"{NAMES[place[0]]} ({place[1]})"
