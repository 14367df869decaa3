"""The tables of part 3."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from reproductions.fosse2023.pretrained_cones import QUANTILES
from reproductions.fosse2023.pretrained_reading import NAMES, at, average, mean_of, over_seeds
from reproductions.frame.record import Table

if TYPE_CHECKING:
    from reproductions.fosse2023.pretrained_page import Found

MIDDLE = QUANTILES.index(0.5)


def _median(how: str, direction: int, label: int) -> Callable[[Any], float | None]:
    return at("after", "cones", how, "quantile", direction, label, MIDDLE)


def _area(cones: Any) -> float | None:
    """AUROC, mean of the classes that have one."""
    return average(cones["auroc"])


def tables(found: "Found", told: Any) -> Iterator[Table]:
    yield _runs(found)
    for corpus in dict.fromkeys(place[1] for place in found.places()):
        yield _medians(found, corpus, told)
        yield _matrix(found, corpus)
    yield _own(found, told)
    yield _sim(found, told)


def _place(model: str, corpus: str, start: str) -> dict[str, str]:
    return {"corpus": NAMES[corpus], "model": model, "weights from": start}


def _runs(found: "Found") -> Table:
    rows = []
    for place in found.places():
        results = found.of(*place)
        right = over_seeds(results, lambda one: one["metrics"]["test"]["accuracy"])
        assert right is not None
        labels = results[0]["labels"]
        by_class = [mean_of(results, at("after", "cones", "random", "accuracy", c)) for c in range(len(labels))]
        areas = [mean_of([one[when]["cones"]["random"] for one in results], _area) for when in _WHEN]
        rows.append(
            {
                **_place(*place),
                "seeds": len(results),
                "accuracy": right.mean,
                "± sd": right.sd,
                "by class": ", ".join(f"{n} {_two(v)}" for n, v in zip(labels, by_class, strict=True)),
                "best epoch": mean_of(results, lambda one: one["best"]["epoch"]),
                "AUROC before": areas[0],
                "AUROC after": areas[1],
            }
        )
    note = (
        "AUROC: the chance that a text is closer to a representative of its class than one of another; mean of classes."
    )
    return Table("Fine-tuned encoders", pd.DataFrame(rows), note)


_WHEN = ("before", "after")


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _medians(found: "Found", corpus: str, told: Any) -> Table:
    places = [place for place in found.places() if place[1] == corpus]
    labels = found.of(*places[0])[0]["labels"]
    rows = []
    for direction, first in enumerate(labels):
        for label, second in enumerate(labels):
            row: dict[str, Any] = {"representative": first, "true class": second}
            if corpus == "esnli":
                given = told["esnli_medians"]
                at = [given["classes"].index(name) for name in (first, second)]
                row |= {f"published, {name}": given[name][at[0]][at[1]] for name in ("notebook", "slide")}
            for model, _, start in places:
                results = found.of(model, corpus, start)
                title = model if start == "pretrained" else f"{model}, random weights"
                value = over_seeds(results, _median("random", direction, label))
                row |= {title: None if value is None else value.mean, f"{title} ± sd": value.sd if value else None}
                if (model, start) == ("minilm", "pretrained"):
                    row[f"{title}, first kept"] = mean_of(results, _median("first", direction, label))
            rows.append(row)
    note = "Ours: representatives at random, excluded; *first kept*: the authors' way. Means over seeds of the medians."
    if corpus == "esnli":
        note += f" Published: {told['esnli_medians']['source']}."
    if corpus == "yelphat":
        note += f" Published ({told['yelphat']['source']}): same class ≈ .90, other ≈ .195."
    return Table(f"{NAMES[corpus]}: median cosine of the texts with representatives", pd.DataFrame(rows), note)


def _matrix(found: "Found", corpus: str) -> Table:
    rows = []
    for model, name, start in found.places():
        if name != corpus:
            continue
        results = found.of(model, corpus, start)
        labels = results[0]["labels"]
        for i, label in enumerate(labels):
            row: dict[str, Any] = {"model": model, "weights from": start, "class": label}
            for title, key in _MATRICES.items():
                for j, other in enumerate(labels):
                    row[f"{title}: {other}"] = mean_of(results, at("after", "cones", "random", key, i, j))
            rows.append(row)
    note = (
        "*representatives*: mean cosine between representatives of two classes (of one class: between different ones); "
        "*means*: cosine between class means; *centred*: the same, less the mean over classes (of two classes −1)."
    )
    return Table(f"{NAMES[corpus]}: class × class cosines after training", pd.DataFrame(rows), note)


_MATRICES = {"representatives": "representatives", "means": "class_cosine", "centred": "class_cosine_centred"}


def _own(found: "Found", told: Any) -> Table:
    rows = []
    for place in found.places():
        results = found.of(*place)
        for c, label in enumerate(results[0]["labels"]):
            row: dict[str, Any] = {**_place(*place), "class": label}
            for key in ("own_right", "own_wrong"):
                title = key.removeprefix("own_")
                row[title] = mean_of(results, at("after", "cones", "random", key, c))
                if place[1] == "esnli" and place[2] == "pretrained":
                    row[f"{title}, published (BERT)"] = told["esnli_own"][title][c]
            row["AUROC"] = mean_of(results, at("after", "cones", "random", "auroc", c))
            row["AUROC, class mean"] = mean_of(results, at("after", "cones", "random", "auroc_mean", c))
            rows.append(row)
    note = f"Published: {told['esnli_own']['source']}, in the order entailment, neutral, contradiction."
    return Table(
        "Mean cosine with the own class's representatives, classified right and wrong", pd.DataFrame(rows), note
    )


def _sim(found: "Found", told: Any) -> Table:
    rows: list[dict[str, Any]] = []
    for place in found.places():
        results = found.of(*place)
        for when in _WHEN:
            values = [
                mean_of(results, at(when, "sim", "tokens", n)) for n in range(len(results[0]["after"]["sim"]["tokens"]))
            ]
            rows.append({**_place(*place), "when": when, **{str(n): value for n, value in enumerate(values)}})
    if any(place[1] == "esnli" for place in found.places()):
        values = told["esnli_sim"]["after"]
        place_of = {"corpus": NAMES["esnli"], "model": "BERT, published", "weights from": "pretrained", "when": "after"}
        rows.append({**place_of, **{str(n): value for n, value in enumerate(values)}})
    left_out = sum(one["after"]["sim"]["tokens_left_out"] for place in found.places() for one in found.of(*place))
    note = f"Layer 0: the embeddings. Texts of one token, which have no pair: {left_out}, left out. "
    note += "Published: " + told["esnli_sim"]["source"] + "."
    return Table("SIM of hidden states within texts, by layer, before and after training", pd.DataFrame(rows), note)
