"""Whether the nearest class direction of a fine-tuned encoder is the class, how many directions it uses, and how
similar the words of pretrained encoders are (Ethayarajh 2019)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reproductions.fosse2023.grid import CONTEXTUAL, NAMES
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.frame.statistics import SHARE, mean_of

DETERMINES = 0.95
"""Share of texts for which the nearest class direction is that of the predicted class; fixed before any run."""
SOME = 0.1
"""Of 384 dimensions: an effective rank below this share is called few directions; fixed before any run."""
ANISOTROPIC = 0.1
"""Mean cosine of random words above which a layer is called anisotropic; BERT's least is .168; fixed before any run."""
DETERMINED = Published("the direction of an embedding seems to determine the class", "slides, conclusion")
_CORPORA = ("esnli", "hatexplain", "yelphat")
_WIDTH = 384


def nearest_claims(cells: Finished) -> Iterator[Claim]:
    for corpus in _CORPORA:
        runs = cells.where(part="nearest", corpus=corpus)
        if len(runs) > 1:
            yield _determines(runs, corpus)
            yield from _ranks(runs, corpus)
            yield _slide(runs, corpus)


def _determines(runs: Finished, corpus: str) -> Claim:
    right = {when: float(runs.array(f"{when}.nearest.right", "seed").mean()) for when in ("before", "after")}
    accuracy = float(runs.array("metrics.test.accuracy", "seed").mean())
    return Claim(
        id=f"nearest-{corpus}-minilm",
        text=f"{NAMES[corpus]}, minilm: the direction determines the class (nearest class direction is that of the "
        f"predicted class: share of texts above {DETERMINES})",
        estimate=mean_of(runs.array("after.nearest.as_predicted", "seed"), ends=SHARE),
        bound=Bound.above(DETERMINES),
        published=DETERMINED,
        note=f"is that of the true class: {right['before']:.3f} before training, {right['after']:.3f} after; accuracy "
        f"{accuracy:.3f}",
    )


def _ranks(runs: Finished, corpus: str) -> Iterator[Claim]:
    before, after = (runs.array(f"{when}.nearest.rank.items", "seed").values for when in ("before", "after"))
    classes = float(runs.array("after.nearest.rank.means", "seed").mean())
    yield Claim(
        id=f"rank-{corpus}-minilm",
        text=f"{NAMES[corpus]}, minilm: the fine-tuned encoder uses few of its {_WIDTH} dimensions (effective rank of "
        f"[CLS] below {SOME * _WIDTH:.0f})",
        estimate=mean_of(after),
        bound=Bound.below(SOME * _WIDTH),
        ours=True,
        note=f"before training {before.mean():.1f}; of the class means {classes:.2f} of at most "
        f"{len(runs.cells[0].value('labels'))}",
    )
    yield Claim(
        id=f"rank-falls-{corpus}-minilm",
        text=f"{NAMES[corpus]}, minilm: fine-tuning leaves fewer directions (effective rank of [CLS], after minus "
        "before)",
        estimate=mean_of(after - before),
        bound=Bound.below(0.0),
        ours=True,
        note=f"{before.mean():.1f} → {after.mean():.1f}",
    )


def _slide(runs: Finished, corpus: str) -> Claim:
    """The slide's examples: .96 with a text of the same class, .93 with one of another that lies in its cone."""
    rows = [cell.value("after.examples") for cell in runs.cells]
    same, other = ([_cosine(one, kind) for one in rows] for kind in ("same class", "another class"))
    return Claim(
        id=f"examples-{corpus}-minilm",
        text=f"{NAMES[corpus]}, minilm: some text of another class is as close to a representative as the middle one "
        "of its own class (difference of cosines, mean of classes)",
        estimate=mean_of(np.array(other) - np.array(same)),
        bound=Bound.above(0.0),
        published=Published(0.93 - 0.96, "slides, two reviews; .96 same class, .93 another") if corpus == "yelphat"
        else None,
        ours=corpus != "yelphat",
        note=f"{np.mean(same):.2f} with the same class, {np.mean(other):.2f} with another",
    )  # fmt: skip


def _cosine(rows: list[dict[str, Any]], kind: str) -> float:
    return float(np.mean([row["cosine"] for row in rows if row["kind"] == kind]))


def contextual_claims(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Claim]:
    """Ethayarajh's two statements about anisotropy, on encoders of another kind."""
    given = printed["ethayarajh"]
    for model in CONTEXTUAL:
        runs = cells.where(part="contextual", model=model)
        if not len(runs):
            continue
        levels = runs.cells[0].result["random_cosine"].values  # [block state]
        layers: dict[int, Estimate] = {n: mean_of(levels[:, n], over="blocks") for n in range(1, levels.shape[1])}
        least = min(layers, key=lambda n: float(layers[n].value or 0))
        yield Claim(
            id=f"contextual-{model}-anisotropic",
            text=f"{model}, pretrained: all layers are anisotropic (mean cosine of random words above {ANISOTROPIC} in "
            "every layer after the embeddings)",
            estimate=layers[least],
            also=[one for n, one in layers.items() if n != least],
            bound=Bound.above(ANISOTROPIC),
            published=Published(min(given["random_cosine"]["BERT"][1:]), given["source"]),
            note=f"least: layer {least}; published: the least layer of BERT",
        )
        yield Claim(
            id=f"contextual-{model}-rises",
            text=f"{model}, pretrained: words are more similar in the last layer than in the embeddings (mean cosine "
            "of random words)",
            estimate=mean_of(levels[:, -1] - levels[:, 0], over="blocks"),
            bound=Bound.above(0.0),
            published=Published(
                given["random_cosine"]["BERT"][-1] - given["random_cosine"]["BERT"][0], given["source"]
            ),
            note=f"{levels[:, 0].mean():.3f} → {levels[:, -1].mean():.3f}; published: BERT",
        )


def nearest_tables(cells: Finished, printed: Mapping[str, Any]) -> Iterator[Table]:
    runs = cells.where(part="nearest")
    if len(runs):
        yield _directions(runs)
        yield _examples(runs)
    if len(cells.where(part="contextual")):
        yield _contextual(cells, printed["ethayarajh"])


def _directions(runs: Finished) -> Table:
    rows = []
    for corpus in (c for c in _CORPORA if runs.of(corpus=c)):
        some = runs.where(corpus=corpus)
        for when in ("before", "after"):
            row: dict[str, Any] = {"corpus": NAMES[corpus], "fine-tuning": when, "seeds": len(some)}
            row["accuracy"] = float(some.array("metrics.test.accuracy", "seed").mean()) if when == "after" else None
            for name, path in _NEAREST.items():
                row[name] = float(some.array(f"{when}.nearest.{path}", "seed").mean())
            rows.append(row)
    note = (
        "A class direction is the mean of the unit [CLS] vectors of a class on the test texts, the text itself left "
        "out; before training no class is predicted, so that both shares are the same. Effective rank: exp of the "
        "entropy of the normalised singular values."
    )
    return Table("nearest", "minilm: nearest class direction and effective rank", pd.DataFrame(rows), note)


_NEAREST = {
    "nearest is the class": "right",
    "nearest is the prediction": "as_predicted",
    "rank, class means": "rank.means",
    "rank, class means centred": "rank.means_centred",
    "rank, [CLS]": "rank.items",
    "rank, [CLS] centred": "rank.items_centred",
}


def _examples(runs: Finished) -> Table:
    rows = []
    for cell in (one for one in runs.cells if one.labels["seed"] == runs.cells[0].labels["seed"]):
        labels = cell.value("labels")
        for row in cell.value("after.examples"):
            rows.append(
                {
                    "corpus": NAMES[str(cell.labels["corpus"])],
                    "representative": f"{row['representative']} ({labels[row['class']]})",
                    "text": f"{row['text']} ({labels[row['of']]})",
                    "predicted": labels[row["predicted"]],
                    "cosine": row["cosine"],
                }
            )
    note = (
        "First seed. With the first test text of each class that is classified right: the middle one of its own class "
        "by cosine, and the closest text of another class. Texts are named by their number in the corpus. Slides: .96 "
        "with a review of the same class, .93 with a positive one in the negative cone (BERT, other reviews)."
    )
    return Table("examples", "Pairs of texts and their cosines, as on the slides", pd.DataFrame(rows), note)


def _contextual(cells: Finished, printed: Mapping[str, Any]) -> Table:
    rows: list[dict[str, Any]] = []
    for what, title in _CONTEXTUAL.items():
        for model in CONTEXTUAL:
            for cell in cells.of(part="contextual", model=model):
                levels = cell.result[what].mean("block").values.tolist()
                rows.append({"measure": title, "model": model, **_by_layer(levels)})
        for model, levels in printed[what].items():
            rows.append({"measure": title, "model": f"{model}, published", **_by_layer(levels)})
    note = (
        f"Layer 0: the embeddings. Ours: sentences of EWT in blocks, special tokens left out. Published: "
        f"{printed['source']}."
    )
    return Table("contextual", "How similar words are in pretrained encoders, by layer", pd.DataFrame(rows), note)


def _by_layer(levels: Sequence[float]) -> dict[str, float]:
    return {str(layer): level for layer, level in enumerate(levels)}


_CONTEXTUAL = {
    "random_cosine": "cosine of random words",
    "intra_similarity": "cosine of the words of a sentence with their mean",
    "self_similarity": "cosine of the occurrences of a word",
}
