"""What the prose needs to know."""

from collections.abc import Mapping
from typing import Any

from lorgnette.looking.controls import RANDOM
from reproductions.frame.claims import HOLDS, Claim
from reproductions.frame.finished import Finished
from reproductions.free_constant.grid import ARMS, QUICK_TEXTS, SIZE, TEXTS
from reproductions.free_constant.readings import Readings, Trainings


def facts(cells: Finished, claims: Mapping[str, Claim]) -> dict[str, Any]:
    r, t = Readings(cells), Trainings(cells)
    arms = [arm for arm in ARMS if t.seeds(arm)]

    def less_than(vectors: str) -> str:
        """The models of which less than the bound is left, by name."""
        found = [m for m in r.models if (one := claims.get(f"{m}-kept-{vectors}")) and one.verdict == HOLDS]
        return ", ".join(found) or "none"

    return {
        "less_than": less_than,
        "models": r.models,
        "size": QUICK_TEXTS if cells.settings.quick else TEXTS,
        "training": SIZE,
        "level": {v: {k: r.level(v, k) for k in ("raw", "centred")} for v in ("key", "value")} if r.models else {},
        "sims": {
            model: {v: {k: float(r.sim(model, v, k).mean()) for k in ("raw", "centred")} for v in ("key", "value")}
            for model in r.models
        },
        "untrained": {v: {k: r.level(v, k, RANDOM) for k in ("raw", "centred")} for v in ("key", "value")}
        if r.has_controls
        else {},
        "lower": sum(float((r.sim(m, "value", "raw") - r.sim(m, "value", "raw", RANDOM)).mean()) < 0 for m in r.models)
        if r.has_controls
        else 0,
        "arms": {
            arm: {
                "last": {
                    name: float(t.mean(arm, name)[-1]) for name in ("key", "value", "key_centred", "value_centred")
                },
                "first": {name: float(t.mean(arm, name)[0]) for name in ("value", "value_centred")},
                "test": float(t.accuracy(arm).mean()),
                "train": float(t.accuracy(arm, "train").mean()),
                "chance": t.at_chance(arm),
                "entropy": float(t.mean(arm, "entropy")[0]),
            }
            for arm in arms
        },
        "seeds": min((len(t.seeds(arm)) for arm in arms), default=0),
    }
