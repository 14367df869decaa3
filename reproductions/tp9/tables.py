"""The tables of TP 9."""

import math
import re
from collections.abc import Sequence
from statistics import mean
from typing import Any

import pandas as pd

from reproductions.frame.estimates import Estimate, estimate
from reproductions.frame.record import Table
from reproductions.tp9.grid import BLOCKS, LEARNING_RATES, SCALES, Model, models
from reproductions.tp9.runs import Outcome

NAMES = {
    "mean": "mean of the words (TP 8)",
    "attention-pooling": "one query for all (TP 8)",
    "query-pooling": "query from the mean (TP 8)",
    "bilstm-attention": "BiLSTM + attention",
    "base": "base: x ← g(f(x))",
    "residual": "residual: x ← g(x + f(LN x))",
}


def accuracies(results: Sequence[Any], part: str = "test") -> list[float]:
    return [float(one["metrics"][part]["accuracy"]) for one in results]


def accuracy(outcome: Outcome, model: Model, part: str = "test") -> Estimate:
    return estimate(accuracies(outcome.of(model), part))


def at_best(one: Any) -> dict[str, Any]:
    """The entry of the curve whose weights were kept."""
    return next(entry for entry in one["curve"] if entry["epoch"] == one["best"]["epoch"])


def train_accuracy(outcome: Outcome, model: Model) -> float:
    """On the training reviews while the kept epoch was trained, so with dropout and before its last step."""
    return mean(float(at_best(one)["train"]["accuracy"]) for one in outcome.of(model))


def position_name(model: Model, outcome: Outcome) -> str:
    if model.positions == "scaled":
        return f"sinusoidal × {outcome.scales[model.family, model.embeddings]:g}"
    return model.positions


def main_models(outcome: Outcome) -> list[Model]:
    """The baselines and the three-layer models, without those of the depth study."""
    order = {family: place for place, family in enumerate(NAMES)}
    chosen = [model for model in models(outcome.size) if model.layers in (None, 3)]
    # The chosen scale may be the literal one: then it is the same model.
    chosen = [m for m in chosen if m.positions != "scaled" or outcome.scales[m.family, m.embeddings] != 1.0]
    return sorted(chosen, key=lambda m: (order[m.family], m.embeddings, m.pooling != "mean"))


def main_table(outcome: Outcome) -> Table:
    rows = [_row(outcome, model) for model in main_models(outcome)]
    rows.append(_words_row(outcome.tfidf))
    frame = pd.DataFrame(rows)
    # Whole numbers also where some are missing.
    frame["parameters trained"] = pd.Series([row.get("parameters trained") for row in rows], dtype=object)
    texts = next(iter(outcome.finals.values()))["texts"]["test"]
    note = (
        "Mean and standard deviation over the seeds that were run. Learning rate and dropout are chosen for each "
        "family and kind of vectors on the validation reviews (without positions, mean, three layers), the epoch for "
        "each run. “train” is measured while the kept epoch was trained, with dropout on. Seconds were measured with "
        "several runs side by side on one device: they compare models, they are not a speed. Other test reviews would "
        f"move every accuracy by about ±{_sampling(texts):.3f} (95 %, {texts:,} reviews); deviations and intervals "
        "over seeds do not contain that."
    )
    return Table("Accuracy", frame, note)


def seeds_run(outcome: Outcome, model: Model) -> str:
    """How many seeds stand behind a row."""
    return str(len(outcome.of(model)) or "not run")


def _sampling(texts: int) -> float:
    return 1.96 * math.sqrt(0.87 * 0.13 / texts)


def _row(outcome: Outcome, model: Model) -> dict[str, Any]:
    row = {
        "model": NAMES[model.family],
        "vectors": model.embeddings,
        "positions": position_name(model, outcome),
        "from": "–" if model.layers is None else model.pooling,
        "seeds": seeds_run(outcome, model),
    }
    results, chosen = outcome.of(model), outcome.chosen[model.family, model.embeddings]
    if not results:
        return row
    found = accuracy(outcome, model)
    return row | {
        "test": found.mean,
        "± sd": found.sd if found.interval else None,
        "validation": accuracy(outcome, model, "validation").mean,
        "train": train_accuracy(outcome, model),
        "best epoch": round(mean(one["best"]["epoch"] for one in results), 1),
        "learning rate": f"{chosen.learning_rate:g}",
        "dropout": f"{chosen.dropout:g}",
        "parameters trained": int(results[0]["parameters"]["trained"]),
        "train s": round(mean(one["seconds"]["training"] for one in results), 1),
    }


def _words_row(found: Any | None) -> dict[str, Any]:
    row = {"model": "TF-IDF (1, 2 words) + logistic regression", "vectors": "–", "positions": "none", "from": "–"}
    if found is None:
        return row | {"seeds": "not run"}
    return row | {
        "seeds": "–",
        "test": found["metrics"]["test"]["accuracy"],
        "validation": found["metrics"]["validation"]["accuracy"],
        "parameters trained": found["parameters"]["trained"],
    }


def depth_table(outcome: Outcome) -> Table:
    rows = []
    for layers in outcome.size.depths:
        row: dict[str, Any] = {"layers": layers}
        for family in BLOCKS:
            model = Model(family, "frozen", layers=layers)
            row[f"{family}, seeds"] = seeds_run(outcome, model)
            names = (family, f"{family} ± sd", f"{family} train", f"{family} worst seed")
            row |= dict.fromkeys(names)
            if outcome.of(model):
                found = accuracy(outcome, model)
                spread, worst = (found.sd if found.interval else None), min(accuracies(outcome.of(model)))
                row |= dict(zip(names, (found.mean, spread, train_accuracy(outcome, model), worst), strict=True))
        rows.append(row)
    note = "Frozen vectors, no positions, mean; learning rate and dropout as chosen for three layers."
    return Table("Depth, with and without residual connections", pd.DataFrame(rows), note)


def search_table(outcome: Outcome) -> Table:
    rows = []
    for key, one in outcome.searches.items():
        family, embeddings = _family(key)
        best = one["metrics"]["validation"]["accuracy"]
        rows.append(
            {
                "model": NAMES[family],
                "vectors": embeddings,
                "tried": _tried(key.split(f"-{embeddings}-", 1)[1]),
                "validation": best,
                "best epoch": int(one["best"]["epoch"]),
                "train": at_best(one)["train"]["accuracy"],
            }
        )
    tried = ", ".join(f"{scale:g}" for scale in SCALES)
    note = f"Seed {outcome.seeds[0]}; no test review was read. Factors of sinusoidal positions tried: {tried}."
    note += " They were tried with the first learning rate and the last dropout of their family."
    return Table("What was tried on the validation reviews", pd.DataFrame(rows), note)


def _tried(words: str) -> str:
    """Turns "lr0.001-dropout0.2" and "scale0.3" into words."""
    words = re.sub(r"lr(.+)-dropout(.+)", r"learning rate \1, dropout \2", words)
    return re.sub(r"scale(.+)", r"sinusoidal × \1", words)


def _family(key: str) -> tuple[str, str]:
    for family in LEARNING_RATES:
        for embeddings in ("frozen", "trained"):
            if key.startswith(f"search-{family}-{embeddings}-"):
                return family, embeddings
    raise KeyError(key)


def best_model(outcome: Outcome) -> Model:
    """The highest mean over seeds on the *validation* reviews, so that the test reviews choose nothing."""
    complete = [model for model in main_models(outcome) if outcome.complete(model)]
    return max(complete, key=lambda model: accuracy(outcome, model, "validation").mean)
