"""The tables of TP 9."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

import pandas as pd

from lorgnette.reproduce.estimates import Estimate, estimate
from lorgnette.reproduce.record import Table
from lorgnette.reproduce.tp9.grid import BLOCKS, LEARNING_RATES, SCALES, Model, models
from lorgnette.reproduce.tp9.runs import Outcome

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
    rows = []
    for model in main_models(outcome):
        found, results = accuracy(outcome, model), outcome.of(model)
        chosen = outcome.chosen[model.family, model.embeddings]
        rows.append(
            {
                "model": NAMES[model.family],
                "vectors": model.embeddings,
                "positions": position_name(model, outcome),
                "from": "–" if model.layers is None else model.pooling,
                "test": found.mean,
                "± sd": found.sd,
                "validation": accuracy(outcome, model, "validation").mean,
                "train": train_accuracy(outcome, model),
                "best epoch": round(mean(one["best"]["epoch"] for one in results), 1),
                "learning rate": f"{chosen.learning_rate:g}",
                "dropout": f"{chosen.dropout:g}",
                "parameters trained": int(results[0]["parameters"]["trained"]),
                "train s": round(mean(one["seconds"]["training"] for one in results), 1),
            }
        )
    found = outcome.tfidf
    rows.append(
        {
            "model": "TF-IDF (1, 2 words) + logistic regression",
            "vectors": "–",
            "positions": "none",
            "from": "–",
            "test": found["metrics"]["test"]["accuracy"],
            "validation": found["metrics"]["validation"]["accuracy"],
            "parameters trained": found["parameters"]["trained"],
        }
    )
    frame = pd.DataFrame(rows).astype({"parameters trained": "int64"})
    note = (
        f"Mean and standard deviation over {len(outcome.seeds)} seeds. Learning rate and dropout are chosen for "
        "each family and kind of vectors on the validation reviews (without positions, mean, three layers), the "
        "epoch for each run. “train” is measured while the kept epoch was trained (dropout on). Seconds were "
        "measured with several runs side by side on one device: they compare models, they are not a speed."
    )
    return Table("Accuracy", frame, note)


def depth_table(outcome: Outcome) -> Table:
    rows = []
    for layers in outcome.size.depths:
        row: dict[str, Any] = {"layers": layers}
        for family in BLOCKS:
            model = Model(family, "frozen", layers=layers)
            found = accuracy(outcome, model)
            row |= {family: found.mean, f"{family} ± sd": found.sd, f"{family} train": train_accuracy(outcome, model)}
            row[f"{family} worst seed"] = min(accuracies(outcome.of(model)))
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
                "tried": key.split(f"-{embeddings}-", 1)[1].replace("-", ", ").replace("lr1e, ", "lr1e-"),
                "validation": best,
                "best epoch": one["best"]["epoch"],
                "train": at_best(one)["train"]["accuracy"],
            }
        )
    tried = ", ".join(f"{scale:g}" for scale in SCALES)
    note = f"Seed {outcome.seeds[0]}; no test review was read. Scales of sinusoidal positions tried: {tried}."
    return Table("What was tried on the validation reviews", pd.DataFrame(rows), note)


def _family(key: str) -> tuple[str, str]:
    for family in LEARNING_RATES:
        for embeddings in ("frozen", "trained"):
            if key.startswith(f"search-{family}-{embeddings}-"):
                return family, embeddings
    raise KeyError(key)


def best_model(outcome: Outcome) -> Model:
    """The highest mean over seeds on the *validation* reviews, so that the test reviews choose nothing."""
    return max(main_models(outcome), key=lambda model: accuracy(outcome, model, "validation").mean)
