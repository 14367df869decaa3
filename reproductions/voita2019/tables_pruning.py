"""Tables of the pruning part: every λ, beside the published numbers."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean
from typing import Any

import pandas as pd

from reproductions.frame.finished import Finished, MissingCell
from reproductions.frame.markdown import estimate as said
from reproductions.frame.page import Table, published
from reproductions.voita2019.claims_pruning import DONORS
from reproductions.voita2019.pruning import (
    CURVES,
    PATTERNS_OF,
    ROLES,
    TEST,
    Curve,
    classifiers,
    from_scratch,
    of_the_paper,
    patterns,
    roles,
    survival,
)

Row = dict[str, Any]


def makers(cells: Finished) -> Iterator[Callable[[], Table]]:
    yield from (partial(_curve, cells, name) for name in CURVES)
    yield partial(_published)
    yield partial(_models, cells)
    yield from (partial(_roles, cells, name) for name in PATTERNS_OF)
    yield partial(_transfer, cells)
    yield from (partial(_classes, cells, *names) for names in classifiers(cells))


def _curve(cells: Finished, name: str) -> Table:
    curve = Curve.of(cells, name)
    rows = [
        {
            "λ": point.label,
            "e/d/d-e": "/".join(str(point.heads(stack)) for stack in ("encoder", "decoder", "cross")),
            "validation": point.bleu("validation"),
            "test": point.bleu(),
            "change": "" if point.strength == 0 else said(point.minus(curve.whole)),
            "random heads": None if point.control is None else point.control.bleu(),
            **({} if of_the_paper(name) else {"mscoco": point.bleu("mscoco")}),
            "undecided": point.undecided,
        }
        for point in curve.points
    ]
    base = "λ = 0, trained as long without gates"
    if from_scratch(name):
        base = "λ = 0 of the table before (the best epoch of as long a training, and some more)"
    note = (
        "e/d/d-e: heads left in the encoder, the decoder's self-attention, and its attention to the encoder. *no "
        f"encoder heads*: the encoder is then a feed-forward network. Change: against {base}, with the 95 % interval "
        "of a paired bootstrap. Undecided: heads that the paper's rule and its code's rule treat differently (the "
        "code's is used)."
    )
    return Table(f"curve-{name}", f"{curve.title}: BLEU by heads left", pd.DataFrame(rows), note)


def _published() -> Table:
    printed = published("voita2019")["pruning"]
    rows = [
        {"data": data, "e/d/d-e": "/".join(map(str, heads)), "trained": trained, "scratch": scratch}
        for data in ("wmt", "opensubtitles")
        for heads, trained, scratch in zip(
            *(printed[data][name] for name in ("heads", "trained", "scratch")), strict=True
        )
    ]
    title = "Published: table 2 of the paper, English-Russian"
    return Table("published", title, pd.DataFrame(rows), printed["source"] + ".")


def _models(cells: Finished) -> Table:
    scores: list[tuple[str, Any, Any]] = []
    for cell in cells.of(kind="tuned"):
        found = cell.result["scores"]
        for when, title in (("before", "as published"), ("after", "fine-tuned")):
            scores.append((f"opus-mt en-fr, {title}", found[when][TEST], found[when]["mscoco"]["bleu"]))
        scores.append(("opus-mt en-fr, fine-tuned, beam 4", found["beam 4"][TEST], None))
    for cell in cells.of(kind="small"):
        model = "6 + 6 layers," if cells.settings.published else "marian-small"
        scores.append((f"{model} {cell.labels['languages']}", cell.result["scores"][TEST], None))
    for cell in cells.of(kind="russian"):
        for name, title in (("tatoeba", "Tatoeba, held out"), ("subtitles", "subtitles")):
            scores.append((f"marian-small en-ru, {title}", cell.result["scores"][name], None))
    if not scores:
        raise MissingCell("models")
    rows = [{"model": t, "sentences": s["texts"], "BLEU": s["bleu"], "mscoco": coco} for t, s, coco in scores]
    note = f"Greedy unless said. sacrebleu: {scores[0][1]['signature']}."
    if cells.of(kind="russian"):
        note += (
            " English-Russian is the paper's own pair, at the scale of the data here: trained on 47,000 short "
            "sentences of Tatoeba, tested on tokenised subtitles; the paper's 32.4 is of a model of 6 million pairs."
        )
    return Table("models", "The models before pruning", pd.DataFrame(rows), note)


def _roles(cells: Finished, name: str) -> Table:
    curve = Curve.of(cells, name)
    given, alive = roles(patterns(cells, name)).values, survival(curve.points).sel(stack="encoder").values
    shown = [(point, left) for point, left in zip(curve.points, alive, strict=True) if point.strength is not None]
    rows = []
    for role in ROLES:
        counts = {"whole model" if not point.strength else f"λ = {point.label}": int(left[given == role].sum())
                  for point, left in shown}  # fmt: skip
        rows.append({"role": role, **counts})
    note = (
        "Heads of the encoder by what they do in the model before pruning. Positional: the largest weight is on the "
        "same neighbour, or on the word itself, for 90 % of the words (the paper's criterion); mostly: for half."
    )
    return Table(f"roles-{name}", f"{curve.title}: which roles stay", pd.DataFrame(rows), note)


def _transfer(cells: Finished) -> Table:
    rows = [
        {
            "encoder": DONORS[str(cell.labels["donor"])],
            "which": cell.labels["mode"],
            "BLEU": cell.result["scores"][TEST]["bleu"],
            "best epoch": cell.result["best"]["epoch"],
        }
        for donor in DONORS
        for cell in cells.of(kind="transfer", donor=donor)
    ]
    if not rows:
        raise MissingCell("transfer")
    note = (
        "English-Czech, Multi30k, 2,071 test sentences of 2016 and 2018. The decoder has three layers and is new in "
        "all runs; *scratch* has a new encoder of the same shape and vocabulary."
    )
    return Table("transfer", "An encoder made for French, used for Czech", pd.DataFrame(rows), note)


def _classes(cells: Finished, model: str, corpus: str) -> Table:
    seeds = classifiers(cells)[model, corpus]
    rows = []
    for points in zip(*seeds, strict=True):
        row: Row = {"λ": f"{points[0]['lambda']:g}", "heads": mean(float(point["heads"]) for point in points)}
        for way in ("gates", "importance", "random", "importance_untrained", "random_untrained"):
            values = [point[way][TEST] for point in points if way in point]
            row[way.replace("_", ", ")] = mean(values) if values else None
        rows.append(row)
    note = (
        f"Test accuracy, mean of {len(seeds)} seeds; of {seeds[0][0]['heads']} heads. Untrained: right after the heads "
        "were removed."
    )
    title = f"{model}, {corpus}: accuracy by heads left"
    return Table(f"classes-{model}-{corpus}", title, pd.DataFrame(rows), note)
