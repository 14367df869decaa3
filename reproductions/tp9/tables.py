"""The tables of TP 9."""

import math
from collections.abc import Iterator
from itertools import product
from statistics import mean
from typing import Any

import pandas as pd

from lorgnette.statistics import estimate
from reproductions.frame.claims import OPEN, Bound
from reproductions.frame.finished import Finished, Measured
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of
from reproductions.tp9.diagnosis import READINGS, losses
from reproductions.tp9.grid import BLOCKS, SCALED_WIDTHS, SCALES, Model, plain
from reproductions.tp9.order_claims import NAMES as CORPORA
from reproductions.tp9.order_claims import POSITIONS, Orders
from reproductions.tp9.runs import NAMES, Runs, at_best
from reproductions.tp9.scaling import DIVIDED, UNDIVIDED


def tables(cells: Finished) -> list[Table]:
    runs = Runs(cells)
    return [
        _main(runs),
        _anchors(runs),
        _depth(runs),
        *_order(cells),
        *_steps(runs),
        *_diagnosis(runs),
        *_scaling(cells),
        _search(runs),
    ]


def _scaling(cells: Finished) -> Iterator[Table]:
    rows = []
    for way, said in ((DIVIDED, "divided by √d"), (UNDIVIDED, "as they are")):
        for width in SCALED_WIDTHS:
            row: dict[str, Any] = {"scores": said, "width": width}
            for name, column in (("gradient", "gradient at a query"), ("entropy", "H of the weights / log n")):
                values = cells.array(f"{way}.{width}.{name}", "seed", step="scaling")
                row[column] = str(mean_of(values)) if values.size else None
            rows.append(row)
    note = (
        "One head as it is drawn, standard normal vectors, 64 tokens; the gradient that comes from above is the same "
        "at all widths. Mean ± sd over seeds."
    )
    if cells.of(step="scaling"):
        yield Table("scaling", "The gradient at the queries by width, nothing trained", pd.DataFrame(rows), note)


def _anchors(runs: Runs) -> Table:
    """What others report of similar models: no numbers of the practical."""
    base, mean_of_words = plain("base", "frozen"), plain("mean", "frozen")
    ours = {"mean": mean_of_words, "self-attention": base, "small transformer": plain("residual", "frozen")}
    rows = []
    for one in published("tp9")["expectations"]:
        model = next(model for start, model in ours.items() if one["what"].startswith(start))
        theirs = f"{one['low']:.3f}" if one["low"] == one["high"] else f"{one['low']:.2f} to {one['high']:.2f}"
        near = runs.accuracy(model).value if runs.of(model) else None
        rows.append({"model": one["what"], "accuracy": theirs, "source": one["status"], "our nearest": near})
    note = (
        "*Third party*: reported for similar models elsewhere; *memory*: an "
        "expectation without a source. Ours are of width 100 with frozen vectors: the mean, the base model, the "
        "residual one."
    )
    return Table("anchors", "What others report", pd.DataFrame(rows), note)


def _order(cells: Finished) -> Iterator[Table]:
    orders, rows = Orders(cells), []
    paths = {
        "as written": "shuffled.whole",
        "shuffled": "shuffled.accuracy",
        "answers that change": "shuffled.changed",
        "contrast pairs right": "pairs.right",
        "SST-2 with a negation": "negation.with",
        "SST-2 without one": "negation.without",
    }
    for corpus, family in orders.places():
        for positions in ("none", *orders.positions(corpus, family)):
            where = (corpus, family, positions)
            row: dict[str, Any] = {"trained on": CORPORA[corpus], "block": family, "positions": POSITIONS[positions]}
            row["seeds"] = len(orders.of("shuffled.whole", *where))
            rows.append(row | {name: str(mean_of(orders.of(path, *where))) for name, path in paths.items()})
    if rows:
        note = (
            "Mean ± sd over seeds; three layers, frozen vectors, mean. Shuffled: the tokens of each test text in a "
            "random order, two draws. A contrast pair has the same words in another order and the opposite meaning; a "
            "tie counts a half."
        )
        yield Table("order", "Word order and negation", pd.DataFrame(rows), note)


def _main(runs: Runs) -> Table:
    rows = [_row(runs, model) for model in runs.main_models()]
    rows.append(_tfidf(runs))
    frame = pd.DataFrame(rows)
    # Whole numbers also where some are missing.
    frame["parameters trained"] = pd.Series([row.get("parameters trained") for row in rows], dtype=object)
    texts = runs.cells.of(step="final")[0].result["texts"]["test"]
    note = (
        "Mean and standard deviation over the seeds that were run. Learning rate and dropout are chosen for each "
        "family and kind of vectors on the validation reviews (without positions, mean, three layers), the epoch for "
        "each run. “train” is measured while the kept epoch was trained, with dropout on. Seconds were measured with "
        "several runs side by side on one device: they compare models, they are not a speed. Other test reviews would "
        f"move every accuracy by about ±{_sampling(texts):.3f} (95 %, {texts:,} reviews); deviations and intervals "
        "over seeds do not contain that."
    )
    return Table("accuracy", "Accuracy", frame, note)


def _seeds(runs: Runs, model: Model) -> str:
    """How many seeds stand behind a row."""
    return str(len(runs.of(model)) or "not run")


def _sampling(texts: int) -> float:
    return float(estimate.Estimate(0.87, math.sqrt(0.87 * 0.13 / texts), texts).half)


def _row(runs: Runs, model: Model) -> dict[str, Any]:
    row = {
        "model": NAMES[model.family],
        "vectors": model.embeddings,
        "positions": runs.position_name(model),
        "from": "–" if model.layers is None else model.pooling,
        "seeds": _seeds(runs, model),
    }
    if not runs.of(model):
        return row
    chosen, accuracy = runs.chosen[model.family, model.embeddings], runs.accuracy(model)
    return row | {
        "test": accuracy.value,
        "± sd": accuracy.sd,
        "validation": runs.accuracy(model, "validation").value,
        "train": runs.kept(model, "train"),
        "best epoch": round(mean(runs.values(model, "best.epoch")), 1),
        "learning rate": f"{chosen.learning_rate:g}",
        "dropout": f"{chosen.dropout:g}",
        "parameters trained": int(runs.of(model)[0].value("parameters.trained")),
        "train s": round(mean(runs.values(model, "seconds.training")), 1),
    }


def _tfidf(runs: Runs) -> dict[str, Any]:
    row = {"model": "TF-IDF (1, 2 words) + logistic regression", "vectors": "–", "positions": "none", "from": "–"}
    if not runs.cells.of(step="tfidf"):
        return row | {"seeds": "not run"}
    result = runs.cells.one(step="tfidf")
    return row | {
        "seeds": "–",
        "test": result["metrics"]["test"]["accuracy"],
        "validation": result["metrics"]["validation"]["accuracy"],
        "parameters trained": result["parameters"]["trained"],
    }


def _depth(runs: Runs) -> Table:
    rows = []
    for layers in runs.size.depths:
        row: dict[str, Any] = {"layers": layers}
        for family in BLOCKS:
            model = Model(family, "frozen", layers=layers)
            row[f"{family}, seeds"] = _seeds(runs, model)
            names = (family, f"{family} ± sd", f"{family} train", f"{family} worst seed")
            row |= dict.fromkeys(names)
            if runs.of(model):
                accuracy = runs.accuracy(model)
                numbers = (accuracy.value, accuracy.sd, runs.kept(model, "train"), min(runs.accuracies(model)))
                row |= dict(zip(names, numbers, strict=True))
        rows.append(row)
    note = "Frozen vectors, no positions, mean; learning rate and dropout as chosen for three layers."
    return Table("depth", "Depth, with and without residual connections", pd.DataFrame(rows), note)


def _steps(runs: Runs) -> Iterator[Table]:
    """What positions add to the mean pooling, and `<cls>` to each kind of positions, in points."""
    star = "Differences of test accuracy in points; a star: within the noise of the seeds."
    for id, title, pooling in (
        ("positions", "What positions add", "mean"),
        ("cls", "`<cls>` less the mean", "cls"),
    ):
        rows = []
        for embeddings, family in product(runs.size.embeddings, BLOCKS):
            row = {"model": family, "vectors": embeddings}
            for positions in runs.size.positions:
                model = Model(family, embeddings, positions, pooling, 3)
                other = (
                    plain(family, embeddings) if pooling == "mean" else Model(family, embeddings, positions, layers=3)
                )
                if model != other and model in runs.main_models() and runs.enough(model, other):
                    row[f"{positions}"] = _points(runs, model, other)
            rows.append(row)
        if any(len(row) > 2 for row in rows):
            frame = pd.DataFrame(rows).astype(object)
            yield Table(id, title, frame.where(frame.notna(), None), star)


def _points(runs: Runs, first: Model, second: Model) -> str:
    step = runs.gap(first, second)
    star = "*" if Bound.above(0.0).verdict(step) == OPEN else ""
    return f"{step.value * 100:+.1f}{star}"


def _diagnosis(runs: Runs) -> Iterator[Table]:
    rows = []
    for loss in losses(runs):
        validation = [runs.accuracy(one, "validation").value for one in (loss.model, loss.simpler)]
        rows.append(
            {
                "model": runs.named(loss.model),
                "worse than": runs.named(loss.simpler),
                "test, points": loss.test * 100,
                "validation, points": (validation[0] - validation[1]) * 100,
                "train, kept epoch": runs.kept(loss.model, "train"),
                "train, last epoch": runs.last(loss.model, "train"),
                "validation, kept": runs.kept(loss.model, "validation"),
                "validation, last": runs.last(loss.model, "validation"),
                "train of the simpler": runs.kept(loss.simpler, "train"),
                "dropout": " against ".join(
                    f"{runs.chosen[m.family, m.embeddings].dropout:g}" for m in (loss.model, loss.simpler)
                ),
                "reading": loss.reading,
            }
        )
    note = "Readings: " + "; ".join(f"*{name}*: {text}" for name, text in READINGS.items()) + "."
    if rows:
        yield Table("richer-and-worse", "Richer and worse", pd.DataFrame(rows), note)


def _search(runs: Runs) -> Table:
    rows = [
        {
            "model": NAMES[cell.labels["family"]],
            "vectors": cell.labels["embeddings"],
            "tried": _tried(cell),
            "validation": cell.value("metrics.validation.accuracy"),
            "best epoch": int(cell.value("best.epoch")),
            "train": at_best(cell)["train"]["accuracy"],
        }
        for cell in runs.searches
    ]
    tried = ", ".join(f"{scale:g}" for scale in SCALES)
    note = f"Seed {runs.seeds[0]}; no test review was read. Factors of sinusoidal positions tried: {tried}."
    note += " They were tried with the first learning rate and the last dropout of their family."
    return Table("search", "What was tried on the validation reviews", pd.DataFrame(rows), note)


def _tried(cell: Measured) -> str:
    if cell.labels["positions"] == "scaled":
        return f"sinusoidal × {cell.labels['scale']:g}"
    return f"learning rate {cell.labels['learning_rate']:g}, dropout {cell.labels['dropout']:g}"
