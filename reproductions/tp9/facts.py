"""What the prose about TP 9 needs to know."""

from collections.abc import Mapping
from itertools import product
from statistics import mean
from typing import Any

import numpy as np

from reproductions.frame.claims import FAILS, HOLDS, Bound, Claim, counted
from reproductions.frame.finished import Finished
from reproductions.tp9.claims import DEEP, deepest
from reproductions.tp9.diagnosis import READINGS, losses
from reproductions.tp9.grid import BLOCKS, SCALED_WIDTHS, Model, plain
from reproductions.tp9.order_claims import Orders
from reproductions.tp9.position_map import analytic_position_similarity, position_similarity
from reproductions.tp9.runs import CHANCE, Runs
from reproductions.tp9.scaling import DIVIDED, UNDIVIDED

_WIDTH, _LENGTH = 100, 500


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    runs = Runs(cells)
    some = runs.cells.of(step="final")[0].result
    of_positions = [claim for id, claim in claims.items() if id.startswith("positions-")]
    return {
        "scaled": _scaled(cells),
        "size": runs.size,
        "texts": some["texts"],
        "positions_exact": max(position_check().values()) < 1e-10,
        "word_norm": cells.one(step="vectors")["norm"] if cells.of(step="vectors") else None,
        "position_norm": (_WIDTH / 2) ** 0.5,
        "positions_tested": len(of_positions),
        "positions_counts": counted(of_positions),
        "cured": _cured(runs),
        "dead": _dead(runs),
        "deep_runs": _deep_runs(runs),
        "losses": {name: [_loss(runs, one) for one in losses(runs) if one.reading == name] for name in READINGS},
        "readings": READINGS,
        "best": _model(runs, runs.best_model()),
        "tfidf": cells.one(step="tfidf")["metrics"]["test"]["accuracy"] if cells.of(step="tfidf") else None,
        "most": max(mean(runs.accuracies(model)) for model in runs.main_models() if runs.complete(model)),
        "drops": _drops(runs),
        "deepest": deepest(runs),
        "ordered": any(id.startswith("order-") for id in claims),
        "order": {kind: _verdicts(claims, f"order-{kind}-") for kind in _ORDER},
        "changed": _changed(cells),
    }


_ORDER = ("blind", "shuffled", "pairs", "balanced", "negation")


def _verdicts(claims: Mapping[str, Claim], start: str) -> dict[str, int]:
    """How many claims of a kind there are, and how many have each verdict."""
    some = [claim for id, claim in claims.items() if id.startswith(start)]
    return {"all": len(some), "hold": 0, "fail": 0} | {
        name: sum(claim.verdict == verdict for claim in some) for name, verdict in (("hold", HOLDS), ("fail", FAILS))
    }


def _changed(cells: Finished) -> float | None:
    """The greatest share of answers that shuffling changes, mean over seeds."""
    orders = Orders(cells)
    shares = [
        float(orders.of("shuffled.changed", corpus, family, positions).mean())
        for corpus, family in orders.places()
        for positions in orders.positions(corpus, family)
    ]
    return max(shares, default=None)


def position_check() -> dict[str, float]:
    """How far pe_i·pe_j is from its analytic form, from a Toeplitz matrix, and what its diagonal is."""
    similarity, expected = position_similarity(_WIDTH, _LENGTH), analytic_position_similarity(_WIDTH, _LENGTH)
    return {
        "difference": float((similarity - expected).abs().max()),
        "toeplitz": float((similarity[1:, 1:] - similarity[:-1, :-1]).abs().max()),
        "diagonal_spread": float((similarity.diagonal() - _WIDTH / 2).abs().max()),
    }


def _cured(runs: Runs) -> list[dict[str, Any]]:
    """Where literal sinusoidal positions lose, and a smaller factor does not."""
    cured = []
    for embeddings, family in product(runs.size.embeddings, BLOCKS):
        none = plain(family, embeddings)
        loud, quiet = (Model(family, embeddings, positions, "mean", 3) for positions in ("sinusoidal", "scaled"))
        if not {loud, quiet} <= set(runs.main_models()) or not runs.enough(loud, quiet, none):
            continue
        lost = [Bound.above(0.0).verdict(runs.gap(model, none)) == FAILS for model in (loud, quiet)]
        if lost == [True, False]:
            cured.append({"family": family, "embeddings": embeddings, "factor": runs.scales[family, embeddings]})
    return cured


def _dead(runs: Runs) -> list[dict[str, Any]]:
    """Depths at which some seeds learnt nothing."""
    every = []
    for family, layers in product(BLOCKS, runs.size.depths):
        accuracies = runs.accuracies(Model(family, "frozen", layers=layers))
        count = sum(accuracy <= CHANCE for accuracy in accuracies)
        if count:
            every.append({"family": family, "layers": layers, "seeds": count, "of": len(accuracies)})
    return every


def _deep_runs(runs: Runs) -> dict[str, Any]:
    """How many runs of deep models there are of each block, and how many of them learnt nothing."""
    deep = [layers for layers in runs.size.depths if layers >= DEEP] or [max(runs.size.depths)]
    found: dict[str, Any] = {"depth": deep[0]}
    for family in BLOCKS:
        every = [one for layers in deep for one in runs.at_chance(Model(family, "frozen", layers=layers))]
        found[family] = {"runs": len(every), "dead": sum(every)}
    return found


def _loss(runs: Runs, loss: Any) -> dict[str, Any]:
    return {"model": runs.named(loss.model), "simpler": runs.named(loss.simpler), "points": -loss.test * 100}


def _model(runs: Runs, model: Model | None) -> dict[str, Any] | None:
    return None if model is None else {"name": runs.named(model), "test": mean(runs.accuracies(model))}


def _drops(runs: Runs) -> dict[str, tuple[float, float]]:
    """How much better validation is than test, the least and the most, by kind of vectors."""
    drops: dict[str, tuple[float, float]] = {}
    for embeddings in runs.size.embeddings:
        members = [m for m in runs.main_models() if m.embeddings == embeddings and runs.complete(m)]
        gaps = [mean(runs.accuracies(m, "validation")) - mean(runs.accuracies(m)) for m in members]
        if gaps:
            drops[embeddings] = (min(gaps), max(gaps))
    return drops


def _scaled(cells: Finished) -> dict[str, float]:
    """By what factor the gradient at the queries changes from the smallest to the largest width, over seeds."""
    few, many = SCALED_WIDTHS[0], SCALED_WIDTHS[-1]
    if not cells.of(step="scaling"):
        return {}
    out: dict[str, float] = {"few": few, "many": many}
    for way in (DIVIDED, UNDIVIDED):
        small, large = (cells.array(f"{way}.{width}.gradient", "seed", step="scaling") for width in (few, many))
        out[way] = float(np.exp(np.log(large / small).mean()))
    return out
