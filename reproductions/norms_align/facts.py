"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from reproductions.frame.claims import FAILS, HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.norms_align.readings import RULE_NAMES, WAYS, Readings, one_rate
from reproductions.norms_align.tables import places


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r = Readings(cells)
    judged = [claim for id, claim in claims.items() if id.startswith(("best-layer-", "best-head-", "best-way-"))]
    return {
        "directions": r.directions,
        "pairs": {one: int(r.cell(one)["pairs"].sum()) for one in r.directions},
        "blocks": {one: r.cell(one).sizes["block"] for one in r.directions},
        "norms_better": sum(claim.verdict == HOLDS for claim in judged),
        "weights_better": sum(claim.verdict == FAILS for claim in judged),
        "best_places": len(judged),
        "mean_better": sum(claim.verdict == HOLDS for id, claim in claims.items() if id.startswith("mean-layer-")),
        "mean_worse": sum(claim.verdict == FAILS for id, claim in claims.items() if id.startswith("mean-layer-")),
        "means": sum(id.startswith("mean-layer-") for id in claims),
        "best": {one: _best(r, one) for one in r.directions},
    }


def _best(r: Readings, direction: str) -> dict[str, Any]:
    """AER of the best head by weights and norms, and what was chosen on the two halves."""
    out: dict[str, Any] = {}
    for measure in ("weights", "norms", "centred"):
        chosen = r.chosen(direction, "heads", measure, WAYS)
        out[measure] = {
            "aer": one_rate(r.held_out(direction, "heads", measure, WAYS)).value,
            "heads": places(r, direction, "heads", measure, WAYS),
            "rules": list(dict.fromkeys(RULE_NAMES[rule] for (_, rule), _ in chosen)),
        }
    return out
